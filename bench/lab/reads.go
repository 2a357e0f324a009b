package main

import (
	"fmt"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/checksum"
)

// contentCheck reads through a store that flips a bit in every answer that it
// gives for the first time. A read path that verifies asks again and serves the right
// bytes. One that does not is caught by the sink, and then no row of ours counts.
func contentCheck(l *lab) error {
	err := func() error {
		w, err := makeWorld(weather.Spec{SegmentBytes: 8 * mib})
		if err != nil {
			return err
		}
		// Not in tails: those do not parse, whoever verifies.
		flips := weather.Fault{Kind: weather.Flip, Share: 1, At: -1, Attempts: 1, Operation: "GetObject", Until: w.tier.SegmentBytes()}
		if err := l.weather(weather.Schedule{Faults: []weather.Fault{flips}}); err != nil {
			return err
		}
		_, s, err := l.counted(job.Job{Work: "fill", Subject: segtier, World: w.spec, Memory: 64 * mib}, wants{"": w.log})
		if err != nil {
			return err
		}
		if s.Faults[weather.Flip] == 0 {
			return void{"no bit was flipped: the check checks nothing"}
		}
		return l.show("content_check", []float64{0}, 0, fmt.Sprintf("%d bits flipped, each found", s.Faults[weather.Flip]))
	}()
	if err != nil {
		l.failed = true
		if err := l.none("content_check", err.Error()); err != nil {
			return err
		}
		return void{"the content check failed: " + err.Error()}
	}
	return nil
}

// fillWorld is what is read in sequence: so much that the first round through the cache,
// whose memory is touched for the first time, is a small part of it.
func (l *lab) fillWorld() (world, error) {
	return makeWorld(scale(l, weather.Spec{SegmentBytes: 64 * mib, Segments: 16}, weather.Spec{SegmentBytes: 8 * mib, Segments: 2}))
}

// fill has a client read a world.
func (l *lab) fill(who string, w world, s settings) (job.Result, error) {
	j := job.Job{Work: "fill", Subject: who, Memory: 64 * mib, PartSize: s.PartSize, Concurrency: s.Concurrency}
	if who == segtier {
		j.World, j.PartSize = w.spec, 0
	} else {
		j.Objects = w.objects
	}
	return l.run(j, wants{"": w.log})
}

// counts are what the server counted of our side.
type counts struct {
	stats  []weather.Stats
	served []int64
}

func (c *counts) add(s weather.Stats, served int64) {
	c.stats, c.served = append(c.stats, s), append(c.served, served)
}

// each returns a value for each run.
func (c *counts) each(f func(s weather.Stats, served float64) float64) []float64 {
	out := make([]float64, len(c.stats))
	for i := range out {
		out[i] = f(c.stats[i], float64(c.served[i]))
	}
	return out
}

func gets(s weather.Stats) float64 { return float64(s.Requests["GetObject"]) }

// fills compares ours with a peer.
func (l *lab) fills(peer string, w world) ([]round[job.Result], *counts, error) {
	if err := l.weather(weather.Schedule{}); err != nil {
		return nil, nil, err
	}
	best, err := l.best("fill", peer)
	if err != nil {
		return nil, nil, err
	}
	var c counts
	rounds, err := l.compare(
		func() (job.Result, error) {
			if err := l.reset(); err != nil {
				return job.Result{}, err
			}
			res, err := l.fill(segtier, w, settings{})
			if err != nil {
				return res, err
			}
			s, err := l.stats()
			c.add(s, res.Bytes)
			return res, err
		},
		func() (job.Result, error) { return l.fill(peer, w, best) })
	return rounds, &c, err
}

func fillReadFull(l *lab) error {
	w, err := l.fillWorld()
	if err != nil {
		return err
	}
	rounds, c, err := l.fills("getobject-readfull", w)
	if err != nil {
		return err
	}
	if err := l.showRounds("fill_cpu_readfull", rounds, ratioOf(job.Result.CPU), l.describe("fill", "getobject-readfull")); err != nil {
		return err
	}
	if err := l.show("gets_sequential", c.each(func(s weather.Stats, served float64) float64 { return gets(s) / (served / (7.5 * mib)) }), 0, ""); err != nil {
		return err
	}
	if err := l.show("amplification_sequential", c.each(func(s weather.Stats, served float64) float64 { return float64(s.BytesOut) / served }), 0, ""); err != nil {
		return err
	}
	return l.showRounds("workload_catchup", rounds, func(r round[job.Result]) float64 { return mean(r.a, rate) }, "")
}

