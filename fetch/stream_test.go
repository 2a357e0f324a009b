package fetch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
)

// even returns a log of segments of so many chunks each, one batch in each chunk
// and one offset in each batch, and the length of a chunk.
func even(segments, chunks int) (*testseg.Log, int64) {
	log := &testseg.Log{Partition: testseg.DefaultPartition, Epochs: segment.Lineage{{Epoch: 0, Start: 0}}}
	var size int64
	for s := range segments {
		var batches []testseg.Batch
		for i := range chunks {
			n := int64(s*chunks + i)
			batches = append(batches, record(n, 1, 0, 900))
		}
		seg := testseg.Build(testseg.Spec{Partition: log.Partition, Start: int64(s * chunks), Epochs: log.Epochs, Batches: batches})
		size = int64(seg.Batches[0].Header.Size)
		log.Segments = append(log.Segments, seg)
	}
	return log, size
}

// ranges are the chunks of the GETs that were made, tails as -1.
func (x *tier) ranges(chunk int64) (all [][2]int64) {
	for _, g := range x.forget() {
		if g.Off%chunk != 0 || g.Len%chunk != 0 {
			all = append(all, [2]int64{-1, -1})
			continue
		}
		all = append(all, [2]int64{g.Off / chunk, (g.Off + g.Len) / chunk})
	}
	return all
}

// One reader in sequence: the first chunk alone, then the rest of its run, then
// run after run, and the next segment's tail before its data. Every chunk once.
func TestSequenceOfGets(t *testing.T) {
	for name, hint := range map[string]fetch.Hint{"detected": fetch.Detect, "announced": fetch.Scan} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				log, chunk := even(3, 32)
				x := newTier(t, log, tierOptions{chunk: chunk, memory: 400 * chunk, run: 16 * chunk})
				defer x.close()
				all := x.batches()
				var res fetch.Result
				defer res.Release()
				var joined int
				for offset := int64(0); offset < x.end(); offset++ {
					req := x.request(offset, 1)
					req.Hint = hint
					if err := x.reader.Fetch(t.Context(), req, &res); err != nil {
						t.Fatal(err)
					}
					x.check(&res, all, offset, 1)
					synctest.Wait()
				}
				gets := x.ranges(chunk)
				data, tails := map[int64]int64{}, 0
				for _, g := range gets {
					if g[0] < 0 {
						tails++
						continue
					}
					joined++
					data[g[1]-g[0]]++
				}
				if tails != 3 || x.reader.Stats().DataBytes != 96*chunk {
					t.Errorf("%d tails, %d bytes of %d: %v", tails, x.reader.Stats().DataBytes, 96*chunk, gets)
				}
				most := 14
				if hint != fetch.Detect {
					most += 24 // short ones until it is known how fast a connection is
				}
				if joined > most || data[16] < 2 {
					t.Errorf("%d GETs for 96 chunks: %v", joined, gets)
				}
				if hint == fetch.Detect && (gets[1] != [2]int64{0, 1}) {
					t.Errorf("the first demand was not alone: %v", gets)
				}
				if st := x.reader.Stats(); st.Wasted != 0 {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// Reads at random, and looks at one place, fetch what they need and no more.
func TestNothingAheadOfRandomReads(t *testing.T) {
	log, chunk := even(1, 64)
	x := newTier(t, log, tierOptions{chunk: chunk})
	defer x.close()
	var res fetch.Result
	defer res.Release()
	for i := range int64(64) {
		if err := x.reader.Fetch(t.Context(), x.request(i*29%64, 1), &res); err != nil {
			t.Fatal(err)
		}
	}
	if st := x.reader.Stats(); st.Ahead != 0 || st.DataGets != 64 {
		t.Errorf("at random: %+v", st)
	}
	x.cache.Drop(x.segs[0].ID)
	for offset := range int64(64) {
		req := x.request(offset, 1)
		req.Hint = fetch.TimeQuery
		if err := x.reader.Fetch(t.Context(), req, &res); err != nil {
			t.Fatal(err)
		}
	}
	if st := x.reader.Stats(); st.Ahead != 0 || st.DataGets != 128 {
		t.Errorf("looks: %+v", st)
	}
}

// A reader that goes elsewhere is not fetched ahead for where it was, and what was
// is counted as wasted once its place is taken.
func TestSeekStopsFetchingAhead(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(2, 64)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 400 * chunk, run: 16 * chunk})
		defer x.close()
		s := x.reader.Stream(x.request(0, 1))
		var res fetch.Result
		defer res.Release()
		next := func() {
			if err := s.Next(t.Context(), &res); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for range 4 {
			next()
		}
		before := x.reader.Stats()
		s.SeekTo(100)
		next()
		x.forget()
		key, _ := x.object(x.segs[0])
		for range 10 {
			next()
		}
		for _, g := range x.forget() {
			if g.Key == key {
				t.Errorf("GET of %d bytes at %d where it was", g.Len, g.Off)
			}
		}
		if st := x.reader.Stats(); st.Wasted < before.Ahead-4*chunk || st.Wasted == 0 {
			t.Errorf("ahead %d, wasted %d", before.Ahead, st.Wasted)
		}
		s.Close()
		s.Close()
		if err := s.Next(t.Context(), &res); !errors.Is(err, fetch.ErrClosed) {
			t.Errorf("Next after Close: %v", err)
		}
		if st := x.reader.Stats(); st.Streams != 0 {
			t.Errorf("%d streams", st.Streams)
		}
	})
}

