package fetch_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/objstore/storetest"
)

// coverage counts how often each chunk was asked for.
func coverage(gets []storetest.Call, chunk int64) map[storetest.Call]int {
	n := map[storetest.Call]int{}
	for _, g := range gets {
		for off := g.Off - g.Off%chunk; off < g.Off+g.Len; off += chunk {
			n[storetest.Call{Key: g.Key, Off: off}]++
		}
	}
	return n
}

// Many readers of the same data, some of whom leave all the time: every chunk
// and every tail is fetched once.
func TestManyReadersOneGet(t *testing.T) {
	const chunk = 2000
	for range 3 * soak() {
		x := newTier(t, testseg.Random(rand.Uint64(), testseg.Options{Segments: 3}), tierOptions{chunk: chunk, run: 6 * chunk, requests: rand.IntN(4)}) // 0 is plenty
		all := x.batches()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				var res fetch.Result
				defer res.Release()
				for offset := x.start(); ; {
					ctx, cancel := context.WithCancel(t.Context())
					if rand.IntN(3) == 0 {
						go cancel()
					}
					maxBytes := 1 << rand.IntN(17)
					err := x.reader.Fetch(ctx, x.request(offset, maxBytes), &res)
					cancel()
					switch {
					case err == nil:
						x.check(&res, all, offset, maxBytes)
						offset = res.NextOffset()
					case errors.Is(err, fetch.ErrEndOfTier):
						return
					case !errors.Is(err, context.Canceled):
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if err := x.reader.Close(); err != nil { // what callers left behind
			t.Fatal(err)
		}
		tails := map[string]int64{}
		for _, s := range x.segs {
			key, b := x.object(s)
			tails[key] = int64(len(b))
		}
		var data []storetest.Call
		tailGets := 0
		for _, g := range x.forget() {
			if g.Off+g.Len == tails[g.Key] {
				tailGets++
			} else {
				data = append(data, g)
			}
		}
		if tailGets != len(x.segs) {
			t.Errorf("%d GETs for %d tails", tailGets, len(x.segs))
		}
		for c, n := range coverage(data, chunk) {
			if n != 1 {
				t.Errorf("chunk at %d of %s was fetched %d times", c.Off, c.Key, n)
			}
		}
		x.close()
	}
}

// With memory for little more than one batch, everybody still gets everything,
// however many there are, and nobody waits for a caller that left.
func TestCrowdInLittleMemory(t *testing.T) {
	x := newTier(t, testseg.Random(21, testseg.Options{Segments: 2, MaxValue: 100}), tierOptions{chunk: 4096, memory: 128 << 10})
	var wg sync.WaitGroup
	for range 6 * soak() {
		wg.Go(func() {
			x.walk(64 << 10)
		})
		wg.Go(func() {
			var res fetch.Result
			defer res.Release()
			for range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				go cancel()
				_ = x.reader.Fetch(ctx, x.request(x.start()+rand.Int64N(x.end()-x.start()), 1<<16), &res)
			}
		})
	}
	wg.Wait()
	x.close()
}

// A fetch waits for memory that another's Result holds, as long as its context
// allows, and is served as soon as that is released.
func TestWaitsForMemory(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := testseg.Build(testseg.Spec{Partition: testseg.DefaultPartition, Batches: []testseg.Batch{record(0, 1, 0, 900), record(1, 2, 0, 900)}})
		log := &testseg.Log{Partition: testseg.DefaultPartition, Epochs: s.Info().Epochs, Segments: []*testseg.Segment{s}}
		chunk := int64(s.Batches[0].Header.Size) // a batch in each
		x := newTier(t, log, tierOptions{chunk: chunk, memory: chunk * 3 / 2})
		defer x.close()
		var held, res fetch.Result
		if err := x.reader.Fetch(t.Context(), x.request(0, 1), &held); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() { failed <- x.reader.Fetch(ctx, x.request(1, 1), &res) }()
		synctest.Wait()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled wait: %v", err)
		}
		go func() { failed <- x.reader.Fetch(t.Context(), x.request(1, 1), &res) }()
		synctest.Wait()
		held.Release()
		if err := <-failed; err != nil {
			t.Error(err)
		} else {
			x.check(&res, x.batches(), 1, 1)
		}
		go func() { failed <- x.reader.Fetch(t.Context(), x.request(0, 1), &held) }()
		synctest.Wait()
		if err := x.reader.Close(); err != nil {
			t.Error(err)
		}
		if err := <-failed; !errors.Is(err, fetch.ErrClosed) {
			t.Errorf("a wait at Close: %v", err)
		}
		res.Release()
	})
}
