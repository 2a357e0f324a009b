package main

import (
	"fmt"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/weather"
)

// perMiB is CPU of a MiB.
func perMiB(r job.Result) float64 { return r.CPU() / float64(r.Bytes) }

// growStreams has n streams read at once what they read one after the other: how much
// each of them reads, and so how many GETs that takes, is the same. Fewer than a MiB for
// each is nothing, so that 1,000 of them read more.
func growStreams(l *lab) error {
	if err := l.weather(weather.Schedule{}); err != nil {
		return err
	}
	total := scale(l, 1024, 16) // MiB
	with := func(w world, atOnce int) func() (job.Result, error) {
		n := w.tier.Spec().Partitions
		return func() (job.Result, error) {
			j := l.mixJob("sequential", w, 64*mib, n, max(total/n, 1))
			j.Param["atOnce"] = float64(atOnce)
			res, err := l.run(j, nil)
			if err == nil {
				err = failures(res)
			}
			return res, err
		}
	}
	for _, n := range growingStreams()[1:] {
		each := scale(l, n, min(n, 100))
		w, err := makeWorld(weather.Spec{Partitions: each, SegmentBytes: 4 * mib, Segments: max(total/each/4, 1)})
		if err != nil {
			return err
		}
		rounds, err := l.compare(with(w, each), with(w, 1))
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
