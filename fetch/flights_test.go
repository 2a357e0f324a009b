package fetch_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/objstore/storetest"
)

// held has every GET wait for the returned gate.
func (x *tier) held() chan struct{} {
	gate := make(chan struct{})
	x.inject(storetest.Rules(storetest.Rule{Op: "get", Times: -1, Fault: storetest.Fault{Kind: storetest.Wait, Gate: gate}}))
	return gate
}

// A reader that seeks, within the segment or out of it, has what is on its way
// called off, but for what others wait for, which comes, with one GET; and what
// comes before it in the run.
func TestSeekCallsOff(t *testing.T) {
	for name, c := range map[string]struct {
		to     int64 // where it seeks; -1: it closes
		waits  int64 // for which chunk of the first run on its way another waits, -1 none
		counts bool  // that is a stream, and counts on what is on its way behind
	}{
		"out of the segment": {to: 100, waits: -1},
		"far ahead":          {to: 60, waits: -1},
		"back":               {to: 0, waits: -1},
		"closed":             {to: -1, waits: -1},
		"others wait":        {to: 100, waits: 2},
		"others count on it": {to: 100, waits: 2, counts: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, chunk := even(2, 64)
				x := newTier(t, log, tierOptions{chunk: chunk, memory: 400 * chunk, run: 16 * chunk})
				defer x.close()
				all := x.batches()
				s := x.reader.Stream(x.request(8, 1))
				defer s.Close()
				var res, other fetch.Result
				defer res.Release()
				defer other.Release()
				next := func() {
					t.Helper()
					if err := s.Next(t.Context(), &res); err != nil {
						t.Fatal(err)
					}
				}
				next()
				synctest.Wait() // all that it may have is here
				before := x.reader.Stats()
				gate := x.held()
				x.forget()
				for x.reader.Stats().Ahead == before.Ahead {
					next()
				}
				synctest.Wait()
				held := slices.DeleteFunc(x.forget(), func(g storetest.Call) bool { return g.Off%chunk+g.Len%chunk != 0 })
				if len(held) == 0 {
					t.Fatal("nothing is on its way")
				}
				ahead := x.reader.Stats().Ahead - before.Ahead
				wanted := held[0].Off/chunk + c.waits

				var reads sync.WaitGroup
				if c.waits >= 0 {
					reads.Go(func() {
						req := x.request(wanted, 1)
						if c.counts {
							req.Hint = fetch.Sequential
						}
						if err := x.reader.Fetch(t.Context(), req, &other); err != nil {
							t.Error(err)
							return
						}
						x.check(&other, all, wanted, 1)
					})
					synctest.Wait()
				}
				if c.to >= 0 {
					s.SeekTo(c.to)
					ctx, cancel := context.WithCancel(t.Context())
					reads.Go(func() {
						if err := s.Next(ctx, &res); err != nil && !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
					})
					synctest.Wait()
					defer cancel()
				} else {
					s.Close()
				}
				synctest.Wait()
				got := x.reader.Stats()
				close(gate)
				x.inject(nil)
				reads.Wait()
				synctest.Wait()
				if c.waits < 0 && got.CalledOff != ahead {
					t.Errorf("%d bytes called off of %d that were on their way", got.CalledOff, ahead)
				}
				if c.waits >= 0 && !c.counts && got.CalledOff != ahead-(c.waits+1)*chunk {
					t.Errorf("%d bytes called off of %d, of which %d chunks had to come", got.CalledOff, ahead, c.waits+1)
				}
				if c.counts && got.CalledOff != ahead-held[0].Len {
					t.Errorf("%d bytes called off of %d, of which a run of %d had to come", got.CalledOff, ahead, held[0].Len)
				}
				// What nobody waited for is not here; what somebody did came with the GET that
				// had begun, and no other.
				if c.waits >= 0 {
					for _, g := range x.forget() {
						if g.Key == held[0].Key && g.Off <= wanted*chunk && wanted*chunk < g.Off+g.Len {
							t.Errorf("a second GET of the chunk that was waited for: %+v", g)
						}
					}
				}
			})
		})
	}
}

// What was to be fetched ahead and waits for a slot is hurried when somebody waits
// for it, with the one GET that was ordered.
func TestWaitedForIsNoPrefetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, chunk := even(1, 256)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 1000 * chunk, run: 8 * chunk, requests: 8})
		defer x.close()
		all := x.batches()
		var other fetch.Result
		defer other.Release()
		look := x.request(255, 1)
		look.Hint = fetch.TimeQuery
		if err := x.reader.Fetch(t.Context(), look, &other); err != nil { // for the tail
			t.Fatal(err)
		}
		gate := x.held()
		x.forget()
		var read sync.WaitGroup
		for i := range int64(5) { // each asks for what it needs, and for more
			req := x.request(50*i, 1)
			req.Hint = fetch.Scan // none of them takes the slot that is kept for the tail
			s := x.reader.Stream(req)
			defer s.Close()
			read.Go(func() {
				var res fetch.Result
				defer res.Release()
				if err := s.Next(t.Context(), &res); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if n := x.ep.Stats().Waiting; n < 3 {
			t.Fatalf("%d wait for a slot", n)
		}
		waiting := int64(0) // the first chunk that is ordered, and has no slot
		for running := x.ranges(chunk); waiting < 255; waiting++ {
			ordered := x.cache.Has(cache.Key{Object: x.segs[0].ID, Chunk: uint32(waiting)})
			if ordered && !slices.ContainsFunc(running, func(g [2]int64) bool { return g[0] <= waiting && waiting < g[1] }) {
				break
			}
		}
		read.Go(func() {
			if err := x.reader.Fetch(t.Context(), x.request(waiting, 1), &other); err != nil {
				t.Error(err)
				return
			}
			x.check(&other, all, waiting, 1)
		})
		synctest.Wait()
		hurried := x.ranges(chunk)
		if len(hurried) != 1 || hurried[0][0] > waiting || hurried[0][1] <= waiting {
			t.Errorf("somebody waits for chunk %d, and %v was asked for", waiting, hurried)
		}
		close(gate)
		x.inject(nil)
		read.Wait()
		synctest.Wait()
		for _, g := range x.ranges(chunk) {
			if g[0] <= waiting && waiting < g[1] {
				t.Errorf("chunk %d was asked for again: %v", waiting, g)
			}
		}
	})
}