// A stream reads everything, to the end of the tier and no further.
func TestStream(t *testing.T) {
	x := newTier(t, testseg.Random(3, testseg.Options{Segments: 3}), tierOptions{chunk: 2000, run: 8000})
	defer x.close()
	all := x.batches()
	s := x.reader.Stream(x.request(x.start(), 3000))
	defer s.Close()
	var res fetch.Result
	defer res.Release()
	for {
		at := s.Offset()
		err := s.Next(t.Context(), &res)
		if end := (*fetch.EndOfTierError)(nil); errors.As(err, &end) {
			if end.Next != x.end() || s.Offset() != at {
				t.Errorf("ends at %d, want %d", end.Next, x.end())
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		x.check(&res, all, at, 3000)
	}
}

// Fetching ahead takes no memory that others need: with all of it leased, a stream
// still gets its next batch as soon as there is room for it, and nothing more.
func TestFetchingAheadNeverWaits(t *testing.T) {
	log, chunk := even(2, 32)
	x := newTier(t, log, tierOptions{chunk: chunk, memory: 8 * chunk, run: 16 * chunk})
	defer x.close()
	var held [6]fetch.Result
	for i := range held {
		if err := x.reader.Fetch(t.Context(), x.request(32+int64(i)*5, 1), &held[i]); err != nil {
			t.Fatal(err)
		}
		defer held[i].Release()
	}
	s := x.reader.Stream(x.request(0, 1))
	defer s.Close()
	var res fetch.Result
	for i := range int64(32) {
		if err := s.Next(t.Context(), &res); err != nil {
			t.Fatal(err)
		}
		x.check(&res, x.batches(), i, 1)
		res.Release()
	}
	for i := range held {
		x.check(&held[i], x.batches(), 32+int64(i)*5, 1)
	}
}

// Close joins what is fetched ahead, whoever waits for it.
func TestCloseJoinsFetchingAhead(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(2, 32)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 400 * chunk, run: 16 * chunk})
		defer x.close()
		var res fetch.Result
		for i := range int64(2) {
			if i == 1 {
				x.inject(always("get", storetest.Hang, 0))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := x.reader.Fetch(ctx, x.request(i, 1), &res)
			cancel()
			if (err == nil) != (i == 0) {
				t.Fatal(err)
			}
		}
		if st := x.reader.Stats(); st.Ahead == 0 {
			t.Fatal("nothing is fetched ahead")
		}
		res.Release()
		if err := x.reader.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Of a cold segment, tail and first chunk are asked for at once, if it is known how
// long chunks are.
func TestColdSegmentIsGuessed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(3, 8)
		x := newTier(t, log, tierOptions{chunk: chunk})
		defer x.close()
		var res fetch.Result
		defer res.Release()
		if err := x.reader.Fetch(t.Context(), x.request(3, 1), &res); err != nil { // how long chunks are
			t.Fatal(err)
		}
		x.forget()
		gate := make(chan struct{})
		x.inject(storetest.Rules(storetest.Rule{Op: "get", Times: -1, Fault: storetest.Fault{Kind: storetest.Wait, Gate: gate}}))
		done := make(chan error)
		go func() { done <- x.reader.Fetch(t.Context(), x.request(8, 1), &res) }()
		synctest.Wait()
		if gets := x.forget(); len(gets) != 2 {
			t.Errorf("%d GETs at once, want tail and chunk", len(gets))
		}
		close(gate)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		x.check(&res, x.batches(), 8, 1)
		if gets := x.forget(); len(gets) != 0 {
			t.Errorf("%d more GETs", len(gets))
		}
		// In the middle of a segment it is not known where an offset is.
		x.inject(nil)
		if err := x.reader.Fetch(t.Context(), x.request(20, 1), &res); err != nil {
			t.Fatal(err)
		}
		if gets := x.forget(); len(gets) != 2 {
			t.Errorf("%d GETs", len(gets))
		}
	})
}

