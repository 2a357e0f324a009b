package fetch_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/objstore/storetest"
)

// Whatever a read asks the store for, it asks for its tenant, who is bounded: one that
// has all it may in flight gets nothing else, and what it reads for is what another gets
// at once.
func TestEveryGetIsOfItsTenant(t *testing.T) {
	const first, second, third = 0, 8, 16 // where segments begin
	for name, c := range map[string]struct {
		hot  []int64 // offsets that were looked at before
		read fetch.Request
	}{
		"tail":                       {read: fetch.Request{Offset: first + 3}},
		"tail and guess":             {hot: []int64{second + 3}, read: fetch.Request{Offset: first}},
		"demand":                     {hot: []int64{first + 3}, read: fetch.Request{Offset: first + 4}},
		"the next segment":           {hot: []int64{first + 6, first + 7, second + 3}, read: fetch.Request{Offset: first + 6, MaxBytes: 1 << 20}},
		"the next segment's tail":    {hot: []int64{first + 6, first + 7}, read: fetch.Request{Offset: first + 6, MaxBytes: 1 << 20}},
		"fetched ahead":              {hot: []int64{first + 6, second + 3}, read: fetch.Request{Offset: first + 6, Hint: fetch.Sequential}},
		"the next tail, ahead of it": {hot: []int64{first + 6, first + 7}, read: fetch.Request{Offset: first + 6, Hint: fetch.Sequential}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				log, chunk := even(3, 8)
				x := newTier(t, log, tierOptions{chunk: chunk, tenant: 1})
				defer x.close()
				var res fetch.Result
				look := func(offset int64) {
					req := x.request(offset, 1)
					req.Hint = fetch.TimeQuery
					if err := x.reader.Fetch(t.Context(), req, &res); err != nil {
						t.Fatal(err)
					}
				}
				for _, offset := range c.hot {
					look(offset)
				}
				look(third) // its tail, and its first chunk
				res.Release()
				gate := x.held()
				x.forget()
				var reads sync.WaitGroup
				read := func(req fetch.Request) {
					reads.Go(func() {
						var res fetch.Result
						defer res.Release()
						if err := x.reader.Fetch(t.Context(), req, &res); err != nil {
							t.Error(err)
						}
					})
					synctest.Wait()
				}
				busy := x.request(third+4, 1)
				busy.Hint, busy.Tenant = fetch.TimeQuery, "a"
				read(busy)
				if n := len(x.forget()); n != 1 {
					t.Fatalf("%d GETs, want the one that all others wait for", n)
				}
				req := x.request(c.read.Offset, max(c.read.MaxBytes, 1))
				req.Hint, req.Tenant = c.read.Hint, "a"
				read(req)
				if gets := x.forget(); len(gets) != 0 {
					t.Errorf("beside the one that it may: %v", gets)
				}
				if x.ep.Stats().Waiting == 0 {
					t.Error("nothing waits")
				}
				close(gate)
				x.inject(nil)
				reads.Wait()
				synctest.Wait()
				if gets := x.forget(); len(gets) == 0 {
					t.Error("nothing was asked for afterwards")
				}
			})
		})
	}
}

