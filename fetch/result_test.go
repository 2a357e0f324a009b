package fetch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/testseg"
)

// A Result outlives its Reader and its cache, can be released at leisure, and
// used again.
func TestResultOutlivesEverything(t *testing.T) {
	x := newTier(t, testseg.Random(4, testseg.Options{}), tierOptions{})
	var res fetch.Result
	if err := x.reader.Fetch(t.Context(), x.request(x.start(), 1<<20), &res); err != nil {
		t.Fatal(err)
	}
	if err := x.reader.Close(); err != nil {
		t.Fatal(err)
	}
	x.cache.Close()
	x.check(&res, x.batches(), x.start(), 1<<20)
	if st := x.cache.Stats(); st.Used == 0 {
		t.Fatal("leased memory is not accounted for")
	}
	res.Release()
	res.Release()
	if res.Size() != 0 || len(res.AppendTo(nil)) != 0 {
		t.Fatal("a released Result holds data")
	}
	for range res.Batches() {
		t.Fatal("a released Result has batches")
	}
	x.close()
}

// An error leaves nothing of what was in the Result before.
func TestErrorEmptiesResult(t *testing.T) {
	x := newTier(t, testseg.Random(4, testseg.Options{}), tierOptions{})
	defer x.close()
	var res fetch.Result
	if err := x.reader.Fetch(t.Context(), x.request(x.start(), 1<<20), &res); err != nil {
		t.Fatal(err)
	}
	if err := x.reader.Fetch(t.Context(), x.request(x.end(), 1<<20), &res); !errors.Is(err, fetch.ErrEndOfTier) {
		t.Fatal(err)
	}
	if res.Size() != 0 || res.NextOffset() != 0 || len(res.AppendTo(nil)) != 0 {
		t.Fatal("data of the fetch before")
	}
}

// Batches stops when it is told to, and can be asked again.
func TestBatchesStops(t *testing.T) {
	x := newTier(t, testseg.Random(4, testseg.Options{}), tierOptions{})
	defer x.close()
	var res fetch.Result
	defer res.Release()
	if err := x.reader.Fetch(t.Context(), x.request(x.start(), 1<<20), &res); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		n := 0
		for range res.Batches() {
			if n++; n == 3 {
				break
			}
		}
		if n != 3 {
			t.Fatalf("%d batches", n)
		}
	}
}

func TestHotFetchDoesNotAllocate(t *testing.T) {
	for name, isolation := range map[string]fetch.Isolation{"uncommitted": fetch.ReadUncommitted, "committed": fetch.ReadCommitted} {
		t.Run(name, func(t *testing.T) {
			x := newTier(t, testseg.Random(8, testseg.Options{Segments: 3}), tierOptions{})
			defer x.close()
			var res fetch.Result
			bufs := make(net.Buffers, 0, 1000)
			req := x.request(x.start()+20, 1<<20) // over all segments
			req.Isolation = isolation
			ctx := t.Context()
			if n := testing.AllocsPerRun(1000, func() {
				if err := x.reader.Fetch(ctx, req, &res); err != nil {
					t.Fatal(err)
				}
				bufs = res.AppendTo(bufs[:0])
				res.Release()
			}); n != 0 {
				t.Fatalf("%v allocations", n)
			}
		})
	}
}

// What a cold fetch costs is what Explain says.
func TestExplain(t *testing.T) {
	log := testseg.Random(13, testseg.Options{Segments: 2})
	x := newTier(t, log, tierOptions{chunk: 1000})
	defer x.close()
	all := x.batches()
	for offset := x.start(); offset <= all[len(all)-1].Header.LastOffset; offset++ {
		e, err := x.reader.Explain(t.Context(), x.request(offset, 1))
		if err != nil {
			t.Fatal(err)
		}
		b := all[slices.IndexFunc(all, func(b placed) bool { return b.Header.LastOffset >= offset })]
		if e.Batch.Position != b.Pos || e.Batch.Size != int64(b.Header.Size) || e.Batch.BaseOffset != b.Header.BaseOffset || e.Batch.LastOffset != b.Header.LastOffset {
			t.Fatalf("offset %d: %+v, want position %d and %+v", offset, e.Batch, b.Pos, b.Header)
		}
		if e.Chunk.Number != int(b.Pos/1000) || e.Chunk.Position != b.Pos/1000*1000 {
			t.Fatalf("offset %d: %+v", offset, e.Chunk)
		}
		if e.Offset != offset || e.SegmentID.IsZero() || e.ReadableUpTo != e.EndOffset || e.State != "COPY_SEGMENT_FINISHED" {
			t.Fatalf("offset %d: %+v", offset, e)
		}
		if offset%40 != 0 {
			continue
		}
		x.chill()
		x.forget()
		var res fetch.Result
		if err := x.reader.Fetch(t.Context(), x.request(offset, 1), &res); err != nil {
			t.Fatal(err)
		}
		res.Release()
		told := map[int64]bool{}
		for _, g := range e.Gets {
			for off := g.Offset - g.Offset%1000; off < g.Offset+g.Length; off += 1000 {
				told[off] = true
			}
		}
		for c := range coverage(x.forget(), 1000) {
			// A gap between chunks makes a fetch look into the chunk before.
			if !told[c.Off] && c.Off != e.Chunk.Position-1000 {
				t.Fatalf("offset %d: fetched bytes at %d, explained are %+v", offset, c.Off, e.Gets)
			}
		}
	}

	e, err := x.reader.Explain(t.Context(), x.request(x.start(), 1))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"topic", "topicId", "partition", "segmentId", "startOffset", "endOffset", "maxTimestamp", "state", "sizeBytes",
		"leaderEpochs", "object", "tailOffset", "chunk", "batch", "baseOffset", "lastOffset", "gets",
	} {
		if !bytes.Contains(b, []byte(`"`+key+`":`)) {
			t.Errorf("no %q in %s", key, b)
		}
	}
}

