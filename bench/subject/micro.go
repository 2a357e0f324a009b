package subject

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/segment"
)

// hotChunks is how many chunks the steps in memory go round: enough to leave the
// processor's first cache.
const hotChunks = 256

// rounds runs do Count times on each of Streams goroutines at once, and returns
// what one call cost. do gets its goroutine and its number.
func rounds(j job.Job, m *job.Meter, do func(worker, i int) error) (map[string]float64, error) {
	workers := max(j.Streams, 1)
	errs := make([]error, workers)
	m.Start()
	var running sync.WaitGroup
	for w := range workers {
		running.Go(func() {
			for i := range j.Count {
				if err := do(w, i); err != nil {
					errs[w] = err
					return
				}
			}
		})
	}
	running.Wait()
	m.Stop()
	return map[string]float64{"calls": float64(workers * j.Count)}, errors.Join(errs...)
}

// leaseHot acquires and releases chunks that are in memory.
func leaseHot(_ context.Context, j job.Job, m *job.Meter) (map[string]float64, error) {
	const size = 1 << 10
	c, err := cache.New(cache.Options{MemoryBytes: 8 * hotChunks * size})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	key := func(i int) cache.Key { return cache.Key{Object: [16]byte{1}, Chunk: uint32(i)} }
	var l cache.Lease
	for i := range hotChunks {
		var r cache.Reservation
		if !c.TryReserve(size, &r) {
			return nil, errors.New("no memory in an empty cache")
		}
		_, f := c.Acquire(key(i), size, &r, &l)
		f.Buf()
		f.Done()
		l.Release()
		r.Release()
	}
	// Each worker has a lease of its own, as each caller of Fetch has a Result: not on
	// one cache line.
	leases := make([]struct {
		cache.Lease
		_ [112]byte
	}, max(j.Streams, 1))
	return rounds(j, m, func(w, i int) error {
		if o, _ := c.Acquire(key(i%hotChunks), size, nil, &leases[w].Lease); o != cache.Hit {
			return fmt.Errorf("lease of a resident chunk: outcome %d", o)
		}
		leases[w].Release()
		return nil
	})
}

// ristrettoGet gets values that are there.
func ristrettoGet(_ context.Context, j job.Job, m *job.Meter) (map[string]float64, error) {
	c, err := ristretto.NewCache(&ristretto.Config[uint64, []byte]{
		NumCounters: hotChunks * 10, MaxCost: hotChunks * 2, BufferItems: 64, IgnoreInternalCost: true,
	})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for i := range uint64(hotChunks) {
		c.Set(i, make([]byte, 1), 1)
	}
	c.Wait()
	return rounds(j, m, func(_, i int) error {
		if _, ok := c.Get(uint64(i % hotChunks)); !ok {
			return errors.New("a value that was set is not there")
		}
		return nil
	})
}

// fetchHot fetches PartSize bytes that are in memory, with AppendTo and Release.
func fetchHot(ctx context.Context, j job.Job, m *job.Meter) (values map[string]float64, err error) {
	tier, err := openTier(j)
	if err != nil {
		return nil, err
	}
	meta, err := tier.Metadata()
	if err != nil {
		return nil, err
	}
	r, err := newRig(j, tier, meta, &local{})
	if err != nil {
		return nil, err
	}
	defer r.done(&err)
	verifier := tier.Verifier(0, 0)
	var last int64
	err = r.walk(ctx, 0, 0, tier.EndOffset(), maxBytes(j), nil, func(res *fetch.Result) error {
		if res.Size() == maxBytes(j) {
			last = res.FirstOffset() // from here on a fetch may be shorter
		}
		return check(verifier, res)
	})
	if err != nil {
		return nil, err
	}
	workers := max(j.Streams, 1)
	results, bufs := make([]fetch.Result, workers), make([]net.Buffers, workers)
	partition := tier.Partition(0)
	// Once round, so that what grows has grown.
	get := func(w, i int) error {
		offset := int64(i) * 17 * int64(tier.Spec().Records) % (last + 1)
		if err := r.reader.Fetch(ctx, fetch.Request{Partition: partition, Offset: offset, MaxBytes: maxBytes(j)}, &results[w]); err != nil {
			return err
		}
		bufs[w] = results[w].AppendTo(bufs[w][:0])
		results[w].Release()
		return nil
	}
	for w := range workers {
		for i := range 64 {
			if err := get(w, i); err != nil {
				return nil, err
			}
		}
	}
	before := r.ep.Stats().Gets
	if values, err = rounds(j, m, get); err != nil {
		return nil, err
	}
	if gets := r.ep.Stats().Gets - before; gets != 0 {
		return nil, fmt.Errorf("%d GETs for what should be in memory: give more of it", gets)
	}
	return values, nil
}

// offsetLookup finds chunks by offset in the table of a large segment.
func offsetLookup(_ context.Context, j job.Job, m *job.Meter) (map[string]float64, error) {
	table, end, err := bigTable(j)
	if err != nil {
		return nil, err
	}
	var sum atomic.Int64
	values, err := rounds(j, m, func(_, i int) error {
		if got := table.ForOffset(scatter(i, end)); got < 0 {
			sum.Add(1)
		}
		return nil
	})
	for i := range 1000 {
		offset := scatter(i, end)
		got := table.ForOffset(offset)
		if b := table.Chunks[got]; b.BaseOffset > offset {
			return nil, fmt.Errorf("%w: offset %d was looked for from %d on", errWrong, offset, b.BaseOffset)
		}
	}
	return values, err
}

