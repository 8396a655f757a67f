package metrics

import (
	"strconv"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/observe"
)

// Format is a text format.
type Format int8

// The formats.
const (
	Prometheus  Format = iota // 0.0.4, which every scraper reads
	OpenMetrics               // 1.0.0
)

// ContentType is the media type of the format.
func (f Format) ContentType() string {
	if f == OpenMetrics {
		return "application/openmetrics-text; version=1.0.0; charset=utf-8"
	}
	return "text/plain; version=0.0.4; charset=utf-8"
}

// kind is the type of a metric.
type kind string

const (
	counter   kind = "counter"
	gauge     kind = "gauge"
	histogram kind = "histogram"
)

// text writes metrics. Every family is written in one piece.
type text struct {
	format Format
	b      []byte
	name   string // of the family that is being written
}

// add appends the parts of a line, or of several.
func (t *text) add(parts ...string) {
	for _, part := range parts {
		t.b = append(t.b, part...)
	}
}

// family begins a family of metrics. The name of a counter ends in _total.
func (t *text) family(kind kind, name, help string) {
	t.name = name
	if t.format == OpenMetrics {
		name = strings.TrimSuffix(name, "_total")
	}
	t.add("# HELP ", name, " ", help, "\n# TYPE ", name, " ", string(kind), "\n")
}

// label is a name and a value.
type label struct{ name, value string }

// escaper replaces what may not be in the value of a label.
var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`) //nolint:gochecknoglobals // a constant

// begin writes a line up to its value. The label le is that of a class of a histogram.
func (t *text) begin(suffix string, labels []label, le string) {
	t.add(t.name, suffix)
	before := byte('{')
	for _, l := range labels {
		t.b = append(t.b, before)
		t.add(l.name, `="`, escaper.Replace(l.value), `"`)
		before = ','
	}
	if le != "" {
		t.b = append(t.b, before)
		t.add(`le="`, le, `"`)
		before = ','
	}
	if before == ',' {
		t.b = append(t.b, '}')
	}
	t.b = append(t.b, ' ')
}

func (t *text) number(n int64, labels ...label) { t.integer("", labels, "", n) }

func (t *text) integer(suffix string, labels []label, le string, n int64) {
	t.begin(suffix, labels, le)
	t.b = append(strconv.AppendInt(t.b, n, 10), '\n')
}

func (t *text) float(f float64, labels ...label) { t.real("", labels, f) }

func (t *text) seconds(d time.Duration, labels ...label) { t.real("", labels, d.Seconds()) }

func (t *text) real(suffix string, labels []label, f float64) {
	t.begin(suffix, labels, "")
	t.add(float(f), "\n")
}

// classes writes a histogram of values that are divided by a unit.
func (t *text) classes(c observe.Classes, unit float64, labels ...label) {
	if len(c.Counts) == 0 {
		return // nothing counts yet
	}
	var n int64
	for i, bound := range c.Bounds {
		n += c.Counts[i]
		t.integer("_bucket", labels, float(float64(bound)/unit), n)
	}
	n += c.Counts[len(c.Bounds)]
	t.integer("_bucket", labels, "+Inf", n)
	t.real("_sum", labels, float64(c.Sum)/unit)
	t.integer("_count", labels, "", n)
}

// float writes a number as both formats read it: OpenMetrics wants a point in the bound
// of a class.
func float(f float64) string {
	text := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return text
}

func (t *text) end() []byte {
	if t.format == OpenMetrics {
		t.add("# EOF\n")
	}
	return t.b
}
