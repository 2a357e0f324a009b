package fetch_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
)

// MaxBytes is whatever a host puts there, and "all there is" is the largest number of
// its machine: at every offset it returns what is returned for a bound that is just
// larger than the tier, and what is fetched ahead goes on in sequence.
func TestMaxBytesWithoutBound(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(2, 16)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 400 * chunk, run: 8 * chunk})
		defer x.close()
		var bounded, res fetch.Result
		defer bounded.Release()
		defer res.Release()
		for _, huge := range []int{math.MaxInt, math.MaxInt - 1, math.MaxInt / 2} {
			for offset := int64(0); offset < x.end(); offset++ {
				if err := x.reader.Fetch(t.Context(), x.request(offset, int(100*chunk)), &bounded); err != nil {
					t.Fatal(err)
				}
				if err := x.reader.Fetch(t.Context(), x.request(offset, huge), &res); err != nil {
					t.Fatal(err)
				}
				if res.Size() != bounded.Size() || res.NextOffset() != bounded.NextOffset() {
					t.Fatalf("offset %d, MaxBytes %d: %d bytes up to %d, want %d up to %d",
						offset, huge, res.Size(), res.NextOffset(), bounded.Size(), bounded.NextOffset())
				}
			}
		}
		for _, none := range []int{0, -1, math.MinInt} {
			if err := x.reader.Fetch(t.Context(), x.request(3, none), &res); err != nil || res.NextOffset() != 4 {
				t.Fatalf("MaxBytes %d: up to %d, %v", none, res.NextOffset(), err)
			}
		}
		answers := x.reader.FetchMany(t.Context(), fetch.ManyRequest{Requests: []fetch.Request{x.request(5, math.MaxInt), x.request(7, math.MaxInt)}}, nil)
		for i := range answers {
			if a := &answers[i]; a.Err != nil || a.Result.NextOffset() != x.end() {
				t.Errorf("partition %d of many: up to %d, %v", i, a.Result.NextOffset(), a.Err)
			}
			answers[i].Result.Release()
		}
		if e, err := x.reader.Explain(t.Context(), x.request(20, math.MaxInt)); err != nil || len(e.Gets) < 2 {
			t.Errorf("explained: %+v, %v", e.Gets, err)
		}
	})
}

// A segment may end with the last offset there is, behind which there is none to go on
// at: every walk ends there.
func TestLastOffsetOfAll(t *testing.T) {
	const last = math.MaxInt64
	for _, end := range []int64{last - 1, last} {
		log := &testseg.Log{Partition: testseg.DefaultPartition, Epochs: segment.Lineage{{Epoch: 0, Start: 0}}}
		log.Segments = append(log.Segments, testseg.Build(testseg.Spec{
			Partition: log.Partition, Start: end - 2, Epochs: log.Epochs,
			Batches: []testseg.Batch{record(end-2, 1, 0, 100), record(end-1, 1, 0, 100), record(end, 2, 0, 100)},
		}))
		x := newTier(t, log, tierOptions{})
		var res fetch.Result
		for _, maxBytes := range []int{1, 1 << 20} {
			for _, isolation := range []fetch.Isolation{fetch.ReadUncommitted, fetch.ReadCommitted} {
				for _, offset := range []int64{end - 2, end - 1, end, last} {
					req := x.request(offset, maxBytes)
					req.Isolation = isolation
					req.Hint = fetch.Sequential
					err := x.reader.Fetch(t.Context(), req, &res)
					behind := (*fetch.EndOfTierError)(nil)
					if offset == last && (!errors.As(err, &behind) || behind.Next != last) || offset < last && err != nil {
						t.Errorf("segment up to %d, offset %d, %d bytes: %v", end, offset, maxBytes, err)
					}
				}
			}
		}
		if at, err := x.reader.OffsetForTime(t.Context(), fetch.TimeRequest{Partition: log.Partition, Lineage: log.Epochs, Time: last}); err != nil || at.Offset != -1 {
			t.Errorf("segment up to %d: a time after all is at %+v, %v", end, at, err)
		}
		res.Release()
		x.close()
	}
}

