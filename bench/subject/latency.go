package subject

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/fetch"
)

// warmTails has the reader read the tail of every segment, and the last chunk with
// it, and opens connections on the way.
func (r *rig) warmTails(ctx context.Context) error {
	spec := r.tier.Spec()
	return all(ctx, spec.Partitions, func(ctx context.Context, p int) error {
		var res fetch.Result
		defer res.Release()
		for s := range spec.Segments {
			last := int64(s+1)*r.tier.SegmentOffsets() - 1
			if err := r.reader.Fetch(ctx, r.request(p, last, 1), &res); err != nil {
				return err
			}
		}
		return nil
	})
}

// stride is how many chunks cold reads are apart, prime.
const stride = 29

// place returns where in the tier the i-th cold read goes: each to a chunk of its
// own, never the last of a segment, partition by partition. Those of one partition
// are far from each other: what goes on in sequence would be there before it is
// asked for.
func place(t *weather.Tier, i int) (p int, offset int64) {
	spec := t.Spec()
	chunks := int(t.SegmentBytes()/spec.ChunkBytes) - 1
	p, i = i%spec.Partitions, i/spec.Partitions
	s, c := i/chunks%spec.Segments, i%chunks
	if chunks%stride != 0 {
		c = c * stride % chunks
	}
	return p, t.OffsetAt(int64(s)*t.SegmentBytes() + int64(c)*spec.ChunkBytes)
}

// latency makes Count cold fetches of PartSize bytes, Param["rate"] a second
// whatever earlier ones do, or one after the other if that is 0. Each result is
// compared with what the tier holds.
func latency(ctx context.Context, j job.Job, m *job.Meter) (values map[string]float64, err error) {
	r, err := openRig(ctx, j)
	if err != nil {
		return nil, err
	}
	defer r.done(&err)
	if err := r.warmTails(ctx); err != nil {
		return nil, err
	}
	before := r.ep.Stats().Gets
	read := func(ctx context.Context, i int) error {
		p, offset := place(r.tier, i)
		var res fetch.Result
		defer res.Release()
		if err := r.reader.Fetch(ctx, r.request(p, offset, maxBytes(j)), &res); err != nil {
			return err
		}
		m.Count(int64(res.Size()))
		return check(r.tier.Verifier(p, offset), &res)
	}
	m.Start()
	took, err := job.Loop(ctx, j.Count, j.Param["rate"], read)
	if err != nil {
		return nil, err
	}
	m.Stop()
	values = job.Summary(took)
	values["gets"] = float64(r.ep.Stats().Gets-before) / float64(j.Count)
	return values, nil
}

// tail is a consumer of partition 0 that reads a chunk, Param["rate"] times a
// second, Count times, while Streams backfills read as fast as they can, each a
// partition of its own.
func tail(ctx context.Context, j job.Job, m *job.Meter) (values map[string]float64, err error) {
	r, err := openRig(ctx, j)
	if err != nil {
		return nil, err
	}
	defer r.done(&err)
	if err := r.warmTails(ctx); err != nil {
		return nil, err
	}
	m.Start()
	backfilling, stop := context.WithCancelCause(ctx)
	enough := errors.New("enough")
	var backfills sync.WaitGroup
	errs := make([]error, j.Streams)
	for i := range j.Streams {
		backfills.Go(func() {
			v := r.tier.Verifier(1+i, 0)
			for backfilling.Err() == nil && errs[i] == nil {
				err := r.walk(backfilling, 1+i, 0, r.tier.EndOffset(), maxBytes(j), nil, func(res *fetch.Result) error {
					m.Count(int64(res.Size()))
					return check(v, res)
				})
				if backfilling.Err() == nil {
					errs[i] = err
				}
			}
		})
	}
	spec := r.tier.Spec()
	chunks := int(r.tier.PartitionBytes() / spec.ChunkBytes)
	took, err := job.OpenLoop(ctx, j.Count, j.Param["rate"], func(ctx context.Context, i int) error {
		offset := r.tier.OffsetAt(int64(i%chunks) * spec.ChunkBytes)
		var res fetch.Result
		defer res.Release()
		if err := r.reader.Fetch(ctx, r.request(0, offset, int(spec.ChunkBytes)), &res); err != nil {
			return err
		}
		return check(r.tier.Verifier(0, offset), &res)
	})
	stop(enough)
	backfills.Wait()
	if err := errors.Join(errors.Join(errs...), err); err != nil {
		return nil, err
	}
	m.Stop()
	values = job.Summary(took)
	return values, nil
}

