package dashboard

import (
	"html/template"
	"strconv"
)

// What a chart has by the hundred is written here: a template takes a microsecond or more
// for each value, and six charts have ten thousand of them.

// drawing is a part of a page that is written without a template.
type drawing []byte

// attribute writes an attribute, with the space before it.
func (d drawing) attribute(name, value string) drawing {
	d = append(append(append(d, ' '), name...), '=', '"')
	return append(d.text(value), '"')
}

// place writes an attribute that is a number of the chart.
func (d drawing) place(name string, value float64) drawing {
	d = append(append(append(d, ' '), name...), '=', '"')
	return append(strconv.AppendFloat(d, value, 'f', 1, 64), '"')
}

// text writes a text.
func (d drawing) text(value string) drawing {
	return append(d, template.HTMLEscapeString(value)...)
}

// html is what was written, for a template.
func (d drawing) html() template.HTML {
	return template.HTML(d) //nolint:gosec // every value that was written is escaped
}

// DrawnBars are the bars.
func (c *chart) DrawnBars() template.HTML {
	var d drawing
	for i := range c.Bars {
		b := &c.Bars[i]
		d = append(d, "<rect"...).attribute("class", b.Class)
		d = append(d.place("x", b.X).place("y", b.Y).place("width", b.W).place("height", b.H), "/>"...)
	}
	return d.html()
}

// DrawnHits are where the pointer asks for numbers.
func (c *chart) DrawnHits() template.HTML {
	var d drawing
	top, tall := strconv.Itoa(c.Top), strconv.Itoa(c.Tall())
	for i := range c.Hits {
		h := &c.Hits[i]
		d = append(d, `<rect class="hit"`...).place("x", h.X).attribute("y", top).place("width", h.W)
		d = append(d.attribute("height", tall).attribute("data-at", h.At).attribute("data-tip", h.Tip), "/>"...)
	}
	return d.html()
}

// DrawnRows are the rows of the table.
func (c *chart) DrawnRows() template.HTML {
	var d drawing
	for _, row := range c.Rows {
		d = append(d, "<tr>"...)
		for i, cell := range row {
			if i == 0 {
				d = append(append(d, "<td"...).attribute("data-label", c.Head[i]), "><time"...)
				d = append(d.attribute("datetime", cell).attribute("title", cell), ` data-form="minute">`...).text(cell)
				d = append(d, "</time></td>"...)
				continue
			}
			d = append(append(d, `<td class="n"`...).attribute("data-label", c.Head[i]), '>').text(cell)
			d = append(d, "</td>"...)
		}
		d = append(d, "</tr>"...)
	}
	return d.html()
}
