package subject

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/fetch"
)

// step is one read of a workload.
type step struct {
	p        int
	offset   int64
	maxBytes int
}

// pattern makes the reads of one stream; ok is false at its end.
type pattern func() (s step, ok bool)

// patterns are the workloads by name. Each stream has a generator of its own.
func patterns(j job.Job, t *weather.Tier, stream int) (pattern, error) {
	rng := rand.New(rand.NewPCG(uint64(j.Param["seed"]), uint64(stream)))
	spec, end := t.Spec(), t.EndOffset()
	p := stream % spec.Partitions
	n := 0
	count := func(make func() step) pattern {
		return func() (step, bool) {
			if n++; n > j.Count {
				return step{}, false
			}
			return make(), true
		}
	}
	switch j.Name {
	case "sequential": // Count fetches, round and round
		at := int64(0)
		per := max(int64(maxBytes(j)/spec.BatchBytes), 1) * int64(spec.Records)
		return count(func() step {
			s := step{p, at % end, maxBytes(j)}
			at += per
			return s
		}), nil
	case "random": // small reads anywhere
		return count(func() step { return step{rng.IntN(spec.Partitions), rng.Int64N(end), 64 << 10} }), nil
	case "seek": // reads forward, and now and then jumps ahead or a little back
		at := rng.Int64N(end)
		per := max(int64((256<<10)/spec.BatchBytes), 1) * int64(spec.Records)
		return count(func() step {
			switch rng.IntN(8) {
			case 0:
				at += rng.Int64N(64 * per)
			case 1:
				at -= rng.Int64N(2 * per)
			}
			at = (at%end + end) % end
			s := step{p, at, 256 << 10}
			at += per
			return s
		}), nil
	case "loop": // Param["share"] of the budget, round and round
		span := min(end, t.OffsetAt(int64(j.Param["share"]*float64(j.Memory))))
		per := max(int64(maxBytes(j)/spec.BatchBytes), 1) * int64(spec.Records)
		at := span * int64(stream) / int64(max(j.Streams, 1))
		return count(func() step {
			s := step{0, at % span, maxBytes(j)}
			at += per
			return s
		}), nil
	case "zipf": // old chunks, few of them often
		chunks := t.PartitionBytes() / spec.ChunkBytes * int64(spec.Partitions)
		z := rand.NewZipf(rng, 1.01, 1, uint64(chunks-1))
		where := rand.New(rand.NewPCG(9, 9)).Perm(int(chunks))
		return count(func() step {
			c := where[z.Uint64()]
			return step{c % spec.Partitions, t.OffsetAt(int64(c/spec.Partitions) * spec.ChunkBytes), 64 << 10}
		}), nil
	case "mixed": // a third each: in sequence, seeking, random
		names := []string{"sequential", "seek", "random"}
		sub := j
		sub.Name = names[stream%len(names)]
		return patterns(sub, t, stream)
	default:
		return nil, fmt.Errorf("there is no workload %q", j.Name)
	}
}

