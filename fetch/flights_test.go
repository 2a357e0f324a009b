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
	"github.com/segtier/segtier/internal/bubble"
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
	t.Run("stream", func(t *testing.T) { seekCallsOff(t, false) })
	t.Run("cursor", func(t *testing.T) { seekCallsOff(t, true) })
}

// sequence is one reader, known to be one by its Stream or by its Cursor.
type sequence struct {
	next  func(context.Context, *fetch.Result) error
	seek  func(int64)
	close func()
}

func (x *tier) sequence(offset int64, announced bool) sequence {
	if !announced {
		s := x.reader.Stream(x.request(offset, 1))
		return sequence{s.Next, s.SeekTo, s.Close}
	}
	cursor := x.reader.Announce(x.log.Partition, offset)
	return sequence{
		func(ctx context.Context, res *fetch.Result) error {
			req := x.request(offset, 1)
			req.Cursor = cursor
			err := x.reader.Fetch(ctx, req, res)
			if err == nil {
				offset = res.NextOffset()
			}
			return err
		},
		func(to int64) { offset = to },
		cursor.Close,
	}
}

func seekCallsOff(t *testing.T, announced bool) {
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
			bubble.Test(t, func(t *testing.T) {
				log, chunk := even(2, 64)
				x := newTier(t, log, tierOptions{chunk: chunk, memory: 400 * chunk, run: 16 * chunk})
				defer x.close()
				all := x.batches()
				s := x.sequence(8, announced)
				defer s.close()
				var res, other fetch.Result
				defer res.Release()
				defer other.Release()
				next := func() {
					t.Helper()
					if err := s.next(t.Context(), &res); err != nil {
						t.Fatal(err)
					}
				}
				next()
				next()
				synctest.Wait() // all that it may have is here
				before := x.reader.Stats()
				gate := make(chan struct{})
				x.inject(func(c storetest.Call) storetest.Fault {
					if c.Op == "get" && c.Len%chunk == 0 { // no tail: where a reader seeks to is known when it is here
						return storetest.Fault{Kind: storetest.Wait, Gate: gate}
					}
					return storetest.Fault{}
				})
				x.forget()
				for x.reader.Stats().Ahead == before.Ahead {
					next()
				}
				synctest.Wait()
				held := slices.DeleteFunc(x.forget(), func(g storetest.Call) bool { return g.Off%chunk+g.Len%chunk != 0 })
				slices.SortFunc(held, func(a, b storetest.Call) int { return int(a.Off - b.Off) }) // they went at once
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
					s.seek(c.to)
					ctx, cancel := context.WithCancel(t.Context())
					reads.Go(func() {
						if err := s.next(ctx, &res); err != nil && !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
					})
					synctest.Wait()
					defer cancel()
				} else {
					s.close()
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
				if c.counts && announced { // which has a hint, counts on as much as this one, which has none
					if got.CalledOff != 0 {
						t.Errorf("%d bytes called off, all of which another counts on", got.CalledOff)
					}
				} else if c.counts && got.CalledOff != ahead-held[0].Len {
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
	bubble.Test(t, func(t *testing.T) {
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

// An announced consumer that reads at random is fetched nothing ahead, nor is one whose Cursor
// is closed, of another partition, or of another Reader taken for the one it names: they are
// found by their reads, as if they had none.
func TestCursorsThatSayLittle(t *testing.T) {
	for name, c := range map[string]struct {
		offsets []int64
		cursor  func(x *tier) *fetch.Cursor
		alone   bool // is the reader that its cursor names
		ahead   bool // is fetched ahead for
		found   bool // the cache is told of him because of his reads
	}{
		"in sequence": {offsets: []int64{0, 1, 2, 3}, alone: true, ahead: true},
		"at random":   {offsets: []int64{0, 2, 1, 4, 3, 50, 48, 51, 5, 7}, alone: true},
		"closed": {offsets: []int64{0, 1, 2, 3}, ahead: true, cursor: func(x *tier) *fetch.Cursor {
			c := x.reader.Announce(x.log.Partition, 0)
			c.Close()
			c.Close()
			return c
		}},
		"another's": {offsets: []int64{0, 1, 2, 3}, ahead: true, found: true, cursor: func(x *tier) *fetch.Cursor {
			p := x.log.Partition
			p.Number++
			return x.reader.Announce(p, 0)
		}},
		"of another Reader": {offsets: []int64{0, 1, 2, 3}, ahead: true, found: true, cursor: func(x *tier) *fetch.Cursor {
			r, err := fetch.New(x.meta, x.ep, x.cache, fetch.Options{})
			if err != nil {
				x.t.Fatalf("%v", err)
			}
			c := r.Announce(x.log.Partition, 0)
			if err := r.Close(); err != nil {
				x.t.Errorf("%v", err)
			}
			return c
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				log, chunk := even(2, 64)
				x := newTier(t, log, tierOptions{chunk: chunk, memory: 400 * chunk, run: 16 * chunk})
				defer x.close()
				if c.cursor == nil {
					c.cursor = func(x *tier) *fetch.Cursor { return x.reader.Announce(x.log.Partition, 0) }
				}
				cursor := c.cursor(x)
				defer cursor.Close()
				var res fetch.Result
				defer res.Release()
				read := func(offset int64) {
					req := x.request(offset, 1)
					req.Cursor = cursor
					if err := x.reader.Fetch(t.Context(), req, &res); err != nil {
						t.Fatal(err)
					}
					x.check(&res, x.batches(), offset, 1)
					synctest.Wait()
				}
				for _, offset := range c.offsets {
					read(offset)
				}
				if got := res.Found(); got != c.found {
					t.Errorf("the cache was told of the reader because of his reads: %v", got)
				}
				st := x.reader.Stats()
				if st.Ahead > 0 != c.ahead || st.Wasted != 0 {
					t.Errorf("%+v", st)
				}
				if read(100); c.ahead && x.reader.Stats().Wasted > 0 != c.alone {
					t.Errorf("sought: %+v", x.reader.Stats())
				}
			})
		})
	}
}

// What was called off behind a chunk that somebody waits for is not read either: the GET
// ends with that chunk.
func TestCalledOffEndsWithTheLastWanted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(2, 64)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 400 * chunk, run: 16 * chunk, attempts: 3})
		defer x.close()
		s := x.sequence(8, false)
		defer s.close()
		var res, other fetch.Result
		defer res.Release()
		defer other.Release()
		next := func() {
			if err := s.next(t.Context(), &res); err != nil {
				t.Fatal(err)
			}
		}
		next()
		next()
		synctest.Wait()
		const wanted = 3 // chunks of a run
		tried := map[int64]bool{}
		x.inject(func(c storetest.Call) storetest.Fault {
			if c.Op != "get" || c.Len <= wanted*chunk {
				return storetest.Fault{}
			}
			if !tried[c.Off] { // until the stream has gone elsewhere
				tried[c.Off] = true
				return storetest.Fault{Kind: storetest.Stall}
			}
			return storetest.Fault{Kind: storetest.Stall, At: wanted * chunk}
		})
		x.forget()
		for before := x.reader.Stats(); x.reader.Stats().Ahead == before.Ahead; {
			next()
		}
		synctest.Wait()
		held := slices.DeleteFunc(x.ranges(chunk), func(g [2]int64) bool { return g[1]-g[0] <= wanted }) // and tails
		slices.SortFunc(held, func(a, b [2]int64) int { return int(a[0] - b[0]) })
		if len(held) == 0 {
			t.Fatal("nothing is on its way")
		}
		read := make(chan error)
		go func() { read <- x.reader.Fetch(t.Context(), x.request(held[0][0]+wanted-1, 1), &other) }()
		synctest.Wait()
		s.seek(100)
		if err := <-read; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if st := x.ep.Stats(); st.RequestsInFlight != 0 {
			t.Errorf("the rest of the run is waited for: %+v", st)
		}
	})
}
