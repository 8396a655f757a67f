package dashboard

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// chart is a drawing of a series, with the table of what it draws.
type chart struct {
	ID, Title string
	Note      string // beside the title
	Keys      []chartKey
	Grid      []gridLine
	Ages      []axisText
	Bars      []bar
	Lines     []line
	Dots      []dot
	Hits      []hit
	Head      []string
	Rows      [][]string // of the table, newest first; the first cell is a time
	Empty     bool       // there is nothing to draw

	Width, Height, Left, Right, Top, Base, Middle int
}

// chartKey says what a color and a shape mean.
type chartKey struct {
	Class, Word string
	Line        bool
}

// gridLine is one horizontal line with its number.
type gridLine struct {
	Y    float64
	Text string
}

// axisText is one age on the axis of time.
type axisText struct {
	X      float64
	Text   string
	Anchor string
}

// bar is one piece of a bar.
type bar struct {
	Class      string
	X, Y, W, H float64
}

// line is one line of a chart, as the path that draws it.
type line struct {
	Class, Path string
}

// dot is one point of a line.
type dot struct {
	Class string
	X, Y  float64
}

// hit is where the pointer asks for the numbers of a step.
type hit struct {
	X, W float64
	At   string // when the step began
	Tip  string
}

const (
	chartWidth, chartHeight = 360, 150
	chartLeft, chartRight   = 46, 6
	chartTop, chartBottom   = 10, 24
)

// canvas is an empty chart for a number of steps.
func canvas(id, title string, s *operate.Series) *chart {
	c := &chart{ID: id, Title: title, Width: chartWidth, Height: chartHeight, Left: chartLeft, Right: chartWidth - chartRight, Top: chartTop,
		Base: chartHeight - chartBottom, Middle: chartTop + chartSpan/2}
	reach := time.Duration(s.Step) * time.Duration(len(s.Steps))
	for age := reach - reach%ageEvery(reach); age >= 0; age -= ageEvery(reach) {
		text := axisText{X: chartLeft + float64(chartWidth-chartLeft-chartRight)*(1-float64(age)/float64(reach)), Anchor: "middle", Text: ageText(age)}
		switch age {
		case 0:
			text.Anchor, text.Text = "end", "now"
		case reach:
			text.Anchor = "start"
		}
		c.Ages = append(c.Ages, text)
	}
	return c
}

// ageEvery is the time between two texts on the axis.
func ageEvery(reach time.Duration) time.Duration {
	const day = 24 * time.Hour
	for _, every := range []time.Duration{15 * time.Minute, 6 * time.Hour, 2 * day} {
		if reach <= 4*every {
			return every
		}
	}
	return 10 * day
}

func ageText(age time.Duration) string {
	switch {
	case age > 24*time.Hour:
		return fmt.Sprintf("%d d", age/(24*time.Hour))
	case age > time.Hour:
		return fmt.Sprintf("%d h", age/time.Hour)
	default:
		return fmt.Sprintf("%d min", age/time.Minute)
	}
}

// x is where a step begins, and how wide it is.
func (c *chart) x(i, steps int) (from, width float64) {
	width = float64(chartWidth-chartLeft-chartRight) / float64(max(steps, 1))
	return chartLeft + width*float64(i), width
}

// chartSpan is the height of what is drawn.
const chartSpan = chartHeight - chartTop - chartBottom

// nice is the least of 1, 2, 5, 10, 20, … that is not below a number.
func nice(most float64) float64 {
	if most <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(most)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if factor*power >= most {
			return factor * power
		}
	}
	return 10 * power
}

// linear draws the grid of a scale from zero, and returns it.
func (c *chart) linear(most float64, text func(float64) string) func(float64) float64 {
	top := nice(most)
	y := func(value float64) float64 { return chartHeight - chartBottom - chartSpan*value/top }
	for _, part := range []float64{0.5, 1} {
		if words := text(top * part); words != "0" {
			c.Grid = append(c.Grid, gridLine{y(top * part), words})
		}
	}
	return y
}

// durations are what the grid of a scale of durations names.
func durations() []time.Duration {
	const ms, s = time.Millisecond, time.Second
	return []time.Duration{ms, 10 * ms, 100 * ms, s, 10 * s, time.Minute, 10 * time.Minute, time.Hour, 10 * time.Hour, 100 * time.Hour}
}

// logarithmic draws the grid of a scale of durations, and returns it.
func (c *chart) logarithmic(least, most time.Duration) func(time.Duration) float64 {
	all := durations()
	from, to := 0, 1
	for i, d := range all {
		if d <= least {
			from = i
		}
		if d < most {
			to = min(i+1, len(all)-1)
		}
	}
	from = min(from, len(all)-2)
	to = max(to, from+1)
	low, high := math.Log(all[from].Seconds()), math.Log(all[to].Seconds())
	y := func(d time.Duration) float64 {
		part := (math.Log(max(d, time.Microsecond).Seconds()) - low) / (high - low)
		return chartHeight - chartBottom - chartSpan*min(max(part, 0), 1)
	}
	for _, d := range all[from : to+1] {
		c.Grid = append(c.Grid, gridLine{y(d), brief(d)})
	}
	return y
}

