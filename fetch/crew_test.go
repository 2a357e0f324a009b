package fetch_test

import (
	"context"
	"errors"
	"io"
	"slices"
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

// refusing lets the store refuse the first GET from each of these chunks on, and hold
// those from `held` on until the gate is closed.
func (x *tier) refusing(chunk, held int64, gate chan struct{}, first ...int64) {
	x.inject(func(c storetest.Call) storetest.Fault {
		if i := slices.Index(first, c.Off/chunk); i >= 0 {
			first[i] = -1
			return storetest.Fault{Kind: storetest.FailBefore, Err: objstore.ErrThrottled}
		}
		if c.Off == held*chunk {
			return storetest.Fault{Kind: storetest.Wait, Gate: gate}
		}
		return storetest.Fault{}
	})
}

// stream reads once at an offset, near the end of the log as far as it says, and waits
// until ctx ends.
func (x *tier) stream(ctx context.Context, wg *sync.WaitGroup, offset int64) *fetch.Stream {
	req := x.request(offset, 1)
	req.Hint = fetch.Tail
	s := x.reader.Stream(req)
	wg.Go(func() {
		var res fetch.Result
		defer res.Release()
		if err := s.Next(ctx, &res); !errors.Is(err, context.Canceled) {
			x.t.Errorf("chunk %d: %v", offset, err)
		}
	})
	synctest.Wait()
	return s
}

// A read that was refused is taken along with those whom it had taken along: they
// come with the new one, and may still be called off.
func TestCrewsAreTakenAlong(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(1, 64)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 100 * chunk, run: 16 * chunk, attempts: 4})
		defer x.close()
		all := x.batches()
		var wg sync.WaitGroup
		x.look(&wg, all, 50)
		gate := make(chan struct{})
		x.refusing(chunk, 8, gate, 10, 9)
		x.forget()
		ctx, cancel := context.WithCancel(t.Context())
		s := x.stream(ctx, &wg, 10)
		x.look(&wg, all, 9) // takes 10 along, and is refused too
		x.look(&wg, all, 8) // takes both
		got := x.ranges(chunk)
		for _, want := range [][2]int64{{10, 11}, {9, 11}, {8, 11}} {
			if !slices.Contains(got, want) {
				t.Fatalf("GETs %v, none is %v", got, want)
			}
		}
		cancel()
		synctest.Wait()
		s.Close()
		close(gate)
		wg.Wait()
		if x.cache.Has(cache.Key{Object: x.segs[0].ID, Chunk: 10}) || x.reader.Stats().CalledOff < chunk {
			t.Errorf("chunk 10 was called off, and is here; %+v", x.reader.Stats())
		}
	})
}

// A read whose own chunks nobody wants any more goes on for those whom it has taken
// along; and ends when they are taken along by another.
func TestAReadForOthersAlone(t *testing.T) {
	for _, taken := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			log, chunk := even(1, 64)
			x := newTier(t, log, tierOptions{chunk: chunk, memory: 100 * chunk, run: 16 * chunk, attempts: 4})
			defer x.close()
			all := x.batches()
			var wg sync.WaitGroup
			x.look(&wg, all, 50)
			x.primed(&wg, 4)
			x.refusing(chunk, -1, nil, 10, 10)
			x.forget()
			x.look(&wg, all, 10)
			ctx, cancel := context.WithCancel(t.Context())
			s := x.stream(ctx, &wg, 11) // has 10 come before it
			got := x.ranges(chunk)
			if !slices.Contains(got, [2]int64{10, 12}) {
				t.Fatalf("GETs %v", got)
			}
			cancel()
			synctest.Wait()
			s.Close()
			want := [2]int64{10, 11}
			if taken {
				x.look(&wg, all, 9)
				want[0] = 9
			}
			wg.Wait()
			if got := x.ranges(chunk); !slices.Equal(got, [][2]int64{want}) {
				t.Errorf("GETs %v, want %v", got, want)
			}
		})
	}
}

