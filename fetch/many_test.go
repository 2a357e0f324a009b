package fetch_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
)

// many fetches from one partition at several offsets, which are as good as
// several partitions: nothing but the segments is shared.
func (x *tier) many(ctx context.Context, total int, answers []fetch.Answer, reqs ...fetch.Request) []fetch.Answer {
	return x.reader.FetchMany(ctx, fetch.ManyRequest{Requests: reqs, MaxBytes: total}, answers)
}

func releaseAll(answers []fetch.Answer) {
	for i := range answers {
		answers[i].Result.Release()
	}
}

// At any offsets and bounds: data is what a single Fetch gives within the bound,
// both bounds hold but for the first one's first batch, and somebody has data.
func TestFetchManyBounds(t *testing.T) {
	log := testseg.Random(17, testseg.Options{Segments: 2})
	rapid.Check(t, func(t *rapid.T) {
		x := newTier(t, log, tierOptions{chunk: 2000})
		defer x.close()
		all := x.batches()
		last := all[len(all)-1].Header.LastOffset
		var answers []fetch.Answer
		defer func() { releaseAll(answers) }()
		for range 3 {
			var reqs []fetch.Request
			for range rapid.IntRange(0, 6).Draw(t, "partitions") {
				reqs = append(reqs, x.request(rapid.Int64Range(x.start()-1, last+1).Draw(t, "offset"), rapid.SampledFrom([]int{-1, 0, 1, 300, 3000, 1 << 20}).Draw(t, "max bytes")))
			}
			total := rapid.SampledFrom([]int{0, 1, 500, 5000, 1 << 20}).Draw(t, "total")
			answers = x.many(context.Background(), total, answers, reqs...)
			if len(answers) != len(reqs) {
				t.Fatalf("%d answers for %d requests", len(answers), len(reqs))
			}
			sum, data, possible := 0, 0, 0
			for i, req := range reqs {
				a := &answers[i]
				if req.Offset >= x.start() && req.Offset <= last {
					possible++
				}
				switch {
				case req.Offset < x.start():
					if !errors.Is(a.Err, fetch.ErrOutOfRange) {
						t.Fatalf("offset %d: %v", req.Offset, a.Err)
					}
				case req.Offset > last:
					if !errors.Is(a.Err, fetch.ErrEndOfTier) && !errors.Is(a.Err, fetch.ErrNotReady) {
						t.Fatalf("offset %d: %v", req.Offset, a.Err)
					}
				case a.Err == nil:
					x.check(&a.Result, all, req.Offset, max(req.MaxBytes, 1))
					if size := a.Result.Size(); size > max(req.MaxBytes, 1) {
						if data > 0 && possible > 1 && sum > 0 {
							t.Fatalf("partition %d has %d bytes, at most %d were asked for, and is not the first", i, size, req.MaxBytes)
						}
					}
					sum += a.Result.Size()
					data++
				case !errors.Is(a.Err, fetch.ErrNotReady):
					t.Fatalf("offset %d: %v", req.Offset, a.Err)
				}
				if a.Err != nil && a.Result.Size() != 0 {
					t.Fatalf("an error and %d bytes", a.Result.Size())
				}
			}
			if possible > 0 && data == 0 {
				t.Fatalf("%d partitions have data, none was served", possible)
			}
			if first := slices.IndexFunc(answers, func(a fetch.Answer) bool { return a.Err == nil }); total > 0 && first >= 0 {
				if excess := max(answers[first].Result.Size()-max(reqs[first].MaxBytes, 1), 0); sum-excess > total && data > 1 {
					t.Fatalf("%d bytes in sum, %d of them in excess for the first, at most %d were asked for", sum, excess, total)
				}
			}
		}
	})
}

