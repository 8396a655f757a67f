package wire

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/store"
)

// Params reads the parameters of a query, and notes what is wrong with them. A
// parameter that is given must not be empty: a variable that a script forgot to set
// must not come to mean "all".
type Params struct {
	values url.Values
	now    time.Time
	faults FaultsError
}

// The bounds of what a query says.
const (
	maxValues = 200  // of one parameter
	maxText   = 1000 // bytes of a value
)

// NewParams reads a query as a URL has it. Instants that say how long ago they were
// count back from now.
func NewParams(query string, now time.Time) *Params {
	p := &Params{now: now}
	values, err := url.ParseQuery(query)
	if err != nil {
		p.faults.add(Fault{Detail: "the query cannot be read: want name=value&name=value, percent-encoded"})
	}
	p.values = values
	return p
}

// Only refuses parameters of other names.
func (p *Params) Only(names ...string) {
	var unknown []string
	for name := range p.values {
		if !slices.Contains(names, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		p.faults.add(Fault{Parameter: storable.Text(name, 100), Detail: "there is no such parameter here"})
	}
}

// Refuse notes a fault of a parameter.
func (p *Params) Refuse(name, format string, args ...any) {
	p.faults.add(Fault{Parameter: name, Detail: fmt.Sprintf(format, args...)})
}

// Err is everything that is wrong; nil: nothing is.
func (p *Params) Err() error { return p.faults.err() }

// Given reports whether a parameter is.
func (p *Params) Given(name string) bool { return p.values.Has(name) }

// Texts are the values of a parameter that may be repeated.
func (p *Params) Texts(name string) []string {
	values := p.values[name]
	if len(values) > maxValues {
		p.Refuse(name, "%d values: want at most %d", len(values), maxValues)
		return nil
	}
	for _, value := range values {
		if value == "" || len(value) > maxText || !storable.IsText(value) {
			p.Refuse(name, "want 1 to %d bytes of text, or leave it out", maxText)
			return nil
		}
	}
	return values
}

// Text is the value of a parameter that may be given once; empty: it is not.
func (p *Params) Text(name string) string {
	values := p.Texts(name)
	switch len(values) {
	case 0:
		return ""
	case 1:
		return values[0]
	default:
		p.Refuse(name, "want it once")
		return ""
	}
}

// Number is a number in bounds; the standard, where it is not given.
func (p *Params) Number(name string, least, most, standard int64) int64 {
	text := p.Text(name)
	if text == "" {
		return standard
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || text[0] == '+' || n < least || n > most {
		p.Refuse(name, "want a number from %d to %d", least, most)
		return standard
	}
	return n
}

// Switch is true or false; false, where it is not given.
func (p *Params) Switch(name string) bool {
	switch text := p.Text(name); text {
	case "true":
		return true
	case "", "false":
		return false
	default:
		p.Refuse(name, "want true or false")
		return false
	}
}

// Duration is a duration in bounds; the standard, where it is not given.
func (p *Params) Duration(name string, least, most, standard time.Duration) time.Duration {
	text := p.Text(name)
	if text == "" {
		return standard
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		p.Refuse(name, "want a duration from %v to %v, such as 30s", least, most)
		return standard
	}
	return d
}

// Instant is a time, or how long ago it was; the zero time, where it is not given.
func (p *Params) Instant(name string) time.Time {
	text := p.Text(name)
	if text == "" {
		return time.Time{}
	}
	at, err := Instant(text, p.now)
	if err != nil {
		p.Refuse(name, "%v", err)
	}
	return at
}

// ID is the id of a run; the zero id, where it is not given.
func (p *Params) ID(name string) store.RunID {
	text := p.Text(name)
	if text == "" {
		return store.RunID{}
	}
	id, err := store.ParseRunID(text)
	if err != nil {
		p.Refuse(name, "%.150v", err)
	}
	return id
}
