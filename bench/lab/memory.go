package main

import (
	"math"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/policy"
	"github.com/segtier/segtier/bench/weather"
)

// perCall is the CPU of one call in ns.
func perCall(r job.Result) float64 { return r.CPU() * 1e9 / r.Values["calls"] }

// allocsPerCall leaves out what the runtime allocates now and then.
func allocsPerCall(r round[job.Result]) float64 {
	return math.Round(1000*mean(r.a, func(r job.Result) float64 { return float64(r.Allocs) / r.Values["calls"] })) / 1000
}

func (l *lab) does(j job.Job) func() (job.Result, error) {
	return func() (job.Result, error) { return l.run(j, nil) }
}

func leaseCost(l *lab) error {
	n := scale(l, 10_000_000, 1_000_000)
	rounds, err := l.compare(
		l.does(job.Job{Work: "lease", Subject: segtier, Count: n}),
		l.does(job.Job{Work: "lease", Subject: "ristretto", Count: n}))
	if err != nil {
		return err
	}
	if err := l.showRounds("lease_cost", rounds, ratioOf(perCall), ""); err != nil {
		return err
	}
	return l.showRounds("lease_allocs", rounds, allocsPerCall, "")
}

func leaseScaling(l *lab) error {
	n := scale(l, 10_000_000, 1_000_000)
	rounds, err := l.compare(
		l.does(job.Job{Work: "lease", Subject: segtier, Count: n, Streams: 2}),
		l.does(job.Job{Work: "lease", Subject: segtier, Count: n, Streams: 1}))
	if err != nil {
		return err
	}
	return l.showRounds("lease_scaling", rounds, ratioOf(func(r job.Result) float64 { return r.Values["calls"] / r.Wall }), "")
}

func fetchHot(l *lab) error {
	w, err := makeWorld(weather.Spec{SegmentBytes: 64 * mib})
	if err != nil {
		return err
	}
	rounds, err := l.compare(
		l.does(job.Job{Work: "fetchhot", Subject: segtier, World: w.spec, Memory: 512 * mib, Count: scale(l, 2_000_000, 100_000)}),
		l.does(job.Job{Work: "lease", Subject: "ristretto", Count: scale(l, 10_000_000, 1_000_000)}))
	if err != nil {
		return err
	}
	if err := l.showRounds("fetch_hot_cost", rounds, ratioOf(perCall), ""); err != nil {
		return err
	}
	return l.showRounds("fetch_hot_allocs", rounds, allocsPerCall, "")
}

func serveCPU(l *lab) error {
	if err := l.weather(weather.Schedule{}); err != nil {
		return err
	}
	w, err := makeWorld(weather.Spec{SegmentBytes: 64 * mib})
	if err != nil {
		return err
	}
	n := scale(l, 32, 2)
	serve := func(who string) func() (job.Result, error) {
		j := job.Job{Work: "serve", Subject: who, World: w.spec, Memory: 512 * mib, Count: n}
		return func() (job.Result, error) { return l.run(j, wants{"": w.times(n)}) }
	}
	rounds, err := l.compare(serve(segtier), serve("bare"))
	if err != nil {
		return err
	}
	return l.showRounds("serve_cpu", rounds, ratioOf(job.Result.CPU), "")
}

func offsetLookup(l *lab) error {
	w, err := makeWorld(weather.Spec{SegmentBytes: scale[int64](l, 1<<30, 64*mib)})
	if err != nil {
		return err
	}
	n := scale(l, 20_000_000, 2_000_000)
	rounds, err := l.compare(
		l.does(job.Job{Work: "offsetlookup", Subject: segtier, World: w.spec, Count: n}),
		l.does(job.Job{Work: "offsetlookup", Subject: "bare", World: w.spec, Count: n}))
	if err != nil {
		return err
	}
	if err := l.showRounds("offset_lookup", rounds, ratioOf(perCall), ""); err != nil {
		return err
	}
	return l.showRounds("offset_lookup_allocs", rounds, allocsPerCall, "")
}

// among is a job over so many segments; each partition has about a thousand.
func (l *lab) among(who, work string, segments int) job.Job {
	return job.Job{
		Work: work, Subject: who, Count: scale(l, 5_000_000, 200_000),
		Param: map[string]float64{"segments": float64(segments), "partitions": float64(max(segments/1000, 1))},
	}
}

func segmentLookup(l *lab) error {
	n := scale(l, 1_000_000, 20_000)
	rounds, err := l.compare(l.does(l.among(segtier, "segmentlookup", n)), l.does(l.among("bare", "segmentlookup", n)))
	if err != nil {
		return err
	}
	if err := l.showRounds("segment_lookup", rounds, ratioOf(perCall), ""); err != nil {
		return err
	}
	return l.showRounds("segment_lookup_allocs", rounds, allocsPerCall, "")
}

func segmentMemory(l *lab) error {
	rounds, err := l.repeat(l.does(l.among(segtier, "segmentmemory", scale(l, 1_000_000, 20_000))))
	if err != nil {
		return err
	}
	return l.showRounds("segment_memory", rounds, func(r round[job.Result]) float64 {
		return mean(r.a, func(r job.Result) float64 { return r.Values["bytesPerSegment"] })
	}, "")
}

// policy returns the hit ratio of a cache on a trace. It is the same each time,
// so it is run once.
func (l *lab) policy(trace, name string) (float64, error) {
	key := trace + "/" + name
	if r, ok := l.hits[key]; ok {
		return r, nil
	}
	r, err := l.runPolicy(trace, name)
	if err == nil {
		l.hits[key] = r
	}
	return r, err
}

func (l *lab) runPolicy(trace, name string) (float64, error) {
	shorten := scale(l, 1, 40)
	o := policy.Options{HalfKnown: name == "segtier-half", Shorten: shorten, Seed: 1}
	t, err := policy.Make(trace, o)
	if err != nil {
		return 0, err
	}
	switch name {
	case "belady":
		return policy.Belady(t), nil
	case "lru":
		return policy.Ratio(t, policy.NewLRU(t.Capacity)), nil
	case "s3fifo":
		return policy.Ratio(t, policy.NewS3FIFO(t.Capacity)), nil
	}
	j := job.Job{Work: "policy", Subject: name, Name: trace, Param: map[string]float64{"shorten": float64(shorten), "seed": 1}}
	if name == "segtier-half" {
		j.Subject, j.Param["half"] = segtier, 1
	}
	res, err := l.run(j, nil)
	return res.Values["ratio"], err
}

// hitRatio is the least share of the optimum on traces A to D.
func hitRatio(l *lab, id, name string) error {
	least, worst := math.Inf(1), ""
	for _, trace := range []string{"A", "B", "C", "D"} {
		best, err := l.policy(trace, "belady")
		if err != nil {
			return err
		}
		ratio, err := l.policy(trace, name)
		if err != nil {
			return err
		}
		if ratio/best < least {
			least, worst = ratio/best, trace
		}
	}
	return l.show(id, []float64{least}, 0, "trace "+worst)
}
