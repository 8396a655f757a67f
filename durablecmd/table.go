package durablecmd

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// table aligns rows of text. Cells may hold anything: what could move a
// terminal's cursor is shown escaped. On a terminal, a table with a headline is made
// to fit: columns are left out and long cells are cut.
type table struct {
	w     io.Writer
	rows  [][]string
	width int      // of the terminal; zero: any
	drop  []string // headlines of the columns that may be left out, the first one first
}

// newTable begins a table; drop are the headlines of columns that a narrow terminal
// can do without, the least important first.
func (p *program) newTable(drop ...string) *table {
	t := &table{w: p.stdout, drop: drop}
	if size, terminal := p.terminal(p.stdout); terminal && !p.wide {
		t.width = size.width
	}
	return t
}

func (t *table) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = printable(cell)
	}
	t.rows = append(t.rows, cells)
}

func (t *table) flush() error {
	rows := t.rows
	t.rows = nil
	if t.width > 0 && len(rows) > 0 && isHeadline(rows[0]) {
		rows = fitted(rows, t.width, t.drop)
	}
	w := tabwriter.NewWriter(t.w, 0, 0, columnGap, ' ', 0)
	for _, cells := range rows {
		fmt.Fprintln(w, strings.Join(cells, "\t")) // its error comes with Flush
	}
	return w.Flush()
}

const (
	columnGap    = 2
	narrowColumn = 12 // no column is cut to less
)

// isHeadline reports whether a row is one of words in capitals.
func isHeadline(cells []string) bool {
	return len(cells) > 2 && cells[0] != "" && !slices.ContainsFunc(cells, func(cell string) bool { return cell != strings.ToUpper(cell) })
}

// fitted leaves out columns, and then cuts the widest, until the rows fit. The first
// column, by which a thing is named, stays as it is.
func fitted(rows [][]string, width int, drop []string) [][]string {
	for _, name := range drop {
		if _, over := widths(rows, width); over <= 0 {
			return rows
		}
		if at := slices.Index(rows[0], name); at > 0 {
			rows = without(rows, at)
		}
	}
	for {
		columns, over := widths(rows, width)
		if over <= 0 {
			return rows
		}
		widest := 0
		for i := 1; i < len(columns); i++ {
			if widest == 0 || columns[i] > columns[widest] {
				widest = i
			}
		}
		if widest == 0 || columns[widest] <= narrowColumn {
			return rows // it does not fit
		}
		most := max(columns[widest]-over, narrowColumn)
		for _, cells := range rows {
			if widest < len(cells) {
				cells[widest] = clipped(cells[widest], most)
			}
		}
	}
}

// widths are those of the columns, and by how much they are together too wide.
func widths(rows [][]string, width int) (columns []int, over int) {
	columns = make([]int, len(rows[0]))
	for _, cells := range rows {
		for i := range min(len(cells), len(columns)) {
			columns[i] = max(columns[i], utf8.RuneCountInString(cells[i]))
		}
	}
	over = columnGap*(len(columns)-1) - width
	for _, n := range columns {
		over += n
	}
	return columns, over
}

// without leaves a column out.
func without(rows [][]string, column int) [][]string {
	left := make([][]string, len(rows))
	for i, cells := range rows {
		left[i] = cells
		if column < len(cells) {
			left[i] = slices.Delete(slices.Clone(cells), column, column+1)
		}
	}
	return left
}
