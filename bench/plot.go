package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// plot is a drawing of lines over a common horizontal axis, written as SVG.
type plot struct {
	name, title   string
	across, along string // what the axes tell: horizontal, vertical
	logarithmic   bool   // the horizontal axis
	lines         []line
}

// line is one line of a plot.
type line struct {
	name string
	x, y []float64
}

const (
	plotWidth, plotHeight     = 760.0, 360.0
	plotLeft, plotRight       = 70.0, 20.0
	plotTop, plotBottom       = 40.0, 70.0
	plotInsideW, plotInsideH  = plotWidth - plotLeft - plotRight, plotHeight - plotTop - plotBottom
	plotHorizontal, plotSteps = 6, 5
)

// write stores the drawing in a directory.
func (p plot) write(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // for everybody to read
		return err
	}
	return os.WriteFile(filepath.Join(dir, p.name+".svg"), []byte(p.svg()), 0o644) //nolint:gosec // likewise
}

// bounds are the least and the largest on both axes; the vertical one begins at
// zero.
func (p plot) bounds() (left, right, top float64) {
	left, right = math.Inf(1), math.Inf(-1)
	for _, l := range p.lines {
		for i := range l.x {
			left, right, top = min(left, l.x[i]), max(right, l.x[i]), max(top, l.y[i])
		}
	}
	if right <= left {
		right = left + 1
	}
	return left, right, max(top*1.05, 1e-9)
}

func (p plot) svg() string {
	left, right, top := p.bounds()
	place := func(x float64) float64 { return plotLeft + plotInsideW*(x-left)/(right-left) }
	if p.logarithmic {
		place = func(x float64) float64 {
			return plotLeft + plotInsideW*(math.Log(max(x, 1))-math.Log(max(left, 1)))/(math.Log(right)-math.Log(max(left, 1)))
		}
	}
	height := func(y float64) float64 { return plotTop + plotInsideH*(1-y/top) }
	colours := []string{"#1b6ca8", "#c8553d", "#4f772d", "#7b4b94", "#8a6d1f"}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="%g" y="20" font-size="14">%s</text>`+"\n", plotLeft, html.EscapeString(p.title))
	for i := range plotSteps + 1 {
		y := top * float64(i) / plotSteps
		fmt.Fprintf(&b, `<line x1="%g" x2="%g" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%g" y="%.1f" text-anchor="end">%s</text>`+"\n",
			plotLeft, plotWidth-plotRight, height(y), height(y), plotLeft-6, height(y)+4, short(y))
	}
	for _, x := range p.marks(left, right) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%g" text-anchor="middle">%s</text>`+"\n", place(x), plotTop+plotInsideH+16, short(x))
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="middle">%s</text><text x="14" y="%g" transform="rotate(-90 14 %g)" text-anchor="middle">%s</text>`+"\n",
		plotLeft+plotInsideW/2, plotTop+plotInsideH+36, html.EscapeString(p.across), plotTop+plotInsideH/2, plotTop+plotInsideH/2, html.EscapeString(p.along))
	for i, l := range p.lines {
		var points []string
		for j := range l.x {
			points = append(points, fmt.Sprintf("%.1f,%.1f", place(l.x[j]), height(l.y[j])))
		}
		colour := colours[i%len(colours)]
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="1.6" points="%s"/>`+"\n", colour, strings.Join(points, " "))
		fmt.Fprintf(&b, `<text x="%g" y="%g" fill="%s">%s</text>`+"\n", plotLeft+float64(i)*plotInsideW/float64(len(p.lines)), plotHeight-10, colour, html.EscapeString("— "+l.name))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// marks are where the horizontal axis has its numbers.
func (p plot) marks(left, right float64) (at []float64) {
	if p.logarithmic {
		seen := map[float64]bool{}
		for _, l := range p.lines {
			for _, x := range l.x {
				if !seen[x] {
					seen[x] = true
					at = append(at, x)
				}
			}
		}
		return at
	}
	for i := range plotHorizontal + 1 {
		at = append(at, left+(right-left)*float64(i)/plotHorizontal)
	}
	return at
}

// short writes a number with few digits.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.3gM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.3gk", v/1e3)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}