// Who is called off while the read that is to bring him waits for its next try is not
// asked for again, and his own read ends too: nothing is left to close.
func TestWhoLeavesBeforeTheNextTry(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(1, 64)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 100 * chunk, run: 16 * chunk, attempts: 4})
		defer x.close()
		all := x.batches()
		var wg sync.WaitGroup
		x.look(&wg, all, 50)
		x.refusing(chunk, 10, nil, 11, 10) // the next try hangs
		x.forget()
		ctx, cancel := context.WithCancel(t.Context())
		s := x.stream(ctx, &wg, 11)
		first, left := context.WithCancel(t.Context())
		wg.Go(func() { // takes 11 along
			req := x.request(10, 1)
			req.Hint = fetch.TimeQuery
			var res fetch.Result
			defer res.Release()
			if err := x.reader.Fetch(first, req, &res); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		if got := x.ranges(chunk); !slices.Contains(got, [2]int64{10, 12}) {
			t.Errorf("GETs %v", got)
		}
		cancel()
		synctest.Wait()
		s.Close()
		before := x.cache.Stats().Filling
		<-time.After(time.Second)
		if got := x.ranges(chunk); !slices.Equal(got, [][2]int64{{10, 11}}) {
			t.Errorf("GETs %v, when the second had left", got)
		}
		if n := x.cache.Stats().Filling; before != chunk || n != chunk {
			t.Errorf("%d bytes are to come, then %d", before, n)
		}
		left()
		wg.Wait()
	})
}

// What comes before the chunk that a read is made for is no more with its later tries than
// with the first: who was first does not wait longer each time.
func TestLaterTriesBringNoMoreBefore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(1, 64)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 100 * chunk, run: 32 * chunk, requests: 1, attempts: 4})
		defer x.close()
		all := x.batches()
		var wg sync.WaitGroup
		x.look(&wg, all, 50)
		x.primed(&wg, 4)
		x.forget()
		refuse := 2
		gates := map[int64]chan struct{}{20: make(chan struct{}), 30: make(chan struct{}), 40: make(chan struct{})}
		x.inject(func(c storetest.Call) storetest.Fault {
			if gate := gates[c.Off/chunk]; gate != nil {
				return storetest.Fault{Kind: storetest.Wait, Gate: gate}
			}
			if c.Off/chunk <= 10 && refuse > 0 {
				refuse--
				return storetest.Fault{Kind: storetest.FailBefore, Err: objstore.ErrThrottled}
			}
			return storetest.Fault{}
		})
		next := func(gate int64, asked ...int64) { // once they wait, and who was refused does again
			for _, c := range asked {
				x.look(&wg, all, c)
			}
			<-time.After(time.Second)
			close(gates[gate])
			synctest.Wait()
		}
		x.look(&wg, all, 20)
		next(20, 10, 30)
		<-time.After(time.Second)
		next(30, 9, 8, 40)
		<-time.After(time.Second)
		next(40, 7, 6)
		wg.Wait()
		if got := x.ranges(chunk); !slices.Contains(got, [2]int64{8, 11}) || !slices.Contains(got, [2]int64{6, 8}) {
			t.Errorf("GETs %v, with more than two chunks before the one that was waited for first", got)
		}
	})
}

// changed answers the first GET from `off` on when gate is closed: the object is another.
type changed struct {
	objstore.Store
	off  int64
	gate chan struct{}
	once sync.Once
}

func (s *changed) Get(ctx context.Context, key string, off, n int64, opts objstore.GetOptions) (info objstore.Info, body io.ReadCloser, err error) {
	if off == s.off {
		s.once.Do(func() {
			<-s.gate
			err = objstore.ErrChanged
		})
	}
	if err != nil {
		return info, nil, err
	}
	return s.Store.Get(ctx, key, off, n, opts)
}

// A read that found another object goes on by itself: nobody asks it again what to read,
// so it would read into the same memory as who takes it along.
func TestAChangedObjectIsNotTakenAlong(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(1, 64)
		other := &changed{off: 10 * chunk, gate: make(chan struct{})}
		x := newTier(t, log, tierOptions{
			chunk: chunk, memory: 100 * chunk, run: 16 * chunk, requests: 1,
			wrap: func(s objstore.Store) objstore.Store { other.Store = s; return other },
		})
		defer x.close()
		all := x.batches()
		var wg sync.WaitGroup
		x.look(&wg, all, 50)
		x.primed(&wg, 4) // so that what comes before it would be taken
		gate := make(chan struct{})
		x.inject(storetest.Rules(storetest.Rule{Op: "get", Fault: storetest.Fault{Kind: storetest.Wait, Gate: gate}}))
		x.forget()
		x.look(&wg, all, 10)
		x.look(&wg, all, 30)
		x.look(&wg, all, 11)
		close(other.gate)
		synctest.Wait() // 30 is held, and 10 waits once more, behind 11
		if n := x.ep.Stats().Waiting; n != 2 {
			t.Fatalf("%d wait", n)
		}
		close(gate)
		wg.Wait()
		if got := x.ranges(chunk); !slices.Equal(got, [][2]int64{{30, 31}, {11, 12}, {10, 11}}) {
			t.Errorf("GETs %v", got)
		}
	})
}