// What was guessed right is there for who asked for it, though all memory is in use and
// somebody waits for it: it is fetched once. (Whether the chunk or its tail is here first is not
// ours to say, and it matters: TestThousandStreams of bench meets both.)
func TestGuessedChunkIsKept(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(3, 8)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 2 * chunk})
		defer x.close()
		var held, res, other fetch.Result
		if err := x.reader.Fetch(t.Context(), x.request(0, 1), &held); err != nil { // how long chunks are
			t.Fatal(err)
		}
		x.forget()
		gate := make(chan struct{})
		x.inject(storetest.Rules(storetest.Rule{Op: "get", Times: -1, Fault: storetest.Fault{Kind: storetest.Wait, Gate: gate}}))
		guessed, waiting := make(chan error, 1), make(chan error, 1)
		go func() { guessed <- x.reader.Fetch(t.Context(), x.request(8, 1), &res) }()
		synctest.Wait()
		go func() { waiting <- x.reader.Fetch(t.Context(), x.request(3, 1), &other) }()
		synctest.Wait()
		if st := x.cache.Stats(); st.Waiting != 1 {
			t.Fatalf("nobody waits for memory: %+v", st)
		}
		close(gate)
		if err := <-guessed; err != nil {
			t.Fatal(err)
		}
		x.check(&res, x.batches(), 8, 1)
		if gets := x.ranges(chunk); len(gets) != 2 {
			t.Errorf("GETs of %v, want the tail and one chunk", gets)
		}
		res.Release()
		if err := <-waiting; err != nil {
			t.Fatal(err)
		}
		x.check(&other, x.batches(), 3, 1)
		other.Release()
		held.Release()
	})
}

