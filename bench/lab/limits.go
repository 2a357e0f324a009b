package main

import (
	"fmt"
	"time"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/fetch"
)

// sizes are settings of a limit in bytes; the first is the default's name.
func sizes(limit string, standard int64, others ...int64) (setting, []setting) {
	name := func(n int64) string {
		if n < mib {
			return fmt.Sprintf("%dKiB", n>>10)
		}
		return fmt.Sprintf("%dMiB", n/mib)
	}
	var all []setting
	for _, n := range others {
		all = append(all, setting{limit, name(n), float64(n)})
	}
	return setting{limit: limit, name: name(standard)}, all
}

// numbers are settings of a limit that is a count; standard is the default's name.
func numbers(limit string, standard int, others ...int) (setting, []setting) {
	var all []setting
	for _, n := range others {
		all = append(all, setting{limit, fmt.Sprint(n), float64(n)})
	}
	return setting{limit: limit, name: fmt.Sprint(standard)}, all
}

// tunings are the limits of docs/tuning.md, each in work in which it matters.
func tunings() []tuning {
	return []tuning{
		tuneSlots(), tuneTenants(), tuneAttempts(), tuneTold(), tuneRetryBudget(), tuneProgress(), tuneHedges(),
		tuneUploads(), tuneStalls(),
		tuneMemory(), tuneTails(), tuneChunks(), tuneFills(), tuneRuns(), tuneSeeks(), tuneHints(),
	}
}

// manyBackfills is work that is as fast as the requests that are let go.
func manyBackfills(schedule weather.Schedule, seconds float64, param map[string]float64) func(*lab) (func(setting) (tuned, error), error) {
	const streams = 32
	return inWeather(func(*lab) weather.Schedule { return schedule },
		func(*lab) weather.Spec { return weather.Spec{Partitions: streams, SegmentBytes: 64 * mib, Segments: 8} },
		func(l *lab) job.Job {
			j := l.mixJob("sequential", world{}, 512*mib, streams, 0)
			j.Param["seconds"] = scale(l, seconds, .3)
			j.Param["hint"] = float64(fetch.Sequential)
			for k, v := range param {
				j.Param[k] = v
			}
			return j
		})
}

func rateOf(t tuned) float64 { return rate(t.Result) }

// slow is a store whose connections are what limits.
func slow(connection, link int64) weather.Schedule {
	return weather.Schedule{FirstByte: constant(30 * time.Millisecond), ConnRate: connection, TotalRate: link}
}

func tuneSlots() tuning {
	_, requests := numbers("requests", 64, 8, 16, 128)
	_, bytes := sizes("bytesInFlight", 256*mib, 16*mib, 64*mib)
	_, tenant := numbers("tenantRequests", 0, 8)
	for i := range tenant {
		tenant[i].name += "_alone"
	}
	return tuning{
		settings: append(append(requests, bytes...), tenant...),
		measures: []measure{{what: "rate of 32 backfills, 6 MiB/s a connection", unit: "MiB/s", of: rateOf}},
		work:     manyBackfills(slow(6*mib, 0), 3, map[string]float64{"tenants": 1}),
	}
}

func tuneTenants() tuning {
	_, requests := numbers("tenantRequests", 0, 8, 16)
	_, bytes := sizes("tenantBytesInFlight", 0, 16*mib)
	return tuning{
		settings: append(requests, bytes...),
		measures: []measure{{what: "rate of one consumer beside a tenant of 31, on a line of 128 MiB/s", unit: "MiB/s", of: func(t tuned) float64 {
			return t.Values["one"] / mib / t.Wall
		}}},
		work: manyBackfills(slow(8*mib, 128*mib), 2, map[string]float64{"tenants": 2}),
	}
}

// small reads of 64 KiB anywhere, 16 at a time.
func small(count int, param map[string]float64) func(*lab) job.Job {
	return func(l *lab) job.Job {
		j := l.mixJob("random", world{}, 64*mib, 16, scale(l, count, max(count/8, 1)))
		for k, v := range param {
			j.Param[k] = v
		}
		return j
	}
}

