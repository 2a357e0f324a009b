package main

import (
	"fmt"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/weather"
)

// perMiB is CPU of a MiB.
func perMiB(r job.Result) float64 { return r.CPU() / float64(r.Bytes) }

// growStreams reads as much with more streams. Fewer than a MiB for each is
// nothing, so that with 1,000 of them it is more.
func growStreams(l *lab) error {
	if err := l.weather(weather.Schedule{}); err != nil {
		return err
	}
	all := growingStreams()
	total := scale(l, 256, 16) // MiB
	w, err := makeWorld(weather.Spec{
		Partitions: scale(l, all[len(all)-1], 100), SegmentBytes: 4 * mib, Segments: total / 4,
	})
	if err != nil {
		return err
	}
	with := func(n int) func() (job.Result, error) {
		n = min(n, w.tier.Spec().Partitions)
		return func() (job.Result, error) {
			res, err := l.run(l.mixJob("sequential", w, 64*mib, n, max(total/n, 1)), nil)
			if err == nil {
				err = failures(res)
			}
			return res, err
		}
	}
	for _, n := range all[1:] {
		rounds, err := l.compare(with(n), with(all[0]))
		if err != nil {
			return err
		}
		if err := l.showRounds(fmt.Sprintf("growth_streams_%d", n), rounds, ratioOf(perMiB), ""); err != nil {
			return err
		}
	}
	return nil
}

func growSegments(l *lab) error {
	all := growingSegments()
	short := func(n int) int { return scale(l, n, max(n/50, 100)) }
	for _, n := range all[1:] {
		rounds, err := l.compare(
			l.does(l.among(segtier, "segmentlookup", short(n))),
			l.does(l.among(segtier, "segmentlookup", short(all[0]))))
		if err != nil {
			return err
		}
		if err := l.showRounds(fmt.Sprintf("growth_segments_%d", n), rounds, ratioOf(perCall), ""); err != nil {
			return err
		}
	}
	return nil
}

func growSizes(l *lab) error {
	if err := l.weather(weather.Schedule{}); err != nil {
		return err
	}
	all := growingSizes()
	with := func(size int64) (func() (job.Result, error), error) {
		total := scale[int64](l, 256, 8)
		size = scale(l, size, max(size/64, 1))
		w, err := makeWorld(weather.Spec{SegmentBytes: size * mib, Segments: int(max(total/size, 1))})
		return func() (job.Result, error) { return l.fill(segtier, w, settings{}) }, err
	}
	base, err := with(all[0])
	if err != nil {
		return err
	}
	for _, size := range all[1:] {
		a, err := with(size)
		if err != nil {
			return err
		}
		rounds, err := l.compare(a, base)
		if err != nil {
			return err
		}
		if err := l.showRounds(fmt.Sprintf("growth_segment_%dMiB", size), rounds, ratioOf(perMiB), ""); err != nil {
			return err
		}
	}
	return nil
}