// At the deadline what is ready comes back; the rest has an error, goes on, and
// is found by the next call without another GET.
func TestFetchManyDeadline(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log := testseg.Random(5, testseg.Options{Segments: 3, Batches: 10})
		x := newTier(t, log, tierOptions{chunk: 64 << 10})
		defer x.close()
		all := x.batches()
		req := func(i int) fetch.Request { // its first batch
			b := all[slices.IndexFunc(all, func(b placed) bool { return b.Header.LastOffset >= x.segs[i].StartOffset })]
			return x.request(x.segs[i].StartOffset, len(b.raw))
		}
		var warm fetch.Result
		if err := x.reader.Fetch(t.Context(), req(0), &warm); err != nil {
			t.Fatal(err)
		}
		warm.Release()
		x.forget()
		slow, _ := x.object(x.segs[2])
		hang := make(chan struct{})
		x.inject(func(c storetest.Call) storetest.Fault {
			if c.Key == slow {
				return storetest.Fault{Kind: storetest.Wait, Gate: hang}
			}
			return storetest.Fault{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		began := time.Now()
		// The hung one is asked first: that costs the others nothing.
		answers := x.many(ctx, 0, nil, req(2), req(0), req(1))
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		if err := answers[0].Err; !errors.Is(err, fetch.ErrNotReady) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the hung one: %v", err)
		}
		for i := 1; i < 3; i++ {
			if answers[i].Err != nil {
				t.Errorf("partition %d: %v", i, answers[i].Err)
				continue
			}
			x.check(&answers[i].Result, all, req(i-1).Offset, req(i-1).MaxBytes)
		}
		close(hang)
		synctest.Wait()
		x.inject(nil)
		x.forget()
		// Its tail has come meanwhile, its data is read now; one round later that is
		// there too, whatever happens to the context.
		ended, end := context.WithCancel(t.Context())
		end()
		for round := range 3 {
			answers = x.many(ended, 0, answers, req(2))
			synctest.Wait()
			if err := answers[0].Err; err == nil {
				break
			} else if !errors.Is(err, fetch.ErrNotReady) || round == 2 {
				t.Fatal(err)
			}
		}
		x.check(&answers[0].Result, all, req(2).Offset, req(2).MaxBytes)
		// None if it was guessed where its data is, and that was read with the tail.
		if gets := x.forget(); len(gets) > 1 {
			t.Errorf("%d GETs for data that was asked for before", len(gets))
		}
		releaseAll(answers)
	})
}

// A partition that is damaged, one below its log start, one that metadata does not
// know: none of them costs the others anything, wherever it stands.
func TestFetchManyBadPartitions(t *testing.T) {
	log := testseg.Random(5, testseg.Options{Segments: 3, Batches: 10})
	for place := range 3 {
		x := newTier(t, log, tierOptions{chunk: 4000})
		all := x.batches()
		key, b := x.object(x.segs[1])
		b[1] ^= 1
		x.put(key, b)
		bad := x.request(x.segs[1].StartOffset, 1<<20)
		good := []fetch.Request{x.request(x.segs[0].StartOffset, 1000), x.request(x.segs[2].StartOffset, 1000)}
		unknown := fetch.Request{Partition: segment.Partition{Topic: "nobody", TopicID: segment.UUID{9}}, Offset: 1 << 40, MaxBytes: 1}
		below := x.request(x.start()-1, 1)
		reqs := slices.Insert(slices.Clone(good), place, bad, unknown, below)
		answers := x.many(t.Context(), 1<<20+2000, nil, reqs...)
		for i, req := range reqs {
			err := answers[i].Err
			switch req.Offset {
			case bad.Offset:
				if !errors.Is(err, fetch.ErrCorruption) {
					t.Errorf("place %d: %v", place, err)
				}
			case unknown.Offset, below.Offset:
				if err == nil || errors.Is(err, fetch.ErrNotReady) {
					t.Errorf("place %d: %v", place, err)
				}
			default:
				if err != nil {
					t.Errorf("place %d, partition %d: %v", place, i, err)
					continue
				}
				x.check(&answers[i].Result, all, req.Offset, 1000)
			}
		}
		releaseAll(answers)
		if place == 0 {
			// It asks for all there is, and is damaged: that is given to the next.
			answers = x.many(t.Context(), 2000, answers, reqs...)
			for i := 3; i < 5; i++ {
				if answers[i].Err != nil {
					t.Errorf("partition %d, behind a bad one: %v", i, answers[i].Err)
				}
			}
			releaseAll(answers)
		}
		x.close()
	}
}

