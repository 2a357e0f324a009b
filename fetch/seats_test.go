package fetch_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
)

// busy has every slot of a tier taken until the returned gate is closed, by readers of
// chunks that are nobody's neighbours: every other one from `from` on.
func (x *tier) busy(wg *sync.WaitGroup, all []placed, from int64, slots int) chan struct{} {
	x.t.Helper()
	gate := make(chan struct{})
	n := 0
	x.inject(func(storetest.Call) storetest.Fault {
		if n++; n <= slots {
			return storetest.Fault{Kind: storetest.Wait, Gate: gate}
		}
		return storetest.Fault{}
	})
	for i := range int64(slots) {
		x.look(wg, all, from+2*i)
	}
	if st := x.ep.Stats(); st.RequestsInFlight != slots || st.Waiting != 0 {
		x.t.Fatalf("%d GETs in flight, %d wait", st.RequestsInFlight, st.Waiting)
	}
	x.forget()
	return gate
}

// Strangers who ask for neighbouring chunks while there is no slot share GETs of the
// usual length once there is one. Where there are slots nothing waits for others.
func TestStrangersShareGets(t *testing.T) {
	for _, k := range []int64{2, 7, 8, 9, 20} {
		bubble.Test(t, func(t *testing.T) {
			log, chunk := even(1, 64)
			x := newTier(t, log, tierOptions{chunk: chunk, memory: 100 * chunk, run: 16 * chunk, requests: 1})
			defer x.close()
			all := x.batches()
			var wg sync.WaitGroup
			x.look(&wg, all, 63) // for the tail
			gate := x.busy(&wg, all, 40, 1)
			for i := range k {
				x.look(&wg, all, i)
			}
			if n := x.ep.Stats().Waiting; n != int(k) {
				t.Fatalf("%d wait for a slot, of %d", n, k)
			}
			close(gate)
			wg.Wait()
			var want [][2]int64
			for from := int64(0); from < k; from += 8 {
				want = append(want, [2]int64{from, min(from+8, k)})
			}
			got := x.ranges(chunk)
			slices.SortFunc(got, func(a, b [2]int64) int { return int(a[0] - b[0]) })
			if !slices.Equal(got, want) {
				t.Errorf("%d strangers made the GETs %v, want %v", k, got, want)
			}
			if st := x.reader.Stats(); st.Shared != k-int64(len(want)) || st.DataGets != int64(2+len(want)) || st.DataBytes != (2+k)*chunk {
				t.Errorf("%d GETs, %d bytes: %+v", st.DataGets, st.DataBytes/chunk, st)
			}
		})
	}
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(1, 64)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 100 * chunk, run: 16 * chunk, requests: 16})
		defer x.close()
		all := x.batches()
		var wg sync.WaitGroup
		x.look(&wg, all, 63)
		gate := x.held()
		x.forget()
		for i := range int64(8) { // beside what is under way, on either side
			x.look(&wg, all, []int64{7, 6, 5, 4, 0, 1, 2, 3}[i])
		}
		if got := x.ranges(chunk); len(got) != 8 || slices.ContainsFunc(got, func(g [2]int64) bool { return g[1]-g[0] > 1 }) {
			t.Errorf("with slots for all, 8 callers have begun the GETs %v", got)
		}
		close(gate)
		wg.Wait()
	})
}