// chartsOf draws the charts of a series.
func chartsOf(s *operate.Series) []*chart {
	return []*chart{outcomesChart(s), failedChart(s), flowChart(s),
		latencyChart("wait", "Wait, from due to started", s, func(step *operate.SeriesStep) operate.Percentiles { return step.Wait }),
		latencyChart("took", "Duration of attempts", s, func(step *operate.SeriesStep) operate.Percentiles { return step.Took }), busyChart(s)}
}

// outcomesChart is how attempts have ended, as bars.
func outcomesChart(s *operate.Series) *chart {
	c := canvas("outcomes", "Outcomes", s)
	c.Keys = []chartKey{{"c-succeeded", "succeeded", false}, {"c-failed", "retried", false}, {"c-dead", "dead", false}}
	if s.Total.Cancelled > 0 {
		c.Keys = append(c.Keys, chartKey{"c-cancelled", "cancelled", false})
	}
	c.Note = rough(endedOf(&s.Total)) + " ended"
	c.Head = []string{"Time", "Succeeded", "Retried", "Dead", "Cancelled"}
	var most int64
	for i := range s.Steps {
		most = max(most, endedOf(&s.Steps[i]))
	}
	c.Empty = most == 0
	y := c.linear(float64(most), func(n float64) string { return rough(int64(n)) })
	for i := range s.Steps {
		step := &s.Steps[i]
		x, w := c.x(i, len(s.Steps))
		base := 0.0
		for k, n := range []int64{step.Dead, step.Failed, step.Cancelled, step.Succeeded} {
			if n == 0 {
				continue
			}
			top := y(base + float64(n))
			c.Bars = append(c.Bars, bar{[]string{"c-dead", "c-failed", "c-cancelled", "c-succeeded"}[k], x + w*.12, top, w * .76, y(base) - top})
			base += float64(n)
		}
		numbers := []string{number(step.Succeeded), number(step.Failed), number(step.Dead), number(step.Cancelled)}
		c.add(s, i, numbers, fmt.Sprintf("%s succeeded\n%s retried\n%s dead", numbers[0], numbers[1], numbers[2]))
	}
	return c
}

// endedOf is how many attempts have ended.
func endedOf(step *operate.SeriesStep) int64 {
	return step.Succeeded + step.Failed + step.Dead + step.Cancelled
}

// failedChart is the share of the attempts that have failed, as a line.
func failedChart(s *operate.Series) *chart {
	c := canvas("failed", "Failed attempts", s)
	c.Keys = []chartKey{{"l-dead", "retried or dead", true}}
	c.Head = []string{"Time", "Failed", "Of"}
	shares, most := make([]*float64, len(s.Steps)), 0.0
	for i := range s.Steps {
		if ended := endedOf(&s.Steps[i]); ended > 0 {
			failed := float64(s.Steps[i].Failed+s.Steps[i].Dead) / float64(ended)
			shares[i], most, c.Empty = &failed, max(most, failed), false
		}
	}
	if total := endedOf(&s.Total); total > 0 {
		c.Note = percent(float64(s.Total.Failed+s.Total.Dead)/float64(total)) + " of all"
	} else {
		c.Empty = true
	}
	y := c.linear(min(nice(max(most, 0.01)), 1), percent)
	c.line("l-dead", shares, y)
	for i, failed := range shares {
		text := "–"
		if failed != nil {
			text = percent(*failed)
		}
		c.add(s, i, []string{text, number(endedOf(&s.Steps[i]))}, fmt.Sprintf("%s of %s failed", text, plural(endedOf(&s.Steps[i]), "attempt", "attempts")))
	}
	return c
}

// flowChart is how many runs were enqueued and how many have ended, as lines: while the
// first is above the second, more and more runs wait.
func flowChart(s *operate.Series) *chart {
	c := canvas("flow", "Runs enqueued and ended", s)
	runs := func(step *operate.SeriesStep) int64 { return step.Succeeded + step.Dead + step.Cancelled }
	c.Keys = []chartKey{{"l-p95", "enqueued " + rough(s.Total.Enqueued), true}, {"l-p50", "ended " + rough(runs(&s.Total)), true}}
	c.Head = []string{"Time", "Enqueued", "Ended"}
	enqueued, ended, most := make([]*float64, len(s.Steps)), make([]*float64, len(s.Steps)), 0.0
	for i := range s.Steps {
		step := &s.Steps[i]
		in, out := float64(step.Enqueued), float64(runs(step))
		if i+1 < len(s.Steps) { // the last one is under way: as a line it would fall
			enqueued[i], ended[i] = &in, &out
			most = max(most, in, out)
		}
		c.add(s, i, []string{number(step.Enqueued), number(runs(step))}, number(step.Enqueued)+" enqueued\n"+number(runs(step))+" ended")
	}
	c.Empty = most == 0
	y := c.linear(most, func(n float64) string { return rough(int64(n)) })
	c.line("l-p95", enqueued, y)
	c.line("l-p50", ended, y)
	return c
}

