package subject

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/policy"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/metadata"
)

// traceChunk is the size of a chunk here; a policy counts chunks, not bytes.
const traceChunk = 4 << 10

// traceRun is the longest run, in chunks: as many as the default has of a MiB, so that what
// is fetched ahead takes as many chunks as it would there.
const traceRun = 16

// tracePolicy runs the trace Name through Reader.Fetch: each access fetches the one
// batch of a chunk. A hit is an access that no chunk had to be fetched for; what is
// fetched ahead of need counts as a miss when it is fetched. The whole budget is
// as many bytes as the trace has chunks, so what a Reader holds for itself is
// capacity that it lacks.
//
// Param["half"]: only half of the cursors are announced; the others just read, and
// the cache finds them or not.
func tracePolicy(ctx context.Context, j job.Job, m *job.Meter) (values map[string]float64, err error) {
	trace, err := policy.Make(j.Name, policy.Options{
		HalfKnown: j.Param["half"] != 0, Shorten: int(j.Param["shorten"]), Seed: uint64(j.Param["seed"]),
	})
	if err != nil {
		return nil, err
	}
	spec := weather.Spec{
		Topic: "trace", Partitions: 1 << 8, Segments: 1 << 16,
		SegmentBytes: policy.SegmentLen * traceChunk, BatchBytes: traceChunk, Records: 1, ChunkBytes: traceChunk,
	}
	tier, err := spec.Tier()
	if err != nil {
		return nil, err
	}
	meta, err := traceMetadata(tier, trace)
	if err != nil {
		return nil, err
	}
	j.Memory = int64(trace.Capacity) * traceChunk
	j.Param = maps.Clone(j.Param)
	j.Param["runBytes"] = traceRun * traceChunk
	store := &local{}
	r, err := newRig(j, tier, meta, store)
	if err != nil {
		return nil, err
	}
	defer r.done(&err)
	cursors := make([]*fetch.Cursor, len(trace.Cursors))
	for i, c := range trace.Cursors {
		if c.Known {
			cursors[i] = r.reader.Announce(tier.Partition(int(c.Start.Partition)), int64(c.Start.Position))
			defer cursors[i].Close()
		}
	}
	var res fetch.Result
	defer res.Release()
	n := int64(0)
	m.Start()
	for a := range trace.Accesses {
		req := r.request(int(a.Chunk.Partition), int64(a.Chunk.Position), traceChunk)
		if a.Cursor >= 0 {
			req.Cursor = cursors[a.Cursor]
		}
		if err := r.reader.Fetch(ctx, req, &res); err != nil {
			return nil, err
		}
		if res.FirstOffset() != int64(a.Chunk.Position) {
			return nil, fmt.Errorf("%w: position %d was read at %d", errWrong, a.Chunk.Position, res.FirstOffset())
		}
		res.Release()
		n++
	}
	m.Stop()
	if n == 0 {
		return nil, errors.New("the trace is empty")
	}
	hits := n - store.data.Load()/traceChunk
	return map[string]float64{"ratio": float64(hits) / float64(n), "accesses": float64(n)}, nil
}

// traceMetadata has records of the segments that the trace touches.
func traceMetadata(tier *weather.Tier, trace policy.Trace) (*weather.Metadata, error) {
	type place struct{ partition, index int32 }
	seen := map[place]bool{}
	segs := map[int32][]*metadata.Segment{}
	for a := range trace.Accesses {
		at := place{a.Chunk.Partition, a.Chunk.Position / policy.SegmentLen}
		if seen[at] {
			continue
		}
		seen[at] = true
		seg, err := tier.Record(int(at.partition), int(at.index))
		if err != nil {
			return nil, err
		}
		segs[at.partition] = append(segs[at.partition], seg)
	}
	meta := weather.NewMetadata()
	for p, list := range segs {
		meta.Set(tier.Partition(int(p)), list...)
	}
	return meta, nil
}