// Calls that together want many times the memory there is, each for partitions in
// another order: nobody waits for memory while holding any, so all come to an end.
func TestFetchManyInLittleMemory(t *testing.T) {
	log := testseg.Random(21, testseg.Options{Segments: 3, MaxValue: 100})
	for range soak() {
		x := newTier(t, log, tierOptions{chunk: 4096, memory: 64 << 10})
		all := x.batches()
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				var answers []fetch.Answer
				defer func() { releaseAll(answers) }()
				offsets := make([]int64, 5)
				for i := range offsets {
					offsets[i] = x.segs[(i+w)%len(x.segs)].StartOffset
				}
				for range 20 {
					var reqs []fetch.Request
					for _, o := range offsets {
						reqs = append(reqs, x.request(o, 16<<10))
					}
					answers = x.many(context.Background(), 0, answers, reqs...)
					served := 0
					for i := range answers {
						switch a := &answers[i]; {
						case a.Err == nil:
							x.check(&a.Result, all, offsets[i], 16<<10)
							offsets[i] = a.Result.NextOffset()
							served++
						case errors.Is(a.Err, fetch.ErrEndOfTier):
							offsets[i] = x.start()
							served++
						case !errors.Is(a.Err, fetch.ErrNotReady):
							t.Error(a.Err)
						}
					}
					if served == 0 {
						t.Error("nobody was served")
					}
				}
			})
		}
		wg.Wait()
		x.close()
	}
}

// Closed is what each partition is told; a panic of the caller's reaches nobody.
func TestFetchManyClosed(t *testing.T) {
	x := newTier(t, testseg.Random(5, testseg.Options{Segments: 1}), tierOptions{})
	if err := x.reader.Close(); err != nil {
		t.Fatal(err)
	}
	for _, a := range x.many(t.Context(), 0, nil, x.request(x.start(), 1), x.request(x.start(), 1)) {
		if !errors.Is(a.Err, fetch.ErrClosed) {
			t.Error(a.Err)
		}
	}
	if got := x.many(t.Context(), 0, nil); len(got) != 0 {
		t.Errorf("%d answers to nothing", len(got))
	}
	x.close()
}

// Answers are used again, be there more or fewer partitions than before.
func TestFetchManyReusesAnswers(t *testing.T) {
	x := newTier(t, testseg.Random(5, testseg.Options{Segments: 1}), tierOptions{})
	all := x.batches()
	var answers []fetch.Answer
	for _, n := range []int{3, 1, 4, 0, 2} {
		var reqs []fetch.Request
		for i := range n {
			reqs = append(reqs, x.request(all[i].Header.BaseOffset, len(all[i].raw)))
		}
		answers = x.many(t.Context(), 0, answers, reqs...)
		for i := range answers {
			if answers[i].Err != nil {
				t.Fatal(answers[i].Err)
			}
			if got := bytes.Join(answers[i].Result.AppendTo(nil), nil); !bytes.Equal(got, all[i].raw) {
				t.Fatalf("%d partitions: partition %d has %d bytes", n, i, len(got))
			}
		}
	}
	releaseAll(answers)
	x.close()
}

// What is being deleted is not served, though every byte of it is in memory; and
// that costs the other partitions nothing.
func TestFetchManyDeleted(t *testing.T) {
	x := newTier(t, testseg.Random(11, testseg.Options{Segments: 2, Batches: 10}), tierOptions{})
	defer x.close()
	x.walk(1000)
	x.forget()
	x.remove(x.segs[0])
	answers := x.many(t.Context(), 0, nil, x.request(x.start(), 1<<14), x.request(x.segs[1].StartOffset, 1<<14))
	defer func() { releaseAll(answers) }()
	var skipped *fetch.SkippedError
	if err := answers[0].Err; !errors.As(err, &skipped) || skipped.Next != x.segs[1].StartOffset || answers[0].Result.Size() != 0 {
		t.Errorf("of a segment that is being deleted: %v, %d bytes", err, answers[0].Result.Size())
	}
	if answers[1].Err != nil {
		t.Fatal(answers[1].Err)
	}
	x.check(&answers[1].Result, x.batches(), x.segs[1].StartOffset, 1<<14)
	if gets := x.forget(); len(gets) != 0 {
		t.Errorf("%d GETs for what is in memory", len(gets))
	}
}