// mix has Streams streams do Count reads each of the workload Name, or as many as
// they can in Param["seconds"]; Param["atOnce"] of them at once, 0 is all. Stream 0 takes
// Param["slowMs"] to be rid of what it got. All are of one tenant if Param["tenants"] is 1; if it
// is 2, stream 0 is a tenant of its own. Each result is compared with what the tier holds. A read that
// fails is counted, and if all do, that is an error unless Param["outage"] says that it is to
// be so; a wrong byte ends the job.
func mix(ctx context.Context, j job.Job, m *job.Meter) (values map[string]float64, err error) {
	r, err := openRig(ctx, j)
	if err != nil {
		return nil, err
	}
	defer r.done(&err)
	if j.Param["seconds"] > 0 {
		j.Count = 1 << 40
	}
	served := newCoverage(r.tier)
	var reads, failed, one atomic.Int64
	var mu sync.Mutex
	var took []float64 // guarded by mu
	var firstErr error // guarded by mu
	var fast float64   // when the last but stream 0 ended; guarded by mu
	slow := time.Duration(j.Param["slowMs"] * float64(time.Millisecond))
	turns := make(chan struct{}, cmp.Or(int(j.Param["atOnce"]), max(j.Streams, 1)))
	m.Start()
	start := time.Now()
	deadline := start.Add(time.Duration(j.Param["seconds"] * float64(time.Second)))
	err = all(ctx, max(j.Streams, 1), func(ctx context.Context, stream int) error {
		turns <- struct{}{}
		defer func() { <-turns }()
		next, err := patterns(j, r.tier, stream)
		if err != nil {
			return err
		}
		var mine []float64
		var res fetch.Result
		defer res.Release()
		for {
			s, ok := next()
			if !ok || j.Param["seconds"] > 0 && time.Now().After(deadline) {
				break
			}
			began := time.Now()
			req := r.request(s.p, s.offset, s.maxBytes)
			req.Tenant = tenantOf(int(j.Param["tenants"]), stream)
			err := r.reader.Fetch(ctx, req, &res)
			mine = append(mine, time.Since(began).Seconds())
			reads.Add(1)
			if err != nil {
				failed.Add(1)
				mu.Lock()
				if firstErr == nil {
					firstErr = err
				}
				mu.Unlock()
				continue
			}
			m.Count(int64(res.Size()))
			if stream == 0 {
				one.Add(int64(res.Size()))
			}
			served.add(s.p, &res)
			if err := check(r.tier.Verifier(s.p, s.offset), &res); err != nil {
				return err
			}
			if stream == 0 && slow > 0 {
				time.Sleep(slow) // it is still writing, and holds what it writes
			}
			res.Release()
		}
		mu.Lock()
		defer mu.Unlock()
		took = append(took, mine...)
		if stream > 0 {
			fast = max(fast, time.Since(start).Seconds())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	m.Stop()
	if reads.Load() > 0 && failed.Load() == reads.Load() && j.Param["outage"] == 0 {
		return nil, fmt.Errorf("every read failed, the first with: %w", firstErr)
	}
	slices.Sort(took)
	values = job.Summary(took)
	for k, v := range r.values() {
		values[k] = v
	}
	values["reads"], values["failed"] = float64(reads.Load()), float64(failed.Load())
	values["one"] = float64(one.Load()) // bytes of stream 0
	values["fastWall"] = fast
	values["unique"] = float64(served.bytes())
	c := r.cache.Stats()
	values["hitShare"] = share(c.Hits, c.Hits+c.Joins+c.Leads)
	return values, nil
}

// tenantOf is whose stream it is among so many tenants.
func tenantOf(tenants, stream int) string {
	switch {
	case tenants == 0:
		return ""
	case tenants > 1 && stream == 0:
		return "one"
	default:
		return "others"
	}
}

// coverage is which batches of a tier were served at least once.
type coverage struct {
	tier *weather.Tier
	mu   []sync.Mutex
	seen [][]uint64 // by partition; bits by batch; guarded by mu of the partition
}

func newCoverage(t *weather.Tier) *coverage {
	spec := t.Spec()
	c := &coverage{tier: t, mu: make([]sync.Mutex, spec.Partitions), seen: make([][]uint64, spec.Partitions)}
	batches := t.PartitionBytes() / int64(spec.BatchBytes)
	for p := range c.seen {
		c.seen[p] = make([]uint64, (batches+63)/64)
	}
	return c
}

func (c *coverage) add(p int, res *fetch.Result) {
	batch := int64(c.tier.Spec().BatchBytes)
	from := c.tier.PositionOf(res.FirstOffset()) / batch
	c.mu[p].Lock()
	defer c.mu[p].Unlock()
	for b := from; b < from+int64(res.Size())/batch; b++ {
		c.seen[p][b/64] |= 1 << (b % 64)
	}
}

// bytes returns the bytes that were served at least once.
func (c *coverage) bytes() int64 {
	n := 0
	for p := range c.seen {
		c.mu[p].Lock()
		for _, w := range c.seen[p] {
			n += bits.OnesCount64(w)
		}
		c.mu[p].Unlock()
	}
	return int64(n) * int64(c.tier.Spec().BatchBytes)
}
