package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// result is everything a run of the benchmark found.
type result struct {
	Began    time.Time         `json:"began"`
	Machine  map[string]string `json:"machine"`
	Versions map[string]string `json:"versions"`
	Rows     []*rowResult      `json:"rows"`
	Faults   []string          `json:"faults,omitempty"`
}

type rowResult struct {
	Name  string        `json:"name"`
	Title string        `json:"title"`
	Sides []*sideResult `json:"sides"`

	figures []figure
}

type sideResult struct {
	Name    string   `json:"name"`
	Samples []sample `json:"samples"`
}

// spread is the median, the least and the most of a figure.
type spread struct {
	median, least, most float64
	n                   int
}

func (s *sideResult) spread(key string) spread {
	var values []float64
	for _, sample := range s.Samples {
		if value, ok := sample[key]; ok {
			values = append(values, value)
		}
	}
	return spreadOf(values)
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	slices.Sort(values)
	middle := values[len(values)/2]
	if len(values)%2 == 0 {
		middle = (middle + values[len(values)/2-1]) / 2
	}
	return spread{median: middle, least: values[0], most: values[len(values)-1], n: len(values)}
}

// ratios compares two sides repetition by repetition: how many times better
// the first is.
func ratios(f figure, first, second *sideResult) spread {
	var values []float64
	for i := range min(len(first.Samples), len(second.Samples)) {
		a, b := first.Samples[i][f.key], second.Samples[i][f.key]
		if a <= 0 || b <= 0 {
			continue
		}
		if f.less {
			a, b = b, a
		}
		values = append(values, a/b)
	}
	return spreadOf(values)
}

// table prints the result as Markdown.
func (r *result) table(out io.Writer) {
	for _, row := range r.Rows {
		fmt.Fprintf(out, "\n**%s**: %s\n\n| |", row.Name, row.Title)
		for _, s := range row.Sides {
			fmt.Fprintf(out, " %s |", s.Name)
		}
		fmt.Fprintf(out, " ratio | goal | |\n|---|%s---|---|---|\n", strings.Repeat("---|", len(row.Sides)))
		for _, f := range row.figures {
			row.line(out, f)
		}
	}
	for _, fault := range r.Faults {
		fmt.Fprintf(out, "\nNot measured: %s\n", fault)
	}
}

func (r *rowResult) line(out io.Writer, f figure) {
	if len(r.Sides) == 0 || r.Sides[0].spread(f.key).n == 0 {
		return
	}
	fmt.Fprintf(out, "| %s, %s |", f.title, f.unit)
	for _, s := range r.Sides {
		fmt.Fprintf(out, " %s |", s.spread(f.key))
	}
	ours, compared := r.Sides[0].spread(f.key), spread{}
	if len(r.Sides) > 1 && !f.plain {
		compared = ratios(f, r.Sides[0], r.Sides[1])
	}
	times, goal, verdict := "", "", ""
	if compared.n > 0 {
		times = compared.String() + "×"
	}
	reached := true
	if f.ratio > 0 {
		goal = fmt.Sprintf("≥ %s×", digits(f.ratio))
		reached = compared.n > 0 && compared.median >= f.ratio
	}
	if f.bound > 0 {
		sign, met := "≥", ours.median >= f.bound
		if f.less {
			sign, met = "≤", ours.median <= f.bound
		}
		goal = strings.TrimSpace(goal + " " + sign + " " + digits(f.bound))
		reached = reached && met
	}
	if goal != "" {
		verdict = map[bool]string{true: "✓", false: "✗"}[reached]
	}
	fmt.Fprintf(out, " %s | %s | %s |\n", times, goal, verdict)
}

// String is "median [least-most]".
func (s spread) String() string {
	switch s.n {
	case 0:
		return "–"
	case 1:
		return digits(s.median)
	default:
		return fmt.Sprintf("%s [%s-%s]", digits(s.median), digits(s.least), digits(s.most))
	}
}

// digits writes a number with about three significant digits.
func digits(x float64) string {
	switch size := math.Abs(x); {
	case size >= 100:
		text := strconv.FormatInt(int64(math.Round(x)), 10)
		for i := len(text) - 3; i > 0; i -= 3 {
			text = text[:i] + " " + text[i:]
		}
		return text
	case size >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case size >= 1 || size == 0:
		return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(x, 'f', 2, 64), "0"), ".")
	default:
		return strconv.FormatFloat(x, 'g', 2, 64)
	}
}

// write keeps the result as JSON.
func (r *result) write(path string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
