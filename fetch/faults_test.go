package fetch_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
)

// put replaces an object behind everybody's back.
func (x *tier) put(key string, b []byte) {
	x.t.Helper()
	ctx := context.Background()
	if err := x.mem.Delete(ctx, key); err != nil {
		x.t.Fatalf("%v", err)
	}
	if _, err := x.mem.Upload(ctx, objstore.UploadRequest{
		Key: key, Body: strings.NewReader(string(b)), Size: int64(len(b)), PartSize: int64(len(b)),
		PartSums: []checksum.Sum{{Len: int64(len(b)), CRC32C: checksum.CRC32C(b)}},
	}); err != nil {
		x.t.Fatalf("%v", err)
	}
}

// object returns the key and the bytes of a segment's object.
func (x *tier) object(seg *metadata.Segment) (key string, b []byte) {
	x.t.Helper()
	ctx := context.Background()
	for info, err := range x.mem.List(ctx, "", "") {
		if err != nil {
			x.t.Fatalf("%v", err)
		}
		if !strings.Contains(info.Key, seg.ID.String()) {
			continue
		}
		_, body, err := x.mem.Get(ctx, info.Key, 0, info.Size, objstore.GetOptions{})
		if err == nil {
			b, err = io.ReadAll(body)
		}
		if err != nil {
			x.t.Fatalf("%v", err)
		}
		return info.Key, b
	}
	x.t.Fatalf("no object of segment %v", seg.ID)
	return "", nil
}

func always(op string, kind storetest.Kind, at int64) storetest.Plan {
	return storetest.Rules(storetest.Rule{Op: op, Times: -1, Fault: storetest.Fault{Kind: kind, At: at}})
}

func once(op string, nth int, kind storetest.Kind, at int64) storetest.Plan {
	return storetest.Rules(storetest.Rule{Op: op, Nth: nth, Fault: storetest.Fault{Kind: kind, At: at}})
}

// Each way in which a store can fail, at the tail and at the data: the error
// says what it is, and the next fetch is as if nothing had been.
func TestFaults(t *testing.T) {
	log := testseg.Random(5, testseg.Options{Segments: 1, Batches: 10})
	for name, c := range map[string]struct {
		plan     func(nth int) storetest.Plan
		attempts int
		want     error // nil: healed by itself
	}{
		"refused":          {plan: func(n int) storetest.Plan { return once("get", n, storetest.FailBefore, 0) }, attempts: 1, want: fetch.ErrUnavailable},
		"refused once":     {plan: func(n int) storetest.Plan { return once("get", n, storetest.FailBefore, 0) }, attempts: 3},
		"lost answer":      {plan: func(n int) storetest.Plan { return once("get", n, storetest.FailAfter, 0) }, attempts: 1, want: fetch.ErrUnavailable},
		"cut":              {plan: func(n int) storetest.Plan { return once("get", n, storetest.Cut, 10) }, attempts: 1, want: fetch.ErrUnavailable},
		"cut and resumed":  {plan: func(n int) storetest.Plan { return once("get", n, storetest.Cut, 10) }, attempts: 3},
		"ends early":       {plan: func(n int) storetest.Plan { return once("get", n, storetest.EarlyEOF, 10) }, attempts: 1, want: fetch.ErrUnavailable},
		"flipped on a way": {plan: func(n int) storetest.Plan { return once("get", n, storetest.Flip, 10) }, attempts: 1},
		"flipped at rest": {plan: func(n int) storetest.Plan {
			return storetest.Rules(storetest.Rule{Op: "get", Nth: n, Times: 2, Fault: storetest.Fault{Kind: storetest.Flip, At: 10}})
		}, attempts: 1, want: fetch.ErrCorruption},
		"wrong size": {plan: func(n int) storetest.Plan {
			return storetest.Rules(storetest.Rule{Op: "get", Nth: n, Times: 2, Fault: storetest.Fault{Kind: storetest.WrongSize}})
		}, attempts: 1, want: fetch.ErrCorruption},
		"wrong identity": {plan: func(n int) storetest.Plan { return once("get", n, storetest.WrongIdentity, 0) }, attempts: 3},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) { // retries take time
				for nth := 1; nth <= 2; nth++ { // the tail, the data
					x := newTier(t, log, tierOptions{attempts: c.attempts})
					x.inject(c.plan(nth))
					var res fetch.Result
					err := x.reader.Fetch(t.Context(), x.request(x.start(), 1), &res)
					if !errors.Is(err, c.want) {
						t.Errorf("GET %d: %v, want %v", nth, err, c.want)
					}
					if damaged := (*fetch.CorruptionError)(nil); errors.As(err, &damaged) {
						key, _ := x.object(x.segs[0])
						gets := x.forget()
						last := gets[len(gets)-1]
						if damaged.Key != key || damaged.SegmentID != x.segs[0].ID || damaged.Off != last.Off || damaged.Len != last.Len {
							t.Errorf("%+v, want bytes [%d,%d) of %s", damaged, last.Off, last.Off+last.Len, key)
						}
					}
					if err != nil && res.Size() != 0 {
						t.Errorf("an error and %d bytes", res.Size())
					}
					if err == nil {
						x.check(&res, x.batches(), x.start(), 1)
					}
					res.Release()
					x.walk(1000) // nothing is poisoned
					x.close()
				}
			})
		})
	}
}

