package main

import (
	"time"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/fetch"
)

// constant is a latency that is always the same.
func constant(d time.Duration) weather.Latency {
	return weather.Latency{Kind: weather.Constant, Median: weather.Duration(d)}
}

// known is a schedule by its name.
func known(name string, seed uint64) (weather.Schedule, error) {
	s, err := weather.ParseSchedule(name)
	s.Seed = seed
	return s, err
}

func catchUp(l *lab) error {
	const (
		link       = 128 * mib
		connection = 8 * mib
		conns      = 64 // that an endpoint opens at most
	)
	s := weather.Schedule{FirstByte: constant(30 * time.Millisecond), ConnRate: connection, TotalRate: link}
	if err := l.weather(s); err != nil {
		return err
	}
	w, err := makeWorld(scale(l, weather.Spec{SegmentBytes: 64 * mib, Segments: 2}, weather.Spec{SegmentBytes: 4 * mib}))
	if err != nil {
		return err
	}
	// It announces itself, as who has a whole log before it can.
	j := job.Job{
		Work: "fill", Subject: segtier, World: w.spec, Memory: 64 * mib,
		Param: map[string]float64{"hint": float64(fetch.Sequential)},
	}
	rounds, err := l.repeat(func() (job.Result, error) { return l.run(j, wants{"": w.log}) })
	if err != nil {
		return err
	}
	best := float64(min(link, conns*connection)) / mib
	return l.showRounds("catchup_rate", rounds, func(r round[job.Result]) float64 { return mean(r.a, rate) / best }, "")
}

// waiting is a world where each of n reads of 1 MiB has a chunk of its own.
func waiting(n int) (world, error) {
	const perPartition = 63 // the last chunk is read before
	spec := weather.Spec{Partitions: (n + perPartition - 1) / perPartition, SegmentBytes: 64 * mib}
	w, err := makeWorld(spec)
	if err != nil {
		return w, err
	}
	return w, w.everyPartition()
}

// latencies compares our fetches with bare GETs of the same ranges.
func (l *lab) latencies(s weather.Schedule, n int, rate float64) ([]round[job.Result], error) {
	w, err := waiting(n)
	if err != nil {
		return nil, err
	}
	if err := l.weather(s); err != nil {
		return nil, err
	}
	ask := func(who string) func() (job.Result, error) {
		j := job.Job{Work: "latency", Subject: who, PartSize: mib, Count: n, Memory: 1 << 30, Param: map[string]float64{"rate": rate}}
		if who == segtier {
			j.World = w.spec
		} else {
			j.Objects, j.Concurrency = w.objects, 16
		}
		return func() (job.Result, error) {
			// Both meet the weather as the first to come.
			if err := l.reset(); err != nil {
				return job.Result{}, err
			}
			return l.run(j, nil)
		}
	}
	return l.compare(ask(segtier), ask("http-readfull"))
}

func quantile(name string) func(job.Result) float64 {
	return func(r job.Result) float64 { return r.Values[name] }
}

func firstBytes(l *lab) error {
	s := weather.Schedule{FirstByte: constant(30 * time.Millisecond), ConnRate: 90 * mib}
	rounds, err := l.latencies(s, scale(l, 100, 5), 0)
	if err != nil {
		return err
	}
	return l.showRounds("first_bytes", rounds, ratioOf(quantile("p50")), "")
}

func demand(l *lab) error {
	s, err := known("heavytail", 1)
	if err != nil {
		return err
	}
	rounds, err := l.latencies(s, scale(l, 2000, 50), scale[float64](l, 200, 50))
	if err != nil {
		return err
	}
	if err := l.showRounds("demand_p99", rounds, ratioOf(quantile("p99")), ""); err != nil {
		return err
	}
	return l.showRounds("demand_extra_gets", rounds, func(r round[job.Result]) float64 { return valueOf("gets", 1)(r) - 1 }, "")
}

