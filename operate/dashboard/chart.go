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
	Hits      []hit
	Head      []string
	Rows      [][]string // of the table, newest first; the first cell is a time
	Empty     bool       // there is nothing to draw

	Width, Height, Left, Right, Base int
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

// hit is where the pointer asks for the numbers of a step.
type hit struct {
	X, W float64
	Tip  string
}

const (
	chartWidth, chartHeight = 560, 172
	chartLeft, chartRight   = 46, 8
	chartTop, chartBottom   = 10, 24
)

// canvas is an empty chart for a number of steps.
func canvas(id, title string, s *operate.Series) *chart {
	c := &chart{ID: id, Title: title, Width: chartWidth, Height: chartHeight, Left: chartLeft, Right: chartWidth - chartRight, Base: chartHeight - chartBottom}
	const texts = 4
	reach := time.Duration(s.Step) * time.Duration(len(s.Steps))
	for i := range texts + 1 {
		text := axisText{X: chartLeft + float64(chartWidth-chartLeft-chartRight)*float64(i)/texts, Anchor: "middle", Text: brief(reach * time.Duration(texts-i) / texts)}
		switch i {
		case 0:
			text.Anchor, text.Text = "start", text.Text+" ago"
		case texts:
			text.Anchor, text.Text = "end", "now"
		}
		c.Ages = append(c.Ages, text)
	}
	return c
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
		c.Grid = append(c.Grid, gridLine{y(top * part), text(top * part)})
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
	return []*chart{outcomesChart(s), busyChart(s), latencyChart("wait", "Wait, from due to begun", s, func(step *operate.SeriesStep) operate.Percentiles { return step.Wait }),
		latencyChart("took", "Duration of handlers", s, func(step *operate.SeriesStep) operate.Percentiles { return step.Took })}
}

// outcomesChart is how attempts have ended, as bars.
func outcomesChart(s *operate.Series) *chart {
	c := canvas("outcomes", "Outcomes", s)
	c.Note = fmt.Sprintf("%s succeeded, %s retried, %s dead", number(s.Total.Succeeded), number(s.Total.Failed), number(s.Total.Dead))
	c.Keys = []chartKey{{"c-succeeded", "succeeded", false}, {"c-failed", "failed, retried", false}, {"c-dead", "dead", false}, {"c-cancelled", "cancelled", false}}
	c.Head = []string{"Time", "Succeeded", "Failed", "Dead", "Cancelled"}
	var most int64
	for i := range s.Steps {
		step := &s.Steps[i]
		most = max(most, step.Succeeded+step.Failed+step.Dead+step.Cancelled)
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
		c.add(s, i, numbers, fmt.Sprintf("%s succeeded\n%s failed, retried\n%s dead", numbers[0], numbers[1], numbers[2]))
	}
	return c
}

// busyChart is how many handlers have executed on average, as a line.
func busyChart(s *operate.Series) *chart {
	c := canvas("busy", "Executing, on average", s)
	c.Keys = []chartKey{{"l-p95", "handlers", true}}
	c.Head = []string{"Time", "Executing"}
	values, most := make([]float64, len(s.Steps)), 0.0
	for i := range s.Steps {
		length := time.Duration(s.Step)
		if i+1 == len(s.Steps) { // it is under way
			length = min(length, max(s.At.Sub(s.Steps[i].At), length/6))
		}
		values[i] = float64(s.Steps[i].Busy) / float64(length)
		most = max(most, values[i])
	}
	c.Empty = most == 0
	y := c.linear(most, per)
	var path strings.Builder
	for i, value := range values {
		x, w := c.x(i, len(values))
		fmt.Fprintf(&path, "%s%.1f %.1f", pen(i > 0), x+w/2, y(value))
		c.add(s, i, []string{per(value)}, per(value)+" executing")
	}
	c.Lines = []line{{"l-p95", path.String()}}
	return c
}

// latencyChart is how long something took, as a line for each percentile.
func latencyChart(id, title string, s *operate.Series, of func(*operate.SeriesStep) operate.Percentiles) *chart {
	c := canvas(id, title, s)
	c.Note = "about"
	c.Keys = []chartKey{{"l-p50", "half", true}, {"l-p95", "95 %", true}, {"l-p99", "99 %", true}}
	c.Head = []string{"Time", "50 %", "95 %", "99 %"}
	least, most := time.Duration(math.MaxInt64), time.Duration(0)
	pick := func(p operate.Percentiles) []*store.Duration { return []*store.Duration{p.P50, p.P95, p.P99} }
	for i := range s.Steps {
		for _, d := range pick(of(&s.Steps[i])) {
			if d != nil {
				least, most = min(least, time.Duration(*d)), max(most, time.Duration(*d))
			}
		}
	}
	if c.Empty = most == 0; c.Empty {
		least = time.Millisecond
	}
	y := c.logarithmic(least, most)
	paths, drawing := make([]strings.Builder, len(c.Keys)), make([]bool, len(c.Keys))
	for i := range s.Steps {
		x, w := c.x(i, len(s.Steps))
		texts := make([]string, len(c.Keys))
		for k, d := range pick(of(&s.Steps[i])) {
			if texts[k] = "–"; d == nil {
				drawing[k] = false
				continue
			}
			fmt.Fprintf(&paths[k], "%s%.1f %.1fh.01", pen(drawing[k]), x+w/2, y(time.Duration(*d))) // a point alone is a dot
			texts[k], drawing[k] = "≈ "+brief(time.Duration(*d)), true
		}
		c.add(s, i, texts, fmt.Sprintf("half within %s\n95 %% within %s\n99 %% within %s", texts[0], texts[1], texts[2]))
	}
	for k := range paths {
		c.Lines = append(c.Lines, line{c.Keys[k].Class, paths[k].String()})
	}
	return c
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
	c.Hits = append(c.Hits, hit{x, w, at.Format("2006-01-02 15:04 UTC") + "\n" + tip})
	c.Rows = append([][]string{append([]string{at.Format(time.RFC3339)}, numbers...)}, c.Rows...)
}