func fillSmall(l *lab) error {
	w, err := makeWorld(weather.Spec{SegmentBytes: scale[int64](l, 64*mib, 4*mib), Segments: scale(l, 4, 1), BatchBytes: 100, Records: 1})
	if err != nil {
		return err
	}
	rounds, _, err := l.fills("getobject-readfull", w)
	if err != nil {
		return err
	}
	return l.showRounds("fill_cpu_small_batches", rounds, ratioOf(job.Result.CPU), "")
}

func fillReadAll(l *lab) error {
	return fillPeer(l, "fill_cpu_readall", "getobject-readall")
}

func fillPeer(l *lab, id, peer string) error {
	w, err := l.fillWorld()
	if err != nil {
		return err
	}
	rounds, _, err := l.fills(peer, w)
	if err != nil {
		return err
	}
	return l.showRounds(id, rounds, ratioOf(job.Result.CPU), l.describe("fill", peer))
}

// each returns sums for n streams.
func each(n int, sum checksum.Sum) wants {
	w := wants{}
	for i := range n {
		w[fmt.Sprintf("/%d", i)] = sum
	}
	return w
}

func fanout(l *lab) error {
	if err := l.weather(weather.Schedule{}); err != nil {
		return err
	}
	const k = 4
	w, err := l.fillWorld()
	if err != nil {
		return err
	}
	var c counts
	follow := func(who string) func() (job.Result, error) {
		j := job.Job{
			Work: "fanout", Subject: who, World: w.spec, Objects: w.objects, Memory: 256 * mib, Streams: k,
			Param: map[string]float64{"lag": float64(scale(l, 8*mib, mib))},
		}
		return func() (job.Result, error) {
			res, s, err := l.counted(j, each(k, w.log))
			if err == nil && who == segtier {
				c.add(s, res.Bytes)
			}
			return res, err
		}
	}
	// Without peers ours is still to be counted.
	if l.lacks("week", "fanout") != "" {
		rounds, err := l.repeat(follow(segtier))
		if err != nil || len(rounds) == 0 {
			return err
		}
	} else {
		rounds, err := l.compare(follow(segtier), follow("week"))
		if err != nil {
			return err
		}
		if err := l.showRounds("workload_fanout", rounds, ratioOf(job.Result.CPU), ""); err != nil {
			return err
		}
	}
	return l.show("gets_fanout", c.each(func(s weather.Stats, served float64) float64 { return gets(s) / (served / (7.5 * k * mib)) }), 0, "")
}

// crowd is a world of several partitions, for what is read here and there.
func (l *lab) crowd() (world, error) {
	return makeWorld(weather.Spec{Partitions: 4, SegmentBytes: scale[int64](l, 64*mib, 8*mib)})
}

func (l *lab) mixJob(name string, w world, memory int64, streams, count int) job.Job {
	return job.Job{
		Work: "mix", Subject: segtier, Name: name, World: w.spec, Memory: memory, Streams: streams, Count: count,
		Param: map[string]float64{"seed": 1},
	}
}

// mixed is a crowd that fits into memory: what is fetched twice was there.
func mixed(l *lab) error {
	if err := l.weather(weather.Schedule{}); err != nil {
		return err
	}
	w, err := l.crowd()
	if err != nil {
		return err
	}
	var amplification, duplicates []float64
	rounds, err := l.repeat(func() (job.Result, error) {
		res, s, err := l.counted(l.mixJob("mixed", w, 1<<30, 9, scale(l, 64, 8)), nil)
		if err != nil {
			return res, err
		}
		amplification = append(amplification, float64(s.BytesOut)/res.Values["unique"])
		// What was read again to save a GET is counted by who did it, and not here.
		duplicates = append(duplicates, float64(s.DuplicateBytes)-res.Values["gapBytes"])
		return res, failures(res)
	})
	if err != nil || len(rounds) == 0 {
		return err
	}
	if err := l.show("amplification_mixed", amplification, 0, ""); err != nil {
		return err
	}
	// The worst run counts, not the middle one.
	worst := 0.0
	for _, d := range duplicates {
		worst = max(worst, d)
	}
	return l.show("duplicate_bytes", []float64{worst}, 0, fmt.Sprintf("worst of %d runs", len(duplicates)))
}