// failing is a store that answers a share of the requests with 500.
func failing(share float64) func(*lab) weather.Schedule {
	return func(*lab) weather.Schedule {
		return weather.Schedule{Faults: []weather.Fault{{Kind: weather.Internal, Share: share, Operation: "GetObject"}}}
	}
}

// manyTails has many segments and small chunks.
func manyTails(*lab) weather.Spec {
	return weather.Spec{Partitions: 256, Segments: 4, SegmentBytes: 4 * mib, ChunkBytes: 64 << 10}
}

// unbounded is a retry budget that does not end.
const unbounded = 1e6

func tuneAttempts() tuning {
	standard, others := numbers("attempts", 4, 1, 2)
	return tuning{
		standard: standard, settings: others,
		measures: []measure{{suffix: "failed", what: "of 1,000 reads, where one GET in ten fails", unit: "1", counted: true, of: func(t tuned) float64 {
			return 1000 * t.Values["failed"] / t.Values["reads"]
		}}},
		once: true,
		work: inWeather(failing(.1), manyTails, small(64, map[string]float64{"retryBudget": unbounded})),
	}
}

func tuneTold() tuning {
	_, others := numbers("attempts", 4, 1, 2, 8)
	return tuning{
		settings: others,
		measures: []measure{{suffix: "told", what: "median time until a read of a store that is down fails", unit: "ms", of: func(t tuned) float64 {
			return 1000 * t.Values["p50"]
		}}},
		once: true,
		work: inWeather(failing(1), manyTails, small(2, map[string]float64{"retryBudget": unbounded, "outage": 1})),
	}
}

func tuneRetryBudget() tuning {
	standard, others := numbers("retryBudget", 100, 20, 1000)
	return tuning{
		standard: standard, settings: others,
		measures: []measure{{suffix: "gets", what: "GETs for each of 512 reads of a store that is down", unit: "GET", counted: true, of: func(t tuned) float64 {
			return gets(t.store) / t.Values["reads"]
		}}},
		once: true,
		work: inWeather(failing(1), manyTails, small(32, map[string]float64{"outage": 1})),
	}
}

func tuneProgress() tuning {
	return tuning{
		settings: []setting{{"progressTimeout", "1s", 1}},
		measures: []measure{{what: "p99 where one GET in 50 hangs", unit: "s", of: func(t tuned) float64 { return t.Values["p99"] }}},
		once:     true,
		work: func(l *lab) (func(setting) (tuned, error), error) {
			hang := weather.Fault{
				Kind: weather.Late, Share: .02, Attempts: 1, Operation: "GetObject", Until: 60 * mib, // not what is read before
				For: weather.Duration(scale(l, 30*time.Second, time.Second)),
			}
			return l.tunedLatencies(weather.Schedule{Faults: []weather.Fault{hang}}, scale(l, 400, 100), 200)
		},
	}
}

func tuneHedges() tuning {
	_, others := sizes("hedgeBytes", 0, 4*mib)
	return tuning{
		settings: others,
		measures: []measure{
			{what: "p99 of 1 MiB from a heavy-tailed store", unit: "s", of: func(t tuned) float64 { return t.Values["p99"] }},
			{suffix: "gets", what: "GETs of those", unit: "GET", of: func(t tuned) float64 { return t.Values["gets"] }},
		},
		work: func(l *lab) (func(setting) (tuned, error), error) {
			s, err := known("heavytail", 1)
			if err != nil {
				return nil, err
			}
			return l.tunedLatencies(s, scale(l, 1000, 50), 200)
		},
	}
}