// A fetch that goes on into the next segment waits there as it did in the first: a
// backfill does not become a reader at the tail.
func TestBackfillGoesOnAsOne(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(3, 8)
		x := newTier(t, log, tierOptions{chunk: chunk, requests: 8, memory: 400 * chunk, run: chunk})
		defer x.close()
		var res fetch.Result
		for _, offset := range []int64{6, 7, 11, 19} {
			req := x.request(offset, 1)
			req.Hint = fetch.TimeQuery
			if err := x.reader.Fetch(t.Context(), req, &res); err != nil {
				t.Fatal(err)
			}
		}
		res.Release()
		gate := make(chan struct{})
		x.inject(storetest.Rules(storetest.Rule{Op: "get", Times: -1, Fault: storetest.Fault{Kind: storetest.Wait, Gate: gate}}))
		x.forget()
		var reads sync.WaitGroup
		read := func(offset int64, maxBytes int) {
			req := x.request(offset, maxBytes)
			req.Hint = fetch.Scan
			reads.Go(func() {
				var res fetch.Result
				defer res.Release()
				if err := x.reader.Fetch(t.Context(), req, &res); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		for _, offset := range []int64{16, 17, 18, 20, 21, 22, 23} {
			read(offset, 1)
		}
		if gets := x.forget(); len(gets) != 7 {
			t.Fatalf("%d GETs, want 7: all slots but the one for the tail", len(gets))
		}
		read(6, 1<<20) // 6 and 7 are here, and then it waits in the next segment
		if gets := x.forget(); len(gets) != 0 {
			t.Errorf("a backfill has the slot that is kept for the tail: %v", gets)
		}
		close(gate)
		x.inject(nil)
		reads.Wait()
	})
}

// What one tenant has asked for, and may not have yet, is not what another waits for: he
// gets it as his own.
func TestNoTenantWaitsForAnothersBound(t *testing.T) {
	for name, c := range map[string]struct {
		hot    []int64 // offsets that were looked at before
		offset int64   // that both ask for
	}{
		"chunk": {hot: []int64{3}, offset: 5},
		"tail":  {offset: 5},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				log, chunk := even(2, 8)
				x := newTier(t, log, tierOptions{chunk: chunk, tenant: 1})
				defer x.close()
				var res fetch.Result
				for _, offset := range append(c.hot, 8) {
					if err := x.reader.Fetch(t.Context(), x.request(offset, 1), &res); err != nil {
						t.Fatal(err)
					}
				}
				res.Release()
				gate := x.held()
				x.forget()
				var reads sync.WaitGroup
				read := func(offset int64, tenant string) {
					req := x.request(offset, 1)
					req.Tenant = tenant
					reads.Go(func() {
						var res fetch.Result
						defer res.Release()
						if err := x.reader.Fetch(t.Context(), req, &res); err != nil {
							t.Error(err)
						}
					})
					synctest.Wait()
				}
				read(12, "a")
				read(14, "b")
				read(c.offset, "a")
				read(c.offset, "b")
				if gets := x.forget(); len(gets) != 2 {
					t.Fatalf("%v, want what both are held to", gets)
				}
				read(c.offset, "c")
				if gets := x.forget(); len(gets) != 1 {
					t.Errorf("%v, want what c waits for", gets)
				}
				close(gate)
				x.inject(nil)
				reads.Wait()
				for at, n := range coverage(x.forget(), chunk) {
					if n != 1 {
						t.Errorf("%v was asked for %d times", at, n)
					}
				}
			})
		})
	}
}

// A lookup by time is its tenant's too: the tail of a segment, and the data.
func TestTimeLookupIsOfItsTenant(t *testing.T) {
	for name, hot := range map[string]bool{"tail": false, "data": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				log, chunk := even(3, 8)
				x := newTier(t, log, tierOptions{chunk: chunk, tenant: 1})
				defer x.close()
				var lookups sync.WaitGroup
				find := func(at func(*testseg.Segment) int64) {
					for _, s := range log.Segments[:2] { // neither joins the other
						lookups.Go(func() {
							pos, err := x.reader.OffsetForTime(t.Context(), fetch.TimeRequest{
								Partition: log.Partition, LogStart: s.Info().StartOffset, Time: at(s), Tenant: "a",
							})
							if err != nil || pos.Timestamp < at(s) {
								t.Errorf("%+v, %v", pos, err)
							}
						})
						synctest.Wait()
					}
				}
				if hot {
					find(func(s *testseg.Segment) int64 { return s.Batches[0].Header.MaxTimestamp })
					lookups.Wait()
					for _, seg := range x.segs {
						x.cache.Drop(seg.ID)
					}
					x.forget()
				}
				gate := x.held()
				find(func(s *testseg.Segment) int64 { return s.Batches[len(s.Batches)-1].Header.MaxTimestamp })
				if gets := x.forget(); len(gets) != 1 {
					t.Errorf("%d GETs at once of a tenant that may one: %v", len(gets), gets)
				}
				close(gate)
				x.inject(nil)
				lookups.Wait()
			})
		})
	}
}