// cold fetches once from each of Count segments that nobody has read.
func cold(ctx context.Context, j job.Job, m *job.Meter) (values map[string]float64, err error) {
	r, err := openRig(ctx, j)
	if err != nil {
		return nil, err
	}
	defer r.done(&err)
	spec := r.tier.Spec()
	if j.Count > spec.Partitions*spec.Segments {
		return nil, fmt.Errorf("%d cold segments of %d", j.Count, spec.Partitions*spec.Segments)
	}
	most := int64(0)
	m.Start()
	took, err := job.ClosedLoop(ctx, j.Count, func(ctx context.Context, i int) error {
		before := r.ep.Stats().Gets
		p, s := i%spec.Partitions, i/spec.Partitions
		offset := r.tier.OffsetAt(int64(s)*r.tier.SegmentBytes() + r.tier.SegmentBytes()/2)
		var res fetch.Result
		defer res.Release()
		if err := r.reader.Fetch(ctx, r.request(p, offset, spec.BatchBytes), &res); err != nil {
			return err
		}
		most = max(most, r.ep.Stats().Gets-before)
		m.Count(int64(res.Size()))
		return check(r.tier.Verifier(p, offset), &res)
	})
	if err != nil {
		return nil, err
	}
	m.Stop()
	values = job.Summary(took)
	values["most"] = float64(most)
	return values, nil
}

// lookup looks Count times up in as many partitions as there are, Streams at
// once; each answer is known. With one stream it counts the GETs of each.
func lookup(ctx context.Context, j job.Job, m *job.Meter) (values map[string]float64, err error) {
	r, err := openRig(ctx, j)
	if err != nil {
		return nil, err
	}
	defer r.done(&err)
	spec := r.tier.Spec()
	var (
		mu   sync.Mutex
		took []float64 // guarded by mu
		most int64     // guarded by mu
		next = make(chan int)
	)
	began := r.ep.Stats().Gets
	m.Start()
	streams := max(j.Streams, 1)
	err = all(ctx, streams+1, func(ctx context.Context, worker int) error {
		if worker == streams {
			defer close(next)
			for i := range j.Count {
				select {
				case next <- i:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			return nil
		}
		for i := range next {
			before := r.ep.Stats().Gets
			start := time.Now()
			// Somewhere in another segment at each round over the partitions.
			rng := rand.New(rand.NewPCG(uint64(i), 3))
			offset := int64(i/spec.Partitions%spec.Segments)*r.tier.SegmentOffsets() + rng.Int64N(r.tier.SegmentOffsets())
			pos, err := r.reader.OffsetForTime(ctx, fetch.TimeRequest{Partition: r.tier.Partition(i % spec.Partitions), Time: r.tier.TimeOf(offset)})
			if err != nil {
				return err
			}
			if pos.Offset != offset {
				return fmt.Errorf("%w: the record of offset %d was found at %d", errWrong, offset, pos.Offset)
			}
			mu.Lock()
			took = append(took, time.Since(start).Seconds())
			most = max(most, r.ep.Stats().Gets-before)
			mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	m.Stop()
	slices.Sort(took)
	values = job.Summary(took)
	values["gets"] = float64(r.ep.Stats().Gets-began) / float64(j.Count)
	if streams == 1 {
		values["most"] = float64(most)
	}
	return values, nil
}
