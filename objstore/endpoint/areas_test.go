package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
)

// wards is a store whose objects have the same bytes each, and whose directories are as
// sick as their names say.
type wards struct {
	objstore.Store
	data  []byte
	sick  func(ctx context.Context, dir string) error
	mu    sync.Mutex
	asked map[string]int // by directory; guarded by mu
}

func newWards(t *testing.T, sick func(ctx context.Context, dir string) error) *wards {
	data := content(100)
	return &wards{Store: filled(t, data), data: data, sick: sick, asked: map[string]int{}}
}

// newHangs is a store that answers in 20 ms, but for directories that hang meanwhile: all but
// one that is well.
func newHangs(t *testing.T, hangs *atomic.Bool) *wards {
	return newWards(t, func(ctx context.Context, dir string) error {
		if dir == "well" || !hangs.Load() {
			return pause(ctx, 20*time.Millisecond)
		}
		<-ctx.Done()
		return ctx.Err()
	})
}

func (s *wards) Get(ctx context.Context, key string, off, n int64, o objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	dir, _, _ := strings.Cut(key, "/")
	s.mu.Lock()
	s.asked[dir]++
	s.mu.Unlock()
	if err := s.sick(ctx, dir); err != nil {
		return objstore.Info{}, nil, err
	}
	return s.Store.Get(ctx, "key", off, n, o)
}

// count returns how often a directory was asked.
func (s *wards) count(dir string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[dir]
}

// read reads an object of a directory.
func (s *wards) read(ctx context.Context, e *Endpoint, dir string) error {
	req := read(s.data, 100)
	req.Key = dir + "/object"
	_, err := e.Read(ctx, req)
	return err
}

// crowd has so many callers read a directory until ctx ends.
func (s *wards) crowd(ctx context.Context, wg *sync.WaitGroup, e *Endpoint, dir string, n int) {
	for range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				_ = s.read(ctx, e, dir) // sick
				_ = pause(ctx, time.Millisecond)
			}
		})
	}
}

func isSlowNow(e *Endpoint, a *area) bool {
	e.slots.mu.Lock()
	defer e.slots.mu.Unlock()
	return a.slow
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rate is how often a caller reads a directory that is well in a while, beside crowds
// that read the others.
func rate(t *testing.T, s *wards, o Options, lasts time.Duration, crowds ...string) (n int, e *Endpoint) {
	e = open(t, s, o)
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := s.read(ctx, e, "well"); err == nil {
					s.mu.Lock()
					n++
					s.mu.Unlock()
				} else if ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for _, dir := range crowds {
		s.crowd(ctx, &wg, e, dir, 16)
	}
	wg.Wait()
	return n, e
}

// A directory that always throttles is asked little, and those that do not as much as
// ever; also where it says how long to wait.
func TestThrottledAreasAlone(t *testing.T) {
	for _, after := range []time.Duration{0, 2 * time.Second} {
		bubble.Test(t, func(t *testing.T) {
			s := newWards(t, func(ctx context.Context, dir string) error {
				if err := pause(ctx, 20*time.Millisecond); err != nil || dir == "well" {
					return err
				}
				return &objstore.Error{Op: "get", Err: objstore.ErrThrottled, RetryAfter: after}
			})
			alone, _ := rate(t, s, Options{Requests: 16}, 20*time.Second)
			n, e := rate(t, s, Options{Requests: 16}, 20*time.Second, "a", "b", "c", "d", "e")
			t.Logf("%d reads, %d alone, %+v", n, alone, e.Stats())
			if n < alone*8/10 {
				t.Errorf("%d reads, %d alone", n, alone)
			}
			if limit := e.Stats().ReadLimit; limit != 2 {
				t.Errorf("the throttled ones have a limit of %d", limit)
			}
		})
	}
}

// A directory that hangs keeps what it got while nobody knew, and no more than an eighth
// from then on; one that nobody has heard of gets no more than a half. When it answers
// again it is as others.
func TestHangingAreasAlone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newWards(t, func(ctx context.Context, dir string) error {
			if dir == "well" {
				return pause(ctx, 20*time.Millisecond)
			}
			<-ctx.Done()
			return ctx.Err()
		})
		alone, _ := rate(t, s, Options{Requests: 32}, 60*time.Second)
		n, e := rate(t, s, Options{Requests: 32}, 60*time.Second, "a", "b", "c", "d")
		t.Logf("%d reads, %d alone, %+v", n, alone, e.Stats())
		if n < alone*8/10 {
			t.Errorf("%d reads, %d alone", n, alone)
		}
	})
	bubble.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		s := newHangs(t, &hangs)
		e := open(t, s, Options{Requests: 32})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		s.crowd(ctx, &wg, e, "a", 64)
		s.crowd(ctx, &wg, e, "well", 16)
		_ = pause(t.Context(), 5*time.Second)
		hangs.Store(true)
		_ = pause(t.Context(), 15*time.Second) // what hung has ended once
		before := s.count("well")
		_ = pause(t.Context(), 5*time.Second)
		if n := s.count("well") - before; n < 16*5*48*8/10 {
			t.Errorf("%d reads in 5 s", n)
		}
		hangs.Store(false)
		_ = pause(t.Context(), 15*time.Second)
		if isSlowNow(e, e.slots.area(forReads, "a/object")) {
			t.Error("it answers, and is still taken for one that does not")
		}
		cancel()
		wg.Wait()
	})
}

