package main

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Sizes of tables, in characters and rows.
const (
	tableWidth = 100 // of a table that is not wide
	tableGap   = 2   // between columns
	tableFloor = 8   // a column is not cut shorter than this
	tableProbe = 1000
)

// column is one column of a table.
type column struct {
	title string
	right bool // numbers
	cut   bool // may be cut to make the table fit: its middle
	prose bool // may be cut, its end
	wide  bool // only in the wide table
	short bool // not in the wide table
}

// table prints rows in columns. The first rows decide on the widths; the rest
// are printed as they come, so that a long table needs no memory.
type table struct {
	out     io.Writer
	columns []column
	keep    []int // which cells of a row are shown
	wide    bool
	limit   int // rows shown; 0 = all

	rows   [][]string // until the widths are known
	widths []int
	count  int
	err    error
}

func newTable(out io.Writer, wide bool, columns []column) *table {
	t := &table{out: out, wide: wide}
	for i, c := range columns {
		if wide && c.short || !wide && c.wide {
			continue
		}
		t.columns = append(t.columns, c)
		t.keep = append(t.keep, i)
	}
	return t
}

// add adds a row with a cell for every column, those that are not shown
// included.
func (t *table) add(cells ...string) error {
	t.count++
	if t.limit > 0 && t.count > t.limit {
		return t.err
	}
	row := make([]string, len(t.keep))
	for i, at := range t.keep {
		row[i] = printable(cells[at])
	}
	if t.widths != nil {
		t.print(row)
		return t.err
	}
	t.rows = append(t.rows, row)
	if len(t.rows) == tableProbe {
		t.start()
	}
	return t.err
}

// close prints what is left.
func (t *table) close() error {
	if t.widths == nil {
		t.start()
	}
	return t.err
}

// hidden is how many rows were not shown.
func (t *table) hidden() int {
	if t.limit == 0 {
		return 0
	}
	return max(0, t.count-t.limit)
}

// start fixes the widths and prints the title and the rows so far.
func (t *table) start() {
	t.widths = make([]int, len(t.columns))
	title := make([]string, len(t.columns))
	for i, c := range t.columns {
		title[i] = c.title
		t.widths[i] = len(c.title)
		for _, row := range t.rows {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	if !t.wide {
		t.shrink(t.widths)
	}
	t.print(title)
	for _, row := range t.rows {
		t.print(row)
	}
	t.rows = nil
}

// shrink takes from the widest columns until the table fits.
func (t *table) shrink(widths []int) {
	total := tableGap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for ; total > tableWidth; total-- {
		widest := -1
		for i, c := range t.columns {
			if (c.cut || c.prose) && widths[i] > tableFloor && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

// widthsFor is the widths of a row's columns. A late row may have a word that is longer
// than all before it and is not to be cut: then others give way.
func (t *table) widthsFor(row []string) []int {
	widths := slices.Clone(t.widths)
	for i, c := range t.columns {
		if !c.cut && !c.prose {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	if !t.wide {
		t.shrink(widths)
	}
	return widths
}

func (t *table) print(row []string) {
	if t.err != nil {
		return
	}
	widths := t.widthsFor(row)
	var b strings.Builder
	for i, cell := range row {
		if i > 0 {
			b.WriteString(strings.Repeat(" ", tableGap))
		}
		switch c := t.columns[i]; {
		case t.wide:
		case c.cut:
			cell = shorten(cell, widths[i])
		case c.prose:
			cell = clip(cell, widths[i])
		}
		pad := strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell)))
		if t.columns[i].right {
			cell = pad + cell
		} else {
			cell += pad
		}
		b.WriteString(cell)
	}
	_, t.err = io.WriteString(t.out, strings.TrimRight(b.String(), " ")+"\n")
}

// shorten cuts the middle out of s, so that both a name's beginning and an
// address's port are still there.
func shorten(s string, width int) string {
	n := utf8.RuneCountInString(s)
	if n <= width {
		return s
	}
	if width <= 1 {
		return "…"[:min(width, 1)*len("…")]
	}
	r := []rune(s)
	tail := (width - 1) / 2
	head := width - 1 - tail
	return string(r[:head]) + "…" + string(r[n-tail:])
}

// clip cuts the end off s.
func clip(s string, width int) string {
	if utf8.RuneCountInString(s) <= width || width < 1 {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}

// printable replaces what would confuse a terminal, and "-" stands for nothing.
func printable(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}