// A Stream that is closed while its read waits, for the tail here, gets what it asked for
// and nothing ahead of it: nobody would call that off, nor take its share of memory back.
func TestCloseDuringNext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(2, 16)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 400 * chunk, run: 8 * chunk})
		defer x.close()
		gate := x.held()
		s := x.reader.Stream(x.request(3, 1))
		var res fetch.Result
		defer res.Release()
		done := make(chan error)
		go func() { done <- s.Next(t.Context(), &res) }()
		synctest.Wait()
		s.Close()
		close(gate)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		x.check(&res, x.batches(), 3, 1)
		synctest.Wait()
		if st := x.reader.Stats(); st.Ahead != 0 || st.Streams != 0 || st.DataBytes != chunk {
			t.Errorf("for a stream that was closed: %+v", st)
		}
	})
}

// A reader may jump ahead over what is on its way, also where that goes on in the next
// segment, and into it: nothing of it is called off, nothing is asked for twice, and it is
// the same stream. What it has jumped over was fetched in vain.
func TestJumpOverWhatIsOnItsWay(t *testing.T) {
	const announced, streamed, detected = 0, 1, 2
	for name, c := range map[string]struct {
		who int
		to  int64
	}{
		"stream, within the segment":   {streamed, 7},
		"stream, into the next":        {streamed, 12},
		"cursor, within the segment":   {announced, 7},
		"cursor, into the next":        {announced, 12},
		"detected, within the segment": {detected, 7},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				log, chunk := even(12, 8)
				x := newTier(t, log, tierOptions{chunk: chunk, memory: 400 * chunk, run: 16 * chunk})
				defer x.close()
				var res fetch.Result
				defer res.Release()
				for offset := int64(7); offset < x.end(); offset += 8 { // for the tails
					look := x.request(offset, 1)
					look.Hint = fetch.TimeQuery
					if err := x.reader.Fetch(t.Context(), look, &res); err != nil {
						t.Fatal(err)
					}
				}
				for _, seg := range x.segs {
					x.cache.Drop(seg.ID)
				}
				x.forget()
				s := x.sequence(0, c.who == announced)
				if c.who == detected {
					at := int64(0)
					s = sequence{
						next: func(ctx context.Context, res *fetch.Result) error {
							err := x.reader.Fetch(ctx, x.request(at, 1), res)
							if err == nil {
								at = res.NextOffset()
							}
							return err
						},
						seek: func(to int64) { at = to }, close: func() {},
					}
				}
				defer s.close()
				next := func() {
					t.Helper()
					if err := s.next(t.Context(), &res); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				for range 3 {
					next()
				}
				if !x.cache.Has(cache.Key{Object: x.segs[1].ID, Chunk: 5}) {
					t.Fatal("too little is fetched ahead")
				}
				s.seek(c.to)
				next()
				x.check(&res, x.batches(), c.to, 1)
				next() // it may still come back for what it jumped over
				if st := x.reader.Stats(); st.CalledOff != 0 || st.Streams != 1 || st.Wasted != 0 {
					t.Errorf("after the jump: %+v", st)
				}
				for offset := c.to + 2; offset < x.end(); offset++ {
					next()
				}
				if st := x.reader.Stats(); st.Wasted != (c.to-3)*chunk || st.DataBytes-12*chunk != 96*chunk {
					t.Errorf("in the end, with %d chunks jumped over: %+v", c.to-3, st)
				}
				for at, n := range coverage(x.forget(), chunk) {
					if n != 1 {
						t.Errorf("chunk at %d of %s was fetched %d times", at.Off, at.Key, n)
					}
				}
			})
		})
	}
}

// A segment whose tail cannot be had is not asked for anew by each read that comes near
// it: the reader may not get there for long, and would be told then.
func TestNextTailThatFails(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(2, 64)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 1000 * chunk, run: 64 * chunk})
		defer x.close()
		key, b := x.object(x.segs[1])
		if err := x.mem.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		var res fetch.Result
		defer res.Release()
		s := x.reader.Stream(x.request(0, 1))
		defer s.Close()
		read := func(n int) (asked int) {
			t.Helper()
			for range n {
				if err := s.Next(t.Context(), &res); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			for _, g := range x.forget() {
				if g.Key == key {
					asked++
				}
			}
			return asked
		}
		if asked := read(64); asked == 0 || asked > 6 {
			t.Errorf("asked for %d times", asked)
		}
		if err := s.Next(t.Context(), &res); !errors.Is(err, fetch.ErrCorruption) {
			t.Errorf("there: %v", err)
		}
		// Who begins anew asks anew.
		x.put(key, b)
		x.forget()
		s.SeekTo(0)
		if asked := read(40); asked == 0 {
			t.Error("not asked for by who begins anew")
		}
	})
}