// offsetSearch does the same with sort.Search over the decoded entries.
func offsetSearch(_ context.Context, j job.Job, m *job.Meter) (map[string]float64, error) {
	table, end, err := bigTable(j)
	if err != nil {
		return nil, err
	}
	type entry struct{ offset, pos int64 }
	var entries []entry
	for _, c := range table.Chunks {
		if c.FirstBatch >= 0 {
			entries = append(entries, entry{c.BaseOffset, c.FirstBatch})
		}
	}
	var sum atomic.Int64
	return rounds(j, m, func(_, i int) error {
		offset := scatter(i, end)
		if got := sort.Search(len(entries), func(k int) bool { return entries[k].offset > offset }) - 1; got < -1 {
			sum.Add(1)
		}
		return nil
	})
}

// bigTable returns the chunk table of the first segment of the job's tier.
func bigTable(j job.Job) (object.Table, int64, error) {
	tier, err := openTier(j)
	if err != nil {
		return object.Table{}, 0, err
	}
	o, err := tier.Object(0, 0)
	if err != nil {
		return object.Table{}, 0, err
	}
	tail, err := o.Tail()
	if err != nil {
		return object.Table{}, 0, err
	}
	return tail.Table, tier.SegmentOffsets(), nil
}

// scatter returns a number in [0, n) that follows no pattern that a branch
// predictor would learn.
func scatter(i int, n int64) int64 {
	return int64(uint64(i) * 0x9e3779b97f4a7c15 >> 1 % uint64(n))
}

// manySegments makes Count segments in Streams partitions.
func manySegments(n, parts int) ([]segment.Partition, map[segment.Partition][]*metadata.Segment) {
	const offsets = 1000
	all := make(map[segment.Partition][]*metadata.Segment, parts)
	list := make([]segment.Partition, parts)
	custom := object.Location{ObjectSize: 1 << 20, TailOffset: 1<<20 - 1024}.Append(nil)
	for p := range list {
		list[p] = segment.Partition{Topic: "many", TopicID: segment.UUID{1}, Number: int32(p)}
	}
	for i := range n {
		p := list[i%parts]
		start := int64(i/parts) * offsets
		all[p] = append(all[p], &metadata.Segment{
			Partition: p, ID: segment.NewUUID(), StartOffset: start, EndOffset: start + offsets - 1,
			MaxTimestamp: start, EventTimestamp: start, SizeBytes: 1 << 20, Epochs: segment.Lineage{{Epoch: 0, Start: start}},
			Custom: append([]byte(nil), custom...), State: metadata.CopySegmentFinished, TxnIndexEmpty: true,
		})
	}
	return list, all
}

// segmentLookup finds segments by partition and offset among Param["segments"] of
// them.
func segmentLookup(_ context.Context, j job.Job, m *job.Meter) (map[string]float64, error) {
	n, parts := int(j.Param["segments"]), max(int(j.Param["partitions"]), 1)
	list, all := manySegments(n, parts)
	meta := weather.NewMetadata()
	for p, segs := range all {
		meta.Set(p, segs...)
	}
	perPartition := int64(n/parts) * 1000
	lineage := segment.Lineage{{Epoch: 0, Start: 0}}
	return rounds(j, m, func(_, i int) error {
		offset := scatter(i, perPartition)
		view, err := meta.View(list[scatter(i*31, int64(parts))])
		if err != nil {
			return err
		}
		if seg, ok := view.Lookup(lineage, offset); !ok || offset < seg.StartOffset || offset > seg.EndOffset {
			return fmt.Errorf("%w: no segment for offset %d", errWrong, offset)
		}
		return nil
	})
}

// segmentMap does the same with a map of sorted slices.
func segmentMap(_ context.Context, j job.Job, m *job.Meter) (map[string]float64, error) {
	n, parts := int(j.Param["segments"]), max(int(j.Param["partitions"]), 1)
	list, all := manySegments(n, parts)
	perPartition := int64(n/parts) * 1000
	return rounds(j, m, func(_, i int) error {
		offset := scatter(i, perPartition)
		segs := all[list[scatter(i*31, int64(parts))]]
		k := sort.Search(len(segs), func(k int) bool { return segs[k].StartOffset > offset }) - 1
		if k < 0 || offset > segs[k].EndOffset {
			return fmt.Errorf("%w: no segment for offset %d", errWrong, offset)
		}
		return nil
	})
}

// segmentMemory returns what a segment takes in memory as metadata keeps it.
func segmentMemory(_ context.Context, j job.Job, m *job.Meter) (map[string]float64, error) {
	n, parts := int(j.Param["segments"]), max(int(j.Param["partitions"]), 1)
	heap := func() uint64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	m.Start()
	before := heap()
	meta := weather.NewMetadata()
	func() {
		_, all := manySegments(n, parts)
		for p, segs := range all {
			meta.Set(p, segs...)
		}
	}()
	after := heap()
	m.Stop()
	runtime.KeepAlive(meta)
	return map[string]float64{"bytesPerSegment": float64(after-before) / float64(n)}, nil
}