// Few requests of a slow directory can hold all of the bytes that may be in flight: they are
// taken back too.
func TestSlowAreasGiveBytesBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		s := newHangs(t, &hangs)
		e := open(t, s, Options{Requests: 64, BytesInFlight: 400})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		s.crowd(ctx, &wg, e, "well", 1)
		s.crowd(ctx, &wg, e, "a", 4) // 100 bytes each
		_ = pause(t.Context(), time.Second)
		hangs.Store(true)
		_ = pause(t.Context(), 3*time.Second) // they hold all, and are found out
		before := s.count("well")
		_ = pause(t.Context(), 5*time.Second)
		if n := s.count("well") - before; n < 5*45*8/10 {
			t.Errorf("%d reads in 5 s", n)
		}
		if held, _ := e.slots.inFlight(); held.bytes < 100 {
			t.Errorf("%+v in flight: a slow directory has nothing at all", held)
		}
		cancel()
		wg.Wait()
	})
}

// Directories that have not answered yet have a half of the slots: those that have lose no
// more to them than that while nobody knows that they will not.
func TestNewAreasHaveHalf(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newWards(t, func(ctx context.Context, dir string) error {
			if dir == "well" {
				return pause(ctx, 20*time.Millisecond)
			}
			<-ctx.Done()
			return ctx.Err()
		})
		e := open(t, s, Options{Requests: 32})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		s.crowd(ctx, &wg, e, "well", 16)
		_ = pause(ctx, time.Second)
		for _, dir := range []string{"a", "b", "c", "d"} {
			s.crowd(ctx, &wg, e, dir, 32)
		}
		before := s.count("well")
		_ = pause(ctx, time.Second)
		if n := s.count("well") - before; n < 16*48*8/10 {
			t.Errorf("%d reads in the first second", n)
		}
		cancel()
		wg.Wait()
	})
}

// A read that has nothing to ask for when its turn comes says nothing of the directory.
func TestNoTurnIsNoAnswer(t *testing.T) {
	s := newWards(t, func(context.Context, string) error { return nil })
	e := open(t, s, Options{})
	a := e.slots.area(forReads, "a/object")
	e.slots.mu.Lock()
	e.slots.change(a, func() { a.slow = true })
	e.slots.mu.Unlock()
	for range 2 * quickAgain {
		req := read(s.data, 100)
		req.Key, req.Turn = "a/object", func(*Turn) (int64, []Piece, error) { return 0, nil, errors.New("nothing") }
		if _, err := e.Read(t.Context(), req); err == nil {
			t.Error("there was something to read")
		}
	}
	if !isSlowNow(e, a) {
		t.Error("it is taken for one that answers")
	}
}

// A store that is slow everywhere is slow, and not all of its directories.
func TestSlowStoreIsNoSlowArea(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newWards(t, func(ctx context.Context, _ string) error { return pause(ctx, 3*time.Second) })
		n, e := rate(t, s, Options{Requests: 32}, 100*time.Second, "a", "b")
		if all := e.Stats().Gets; all < 32*25 {
			t.Errorf("%d reads, of which %d of one directory: fewer than 32 at a time", all, n)
		}
	})
}

// A directory that is slow beside one that is not stays slow, however often it answers at
// last: its time is not what is usual. Where nothing else answers it is.
func TestSlowIsNotUsualBesideWhatIsWell(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newWards(t, func(ctx context.Context, dir string) error {
			if dir == "well" {
				return pause(ctx, 20*time.Millisecond)
			}
			return pause(ctx, 5*time.Second)
		})
		e := open(t, s, Options{Requests: 32})
		ctx, cancel := context.WithCancel(t.Context())
		well, gone := context.WithCancel(ctx)
		var wg sync.WaitGroup
		s.crowd(well, &wg, e, "well", 1)
		s.crowd(ctx, &wg, e, "a", 16)
		a := e.slots.area(forReads, "a/object")
		_ = pause(ctx, 10*time.Second)
		for i := range 120 {
			if _ = pause(ctx, time.Second); !isSlowNow(e, a) {
				t.Errorf("it is taken for well after %d s", 10+i)
				break
			}
		}
		gone()
		_ = pause(ctx, time.Minute+30*time.Second)
		if isSlowNow(e, a) {
			t.Error("all that there is takes as long, and is taken for slow")
		}
		cancel()
		wg.Wait()
	})
}

// All that is in flight is looked at now and then, not with each request that begins or ends.
func TestLooksAreApart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newSlots(bound{64, 1 << 40}, bound{})
		var looks []time.Time
		for range 100 {
			w := want{n: 1, area: s.area(forReads, "a/object")}
			w, err := s.acquireAs(t.Context(), w, nil)
			if err != nil {
				t.Fatal(err)
			}
			s.ended(w, wentWell)
			if at := s.areas.looked; len(looks) == 0 || !at.Equal(looks[len(looks)-1]) {
				looks = append(looks, at)
			}
			_ = pause(t.Context(), time.Millisecond)
		}
		if len(looks) != 5 {
			t.Errorf("%d looks in 100 ms", len(looks))
		}
	})
}