// An object that somebody damaged, replaced or deleted, with metadata saying
// FINISHED: corruption, and never a wrong byte.
func TestDamagedObjects(t *testing.T) {
	log := testseg.Random(9, testseg.Options{Segments: 2, Batches: 20})
	rapid.Check(t, func(t *rapid.T) {
		x := newTier(t, log, tierOptions{chunk: 1000})
		defer x.close()
		key, good := x.object(x.segs[0])
		bad := append([]byte(nil), good...)
		switch rapid.SampledFrom([]string{"flip", "cut", "grow", "other", "delete"}).Draw(t, "damage") {
		case "flip":
			bad[rapid.IntRange(0, len(bad)-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			x.put(key, bad)
		case "cut":
			x.put(key, bad[:rapid.IntRange(1, len(bad)-1).Draw(t, "at")])
		case "grow":
			x.put(key, append(bad, 0))
		case "other":
			_, other := x.object(x.segs[1])
			x.put(key, other)
		case "delete":
			if err := x.mem.Delete(context.Background(), key); err != nil {
				t.Fatalf("%v", err)
			}
		}
		all := x.batches()
		var res fetch.Result
		defer res.Release()
		for offset := x.start(); offset < x.end(); {
			err := x.reader.Fetch(context.Background(), x.request(offset, rapid.SampledFrom([]int{1, 3000, 1 << 20}).Draw(t, "max bytes")), &res)
			switch damaged := (*fetch.CorruptionError)(nil); {
			case err == nil:
				x.check(&res, all, offset, 1<<30)
				offset = res.NextOffset()
			case errors.As(err, &damaged) && damaged.Key == key:
				offset++
			case errors.Is(err, fetch.ErrEndOfTier):
				return
			default:
				t.Fatalf("offset %d: %v", offset, err)
			}
		}
	})
}

// The same bytes written anew are the same object, whatever the store calls
// them: the sums are the identity.
func TestRewrittenObjectIsTheSame(t *testing.T) {
	x := newTier(t, testseg.Random(9, testseg.Options{Segments: 1, Batches: 20}), tierOptions{chunk: 1000})
	defer x.close()
	var res fetch.Result
	if err := x.reader.Fetch(t.Context(), x.request(x.start(), 1), &res); err != nil {
		t.Fatal(err)
	}
	res.Release()
	x.put(x.object(x.segs[0]))
	x.walk(3000)
}

// Damage behind the first batch cuts the result short; the next fetch names it.
func TestPrefixBeforeDamage(t *testing.T) {
	var batches []testseg.Batch
	for i := range int64(40) {
		batches = append(batches, record(i, i, 0, 300))
	}
	s := testseg.Build(testseg.Spec{Partition: testseg.DefaultPartition, Batches: batches})
	log := &testseg.Log{Partition: testseg.DefaultPartition, Epochs: s.Info().Epochs, Segments: []*testseg.Segment{s}}
	x := newTier(t, log, tierOptions{chunk: 2000, run: 2000})
	defer x.close()
	key, b := x.object(x.segs[0])
	b[5*2000] ^= 1
	x.put(key, b)
	var res fetch.Result
	defer res.Release()
	if err := x.reader.Fetch(t.Context(), x.request(x.start(), 1<<20), &res); err != nil {
		t.Fatal(err)
	}
	x.check(&res, x.batches(), x.start(), 1<<20)
	if res.Size() > 5*2000 || res.Size() < 4*2000 {
		t.Fatalf("%d bytes, the damage is at %d", res.Size(), 5*2000)
	}
	err := x.reader.Fetch(t.Context(), x.request(res.NextOffset(), 1<<20), &res)
	var damaged *fetch.CorruptionError
	if !errors.As(err, &damaged) || damaged.Off != 5*2000 {
		t.Fatalf("behind the prefix: %v", err)
	}
}

// Retention that is faster than a reader is told as such, whether metadata or
// the object goes first, cached or not.
func TestDeletedWhileReading(t *testing.T) {
	log := testseg.Random(11, testseg.Options{Segments: 2, Batches: 10})
	isSkip := func(t *testing.T, x *tier, err error) {
		t.Helper()
		var skipped *fetch.SkippedError
		if !errors.As(err, &skipped) || skipped.SegmentID != x.segs[0].ID || skipped.Next != x.segs[1].StartOffset {
			t.Fatalf("got %v, want to go on at %d", err, x.segs[1].StartOffset)
		}
	}
	t.Run("cached", func(t *testing.T) {
		x := newTier(t, log, tierOptions{})
		defer x.close()
		x.walk(1000)
		x.remove(x.segs[0])
		var res fetch.Result
		isSkip(t, x, x.reader.Fetch(t.Context(), x.request(x.start(), 1), &res))
	})
	for nth, where := range []string{"at the tail", "at the data"} {
		t.Run(where, func(t *testing.T) {
			x := newTier(t, log, tierOptions{})
			defer x.close()
			key, _ := x.object(x.segs[0])
			seen := -1
			x.inject(func(c storetest.Call) storetest.Fault {
				if seen++; seen == nth {
					x.remove(x.segs[0])
					if err := x.mem.Delete(context.Background(), key); err != nil {
						t.Error(err)
					}
				}
				return storetest.Fault{}
			})
			var res fetch.Result
			isSkip(t, x, x.reader.Fetch(t.Context(), x.request(x.start(), 1), &res))
			if err := x.reader.Close(); err != nil { // who read it lets go after he has said that it failed
				t.Fatal(err)
			}
			if st := x.cache.Stats(); st.Used != 0 {
				t.Fatalf("memory is kept for a deleted segment: %+v", st)
			}
		})
	}
	t.Run("what is cached of it goes too", func(t *testing.T) {
		x := newTier(t, log, tierOptions{chunk: 500})
		defer x.close()
		var res fetch.Result
		if err := x.reader.Fetch(t.Context(), x.request(x.start(), 1), &res); err != nil {
			t.Fatal(err)
		}
		res.Release()
		key, _ := x.object(x.segs[0])
		x.inject(func(storetest.Call) storetest.Fault {
			if err := x.mem.Delete(context.Background(), key); err != nil {
				t.Error(err)
			}
			x.remove(x.segs[0])
			return storetest.Fault{}
		})
		isSkip(t, x, x.reader.Fetch(t.Context(), x.request(x.segs[0].EndOffset-10, 1), &res))
		if st := x.cache.Stats(); st.Used != 0 {
			t.Fatalf("memory is kept for a deleted segment: %+v", st)
		}
		if st := x.reader.Stats(); st.Tails != 0 {
			t.Fatalf("the tail of a deleted segment is kept: %+v", st)
		}
	})
	t.Run("replaced by another copy", func(t *testing.T) {
		x := newTier(t, log, tierOptions{})
		defer x.close()
		var res fetch.Result
		x.remove(x.segs[0]) // metadata takes no second copy of what is readable
		second := x.copy(log.Segments[0], 4096)
		if err := x.reader.Fetch(t.Context(), x.request(x.start(), 1), &res); err != nil {
			t.Fatal(err)
		}
		if gets := x.forget(); !strings.Contains(gets[len(gets)-1].Key, second.ID.String()) {
			t.Fatal("not read from the copy that is left")
		}
		res.Release()
	})
}

// A caller's timeout is the caller's alone: the store answers late, and the
// second try finds the data without another GET.
func TestLateAnswerIsKept(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := newTier(t, testseg.Random(2, testseg.Options{Segments: 1}), tierOptions{chunk: 1 << 20})
		defer x.close()
		var res fetch.Result
		if err := x.reader.Fetch(t.Context(), x.request(x.start(), 1), &res); err != nil { // the tail
			t.Fatal(err)
		}
		res.Release()
		x.cache.Drop(x.segs[0].ID)
		x.forget()
		gate := make(chan struct{})
		x.inject(storetest.Rules(storetest.Rule{Op: "get", Fault: storetest.Fault{Kind: storetest.Wait, Gate: gate}}))
		time.AfterFunc(800*time.Millisecond, func() { close(gate) })

		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := x.reader.Fetch(ctx, x.request(x.start(), 1), &res); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("first try: %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := x.reader.Fetch(ctx, x.request(x.start(), 1), &res); err != nil {
			t.Fatalf("second try: %v", err)
		}
		res.Release()
		if gets := x.forget(); len(gets) != 1 {
			t.Fatalf("%d GETs, want one", len(gets))
		}
	})
}

