package metrics

import (
	"bytes"
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
	b      bytes.Buffer
	name   string // of the family that is being written
}

// family begins a family of metrics. The name of a counter ends in _total.
func (t *text) family(kind kind, name, help string) {
	t.name = name
	if t.format == OpenMetrics {
		name = strings.TrimSuffix(name, "_total")
	}
	t.b.WriteString("# HELP " + name + " " + help + "\n# TYPE " + name + " " + string(kind) + "\n")
}

// label is a name and a value.
type label struct{ name, value string }

// escape writes what may not be in the value of a label.
func escape(value string) string {
	value = strings.ReplaceAll(value, `\`, `\\`)
	return strings.ReplaceAll(strings.ReplaceAll(value, `"`, `\"`), "\n", `\n`)
}

func (t *text) sample(suffix, value string, labels ...label) {
	t.b.WriteString(t.name + suffix)
	for i, l := range labels {
		t.b.WriteByte("{,"[min(i, 1)])
		t.b.WriteString(l.name + `="` + escape(l.value) + `"`)
	}
	if len(labels) > 0 {
		t.b.WriteByte('}')
	}
	t.b.WriteString(" " + value + "\n")
}

func (t *text) number(n int64, labels ...label) { t.sample("", strconv.FormatInt(n, 10), labels...) }

func (t *text) seconds(d time.Duration, labels ...label) { t.sample("", float(d.Seconds()), labels...) }

// classes writes a histogram of values that are divided by a unit.
func (t *text) classes(c observe.Classes, unit float64, labels ...label) {
	if len(c.Counts) == 0 {
		return // nothing counts yet
	}
	labels = labels[:len(labels):len(labels)]
	var n int64
	for i, bound := range c.Bounds {
		n += c.Counts[i]
		t.sample("_bucket", strconv.FormatInt(n, 10), append(labels, label{"le", float(float64(bound) / unit)})...)
	}
	n += c.Counts[len(c.Bounds)]
	t.sample("_bucket", strconv.FormatInt(n, 10), append(labels, label{"le", "+Inf"})...)
	t.sample("_sum", float(float64(c.Sum)/unit), labels...)
	t.sample("_count", strconv.FormatInt(n, 10), labels...)
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
		t.b.WriteString("# EOF\n")
	}
	return t.b.Bytes()
}