// failures are an error where none was injected.
func failures(res job.Result) error {
	if n := res.Values["failed"]; n > 0 {
		return fmt.Errorf("%v of %v reads failed", n, res.Values["reads"])
	}
	return nil
}

// scattered is one of the workloads that jump.
func scattered(l *lab, name string) error {
	if err := l.weather(weather.Schedule{}); err != nil {
		return err
	}
	w, err := l.crowd()
	if err != nil {
		return err
	}
	var amplification []float64
	rounds, err := l.repeat(func() (job.Result, error) {
		res, s, err := l.counted(l.mixJob(name, w, 64*mib, 4, scale(l, 1000, 50)), nil)
		if err != nil {
			return res, err
		}
		amplification = append(amplification, float64(s.BytesOut)/res.Values["unique"])
		return res, failures(res)
	})
	if err != nil {
		return err
	}
	if err := l.showRounds("workload_"+name+"_p99", rounds, valueOf("p99", 1000), ""); err != nil {
		return err
	}
	return l.show("workload_"+name+"_amplification", amplification, 0, "")
}

// valueOf is a value of our side, times a factor.
func valueOf(name string, factor float64) func(round[job.Result]) float64 {
	return func(r round[job.Result]) float64 {
		return factor * mean(r.a, func(r job.Result) float64 { return r.Values[name] })
	}
}

// hitShare is a workload whose point is what it finds in memory.
func hitShare(l *lab, name string) error {
	if err := l.weather(weather.Schedule{}); err != nil {
		return err
	}
	w, err := l.crowd()
	if err != nil {
		return err
	}
	memory := scale[int64](l, 32*mib, 4*mib)
	rounds, err := l.repeat(func() (job.Result, error) {
		j := l.mixJob(name, w, memory, 2, scale(l, 2000, 100))
		j.Param["share"] = 1.5
		res, err := l.run(j, nil)
		if err == nil {
			err = failures(res)
		}
		return res, err
	})
	if err != nil {
		return err
	}
	return l.showRounds("workload_"+name+"_hits", rounds, valueOf("hitShare", 1), "")
}

func manyStreams(l *lab) error {
	if err := l.weather(weather.Schedule{}); err != nil {
		return err
	}
	const budget = 256 * mib
	n := scale(l, 1000, 100)
	w, err := makeWorld(weather.Spec{Partitions: n, SegmentBytes: scale[int64](l, 16*mib, 2*mib)})
	if err != nil {
		return err
	}
	rounds, err := l.repeat(func() (job.Result, error) {
		res, err := l.run(l.mixJob("sequential", w, budget, n, scale(l, 4, 1)), nil)
		if err == nil {
			err = failures(res)
		}
		return res, err
	})
	if err != nil {
		return err
	}
	// The worst high water counts.
	worst := 0.0
	for _, r := range rounds {
		for _, a := range r.a {
			worst = max(worst, float64(a.PeakRSS))
		}
	}
	if err := l.show("resident_memory", []float64{worst / (budget + 64*mib)}, 0, fmt.Sprintf("%d streams, worst of %d runs", n, len(rounds))); err != nil {
		return err
	}
	return l.showRounds("workload_streams", rounds, func(r round[job.Result]) float64 { return mean(r.a, rate) }, "")
}

func slowConsumer(l *lab) error {
	if err := l.weather(weather.Schedule{}); err != nil {
		return err
	}
	w, err := makeWorld(weather.Spec{Partitions: 17, SegmentBytes: scale[int64](l, 32*mib, 2*mib)})
	if err != nil {
		return err
	}
	with := func(slow float64) func() (job.Result, error) {
		return func() (job.Result, error) {
			j := l.mixJob("sequential", w, 64*mib, 17, scale(l, 32, 2))
			j.Param["slowMs"] = slow
			res, err := l.run(j, nil)
			if err == nil {
				err = failures(res)
			}
			return res, err
		}
	}
	rounds, err := l.compare(with(50), with(0))
	if err != nil {
		return err
	}
	return l.showRounds("workload_slow_consumer", rounds, ratioOf(func(r job.Result) float64 { return r.Values["fastWall"] }), "")
}
