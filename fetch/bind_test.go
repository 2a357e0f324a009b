package fetch_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore/storetest"
)

// look reads a chunk that holds one batch, and no more, as somebody who is in no
// sequence.
func (x *tier) look(wg *sync.WaitGroup, all []placed, chunk int64) {
	wg.Go(func() {
		req := x.request(chunk, 1)
		req.Hint = fetch.TimeQuery
		var res fetch.Result
		defer res.Release()
		if err := x.reader.Fetch(context.Background(), req, &res); err != nil {
			x.t.Errorf("chunk %d: %v", chunk, err)
			return
		}
		x.check(&res, all, chunk, 1)
	})
	synctest.Wait()
}

// A run that waits for a slot, or for an answer, has its room on the books and no
// memory yet: that is taken chunk by chunk, as the bytes come.
func TestMemoryIsTakenAtTheFirstByte(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(1, 64)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 100 * chunk, requests: 2})
		defer x.close()
		all := x.batches()
		var wg sync.WaitGroup
		x.look(&wg, all, 60) // for the tail
		expect := func(when string, filling, bound int64) {
			t.Helper()
			synctest.Wait()
			if st := x.cache.Stats(); st.Filling != filling*chunk || st.Bound != bound*chunk {
				t.Errorf("%s: %d bytes on the books, %d taken; want %d and %d chunks of %d", when, st.Filling, st.Bound, filling, bound, chunk)
			}
		}
		answers, rest := make(chan struct{}), make(chan struct{})
		n := 0
		x.inject(func(c storetest.Call) storetest.Fault {
			if n++; n == 1 {
				return storetest.Fault{Kind: storetest.Wait, Gate: answers}
			}
			return storetest.Fault{Kind: storetest.Wait, Gate: rest}
		})
		for i := range int64(5) {
			x.look(&wg, all, 10*i)
		}
		if st := x.ep.Stats(); st.RequestsInFlight != 2 || st.Waiting != 3 {
			t.Fatalf("%d GETs, %d wait", st.RequestsInFlight, st.Waiting)
		}
		expect("nothing is answered", 5, 0)
		close(answers)
		expect("one has come, the next waits for its answer", 4, 0)
		close(rest)
		wg.Wait()
		expect("all is here", 0, 0)

		// A body that stops in its third chunk.
		x.inject(storetest.Rules(storetest.Rule{Op: "get", Fault: storetest.Fault{Kind: storetest.Stall, At: 2*chunk + 1}}))
		wg.Go(func() {
			req := x.request(50, int(5*chunk))
			req.Hint = fetch.TimeQuery
			var res fetch.Result
			defer res.Release()
			if err := x.reader.Fetch(t.Context(), req, &res); err != nil || res.Size() != int(2*chunk) {
				t.Errorf("%v, %d bytes; two chunks have come", err, res.Size())
			}
		})
		expect("a body stops in its third chunk", 3, 1)
		wg.Wait() // the progress timeout, and no other try
		expect("it has failed", 0, 0)
	})
}