// In whatever order they ask, each chunk is read once, no GET is longer than a run, and
// the one whose turn it is gets its chunk first, as long as nothing is known of how long
// a first byte takes.
func TestStrangersInAnyOrder(t *testing.T) {
	for range 20 * soak() {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		bubble.Test(t, func(t *testing.T) {
			log, chunk := even(1, 64)
			x := newTier(t, log, tierOptions{chunk: chunk, memory: 100 * chunk, run: 16 * chunk, requests: 1})
			defer x.close()
			all := x.batches()
			var wg sync.WaitGroup
			x.look(&wg, all, 63)
			gate := x.busy(&wg, all, 61, 1)
			asked := r.Perm(60)[:1+r.IntN(59)]
			for _, c := range asked {
				x.look(&wg, all, int64(c))
			}
			close(gate)
			wg.Wait()
			waits := slices.Clone(asked)
			for _, g := range x.ranges(chunk) {
				if g[0] != int64(waits[0]) || g[1]-g[0] > 8 {
					t.Errorf("seed %d: GET %v, when it was the turn of chunk %d", seed, g, waits[0])
				}
				for c := g[0]; c < g[1]; c++ {
					i := slices.Index(waits, int(c))
					if i < 0 {
						t.Fatalf("seed %d: GET %v: nobody waits for chunk %d, or no more; asked were %v", seed, g, c, asked)
					}
					waits = slices.Delete(waits, i, i+1)
				}
				if g[1]-g[0] < 8 && slices.Contains(waits, int(g[1])) {
					t.Errorf("seed %d: GET %v could have been longer", seed, g)
				}
			}
			if len(waits) > 0 {
				t.Errorf("seed %d: nobody read %v", seed, waits)
			}
		})
	}
}

// Whose tenant is another, and what one caller has asked for in two GETs, is not taken
// along.
func TestWhoIsNotTakenAlong(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(1, 64)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 100 * chunk, run: 4 * chunk, requests: 1})
		defer x.close()
		all := x.batches()
		var wg sync.WaitGroup
		x.look(&wg, all, 50)
		x.primed(&wg, 4) // so that either could be the first
		gate := x.busy(&wg, all, 40, 1)
		x.look(&wg, all, 0)
		wg.Go(func() {
			req := x.request(1, 1)
			req.Hint, req.Tenant = fetch.TimeQuery, "another"
			var res fetch.Result
			defer res.Release()
			if err := x.reader.Fetch(t.Context(), req, &res); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		wg.Go(func() { // of one caller: a chunk, and another
			req := x.request(10, int(2*chunk))
			req.Hint = fetch.TimeQuery
			var res fetch.Result
			defer res.Release()
			if err := x.reader.Fetch(t.Context(), req, &res); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		close(gate)
		wg.Wait()
		got := x.ranges(chunk)
		slices.SortFunc(got, func(a, b [2]int64) int { return int(a[0] - b[0]) })
		if want := [][2]int64{{0, 1}, {1, 2}, {10, 11}, {11, 12}}; !slices.Equal(got, want) {
			t.Errorf("GETs %v, want %v", got, want)
		}
	})
}

// Who is less urgent is not taken along: nobody who waits is to wait for what nobody
// waits for, or take places that are kept for others.
func TestLessUrgentIsNotTakenAlong(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(1, 256)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 1000 * chunk, run: 16 * chunk, requests: 8})
		defer x.close()
		all := x.batches()
		var wg sync.WaitGroup
		x.look(&wg, all, 255)
		gate := x.held()
		for _, at := range []int64{1, 31, 61, 91, 121, 201} { // backfills, that have all slots but the tail's
			req := x.request(at, 1)
			req.Hint = fetch.Scan
			s := x.reader.Stream(req)
			defer s.Close()
			wg.Go(func() {
				var res fetch.Result
				defer res.Release()
				if err := s.Next(t.Context(), &res); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if st := x.ep.Stats(); st.RequestsInFlight != 7 || slices.ContainsFunc(x.ranges(chunk), func(g [2]int64) bool { return g[0] == 201 }) {
			t.Fatalf("%d GETs in flight; or the last backfill does not wait", st.RequestsInFlight)
		}
		x.look(&wg, all, 200)
		if got := x.ranges(chunk); !slices.Equal(got, [][2]int64{{200, 201}}) {
			t.Errorf("beside a backfill that waits, a look at chunk 200 made the GETs %v", got)
		}
		close(gate)
		wg.Wait()
	})
}

