package fetch_test

import (
	"sync"
	"testing"

	"github.com/segtier/segtier/cache"
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