// Between the time when what was guessed is here and that when its caller leases what he
// needs, it goes to nobody who waits for memory.
func TestGuessedChunkIsHandedOver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(3, 8)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 2 * chunk})
		defer x.close()
		var held, other fetch.Result
		if err := x.reader.Fetch(t.Context(), x.request(0, 1), &held); err != nil { // how long chunks are
			t.Fatal(err)
		}
		gate := make(chan struct{})
		x.inject(storetest.Rules(storetest.Rule{Op: "get", Times: -1, Fault: storetest.Fault{Kind: storetest.Wait, Gate: gate}}))
		type loaded struct {
			release func()
			err     error
		}
		tail, waiting := make(chan loaded, 1), make(chan error, 1)
		go func() {
			release, err := x.reader.TailAt(t.Context(), x.request(8, 1).Partition, 8)
			tail <- loaded{release, err}
		}()
		synctest.Wait()
		go func() { waiting <- x.reader.Fetch(t.Context(), x.request(3, 1), &other) }()
		synctest.Wait()
		close(gate)
		synctest.Wait() // all is here, and the caller has not come round
		got := <-tail
		if got.err != nil {
			t.Fatal(got.err)
		}
		if st := x.cache.Stats(); st.Waiting != 1 {
			t.Errorf("%d wait for memory: what was guessed has gone to somebody else", st.Waiting)
		}
		got.release()
		if err := <-waiting; err != nil {
			t.Fatal(err)
		}
		x.check(&other, x.batches(), 3, 1)
		other.Release()
		held.Release()
	})
}

// A guess that is wrong costs a GET, and nobody an error: chunks are of another
// length, the bytes are damaged on the way, the tail fails.
func TestWrongGuess(t *testing.T) {
	log, chunk := even(2, 8)
	for name, c := range map[string]struct {
		chunk int64
		plan  storetest.Plan
	}{
		"longer chunks":  {chunk: 3 * chunk},
		"shorter chunks": {chunk: chunk / 2},
		"damaged":        {chunk: chunk, plan: func(c storetest.Call) storetest.Fault { return storetest.Fault{} }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				x := newTier(t, log, tierOptions{chunk: chunk, upTo: 1, attempts: 3})
				defer x.close()
				x.copy(log.Segments[1], c.chunk)
				var res fetch.Result
				defer res.Release()
				if err := x.reader.Fetch(t.Context(), x.request(0, 1), &res); err != nil {
					t.Fatal(err)
				}
				if c.plan != nil {
					damaged := false
					x.inject(func(call storetest.Call) storetest.Fault {
						if call.Op != "get" || call.Off != 0 || damaged {
							return storetest.Fault{}
						}
						damaged = true
						return storetest.Fault{Kind: storetest.Flip, At: 100}
					})
				}
				if err := x.reader.Fetch(t.Context(), x.request(8, 1), &res); err != nil {
					t.Fatal(err)
				}
				x.check(&res, x.batches(), 8, 1)
			})
		})
	}
}

// A missing object of a segment that has just become readable may only not be
// visible yet; of an old one it is lost. An object that is there with other bytes is
// damaged at any age.
func TestVisibilityGrace(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(1, 8)
		x := newTier(t, log, tierOptions{chunk: chunk})
		defer x.close()
		age := time.Since(time.UnixMilli(2)) // the segment became readable at 2 ms
		read := func(grace time.Duration) error {
			r, err := fetch.New(x.meta, x.ep, x.cache, fetch.Options{VisibilityGrace: grace})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			var res fetch.Result
			defer res.Release()
			return r.Fetch(t.Context(), x.request(0, 1), &res)
		}
		key, b := x.object(x.segs[0])
		if err := x.mem.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if err := read(age + time.Hour); !errors.Is(err, fetch.ErrUnavailable) || errors.Is(err, fetch.ErrCorruption) {
			t.Errorf("missing, just readable: %v", err)
		}
		if err := read(age - time.Hour); !errors.Is(err, fetch.ErrCorruption) {
			t.Errorf("missing, long readable: %v", err)
		}
		bad := append([]byte(nil), b...)
		bad[10] ^= 1
		x.put(key, bad)
		if err := read(age + time.Hour); !errors.Is(err, fetch.ErrCorruption) {
			t.Errorf("damaged, just readable: %v", err)
		}
		if err := x.mem.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		x.put(key, b)
		if err := read(age + time.Hour); err != nil {
			t.Errorf("visible: %v", err)
		}
	})
}