// tailWith compares the tail beside backfills with the tail alone.
func tailWith(l *lab, id string, backfills int) error {
	s, err := known("s3", 1)
	if err != nil {
		return err
	}
	s.ConnRate = 20 * mib
	if err := l.weather(s); err != nil {
		return err
	}
	n := scale(l, 300, 10)
	w, err := makeWorld(weather.Spec{Partitions: 1 + backfills, SegmentBytes: 64 * mib, Segments: max(n/64+1, 2)})
	if err != nil {
		return err
	}
	with := func(streams int) func() (job.Result, error) {
		j := job.Job{
			Work: "tail", Subject: segtier, World: w.spec, Memory: 256 * mib, Count: n, Streams: streams,
			Param: map[string]float64{"rate": scale[float64](l, 30, 20)},
		}
		return func() (job.Result, error) {
			if err := l.reset(); err != nil {
				return job.Result{}, err
			}
			return l.run(j, nil)
		}
	}
	rounds, err := l.compare(with(backfills), with(0))
	if err != nil {
		return err
	}
	return l.showRounds(id, rounds, ratioOf(quantile("p99")), "")
}

// most runs a job whose worst case counts.
func (l *lab) most(id string, j job.Job) error {
	if err := l.weather(weather.Schedule{}); err != nil {
		return err
	}
	worst := 0.0
	rounds, err := l.repeat(func() (job.Result, error) {
		res, err := l.run(j, nil)
		worst = max(worst, res.Values["most"])
		return res, err
	})
	if err != nil || len(rounds) == 0 {
		return err
	}
	return l.show(id, []float64{worst}, 0, "")
}

func coldSegment(l *lab) error {
	n := scale(l, 64, 8)
	w, err := makeWorld(weather.Spec{Partitions: n, SegmentBytes: 64 * mib})
	if err != nil {
		return err
	}
	return l.most("cold_segment_gets", job.Job{Work: "cold", Subject: segtier, World: w.spec, Memory: 256 * mib, Count: n})
}

func timeLookup(l *lab) error {
	n := scale(l, 64, 8)
	w, err := makeWorld(weather.Spec{Partitions: n, SegmentBytes: 64 * mib})
	if err != nil {
		return err
	}
	return l.most("time_lookup_gets", job.Job{Work: "lookup", Subject: segtier, World: w.spec, Memory: 256 * mib, Count: n, Streams: 1})
}

func lookups(l *lab) error {
	s, err := known("s3", 1)
	if err != nil {
		return err
	}
	if err := l.weather(s); err != nil {
		return err
	}
	n := scale(l, 512, 64)
	w, err := makeWorld(weather.Spec{Partitions: n / 4, Segments: 4, SegmentBytes: 16 * mib})
	if err != nil {
		return err
	}
	rounds, err := l.repeat(l.does(job.Job{Work: "lookup", Subject: segtier, World: w.spec, Memory: 256 * mib, Count: n, Streams: 32}))
	if err != nil {
		return err
	}
	if err := l.showRounds("workload_lookups_gets", rounds, valueOf("gets", 1), ""); err != nil {
		return err
	}
	return l.showRounds("workload_lookups_p99", rounds, valueOf("p99", 1000), "")
}

func throttled(l *lab) error {
	s, err := known("throttled", 1)
	if err != nil {
		return err
	}
	if err := l.weather(s); err != nil {
		return err
	}
	w, err := makeWorld(weather.Spec{Partitions: 8, SegmentBytes: 64 * mib, Segments: 8})
	if err != nil {
		return err
	}
	j := l.mixJob("sequential", w, 256*mib, 8, 0)
	j.Param["seconds"] = scale[float64](l, 60, 1)
	p := l.plan
	p.rounds, p.extra = 1, 0 // a minute says enough
	rounds, err := abba(p, l.watch.watch, l.does(j), func() (job.Result, error) { return job.Result{}, nil })
	if err != nil {
		return err
	}
	success := func(r job.Result) float64 { return 1 - r.Values["failed"]/r.Values["reads"] }
	if err := l.showRounds("throttled_success", rounds, func(r round[job.Result]) float64 { return mean(r.a, success) }, ""); err != nil {
		return err
	}
	return l.showRounds("throttled_gets", rounds, func(r round[job.Result]) float64 {
		return mean(r.a, func(r job.Result) float64 { return r.Values["gets"] / (r.Values["tailGets"] + r.Values["dataGets"]) })
	}, "")
}