// primed lets a tier know that the first byte of a GET takes 30 ms: what comes in less
// is worth reading before.
func (x *tier) primed(wg *sync.WaitGroup, chunks int64) {
	gate := x.held()
	time.AfterFunc(30*time.Millisecond, func() { close(gate) })
	wg.Go(func() {
		req := x.request(x.end()-chunks, 1<<20)
		req.Hint = fetch.TimeQuery
		var res fetch.Result
		defer res.Release()
		if err := x.reader.Fetch(context.Background(), req, &res); err != nil {
			x.t.Errorf("%v", err)
		}
	})
	wg.Wait()
	x.inject(nil)
}

// Before what a GET is made for there is as much as comes in less time than the first
// byte of another GET, two chunks at most.
func TestWhatComesBefore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(1, 64)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 100 * chunk, run: 16 * chunk, requests: 1})
		defer x.close()
		all := x.batches()
		var wg sync.WaitGroup
		x.look(&wg, all, 50)
		x.primed(&wg, 4)
		gate := x.busy(&wg, all, 40, 1)
		for _, c := range []int64{5, 4, 3, 2, 1, 6} {
			x.look(&wg, all, c)
		}
		close(gate)
		wg.Wait()
		if got := x.ranges(chunk); !slices.Equal(got, [][2]int64{{3, 7}, {1, 3}}) {
			t.Errorf("GETs %v", got)
		}
	})
}

// What waits for its next try, because the store wanted fewer requests, is taken along
// by who goes first.
func TestThrottledReadsShareGets(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(1, 64)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 100 * chunk, run: 16 * chunk, attempts: 4})
		defer x.close()
		all := x.batches()
		var wg sync.WaitGroup
		x.look(&wg, all, 50)
		x.primed(&wg, 4)
		x.inject(storetest.Rules(storetest.Rule{Op: "get", Times: 3, Fault: storetest.Fault{Kind: storetest.FailBefore, Err: objstore.ErrThrottled}}))
		x.forget()
		for c := range int64(3) {
			x.look(&wg, all, 10+c)
		}
		wg.Wait()
		got := x.ranges(chunk)
		if want := [][2]int64{{10, 11}, {10, 12}, {10, 13}, {10, 13}}; !slices.Equal(got, want) {
			t.Errorf("GETs %v, of which three were refused; want %v", got, want)
		}
		if st := x.reader.Stats(); st.Shared != 2 {
			t.Errorf("%+v", st)
		}
	})
}

// crew is a GET with three strangers' chunks, 10, 11 and 12, held by the store.
type crew struct {
	*tier
	t     *testing.T
	all   []placed
	chunk int64
	wg    sync.WaitGroup
	errs  [3]error
}

// newCrew has them wait for a slot until free is called; then GETs have faults. Chunk
// bad is damaged at rest, if it is not negative.
func newCrew(t *testing.T, bad int64, fault storetest.Plan) (c *crew, free func()) {
	log, chunk := even(1, 64)
	c = &crew{tier: newTier(t, log, tierOptions{chunk: chunk, memory: 100 * chunk, run: 16 * chunk, requests: 1}), t: t, chunk: chunk}
	if bad >= 0 {
		key, b := c.object(c.segs[0])
		b = slices.Clone(b)
		b[bad*chunk+100] ^= 1
		c.put(key, b)
	}
	c.all = c.batches()
	c.look(&c.wg, c.all, 50)
	gate := c.busy(&c.wg, c.all, 40, 1)
	read := func(i int64) error {
		req := c.request(10+i, 1)
		req.Hint = fetch.TimeQuery
		var res fetch.Result
		defer res.Release()
		err := c.reader.Fetch(context.Background(), req, &res)
		if err == nil {
			c.check(&res, c.all, 10+i, 1)
		}
		return err
	}
	for i := range int64(3) {
		c.wg.Go(func() { c.errs[i] = read(i) })
		synctest.Wait()
	}
	if n := c.ep.Stats().Waiting; n != 3 {
		t.Fatalf("%d wait", n)
	}
	return c, func() {
		c.inject(fault)
		close(gate)
		synctest.Wait()
	}
}