// busyChart is how many handlers have executed on average, as a line.
func busyChart(s *operate.Series) *chart {
	c := canvas("busy", "Executing, on average", s)
	c.Keys = []chartKey{{"l-p95", "handlers", true}}
	c.Head = []string{"Time", "Executing"}
	values, most := make([]*float64, len(s.Steps)), 0.0
	for i := range s.Steps {
		length := time.Duration(s.Step)
		if i+1 == len(s.Steps) { // it is under way
			length = min(length, max(s.At.Sub(s.Steps[i].At), length/6))
		}
		value := float64(s.Steps[i].Busy) / float64(length)
		if i+1 < len(s.Steps) {
			values[i], most = &value, max(most, value)
		}
		c.add(s, i, []string{per(value)}, per(value)+" executing")
	}
	c.Empty = most == 0
	c.line("l-p95", values, c.linear(most, per))
	return c
}

// latencyChart is how long something took, as a line for each percentile.
func latencyChart(id, title string, s *operate.Series, of func(*operate.SeriesStep) operate.Percentiles) *chart {
	c := canvas(id, title, s)
	c.Note = "≈ estimated"
	c.Keys = []chartKey{{"l-p50", "p50", true}, {"l-p95", "p95", true}, {"l-p99", "p99", true}}
	c.Head = []string{"Time", "p50", "p95", "p99"}
	least, most := time.Duration(math.MaxInt64), time.Duration(0)
	values := make([][]*float64, len(c.Keys))
	for i := range s.Steps {
		p := of(&s.Steps[i])
		texts := make([]string, len(c.Keys))
		for k, d := range []*store.Duration{p.P50, p.P95, p.P99} {
			texts[k] = "–"
			var value *float64
			if d != nil {
				least, most = min(least, time.Duration(*d)), max(most, time.Duration(*d))
				n := float64(*d)
				value, texts[k] = &n, "≈ "+brief(time.Duration(*d))
			}
			values[k] = append(values[k], value)
		}
		c.add(s, i, texts, fmt.Sprintf("p50 %s\np95 %s\np99 %s", texts[0], texts[1], texts[2]))
	}
	if c.Empty = most == 0; c.Empty {
		least = time.Millisecond
	}
	y := c.logarithmic(least, most)
	for k := range values {
		c.line(c.Keys[k].Class, values[k], func(n float64) float64 { return y(time.Duration(n)) })
	}
	return c
}

// fewDots is up to how many points of a line are drawn as dots, all of them.
const fewDots = 8

// line draws a line through values, with a gap where there is none. A value alone is a
// dot, and so is each of a few.
func (c *chart) line(class string, values []*float64, y func(float64) float64) {
	var path strings.Builder
	known := 0
	for _, value := range values {
		if value != nil {
			known++
		}
	}
	there := func(i int) bool { return i >= 0 && i < len(values) && values[i] != nil }
	for i, value := range values {
		if value == nil {
			continue
		}
		from, w := c.x(i, len(values))
		fmt.Fprintf(&path, "%s%.1f %.1f", pen(there(i-1)), from+w/2, y(*value))
		if known <= fewDots || !there(i-1) && !there(i+1) {
			c.Dots = append(c.Dots, dot{class, from + w/2, y(*value)})
		}
	}
	if known > 0 {
		c.Lines = append(c.Lines, line{class, path.String()})
	}
}

// pen goes to the next point of a path: drawing, or without.
func pen(drawing bool) string {
	if drawing {
		return "L"
	}
	return "M"
}

// add notes the numbers of a step.
func (c *chart) add(s *operate.Series, i int, numbers []string, tip string) {
	x, w := c.x(i, len(s.Steps))
	at := s.Steps[i].At.UTC()
	c.Hits = append(c.Hits, hit{x, w, at.Format(time.RFC3339), tip})
	if c.Rows == nil {
		c.Rows = make([][]string, len(s.Steps))
	}
	c.Rows[len(s.Steps)-1-i] = append([]string{at.Format(time.RFC3339)}, numbers...)
}

// Middling is the middle of the chart, and Tall how high what is drawn is.
func (c *chart) Middling() int { return (c.Left + c.Right) / 2 }

// Tall is the height of what is drawn.
func (c *chart) Tall() int { return c.Base - c.Top }
