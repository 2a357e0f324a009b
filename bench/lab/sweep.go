package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/weather"
)

// usual are settings that sweeps have found good, for quick runs.
func usual(work, who string) settings {
	switch {
	case work == "upload":
		return settings{16 * mib, 4}
	case who == "week":
		return settings{mib, 2} // a chunk of its own for each
	default:
		return settings{8 * mib, 2}
	}
}

// candidates are the settings that a sweep tries.
func candidates(work, who string) []settings {
	sizes := []int64{mib, 4 * mib, 8 * mib, 16 * mib}
	switch {
	case work == "upload":
		sizes = []int64{5 * mib, 8 * mib, 16 * mib, 32 * mib}
	case who == "week":
		sizes = []int64{mib} // that is what it caches
	case who == "manager", who == "transfermanager":
		sizes = []int64{5 * mib, 8 * mib, 16 * mib}
	}
	var all []settings
	for _, size := range sizes {
		for _, n := range []int{1, 2, 4, 8} {
			all = append(all, settings{size, n})
		}
	}
	return all
}

// tried is a setting and what came of it.
type tried struct {
	settings
	cpu, wall float64 // s for a GiB
	err       error
}

// choose takes the least CPU among those that are nearly as fast as the
// fastest: who compares CPU must not give up time for it.
func choose(all []tried) (settings, bool) {
	fastest, best := -1, -1
	for i, t := range all {
		if t.err == nil && (fastest < 0 || t.wall < all[fastest].wall) {
			fastest = i
		}
	}
	for i, t := range all {
		if t.err == nil && t.wall <= 1.25*all[fastest].wall && (best < 0 || t.cpu < all[best].cpu) {
			best = i
		}
	}
	if best < 0 {
		return settings{}, false
	}
	return all[best].settings, true
}

// best returns the settings at which a peer runs: those of a sweep, which is made
// and printed once; in a quick run the usual ones.
func (l *lab) best(work, who string) (settings, error) {
	if l.quick || l.lacks(who, work) != "" {
		return usual(work, who), nil
	}
	key := work + "/" + who
	if s, ok := l.settings[key]; ok {
		return s, nil
	}
	all, err := l.sweep(work, who)
	if err != nil {
		return settings{}, err
	}
	s, ok := choose(all)
	if !ok {
		return s, fmt.Errorf("%s does no %s with any setting: %w", who, work, all[0].err)
	}
	if err := printSweep(l.log, work, who, all, s); err != nil {
		return s, err
	}
	l.settings[key] = s
	return s, nil
}

// describe says at which settings a peer ran.
func (l *lab) describe(work, who string) string {
	s, err := l.best(work, who)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d at a time of %d MiB", s.Concurrency, s.PartSize/mib)
}

// sweep tries all settings of a peer, each twice, and keeps the better of both.
func (l *lab) sweep(work, who string) ([]tried, error) {
	if err := l.weather(weather.Schedule{}); err != nil {
		return nil, err
	}
	w, err := makeWorld(weather.Spec{SegmentBytes: 64 * mib, Segments: scale(l, 2, 1)})
	if err != nil {
		return nil, err
	}
	seg, err := l.segment(scale[int64](l, 128*mib, 12*mib))
	if err != nil {
		return nil, err
	}
	var all []tried
	for _, s := range candidates(work, who) {
		t := tried{settings: s}
		for i := range 2 {
			var res job.Result
			if work == "upload" {
				res, err = l.send(l.at.HTTP, who, seg, s, 1)
			} else {
				res, err = l.fill(who, w, s)
			}
			if err != nil {
				t.err = err
				break
			}
			gib := float64(res.Bytes) / (1 << 30)
			if cpu := res.CPU() / gib; i == 0 || cpu < t.cpu {
				t.cpu = cpu
			}
			if wall := res.Wall / gib; i == 0 || wall < t.wall {
				t.wall = wall
			}
		}
		all = append(all, t)
		if l.ctx.Err() != nil {
			return nil, l.ctx.Err()
		}
	}
	return all, nil
}

// printSweep prints a sweep as a table.
func printSweep(out io.Writer, work, who string, all []tried, best settings) error {
	if _, err := fmt.Fprintf(out, "sweep of %s/%s\n", who, work); err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "MiB\tat a time\tCPU s/GiB\twall s/GiB\t\t")
	for _, t := range all {
		mark := ""
		if t.settings == best {
			mark = "best"
		}
		if t.err != nil {
			_, _ = fmt.Fprintf(w, "%d\t%d\t-\t-\t%v\t\n", t.PartSize/mib, t.Concurrency, t.err)
			continue
		}
		_, _ = fmt.Fprintf(w, "%d\t%d\t%.3f\t%.3f\t%s\t\n", t.PartSize/mib, t.Concurrency, t.cpu, t.wall, mark)
	}
	return w.Flush()
}