// A Lineage is not kept: what becomes of the caller's slice is nothing to a Stream. Nil is
// the newest history at each read, and an empty one is none.
func TestStreamHasItsLineage(t *testing.T) {
	log, chunk := even(1, 8)
	x := newTier(t, log, tierOptions{chunk: chunk})
	defer x.close()
	var res fetch.Result
	defer res.Release()
	for name, lineage := range map[string]segment.Lineage{"given": slices.Clone(log.Epochs), "nil": nil, "empty": {}} {
		req := x.request(0, 1)
		req.Lineage = lineage
		s := x.reader.Stream(req)
		for i := range lineage {
			lineage[i] = segment.EpochStart{Epoch: 77, Start: 1000}
		}
		if err := s.Next(t.Context(), &res); name == "empty" && !errors.Is(err, fetch.ErrEndOfTier) || name != "empty" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		s.Close()
	}
}

// An object that becomes another one while a run of it is read, with the same bytes, is
// read on where it was, whatever is there already.
func TestIdentityChangesInTheMiddleOfARun(t *testing.T) {
	log, chunk := even(1, 16)
	x := newTier(t, log, tierOptions{chunk: chunk, run: 64 * chunk, attempts: 3})
	defer x.close()
	var res fetch.Result
	defer res.Release()
	if err := x.reader.Fetch(t.Context(), x.request(15, 1), &res); err != nil {
		t.Fatal(err)
	}
	x.forget()
	n := 0
	x.inject(func(c storetest.Call) storetest.Fault {
		if c.Op != "get" {
			return storetest.Fault{}
		}
		switch n++; n {
		case 1:
			return storetest.Fault{Kind: storetest.Cut, At: 2*chunk + 100}
		case 2:
			return storetest.Fault{Kind: storetest.WrongIdentity}
		}
		return storetest.Fault{}
	})
	if err := x.reader.Fetch(t.Context(), x.request(0, int(8*chunk)), &res); err != nil {
		t.Fatal(err)
	}
	x.check(&res, x.batches(), 0, int(8*chunk))
	gets := x.forget()
	if len(gets) != 3 || gets[2].Off != 2*chunk || gets[2].Off+gets[2].Len != 8*chunk {
		t.Errorf("%v, want the third one to go on with chunk 2", gets)
	}
}

// A lineage that is none is an error of the caller's, whatever is asked: to be told that
// the tier ends, or that a time is not in it, would be wrong.
func TestLineageThatIsNone(t *testing.T) {
	log, chunk := even(2, 8)
	x := newTier(t, log, tierOptions{chunk: chunk})
	defer x.close()
	wrong := segment.Lineage{{Epoch: 5, Start: 10}, {Epoch: 3, Start: 10}}
	req := x.request(0, 1)
	req.Lineage = wrong
	var res fetch.Result
	defer res.Release()
	_, explained := x.reader.Explain(t.Context(), req)
	_, found := x.reader.OffsetForTime(t.Context(), fetch.TimeRequest{Partition: log.Partition, Lineage: wrong})
	many := x.reader.FetchMany(t.Context(), fetch.ManyRequest{Requests: []fetch.Request{req}, MaxBytes: 1 << 20}, nil)
	for name, err := range map[string]error{
		"Fetch": x.reader.Fetch(t.Context(), req, &res), "Explain": explained, "OffsetForTime": found, "FetchMany": many[0].Err,
	} {
		if err == nil || !strings.Contains(err.Error(), "epoch 3 from offset 10") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range many {
		many[i].Result.Release()
	}
}

// Who waits for memory until his time is over is told so: it is nothing that a store could
// do something about.
func TestWaitsForMemoryAreNamed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(2, 8)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 2 * chunk})
		defer x.close()
		var held, res fetch.Result
		defer held.Release()
		if err := x.reader.Fetch(t.Context(), x.request(0, int(2*chunk)), &held); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		err := x.reader.Fetch(ctx, x.request(held.NextOffset(), 1), &res)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), fmt.Sprintf("waited 300ms for %d bytes of memory", chunk)) {
			t.Errorf("got %v", err)
		}
	})
}
