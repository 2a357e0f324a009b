package fetch_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore/storetest"
)

// A GET that is tried again is one, and its bytes are counted once.
func TestTriesCountOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(1, 64)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 100 * chunk, run: 16 * chunk, attempts: 4})
		defer x.close()
		all := x.batches()
		var wg sync.WaitGroup
		x.look(&wg, all, 50)
		x.inject(storetest.Rules(storetest.Rule{Op: "get", Times: 2, Fault: storetest.Fault{Kind: storetest.FailBefore}}))
		before, tries := x.reader.Stats(), x.ep.Stats().Gets
		x.look(&wg, all, 10)
		wg.Wait()
		after := x.reader.Stats()
		if gets, n := after.DataGets-before.DataGets, after.DataBytes-before.DataBytes; gets != 1 || n != chunk || x.ep.Stats().Gets-tries != 3 {
			t.Errorf("%d GETs of %d bytes with %d tries; want one of %d, with 3", gets, n, x.ep.Stats().Gets-tries, chunk)
		}
		if !x.cache.Has(cache.Key{Object: x.segs[0].ID, Chunk: 10}) {
			t.Error("the chunk is not here")
		}
	})
}

// Who has nothing more to be fetched ahead of him, because the tier ends or there is no
// memory, is planned for with each chunk that he comes to, not with each read: that takes
// locks that are everybody's.
func TestWhoCanHaveNoMoreIsLetAlone(t *testing.T) {
	for name, c := range map[string]struct {
		begin int64 // chunk that the stream begins with
		free  int64 // chunks that there is memory for
	}{
		"the tier ends": {begin: 32, free: 400},
		"no memory":     {begin: 0, free: 5},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				const each = 4 // batches of a chunk
				log, batch := even(1, 64*each)
				chunk := each * batch
				x := newTier(t, log, tierOptions{chunk: chunk, memory: 400 * chunk, run: 16 * chunk})
				defer x.close()
				all := x.batches()
				var room cache.Reservation
				defer room.Release()
				if !x.cache.TryReserve((400-c.free)*chunk, &room) {
					t.Fatal("no memory")
				}
				gate := make(chan struct{}) // what is on its way is not evicted for what else would be
				x.inject(func(call storetest.Call) storetest.Fault {
					if c.begin < call.Off/chunk && call.Off < 64*chunk {
						return storetest.Fault{Kind: storetest.Wait, Gate: gate}
					}
					return storetest.Fault{}
				})
				req := x.request(each*c.begin, 1)
				req.Hint = fetch.Scan
				s := x.reader.Stream(req)
				defer s.Close()
				var res fetch.Result
				defer res.Release()
				var planned []int
				for i := range 2 * each {
					if i == each {
						close(gate)
					}
					<-time.After(time.Millisecond)
					if err := s.Next(t.Context(), &res); err != nil {
						t.Fatal(err)
					}
					x.check(&res, all, each*c.begin+int64(i), 1)
					if x.reader.Planned().Equal(time.Now()) {
						planned = append(planned, i)
					}
				}
				if !slices.Equal(planned, []int{0, each}) {
					t.Errorf("planned for with the reads %v of two chunks, want the first of each", planned)
				}
			})
		})
	}
}