// tunedLatencies are n reads of 1 MiB, rate a second.
func (l *lab) tunedLatencies(s weather.Schedule, n int, rate float64) (func(setting) (tuned, error), error) {
	w, err := waiting(n)
	if err != nil {
		return nil, err
	}
	j := job.Job{Work: "latency", World: w.spec, PartSize: mib, Count: n, Memory: 1 << 30, Param: map[string]float64{"rate": rate}}
	if err := l.weather(s); err != nil {
		return nil, err
	}
	return func(s setting) (tuned, error) { return l.tune(s, j, nil) }, nil
}

// wallOf is how long it took.
func wallOf(t tuned) float64 { return t.Wall }

func tuneUploads() tuning {
	_, parts := sizes("partSize", 16*mib, 5*mib, 64*mib)
	_, atOnce := numbers("concurrency", 8, 1, 2, 16)
	_, paced := sizes("uploadBytesPerSecond", 0, 128*mib)
	return tuning{
		settings: append(append(parts, atOnce...), paced...),
		measures: []measure{{what: "time of an upload of 256 MiB, 80 MiB/s a connection", unit: "s", of: wallOf}},
		work:     uploading(slow(80*mib, 0)),
	}
}

func uploading(outside weather.Schedule) func(*lab) (func(setting) (tuned, error), error) {
	return func(l *lab) (func(setting) (tuned, error), error) {
		seg, err := l.segment(scale[int64](l, 256*mib, 12*mib))
		if err != nil {
			return nil, err
		}
		return func(s setting) (tuned, error) { return l.tunedUpload(s, seg, outside) }, nil
	}
}

func tuneStalls() tuning {
	return tuning{
		settings: []setting{{"stallTimeout", "1s", 1}, {"uploadProgressTimeout", "1s", 1}},
		measures: []measure{{what: "time of an upload of which one part hangs for 3 s", unit: "s", of: wallOf}},
		once:     true,
		work: func(l *lab) (func(setting) (tuned, error), error) {
			hang := weather.Fault{
				Kind: weather.Late, Share: 1, Attempts: 1, Operation: "UploadPart", From: 5, Until: 6,
				For: weather.Duration(scale(l, 3*time.Second, 600*time.Millisecond)),
			}
			return uploading(weather.Schedule{Faults: []weather.Fault{hang}})(l)
		},
	}
}

// fetched is how often each byte of a log was fetched.
func fetched(t tuned) float64 { return float64(t.store.BytesOut) / t.Values["unique"] }

func tuneMemory() tuning {
	const followers = 4
	standard, others := sizes("memoryBytes", 256*mib, 64*mib, 128*mib, 512*mib)
	return tuning{
		standard: standard, settings: others,
		measures: []measure{{suffix: "fetched", what: "bytes fetched for 4 consumers, 24 MiB apart", unit: "x", counted: true, of: func(t tuned) float64 {
			return float64(t.store.BytesOut) / (float64(t.Bytes) / followers)
		}}},
		work: inWeather(calm,
			func(l *lab) weather.Spec { return weather.Spec{SegmentBytes: 64 * mib, Segments: scale(l, 6, 1)} },
			func(l *lab) job.Job {
				return job.Job{
					Work: "fanout", Memory: 256 * mib, Streams: followers,
					Param: map[string]float64{"lag": scale[float64](l, 24*mib, mib)},
				}
			}),
	}
}

func tuneTails() tuning {
	standard, others := sizes("tailBytes", 32*mib, mib, 8*mib)
	return tuning{
		standard: standard, settings: others,
		measures: []measure{{suffix: "gets", what: "GETs of a read anywhere in 384 segments of 1 GiB", unit: "GET", counted: true, of: func(t tuned) float64 {
			return gets(t.store) / t.Values["reads"]
		}}},
		work: inWeather(calm,
			func(l *lab) weather.Spec {
				return weather.Spec{Partitions: scale(l, 384, 64), SegmentBytes: 1 << 30, BatchBytes: 64 << 10}
			},
			func(l *lab) job.Job { return l.mixJob("random", world{}, 64*mib, 4, scale(l, 384, 64)) }),
	}
}