// A cold fetch of one segment is two GETs, a time lookup as well, and a hot one
// none.
func TestGetsNeeded(t *testing.T) {
	x := newTier(t, testseg.Random(2, testseg.Options{Segments: 1}), tierOptions{chunk: 1 << 20})
	defer x.close()
	var res fetch.Result
	count := func(want int, what string) {
		t.Helper()
		if gets := x.forget(); len(gets) != want {
			t.Errorf("%s: %d GETs, want %d", what, len(gets), want)
		}
	}
	fetchOne := func() {
		t.Helper()
		if err := x.reader.Fetch(t.Context(), x.request(x.start(), 1<<20), &res); err != nil {
			t.Fatal(err)
		}
		res.Release()
	}
	byTime := func(ts int64) {
		t.Helper()
		if _, err := x.reader.OffsetForTime(t.Context(), fetch.TimeRequest{Partition: x.log.Partition, Time: ts}); err != nil {
			t.Fatal(err)
		}
	}
	x.forget()
	fetchOne()
	count(2, "cold")
	fetchOne()
	count(0, "hot")
	x.chill()
	byTime(x.segs[0].MaxTimestamp)
	count(2, "time, cold")
	byTime(x.segs[0].MaxTimestamp + 1)
	count(0, "time beyond the tier")
	if st := x.reader.Stats(); st.TailGets != 1 || st.DataGets != 1 || st.Tails != 1 || st.TailBytes <= 0 {
		t.Errorf("%+v", st)
	}
}

// A lookup by time reads nothing below the log start.
func TestTimeBeginsAtLogStart(t *testing.T) {
	x := newTier(t, testseg.Random(2, testseg.Options{Segments: 1}), tierOptions{chunk: 1000})
	defer x.close()
	all := x.batches()
	last := all[len(all)-1]
	x.forget()
	if _, err := x.reader.OffsetForTime(t.Context(), fetch.TimeRequest{Partition: x.log.Partition, LogStart: last.Header.BaseOffset, Time: 0}); err != nil {
		t.Fatal(err)
	}
	for c := range coverage(x.forget(), 1000) {
		if c.Off < last.Pos/1000*1000-1000 { // at most the chunk before, if the batch begins a chunk
			t.Errorf("chunk at %d was read, the log start is at %d", c.Off, last.Pos)
		}
	}
}

// Tails stay within their budget, and one that is larger than it still works.
func TestTailBudget(t *testing.T) {
	x := newTier(t, testseg.Random(2, testseg.Options{Segments: 4}), tierOptions{tails: 4 << 10})
	defer x.close()
	for range 3 {
		x.walk(1000)
		if st := x.reader.Stats(); st.TailBytes > 4<<10 || st.Tails == 0 {
			t.Fatalf("%+v", st)
		}
	}
}

func TestOptions(t *testing.T) {
	x := newTier(t, testseg.Random(2, testseg.Options{Segments: 1}), tierOptions{})
	defer x.close()
	if _, err := fetch.New(nil, x.ep, x.cache, fetch.Options{}); err == nil {
		t.Error("no metadata was accepted")
	}
	for _, o := range []fetch.Options{{TailBytes: -1}, {RunBytes: -1}, {RunBytes: 1<<30 + 1}} {
		if _, err := fetch.New(x.meta, x.ep, x.cache, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}