// One request in many may be slow for reasons of its own.
func TestOneSlowRequestIsNoSlowArea(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var n atomic.Int64
		s := newWards(t, func(ctx context.Context, _ string) error {
			if n.Add(1)%400 == 0 {
				return pause(ctx, 4*time.Second)
			}
			return pause(ctx, 20*time.Millisecond)
		})
		e := open(t, s, Options{Requests: 32})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		s.crowd(ctx, &wg, e, "a", 32)
		a := e.slots.area(forReads, "a/object")
		for range 600 {
			if _ = pause(ctx, 100*time.Millisecond); isSlowNow(e, a) {
				t.Error("it is taken for slow")
				break
			}
		}
		cancel()
		wg.Wait()
	})
}

// What one directory is asked again does not use up what others may be.
func TestRetryBudgetOfAreas(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		first := true
		s := newWards(t, func(ctx context.Context, dir string) error {
			if dir != "well" {
				return storetest.ErrInjected
			}
			if first = !first; !first {
				return storetest.ErrInjected
			}
			return nil
		})
		e := open(t, s, Options{RetryBudget: 40})
		for i := range 1000 {
			_ = s.read(t.Context(), e, "sick")
			if i%250 == 0 {
				if err := s.read(t.Context(), e, "well"); err != nil {
					t.Errorf("read %d: %v", i, err)
				}
			}
		}
	})
}

// Where several directories ask for a pause, and nothing has been answered for as long, it is
// the store that does; not where one does, or others answer.
func TestWhoseRetryAfterItIs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newWards(t, func(context.Context, string) error {
			return &objstore.Error{Op: "get", Err: objstore.ErrThrottled, RetryAfter: 2 * time.Second}
		})
		e := open(t, s, Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for _, dir := range []string{"a", "b", "c", "d"} {
			s.crowd(ctx, &wg, e, dir, 1)
		}
		left := func() time.Duration { return time.Duration(e.pauseUntil.Load()) - time.Since(e.born) }
		for left() < time.Second && ctx.Err() == nil {
			_ = pause(ctx, 10*time.Millisecond)
		}
		soon, cancelSoon := context.WithTimeout(ctx, time.Second)
		defer cancelSoon()
		if err := s.read(soon, e, "new"); !errors.Is(err, context.DeadlineExceeded) || s.count("new") > 0 {
			t.Errorf("%v, asked %d times", err, s.count("new"))
		}
		cancel()
		wg.Wait()
	})
}

// However many directories there are, few are remembered.
func TestAreasAreBounded(t *testing.T) {
	s := newSlots(bound{64, 1 << 40}, bound{})
	used := s.area(forReads, "used/object")
	for i := range 3 * maxAreas {
		s.leave(s.area(forReads, fmt.Sprintf("%d/object", i)))
	}
	if n := len(s.areas.known); n != maxAreas || n != s.areas.order.Len() {
		t.Errorf("%d are remembered, %d in order", n, s.areas.order.Len())
	}
	var many []*area // in use at once: they cost nobody anything, and are forgotten afterwards
	for i := range 3 * maxAreas {
		many = append(many, s.area(forReads, fmt.Sprintf("many%d/object", i)))
	}
	for _, a := range many {
		s.leave(a)
	}
	for i := range 3 * maxAreas {
		s.leave(s.area(forReads, fmt.Sprintf("again%d/object", i)))
	}
	if n := len(s.areas.known); n != maxAreas || n != s.areas.order.Len() {
		t.Errorf("%d are remembered, %d in order", n, s.areas.order.Len())
	}
	if s.area(forReads, "used/other") != used || s.area(forWrites, "used/object") == used {
		t.Error("one in use was forgotten, or reads and writes are one")
	}
}

// A store may keep slots of an upload that has returned. When their directory is forgotten
// meanwhile, and begins anew, they are given back all the same.
func TestForgottenAreasGiveBack(t *testing.T) {
	s := newSlots(bound{64, 1 << 40}, bound{})
	old := s.area(forWrites, "late/object")
	s.refused(old)
	kept, err := s.acquire(t.Context(), want{line: writing, n: 100, area: old})
	if err != nil {
		t.Fatal(err)
	}
	s.leave(old)
	for i := range maxAreas {
		s.leave(s.area(forReads, fmt.Sprintf("%d/object", i)))
	}
	anew := s.area(forWrites, "late/object")
	if anew == old {
		t.Error("it is not forgotten")
	}
	s.refused(anew)
	s.limitWrites(1)
	s.release(kept)
	for i := range s.rooms {
		if taken := s.rooms[i].taken; taken != (bound{}) {
			t.Errorf("room %d: %+v are taken of nothing", i, taken)
		}
	}
	if _, err := s.acquire(t.Context(), want{line: writing, n: 100, area: anew}); err != nil {
		t.Error(err)
	}
	s.leave(anew)
}