// inChunks is work on objects with chunks of several sizes.
func inChunks(spec func(*lab) weather.Spec, j func(*lab) job.Job) func(*lab) (func(setting) (tuned, error), error) {
	return func(l *lab) (func(setting) (tuned, error), error) {
		return func(s setting) (tuned, error) {
			do, err := inWeather(calm, func(l *lab) weather.Spec {
				w := spec(l)
				w.ChunkBytes = int64(s.value)
				return w
			}, j)(l)
			if err != nil {
				return tuned{}, err
			}
			return do(s)
		}, nil
	}
}

func tuneChunks() tuning {
	standard, others := sizes("chunkSize", mib, 256<<10, 4*mib)
	return tuning{
		standard: standard, settings: others,
		measures: []measure{{suffix: "fetched", what: "bytes fetched for a byte of 64 KiB reads anywhere", unit: "x", counted: true, of: fetched}},
		work: inChunks(
			func(l *lab) weather.Spec { return weather.Spec{Partitions: 4, SegmentBytes: 64 * mib} },
			func(l *lab) job.Job { return l.mixJob("random", world{}, 64*mib, 4, scale(l, 100, 10)) }),
	}
}

func tuneFills() tuning {
	_, others := sizes("chunkSize", mib, 256<<10, 4*mib)
	return tuning{
		settings: others,
		measures: []measure{{suffix: "cpu", what: "CPU of a cold verified read", unit: "s", of: func(t tuned) float64 { return t.CPU() }}},
		work: inChunks(func(l *lab) weather.Spec {
			return weather.Spec{SegmentBytes: scale[int64](l, 256*mib, 16*mib), Segments: 4}
		}, func(*lab) job.Job { return job.Job{Work: "fill", Memory: 64 * mib} }),
	}
}

func tuneRuns() tuning {
	standard, others := sizes("runBytes", 16*mib, 2*mib, 8*mib, 32*mib)
	return tuning{
		standard: standard, settings: others,
		measures: []measure{{suffix: "gets", what: "GETs for 64 MiB in sequence", unit: "GET", counted: true, of: func(t tuned) float64 {
			return gets(t.store) / (float64(t.Bytes) / (64 * mib))
		}}},
		work: inWeather(calm, func(l *lab) weather.Spec {
			return weather.Spec{SegmentBytes: scale[int64](l, 256*mib, 16*mib), Segments: 2}
		}, func(*lab) job.Job {
			return job.Job{Work: "fill", Memory: 256 * mib, Param: map[string]float64{"hint": float64(fetch.Scan)}}
		}),
	}
}

func tuneSeeks() tuning {
	standard, others := sizes("runBytes", 16*mib, 2*mib, 8*mib, 32*mib)
	return tuning{
		standard: standard, settings: others,
		measures: []measure{{suffix: "fetched", what: "bytes fetched for a byte of a consumer who jumps", unit: "x", counted: true, of: fetched}},
		work: inWeather(calm,
			func(l *lab) weather.Spec {
				return weather.Spec{Partitions: 4, SegmentBytes: scale[int64](l, 256*mib, 8*mib)}
			},
			func(l *lab) job.Job { return l.mixJob("seek", world{}, 64*mib, 4, scale(l, 200, 20)) }),
	}
}

func tuneHints() tuning {
	hint := func(name string, h fetch.Hint) setting { return setting{"hint", name, float64(h)} }
	return tuning{
		settings: []setting{hint("sequential", fetch.Sequential), hint("scan", fetch.Scan), hint("tail", fetch.Tail)},
		measures: []measure{{what: "time to the first 32 MiB, 8 MiB/s a connection", unit: "s", of: wallOf}},
		work: inWeather(func(*lab) weather.Schedule { return slow(8*mib, 128*mib) },
			func(l *lab) weather.Spec { return weather.Spec{SegmentBytes: scale[int64](l, 32*mib, 4*mib)} },
			func(*lab) job.Job { return job.Job{Work: "fill", Memory: 64 * mib} }),
	}
}