// Who goes by himself because something was damaged is taken along by nobody: what was
// in order would be read again and again.
func TestWhoGoesAloneIsNotTakenAlong(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		gate, another := make(chan struct{}), make(chan struct{})
		n := 0
		crew, free := newCrew(t, 10, func(c storetest.Call) storetest.Fault {
			if c.Len < 2000 { // not the three
				return storetest.Fault{Kind: storetest.Wait, Gate: another}
			}
			if n++; n == 2 { // their second try
				return storetest.Fault{Kind: storetest.Wait, Gate: gate}
			}
			return storetest.Fault{}
		})
		defer crew.close()
		free()
		crew.look(&crew.wg, crew.all, 20)
		crew.look(&crew.wg, crew.all, 9) // has its turn when those wait who go alone
		close(gate)
		synctest.Wait()
		close(another)
		crew.wg.Wait()
		shared := 0
		for _, g := range crew.ranges(crew.chunk) {
			if g == [2]int64{10, 13} {
				shared++
			} else if g[1] > 10 && g[1]-g[0] != 1 {
				t.Errorf("GET %v, after chunk 10 was found to be damaged", g)
			}
		}
		if shared != 2 {
			t.Errorf("%d GETs of the three", shared)
		}
	})
}

// Who goes by himself because something was damaged takes nobody along either, also none who
// has come since: whose chunk it is that is damaged is not known yet.
func TestWhoGoesAloneTakesNobodyAlong(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, chunk := even(1, 64)
		gate, another := make(chan struct{}), make(chan struct{})
		n := 0
		crew, free := newCrew(t, 10, func(c storetest.Call) storetest.Fault {
			if c.Off == 20*chunk {
				return storetest.Fault{Kind: storetest.Wait, Gate: another}
			}
			if n++; n == 2 { // the second try of the three
				return storetest.Fault{Kind: storetest.Wait, Gate: gate}
			}
			return storetest.Fault{}
		})
		defer crew.close()
		free()
		crew.look(&crew.wg, crew.all, 20)
		close(gate)
		synctest.Wait() // 20 has the slot, and the three wait for it
		crew.look(&crew.wg, crew.all, 13)
		if n := crew.ep.Stats().Waiting; n != 4 {
			t.Errorf("%d wait, want the three and one more", n)
		}
		crew.forget()
		close(another)
		crew.wg.Wait()
		got := crew.ranges(chunk)
		if slices.ContainsFunc(got, func(g [2]int64) bool { return g[1]-g[0] != 1 }) || !slices.Contains(got, [2]int64{13, 14}) {
			t.Errorf("chunk 10 was found to be damaged, and then the GETs %v were made", got)
		}
		if !errors.Is(crew.errs[0], fetch.ErrCorruption) || crew.errs[1] != nil || crew.errs[2] != nil {
			t.Errorf("%v", crew.errs)
		}
	})
}

// A Stream's own runs are as long as it wants them.
func TestAStreamsRunsStayWhatTheyAre(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, chunk := even(1, 64)
		x := newTier(t, log, tierOptions{chunk: chunk, memory: 8 * chunk, run: 16 * chunk, requests: 1})
		defer x.close()
		all := x.batches()
		var wg sync.WaitGroup
		x.look(&wg, all, 50)
		x.primed(&wg, 4)
		gate := x.busy(&wg, all, 58, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req := x.request(0, 1)
		req.Hint = fetch.Scan
		s := x.reader.Stream(req)
		wg.Go(func() {
			var res fetch.Result
			defer res.Release()
			if err := s.Next(ctx, &res); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if n := x.ep.Stats().Waiting; n < 2 {
			t.Fatalf("%d wait", n)
		}
		close(gate)
		wg.Wait()
		synctest.Wait()
		if got := x.ranges(chunk); len(got) < 2 || slices.ContainsFunc(got, func(g [2]int64) bool { return g[1]-g[0] > 2 }) {
			t.Errorf("GETs %v of a stream with memory for runs of 2", got)
		}
		s.Close()
	})
}