// stubborn is a store that hangs and does not look at its context.
type stubborn struct {
	objstore.Store
	hang chan struct{}
}

func (s stubborn) Get(ctx context.Context, key string, off, n int64, o objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	<-s.hang
	return s.Store.Get(ctx, key, off, n, o)
}

// Close frees everybody who waits and returns, whatever the store does.
func TestCloseWhileStoreHangs(t *testing.T) {
	for _, obeys := range []bool{true, false} {
		bubble.Test(t, func(t *testing.T) {
			x := newTier(t, testseg.Random(2, testseg.Options{Segments: 1}), tierOptions{})
			defer x.close()
			hung := stubborn{Store: x.mem, hang: make(chan struct{})}
			store := objstore.Store(hung)
			if obeys {
				store = storetest.Inject(x.mem, always("get", storetest.Hang, 0))
			}
			ep, err := endpoint.New(store, endpoint.Options{ProgressTimeout: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			r, err := fetch.New(x.meta, ep, x.cache, fetch.Options{})
			if err != nil {
				t.Fatal(err)
			}
			failed := make(chan error)
			for range 2 {
				go func() {
					var res fetch.Result
					failed <- r.Fetch(context.Background(), x.request(x.start(), 1), &res)
				}()
			}
			synctest.Wait()
			closed := make(chan error)
			begin := time.Now()
			go func() { closed <- r.Close() }()
			for range 2 {
				if err := <-failed; !errors.Is(err, fetch.ErrClosed) {
					t.Errorf("a caller got %v", err)
				}
			}
			if d := time.Since(begin); d > 0 {
				t.Errorf("callers were kept for %v", d)
			}
			if err := <-closed; (err == nil) != obeys || time.Since(begin) > time.Second {
				t.Errorf("Close took %v: %v", time.Since(begin), err)
			}
			close(hung.hang)
			synctest.Wait()
			if err := r.Close(); err != nil {
				t.Errorf("second Close: %v", err)
			}
			var res fetch.Result
			if err := r.Fetch(t.Context(), x.request(x.start(), 1), &res); !errors.Is(err, fetch.ErrClosed) {
				t.Errorf("Fetch after Close: %v", err)
			}
			if err := ep.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// panicky is a store with a bug.
type panicky struct{ objstore.Store }

func (panicky) Get(context.Context, string, int64, int64, objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	panic("bug in the store")
}

// A panic in a store fails those who wait, and nobody else.
func TestPanicInStore(t *testing.T) {
	x := newTier(t, testseg.Random(2, testseg.Options{Segments: 1}), tierOptions{})
	defer x.close()
	ep, err := endpoint.New(panicky{x.mem}, endpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := fetch.New(x.meta, ep, x.cache, fetch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var res fetch.Result
	for range 2 {
		if err := r.Fetch(t.Context(), x.request(x.start(), 1), &res); err == nil || !strings.Contains(err.Error(), "bug in the store") {
			t.Fatalf("got %v", err)
		}
	}
	x.walk(1000) // through the other endpoint, on the same cache
}

// A batch that the budget can never hold says so at once; one that it can hold
// comes through, however crowded it is.
func TestBudget(t *testing.T) {
	p := testseg.DefaultPartition
	s := testseg.Build(testseg.Spec{Partition: p, Batches: []testseg.Batch{record(0, 1, 0, 10), record(1, 2, 0, 50_000), record(2, 3, 0, 10)}})
	log := &testseg.Log{Partition: p, Epochs: s.Info().Epochs, Segments: []*testseg.Segment{s}}
	var res fetch.Result

	x := newTier(t, log, tierOptions{chunk: 1000, memory: 40_000})
	if err := x.reader.Fetch(t.Context(), x.request(0, 1), &res); err != nil {
		t.Fatal(err)
	}
	if err := x.reader.Fetch(t.Context(), x.request(1, 1), &res); !errors.Is(err, fetch.ErrBatchTooLarge) || !errors.Is(err, cache.ErrTooLarge) {
		t.Fatalf("a batch beyond the budget: %v", err)
	}
	x.close()

	x = newTier(t, log, tierOptions{chunk: 1000, memory: 53_000})
	x.walk(1)
	x.walk(1 << 20) // cut short to what there is memory for
	x.close()
}

// Whatever a store does in whatever order: right bytes or a typed error; and
// when it is well again, so is everything.
func TestRandomFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newTier(t, testseg.Random(rapid.Uint64Range(0, 50).Draw(t, "log"), testseg.Options{Segments: 2, Batches: 10}),
			tierOptions{chunk: 1500, memory: 64 << 10, attempts: 1})
		defer x.close()
		all := x.batches()
		var res fetch.Result
		defer res.Release()
		for range 30 {
			kind := rapid.SampledFrom([]storetest.Kind{
				storetest.None, storetest.FailBefore, storetest.FailAfter, storetest.Cut,
				storetest.Flip, storetest.EarlyEOF, storetest.WrongSize, storetest.WrongIdentity,
			}).Draw(t, "fault")
			x.inject(once("get", rapid.IntRange(1, 3).Draw(t, "nth"), kind, rapid.Int64Range(0, 1500).Draw(t, "at")))
			offset := rapid.Int64Range(x.start(), x.end()).Draw(t, "offset")
			ctx, cancel := context.WithCancel(context.Background())
			if rapid.IntRange(0, 5).Draw(t, "cancel") == 0 {
				cancel()
			}
			err := x.reader.Fetch(ctx, x.request(offset, rapid.SampledFrom([]int{1, 2000, 1 << 20}).Draw(t, "max bytes")), &res)
			cancel()
			switch {
			case err == nil:
				x.check(&res, all, offset, 1<<30)
			case errors.Is(err, fetch.ErrUnavailable), errors.Is(err, fetch.ErrEndOfTier), errors.Is(err, context.Canceled):
			case errors.Is(err, fetch.ErrCorruption) && kind == storetest.WrongSize:
			default:
				t.Fatalf("offset %d, %v: %v", offset, kind, err)
			}
		}
		x.inject(nil)
		res.Release()
		x.chill() // a read that a cancelled caller left behind may have met a fault
		x.walk(3000)
	})
}

// What failed was not fetched in vain: who asks for it again and again is no reason to fetch
// less ahead of others.
func TestFailedReadsAreNoWaste(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(1, 64)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 64 * chunk})
		defer x.close()
		fails := false
		x.inject(func(c storetest.Call) storetest.Fault {
			if fails && c.Op == "get" {
				return storetest.Fault{Kind: storetest.FailBefore}
			}
			return storetest.Fault{}
		})
		var res fetch.Result
		defer res.Release()
		req := x.request(0, 1)
		req.Hint = fetch.Sequential
		if err := x.reader.Fetch(t.Context(), req, &res); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		fails = true
		for req.Offset = res.NextOffset(); x.reader.Fetch(t.Context(), req, &res) == nil; req.Offset = res.NextOffset() {
		}
		for range 50 {
			if err := x.reader.Fetch(t.Context(), req, &res); err == nil {
				t.Fatal("it is here")
			}
		}
		if st := x.reader.Stats(); st.Wasted > 0 {
			t.Errorf("%d bytes are said to be fetched in vain", st.Wasted)
		}
	})
}

// Who waits for a chunk while the store panics is told so, also if the chunk was asked for
// before its segment's tail was here.
func TestPanicIsTold(t *testing.T) {
	for name, offset := range map[string]int64{"guessed": 32, "demanded": 5} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				log, chunk := even(2, 32)
				x := newTier(t, log, tierOptions{chunk: chunk})
				defer x.close()
				all := x.batches()
				var wg sync.WaitGroup
				x.look(&wg, all, 1) // so that the length of chunks is known
				x.inject(func(c storetest.Call) storetest.Fault {
					if c.Off < 32*chunk {
						panic("the store")
					}
					return storetest.Fault{}
				})
				var res fetch.Result
				defer res.Release()
				if err := x.reader.Fetch(t.Context(), x.request(offset, 1), &res); !errors.Is(err, fetch.ErrUnavailable) || !strings.Contains(err.Error(), "panicked") {
					t.Error(err)
				}
			})
		})
	}
}
