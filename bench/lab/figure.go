package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// metric is what a figure is about.
type metric struct {
	id    string
	what  string // a few words
	unit  string // "x" for ratios
	base  string // what it is compared with, "" nothing
	op    op     // "" if there is no reach
	limit float64
	timed bool // out of a clock, so that the noise band applies
}

// reach is what the metric should be, "" if nobody said.
func (m metric) reach() string {
	if m.op == "" {
		return ""
	}
	return string(m.op) + " " + strconv.FormatFloat(m.limit, 'g', -1, 64)
}

// figure is a metric, measured.
type figure struct {
	metric
	value     float64 // NaN: there is none
	rounds    int
	disturbed int     // of the rounds
	spread    float64 // of the rounds
	note      string  // why there is no value; what to know about it
	quick     bool    // the round was shortened: it cannot meet anything
}

// line is a figure as JSON. value is null where there is none, met where nobody
// can say.
type line struct {
	Metric    string   `json:"metric"`
	Value     *float64 `json:"value"`
	Unit      string   `json:"unit"`
	Reach     *string  `json:"reach"`
	Met       *bool    `json:"met"`
	Base      *string  `json:"base"`
	Rounds    int      `json:"rounds"`
	Disturbed int      `json:"disturbed"`
	Spread    float64  `json:"spread,omitempty"`
	Note      string   `json:"note,omitempty"`
}

func (f figure) line() line {
	l := line{Metric: f.id, Unit: f.unit, Rounds: f.rounds, Disturbed: f.disturbed, Spread: round4(f.spread), Note: f.note}
	if !math.IsNaN(f.value) && !math.IsInf(f.value, 0) {
		v := round4(f.value)
		l.Value = &v
	}
	if r := f.reach(); r != "" {
		l.Reach = &r
	}
	if f.base != "" {
		l.Base = &f.base
	}
	l.Met = f.met()
	return l
}

// met is nil where there is nothing to meet, or the round was shortened.
func (f figure) met() *bool {
	if f.op == "" && !math.IsNaN(f.value) {
		return nil
	}
	if f.quick {
		return nil
	}
	ok := !math.IsNaN(f.value) && met(f.value, f.op, f.limit, f.timed)
	return &ok
}

// round4 keeps four digits.
func round4(v float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	if err != nil {
		return v
	}
	return r
}

// printer shows figures as they come.
type printer interface {
	figure(figure) error
	flush() error
}

// jsonPrinter prints a line each.
type jsonPrinter struct{ enc *json.Encoder }

func (p jsonPrinter) figure(f figure) error { return p.enc.Encode(f.line()) }
func (p jsonPrinter) flush() error          { return nil }

// tablePrinter prints columns.
type tablePrinter struct{ w *tabwriter.Writer }

func newTable(out io.Writer) tablePrinter {
	t := tablePrinter{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	_, _ = fmt.Fprintln(t.w, "METRIC\tVALUE\tUNIT\tREACH\tMET\tBASE\tROUNDS\tNOTE")
	return t
}

func (p tablePrinter) figure(f figure) error {
	_, err := fmt.Fprintln(p.w, strings.Join(f.cells(), "\t"))
	return err
}

func (p tablePrinter) flush() error { return p.w.Flush() }

// cells are a figure in words.
func (f figure) cells() []string {
	value, ok, rounds := "-", "", strconv.Itoa(f.rounds)
	if !math.IsNaN(f.value) {
		value = strconv.FormatFloat(round4(f.value), 'g', -1, 64)
	}
	if m := f.met(); m != nil {
		ok = map[bool]string{true: "yes", false: "no"}[*m]
	}
	if f.disturbed > 0 {
		rounds += fmt.Sprintf(" (%d disturbed)", f.disturbed)
	}
	return []string{f.id, value, f.unit, f.reach(), ok, f.base, rounds, f.note}
}

// markdownPrinter prints the table of docs/benchmarks.md.
type markdownPrinter struct{ w io.Writer }

func newMarkdown(out io.Writer) markdownPrinter {
	_, _ = io.WriteString(out, "| metric | value | unit | reach | met | compared with | rounds | note |\n|---|---|---|---|---|---|---|---|\n")
	return markdownPrinter{out}
}

func (p markdownPrinter) figure(f figure) error {
	cells := f.cells()
	cells[0] = "`" + cells[0] + "`"
	for i := range cells {
		cells[i] = strings.ReplaceAll(cells[i], "|", "\\|")
	}
	_, err := fmt.Fprintf(p.w, "| %s |\n", strings.Join(cells, " | "))
	return err
}

func (p markdownPrinter) flush() error { return nil }