// A GET that fails fails all who are on it, as one that a caller made alone; but what is
// wrong with one chunk is that caller's who asked for it.
func TestFailuresOfSharedGets(t *testing.T) {
	get := func(f storetest.Fault, times int) storetest.Plan {
		return storetest.Rules(storetest.Rule{Op: "get", Times: times, Fault: f})
	}
	for name, c := range map[string]struct {
		fault storetest.Plan
		bad   int64 // chunk that is damaged at rest; -1 none
		want  [3]error
		gets  [][2]int64
	}{
		"none":         {bad: -1, gets: [][2]int64{{10, 13}}},
		"refused":      {fault: get(storetest.Fault{Kind: storetest.FailBefore}, -1), bad: -1, want: [3]error{fetch.ErrUnavailable, fetch.ErrUnavailable, fetch.ErrUnavailable}, gets: [][2]int64{{10, 13}}},
		"first":        {bad: 10, want: [3]error{0: fetch.ErrCorruption}},
		"middle":       {bad: 11, want: [3]error{1: fetch.ErrCorruption}},
		"last":         {bad: 12, want: [3]error{2: fetch.ErrCorruption}},
		"on its way":   {fault: get(storetest.Fault{Kind: storetest.Flip, At: 1500}, 1), bad: -1, gets: [][2]int64{{10, 13}, {11, 13}}},
		"a panic":      {fault: func(storetest.Call) storetest.Fault { panic("the store") }, bad: -1, want: [3]error{fetch.ErrUnavailable, fetch.ErrUnavailable, fetch.ErrUnavailable}},
		"other object": {fault: get(storetest.Fault{Kind: storetest.WrongIdentity}, 1), bad: -1, gets: [][2]int64{{10, 13}, {10, 13}}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				crew, free := newCrew(t, c.bad, c.fault)
				defer crew.close()
				free()
				crew.wg.Wait()
				for i, err := range crew.errs {
					if !errors.Is(err, c.want[i]) || c.want[i] == nil && err != nil {
						t.Errorf("chunk %d: %v, want %v", 10+i, err, c.want[i])
					}
				}
				for _, err := range crew.errs {
					if name == "a panic" && !strings.Contains(err.Error(), "panicked") {
						t.Error(err)
					}
				}
				if got := crew.ranges(crew.chunk); c.gets != nil && !slices.Equal(got, c.gets) {
					t.Errorf("GETs %v, want %v", got, c.gets)
				}
				if c.want == [3]error{} {
					return
				}
				crew.inject(nil) // nothing is poisoned by what was
				for i := range int64(3) {
					if c.bad != 10+i {
						crew.look(&crew.wg, crew.all, 10+i)
					}
				}
				crew.wg.Wait()
			})
		})
	}
}

