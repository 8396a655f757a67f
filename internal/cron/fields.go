package cron

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// field is what one field of an expression may hold.
type field struct {
	name      string
	low, high int
	names     string // of the values from named on, three letters each
	named     int
	question  bool // ? means the same as *
	special   func(f *field, item string) bool
	wants     string
}

func fieldsOf(n int) []field {
	six := []field{
		{name: "second", high: 59},
		{name: "minute", high: 59},
		{name: "hour", high: 23},
		{name: "day", low: 1, high: 31, question: true, special: (*field).monthEnd,
			wants: ", L (the last day), L-2, LW (the last weekday) or 15W (the nearest weekday)"},
		{name: "month", low: 1, high: 12, names: "janfebmaraprmayjunjulaugsepoctnovdec", named: 1, wants: " and names such as jan"},
		{name: "weekday", high: 7, names: "sunmontuewedthufrisat", question: true, special: (*field).nth,
			wants: ", names such as mon, fri#2 (the second Friday) or friL (the last)"},
	}
	return six[6-n:]
}

// normalize checks the fields of an expression in lower case, strictly: what
// the library would read in an unintended way is refused here. It returns them
// as the library spells them.
func normalize(expression string) (string, error) {
	texts := strings.Fields(expression)
	if n := len(texts); n != 5 && n != 6 {
		return "", fmt.Errorf("it has %d fields", n)
	}
	for i, f := range fieldsOf(len(texts)) {
		if err := f.check(texts[i]); err != nil {
			return "", err
		}
	}
	for i, f := range fieldsOf(len(texts)) {
		items := strings.Split(texts[i], ",")
		for j := range items {
			items[j] = f.oneStep(items[j])
		}
		texts[i] = strings.Join(items, ",")
	}
	days := &texts[len(texts)-1]
	items := strings.Split(*days, ",")
	for i, item := range items {
		if day, last := strings.CutSuffix(item, "l"); last && !strings.HasSuffix(day, "#") {
			items[i] = day + "#l"
		}
	}
	*days = strings.Join(items, ",")
	return strings.Join(texts, " "), nil
}

func (f *field) check(text string) error {
	for item := range strings.SplitSeq(text, ",") {
		err := f.item(item)
		if err == nil {
			err = f.checkStep(item)
		}
		switch {
		case err == nil:
		case errors.Is(err, errItem):
			return fmt.Errorf("%s %q: want %d to %d, *, ranges such as 1-5, steps such as */2 and lists of these%s",
				f.name, item, f.low, f.high, f.wants)
		default:
			return fmt.Errorf("%s %q: %w", f.name, item, err)
		}
	}
	return nil
}

// errItem says that an item is none that the field may hold.
var errItem = errors.New("not an item")

func (f *field) item(item string) error {
	if f.special != nil && f.special(f, item) {
		return nil
	}
	body, step, stepped := strings.Cut(item, "/")
	if stepped {
		if _, ok := number(step); !ok {
			return errItem
		}
	}
	if body == "*" || body == "?" && f.question {
		return nil
	}
	first, last, isRange := strings.Cut(body, "-")
	from, ok := f.value(first)
	if !ok {
		return errItem
	}
	if !isRange {
		return nil
	}
	until, ok := f.value(last)
	if !ok {
		return errItem
	}
	if stepped && from > until && f.name == "weekday" { // Sunday is two numbers
		return errors.New("a step over days that go past the end of the week: want a list such as fri,sun")
	}
	return nil
}

// oneStep writes a step as large as its range, such as */24 as an hour, as what it
// leaves: the first value. Generators write it, and the library takes a step that
// is smaller.
func (f *field) oneStep(item string) string {
	body, text, stepped := strings.Cut(item, "/")
	step, ok := number(text)
	if !stepped || !ok {
		return item
	}
	first, size, ok := f.span(body)
	if !ok || step != size {
		return item
	}
	return first
}

// span is the first value of what a step is over, and how many values there are.
func (f *field) span(body string) (first string, size int, ok bool) {
	first, last, isRange := strings.Cut(body, "-")
	from, until, ok := f.low, f.high, true
	if body == "*" || body == "?" {
		first = strconv.Itoa(f.low)
	} else if from, ok = f.value(first); ok && isRange {
		until, ok = f.value(last)
	}
	size = until - from + 1
	if size <= 0 {
		size += f.high - f.low + 1
	}
	return first, size, ok
}

// checkStep refuses a step that the library would refuse, and says what it may be.
func (f *field) checkStep(item string) error {
	body, text, stepped := strings.Cut(item, "/")
	step, isNumber := number(text)
	_, size, ok := f.span(body)
	if stepped && isNumber && ok && (step < 1 || step > size) {
		return fmt.Errorf("step (%d) over %d values: want 1 to %d", step, size, size)
	}
	return nil
}

// value reads a number within the bounds, or a name.
func (f *field) value(text string) (int, bool) {
	if n, ok := number(text); ok {
		return n, f.low <= n && n <= f.high
	}
	for i := 0; len(text) == 3 && i < len(f.names); i += 3 {
		if f.names[i:i+3] == text {
			return f.named + i/3, true
		}
	}
	return 0, false
}

// monthEnd reports whether an item is one of the last days of a month, or the
// weekday nearest to a day.
func (f *field) monthEnd(item string) bool {
	if item == "l" || item == "lw" {
		return true
	}
	if before, ok := strings.CutPrefix(item, "l-"); ok {
		n, ok := number(before)
		return ok && 1 <= n && n < f.high
	}
	if day, ok := strings.CutSuffix(item, "w"); ok {
		n, ok := number(day)
		return ok && f.low <= n && n <= f.high
	}
	return false
}

// nth reports whether an item is one weekday of each month, such as fri#2, fril or
// fri#l.
func (f *field) nth(item string) bool {
	day, which, ok := strings.Cut(item, "#")
	if !ok {
		if day, ok = strings.CutSuffix(item, "l"); !ok {
			return false
		}
		which = "l"
	}
	_, known := f.value(day)
	return known && (which == "l" || len(which) == 1 && '1' <= which[0] && which[0] <= '5')
}

// number reads one to three ASCII digits.
func number(text string) (n int, ok bool) {
	if len(text) == 0 || len(text) > 3 {
		return 0, false
	}
	for _, digit := range []byte(text) {
		if digit < '0' || digit > '9' {
			return 0, false
		}
		n = 10*n + int(digit-'0')
	}
	return n, true
}
