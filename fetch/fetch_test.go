package fetch_test

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/segment"
)

// drawTier makes a random partition with chunks of a random size, down to a few
// bytes, so that borders are everywhere.
func drawTier(t *rapid.T) *tier {
	log := testseg.Random(rapid.Uint64().Draw(t, "seed"), testseg.Options{
		Start:    rapid.SampledFrom([]int64{0, 1, 100, 1 << 40}).Draw(t, "start"),
		Segments: rapid.IntRange(1, 3).Draw(t, "segments"),
		Batches:  rapid.IntRange(1, 15).Draw(t, "batches"),
	})
	chunk := rapid.SampledFrom([]int64{300, 1000, 4096, 64 << 10, 1 << 20}).Draw(t, "chunk")
	// Enough for the chunks of any one batch, at times hardly more.
	least := int64(0)
	for _, s := range log.Segments {
		for _, b := range s.Batches {
			least = max(least, min((b.Pos%chunk+int64(b.Header.Size)+chunk-1)/chunk*chunk, int64(len(s.Log))))
		}
	}
	return newTier(t, log, tierOptions{
		chunk:  chunk,
		memory: rapid.SampledFrom([]int64{least, 2 * least, 16 << 20}).Draw(t, "memory"),
		tails:  rapid.SampledFrom([]int64{1, 8 << 10, 0}).Draw(t, "tails"),
		run:    rapid.SampledFrom([]int64{1, 5000, 0}).Draw(t, "run"),
		upTo:   rapid.IntRange(0, 3).Draw(t, "copied"),
	})
}

// Every byte comes back, whatever is asked for at a time.
func TestWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawTier(t)
		defer x.close()
		for _, maxBytes := range []int{rapid.IntRange(-1, 1).Draw(t, "at least one"), 1000, 64 << 10, 64 << 20} {
			x.walk(maxBytes)
		}
	})
}

// A fetch at any offset begins with the batch that a brute-force scan finds.
func TestEveryOffset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawTier(t)
		defer x.close()
		x.everyOffset(rapid.SampledFrom([]int{1, 3000, 1 << 20}).Draw(t, "max bytes"))
	})
}

// So does a lookup by any time.
func TestEveryTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawTier(t)
		defer x.close()
		inside := rapid.Int64Range(x.start(), x.end()+1).Draw(t, "log start")
		x.everyTime(x.start(), inside)
	})
}

// The aborted transactions for any range are those that brute force finds, and
// the answer says where certainty ends.
func TestAbortedTransactions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawTier(t)
		defer x.close()
		var res fetch.Result
		defer res.Release()
		last := x.batches()[len(x.batches())-1].Header.LastOffset
		for range 20 {
			req := x.request(rapid.Int64Range(x.start(), last).Draw(t, "offset"), rapid.SampledFrom([]int{1, 2000, 1 << 20}).Draw(t, "max bytes"))
			req.Isolation = fetch.ReadCommitted
			if err := x.reader.Fetch(context.Background(), req, &res); err != nil {
				t.Fatalf("%v", err)
			}
			got, complete, upTo := res.AbortedTransactions()
			have := map[testseg.Aborted]bool{}
			for _, a := range got {
				have[testseg.Aborted(a)] = true
			}
			if len(have) != len(got) {
				t.Fatalf("duplicates in %v", got)
			}
			// All of the log, also what is not tiered.
			for i, s := range x.log.Segments {
				for _, a := range s.Aborted {
					overlaps := a.LastOffset >= res.FirstOffset() && a.FirstOffset < res.NextOffset()
					tiered := i < len(x.segs)
					switch {
					case overlaps && tiered && !have[a]:
						t.Fatalf("%d to %d: %+v is missing", res.FirstOffset(), res.NextOffset(), a)
					case overlaps && complete && !have[a]:
						t.Fatalf("%d to %d: said to be complete, but %+v lies beyond the tier", res.FirstOffset(), res.NextOffset(), a)
					case !overlaps && have[a]:
						t.Fatalf("%d to %d: %+v does not concern it", res.FirstOffset(), res.NextOffset(), a)
					}
					delete(have, a)
				}
			}
			if len(have) > 0 {
				t.Fatalf("made up: %v", have)
			}
			if !complete && upTo != x.end() {
				t.Fatalf("searched up to %d, the tier ends at %d", upTo, x.end())
			}
		}
	})
}

// Uncommitted reads do not search.
func TestReadUncommittedSearchesNothing(t *testing.T) {
	x := newTier(t, testseg.Random(3, testseg.Options{}), tierOptions{})
	defer x.close()
	var res fetch.Result
	defer res.Release()
	if err := x.reader.Fetch(t.Context(), x.request(x.start(), 1), &res); err != nil {
		t.Fatal(err)
	}
	if list, complete, _ := res.AbortedTransactions(); len(list) > 0 || complete {
		t.Fatalf("%v, complete %v", list, complete)
	}
}

// record is one record at a time in a batch of its own.
func record(offset, ts int64, epoch int32, size int) testseg.Batch {
	return testseg.Batch{BaseOffset: offset, LeaderEpoch: epoch, Records: []segment.Record{{Offset: offset, Timestamp: ts, Value: make([]byte, size)}}}
}

// A batch that ends beyond many chunks, gaps at the end of a segment, and a
// segment whose every batch was compacted to nothing.
func TestBordersByHand(t *testing.T) {
	p := testseg.DefaultPartition
	epochs := segment.Lineage{{Epoch: 0, Start: 10}}
	empty := testseg.Batch{BaseOffset: 130, LastOffset: 149, MaxTimestamp: 5}
	log := &testseg.Log{Partition: p, Epochs: epochs, Segments: []*testseg.Segment{
		testseg.Build(testseg.Spec{Partition: p, Epochs: epochs, Start: 10, End: 99, Batches: []testseg.Batch{
			record(12, 1000, 0, 10), record(20, 900, 0, 5_000), record(30, 800, 0, 10),
		}}),
		testseg.Build(testseg.Spec{Partition: p, Epochs: epochs, Start: 100, End: 149, Batches: []testseg.Batch{empty}}),
		testseg.Build(testseg.Spec{Partition: p, Epochs: epochs, Start: 150, End: 199, Batches: []testseg.Batch{record(180, 1001, 0, 5)}}),
	}}
	for _, chunk := range []int64{1, 64, 4096, 1 << 20} {
		x := newTier(t, log, tierOptions{chunk: chunk})
		for _, maxBytes := range []int{1, 200, 5_200, 1 << 20} {
			fetches := x.walk(maxBytes)
			if maxBytes == 1<<20 && fetches != 1 {
				t.Errorf("%d fetches, all segments fit into one", fetches)
			}
			x.everyOffset(maxBytes)
		}
		x.everyTime(10, 13, 21, 99, 100, 150, 181, 200)
		x.close()
	}
}