// A Stream that leaves has its part of a shared GET called off, if that is its end: before
// the turn it is not asked for, later the read ends where others' chunks end. What
// others wait for behind it still comes, with it.
func TestSeekCallsOffItsPart(t *testing.T) {
	for name, c := range map[string]struct {
		begun  bool  // the GET has begun when the stream leaves
		left   bool  // who asked for the first chunk has left, whose it is all the same
		behind bool  // somebody waits for the chunk behind the stream's
		to     int64 // the GET asks for chunks up to here
		comes  int64 // chunks that come
	}{
		"before its turn":           {to: 11, comes: 1},
		"while it is read":          {begun: true, to: 12, comes: 1},
		"later, the first one left": {begun: true, left: true, to: 12, comes: 1},
		"before, others are behind": {behind: true, to: 11, comes: 2}, // by a GET of their own
		"later, others are behind":  {begun: true, behind: true, to: 13, comes: 3},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				log, chunk := even(1, 64)
				x := newTier(t, log, tierOptions{chunk: chunk, memory: 100 * chunk, run: 16 * chunk, requests: 1})
				defer x.close()
				all := x.batches()
				var wg sync.WaitGroup
				x.look(&wg, all, 50)
				gate := x.busy(&wg, all, 40, 1)
				first, left := context.WithCancel(t.Context())
				defer left()
				wg.Go(func() {
					req := x.request(10, 1)
					req.Hint = fetch.TimeQuery
					var res fetch.Result
					defer res.Release()
					if err := x.reader.Fetch(first, req, &res); c.left != errors.Is(err, context.Canceled) || !c.left && err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
				if c.left {
					left()
				}
				req := x.request(11, 1)
				req.Hint = fetch.Tail
				s := x.reader.Stream(req)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				wg.Go(func() {
					var res fetch.Result
					defer res.Release()
					if err := s.Next(ctx, &res); !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				})
				synctest.Wait()
				if c.behind {
					x.look(&wg, all, 12)
				}
				before := x.ep.Stats().Bytes
				leave := func() {
					cancel()
					synctest.Wait()
					s.Close()
				}
				rest := make(chan struct{})
				if c.begun {
					x.inject(func(call storetest.Call) storetest.Fault {
						if call.Off == 10*chunk {
							return storetest.Fault{Kind: storetest.Wait, Gate: rest}
						}
						return storetest.Fault{}
					})
				} else {
					leave()
				}
				close(gate)
				synctest.Wait()
				if c.begun {
					leave()
				}
				close(rest)
				wg.Wait()
				synctest.Wait()
				got := x.ranges(chunk)
				if !slices.Contains(got, [2]int64{10, c.to}) {
					t.Errorf("GETs %v, want one up to chunk %d", got, c.to)
				}
				if n := x.ep.Stats().Bytes - before; n != (1+c.comes)*chunk { // one that held the slot
					t.Errorf("%d bytes of chunks of %d", n, chunk)
				}
				has := func(n int64) bool { return x.cache.Has(cache.Key{Object: x.segs[0].ID, Chunk: uint32(n)}) }
				if !has(10) || has(11) != (c.comes > 2) || has(12) != c.behind {
					t.Errorf("chunks 10, 11, 12 are here: %v, %v, %v", has(10), has(11), has(12))
				}
			})
		})
	}
}

// What is taken along keeps to the bytes that may be in flight.
func TestSharedGetsKeepToTheBounds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(1, 64)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 100 * chunk, run: 16 * chunk, requests: 1, bytes: 3*chunk + 100})
		defer x.close()
		all := x.batches()
		var wg sync.WaitGroup
		x.look(&wg, all, 50)
		gate := x.busy(&wg, all, 40, 1)
		for c := range int64(5) {
			x.look(&wg, all, c)
		}
		close(gate)
		wg.Wait()
		if got := x.ranges(chunk); !slices.Equal(got, [][2]int64{{0, 3}, {3, 5}}) {
			t.Errorf("GETs %v", got)
		}
	})
}

// A read that has begun is its own: it goes on at the byte that it has come to, whoever
// has a turn beside it meanwhile.
func TestWhatHasBegunIsNotTakenAlong(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(1, 64)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 100 * chunk, run: 16 * chunk, attempts: 4})
		defer x.close()
		all := x.batches()
		var wg sync.WaitGroup
		x.look(&wg, all, 50)
		x.primed(&wg, 4)
		x.inject(storetest.Rules(storetest.Rule{Op: "get", Fault: storetest.Fault{Kind: storetest.Cut, At: chunk + 10}}))
		x.forget()
		wg.Go(func() {
			req := x.request(10, int(2*chunk))
			req.Hint = fetch.TimeQuery
			var res fetch.Result
			defer res.Release()
			if err := x.reader.Fetch(t.Context(), req, &res); err != nil || res.Size() != int(2*chunk) {
				t.Errorf("%v, %d bytes", err, res.Size())
			}
		})
		synctest.Wait() // until it waits for its next try
		x.look(&wg, all, 12)
		wg.Wait()
		var got [][2]int64
		for _, g := range x.forget() {
			got = append(got, [2]int64{g.Off, g.Off + g.Len})
		}
		if want := [][2]int64{{10 * chunk, 12 * chunk}, {12 * chunk, 13 * chunk}, {11*chunk + 10, 12 * chunk}}; !slices.Equal(got, want) {
			t.Errorf("GETs of bytes %v, want %v", got, want)
		}
	})
}
