package fetch_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
)

// Strangers who look here and there, and leave; streams that read, seek and close; with
// next to no slots, of a store that refuses, cuts and damages: every answer is right,
// every chunk is fetched by one GET at a time, and in the end nothing is left.
func TestStormOnFewSlots(t *testing.T) {
	for range 30 * soak() {
		seed := rand.Uint64()
		ok := t.Run("", func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) { stormOnFewSlots(t, seed) })
		})
		if !ok {
			t.Fatalf("seed %d", seed)
		}
	}
}

func stormOnFewSlots(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	log, chunk := even(2, 24)
	x := newTier(t, log, tierOptions{
		chunk: chunk, memory: []int64{30, 200}[rng.IntN(2)] * chunk, run: []int64{4, 16, 64}[rng.IntN(3)] * chunk,
		requests: 1 + rng.IntN(3), attempts: 1 + rng.IntN(3),
	})
	all := x.batches()
	var mu sync.Mutex
	faults := rand.New(rand.NewPCG(seed, 2))
	x.inject(func(c storetest.Call) storetest.Fault {
		mu.Lock()
		defer mu.Unlock()
		gate := make(chan struct{})
		time.AfterFunc(time.Duration(faults.IntN(40))*time.Millisecond, func() { close(gate) })
		switch at := faults.Int64N(max(c.Len, 1)); faults.IntN(12) {
		case 0:
			return storetest.Fault{Kind: storetest.FailBefore, Err: objstore.ErrThrottled}
		case 1:
			return storetest.Fault{Kind: storetest.Cut, At: at}
		case 2:
			return storetest.Fault{Kind: storetest.Flip, At: at}
		case 3:
			return storetest.Fault{Kind: storetest.FailAfter}
		case 4:
			return storetest.Fault{Kind: storetest.WrongIdentity}
		default:
			return storetest.Fault{Kind: storetest.Wait, Gate: gate}
		}
	})
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 10+uint64(i)))
			hint := []fetch.Hint{fetch.Detect, fetch.TimeQuery, fetch.TimeQuery, fetch.Sequential, fetch.Scan, fetch.Tail}[rng.IntN(6)]
			req := x.request(rng.Int64N(48), 1)
			req.Hint = hint
			req.Tenant = []string{"", "", "other"}[rng.IntN(3)]
			var s *fetch.Stream
			if hint >= fetch.Sequential && hint <= fetch.Tail {
				s = x.reader.Stream(req)
				defer s.Close()
			}
			var res fetch.Result
			defer res.Release()
			for range 12 {
				ctx, cancel := context.WithCancel(t.Context())
				if rng.IntN(3) == 0 {
					timer := time.AfterFunc(time.Duration(rng.IntN(60))*time.Millisecond, cancel)
					defer timer.Stop()
				}
				if rng.IntN(3) > 0 {
					req.Offset = rng.Int64N(48)
					if s != nil {
						s.SeekTo(req.Offset)
					}
				}
				req.MaxBytes = 1 + rng.IntN(int(4*chunk))
				var err error
				offset := req.Offset
				if s != nil {
					offset = s.Offset()
					err = s.Next(ctx, &res)
				} else {
					err = x.reader.Fetch(ctx, req, &res)
				}
				cancel()
				switch {
				case err == nil:
					x.check(&res, all, offset, int(4*chunk))
				case errors.Is(err, context.Canceled), errors.Is(err, fetch.ErrUnavailable), errors.Is(err, fetch.ErrCorruption), errors.Is(err, fetch.ErrEndOfTier):
				default:
					t.Errorf("offset %d: %v", offset, err)
				}
				res.Release()
			}
		})
	}
	wg.Wait()
	x.inject(nil)
	synctest.Wait()
	for offset := range int64(48) { // all is well again
		x.look(&wg, all, offset)
	}
	wg.Wait()
	x.close()
}
