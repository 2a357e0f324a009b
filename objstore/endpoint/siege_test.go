package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore"
)

// A request that is larger than the room of slow directories goes alone, and then goes on: it
// is not taken back for those who wait, again and again before its first byte has come.
func TestLargeReadOfASlowAreaIsServed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var late atomic.Bool
		s := newWards(t, func(ctx context.Context, dir string) error {
			if dir == "well" || !late.Load() {
				return pause(ctx, 20*time.Millisecond)
			}
			return pause(ctx, 5*time.Second)
		})
		e := open(t, s, Options{Requests: 64, BytesInFlight: 400}) // 50 bytes for slow ones
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		s.crowd(ctx, &wg, e, "well", 16)
		var served atomic.Int64
		for range 3 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if s.read(ctx, e, "late") == nil && late.Load() {
						served.Add(1)
					}
				}
			})
		}
		_ = pause(ctx, time.Second)
		late.Store(true)
		before := s.count("late")
		_ = pause(ctx, time.Minute)
		asked := int64(s.count("late") - before)
		t.Logf("%d reads, %d GETs", served.Load(), asked)
		if n := served.Load(); n < 9 || asked > n+6 {
			t.Errorf("%d reads of 5 s each in a minute, by %d GETs", n, asked)
		}
		cancel()
		wg.Wait()
	})
}

// Who panics where he is asked what to read leaves no slot taken, nor what he had taken along.
func TestPanicInTurn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		data := content(100)
		e := open(t, filled(t, data), Options{})
		for _, take := range []int64{0, 50, -30} {
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic is lost")
					}
				}()
				req := read(data, 100)
				req.Turn = func(turn *Turn) (int64, []Piece, error) {
					if got := turn.Take(take, 7); got != (take >= 0) {
						t.Errorf("%d bytes more: %v", take, got)
					}
					panic("a bug of the caller's")
				}
				_, _ = e.Read(t.Context(), req)
			}()
			idle(t, e)
			for i, r := range e.slots.rooms {
				if r.taken != (bound{}) {
					t.Errorf("room %d has %+v", i, r.taken)
				}
			}
			if a := e.slots.area(forReads, "key"); a.seated != 0 || a.taken != ([nLines]bound{}) {
				t.Errorf("its directory has %d in flight, %+v", a.seated, a.taken)
			}
		}
	})
}

// Nobody reads more than he has waited for or taken along: the bounds hold for all.
func TestMoreThanWasTaken(t *testing.T) {
	data := content(100)
	e := open(t, filled(t, data), Options{})
	req := read(data, 40, 60)
	all := req.Pieces
	req.Pieces = all[:1]
	req.Turn = func(turn *Turn) (int64, []Piece, error) {
		turn.Take(59, 0)
		return 0, all, nil
	}
	if _, err := e.Read(t.Context(), req); !errors.Is(err, errNoTurn) || e.Stats().Gets != 0 {
		t.Errorf("100 bytes were read for 99: %v", err)
	}
	req.Turn = func(turn *Turn) (int64, []Piece, error) {
		turn.Take(60, 0)
		return 0, all, nil
	}
	if _, err := e.Read(t.Context(), req); err != nil {
		t.Error(err)
	}
}

// Looks at objects in a slow directory are taken back like reads, and so do not keep those
// from being.
func TestSlowLooksAreTakenBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &sickLooks{newWards(t, func(ctx context.Context, dir string) error {
			if dir == "well" {
				return pause(ctx, 20*time.Millisecond)
			}
			<-ctx.Done()
			return ctx.Err()
		})}
		e := open(t, s, Options{Requests: 32, ProgressTimeout: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { _, _ = e.Stat(ctx, "a/object") })
		}
		s.wards.crowd(ctx, &wg, e, "a", 12)
		s.wards.crowd(ctx, &wg, e, "well", 64)
		_ = pause(ctx, 10*time.Second)
		e.slots.mu.Lock()
		held := e.slots.rooms[slowReads].taken.requests
		e.slots.mu.Unlock()
		if held > 4 {
			t.Errorf("a slow directory has %d of 32 slots, an eighth is 4", held)
		}
		cancel()
		wg.Wait()
	})
}

// sickLooks has looks at objects be as sick as reads.
type sickLooks struct{ *wards }

func (s *sickLooks) Stat(ctx context.Context, key string) (objstore.Info, error) {
	dir, _, _ := strings.Cut(key, "/")
	return objstore.Info{}, s.sick(ctx, dir)
}

// Who looks at an object leaves nothing behind, and says of its directory what a read would.
func TestLooksLeaveNoSeat(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newWards(t, func(context.Context, string) error { return nil })
		e := open(t, s, Options{})
		for range 10 {
			if _, err := e.Stat(t.Context(), "key"); err != nil {
				t.Fatal(err)
			}
		}
		a := e.slots.area(forReads, "key")
		_ = pause(t.Context(), time.Minute)
		if err := s.read(t.Context(), e, "well"); err != nil {
			t.Fatal(err)
		}
		e.slots.mu.Lock()
		defer e.slots.mu.Unlock()
		if n := len(e.slots.areas.seats); a.seated != 0 || a.overdue != 0 || n > 1 {
			t.Errorf("%d of %d requests that have ended are taken to be in flight, %d of them overdue", a.seated, n, a.overdue)
		}
		if a.slow {
			t.Error("a directory that answers is taken for slow")
		}
	})
}

// What a slow request holds is what it took along too.
func TestTakenAlongIsTakenBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newSlots(bound{64, 800}, bound{}) // 100 bytes for slow ones
		a := s.area(forReads, "a/object")
		s.change(a, func() { a.fresh = false })
		var stopped [3]error
		for i := range stopped {
			w, err := s.acquireAs(t.Context(), want{n: 60, area: a, call: &call{cancel: func(err error) { stopped[i] = err }}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 && !s.widen(&w, 200, 0) {
				t.Fatal("there is room")
			}
		}
		// 380 bytes: without the first, which has 260, 120; without a second, 60.
		_ = pause(t.Context(), 10*time.Second)
		hold(t, s, want{n: 400})
		other := ask(s, want{n: 100}) // waits
		_ = pause(t.Context(), time.Second)
		if stopped[0] == nil || stopped[1] == nil || stopped[2] != nil {
			t.Errorf("taken back: %v", stopped)
		}
		other.leave()
	})
}

// Who has least goes first only if he may go: a place that he may not take is another's.
func TestLeastMayNotGo(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newSlots(bound{64, 1 << 20}, bound{requests: 1})
		a, _ := sick(isSlow)
		b, _ := sick(isSlow)
		hold(t, s, tail(1).by("x"), tail(1).in(b))
		sated := ask(s, tail(1).in(a).by("x"))
		if sated.served() {
			t.Fatal("its tenant has all it may")
		}
		if other := ask(s, tail(1).in(b)); !other.served() {
			t.Error("there are places, and nobody takes them")
		}
		sated.leave()
	})
}

// A moment in which nothing answers makes every directory slow. Those that are well then are
// again soon, also beside one that hangs and has many readers: all of the places of slow ones
// are not for it.
func TestRecoveryBesideAHangingArea(t *testing.T) {
	for _, strangers := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) { recoverBeside(t, strangers) })
	}
}

// recoverBeside has readers who are streams of their own, or strangers, who are all one.
func recoverBeside(t *testing.T, strangers bool) {
	var outage atomic.Bool
	s := newWards(t, func(ctx context.Context, dir string) error {
		if dir == "hang" {
			<-ctx.Done()
			return ctx.Err()
		}
		for first := true; first || outage.Load(); first = false {
			if err := pause(ctx, 20*time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	})
	e := open(t, s, Options{Requests: 64})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var streams, served atomic.Int64
	reader := func(dir string) {
		stream := uint64(streams.Add(1))
		if strangers {
			stream = 0
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				req := read(s.data, 100)
				req.Key, req.Stream = dir+"/object", stream
				if _, err := e.Read(ctx, req); err == nil {
					served.Add(1)
				}
				_ = pause(ctx, 100*time.Millisecond)
			}
		})
	}
	for range 16 {
		reader("hang")
	}
	for i := range 40 {
		reader(fmt.Sprintf("well%d", i))
	}
	_ = pause(ctx, 20*time.Second)
	count := func() int64 {
		before := served.Load()
		_ = pause(ctx, 5*time.Second)
		return served.Load() - before
	}
	usual := count()
	outage.Store(true)
	_ = pause(ctx, 3*time.Second)
	outage.Store(false)
	_ = pause(ctx, 4*time.Second) // long before what hangs has stalled
	if n := count(); n < usual*9/10 {
		t.Errorf("%d reads in 5 s, %d before the outage (strangers: %v)", n, usual, strangers)
	}
	cancel()
	wg.Wait()
}

// hanging is a directory that hangs, with requests in flight.
type hanging struct {
	s    *slots
	held []want
	told []int // which of them are to make room
}

func hangs(t *testing.T, s *slots, n int) *hanging {
	h := &hanging{s: s, held: make([]want, n)}
	a := s.area(forReads, "hang/object")
	s.change(a, func() { a.fresh = false })
	for i := range h.held {
		var err error
		h.held[i], err = s.acquireAs(t.Context(), want{n: 1, area: a, call: &call{cancel: func(err error) {
			if !errors.Is(err, errOverdue) {
				t.Error(err)
			}
			h.told = append(h.told, i)
		}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = pause(t.Context(), time.Millisecond)
	}
	_ = pause(t.Context(), 10*time.Second)
	return h
}

// are says how many are to make room when there has been time for it.
func (h *hanging) are(t *testing.T, n int, why string) {
	t.Helper()
	_ = pause(t.Context(), 10*time.Second)
	if len(h.told) != n {
		t.Errorf("%s: %d of %d are to make room", why, len(h.told), n)
	}
}

// ends ends the last that is to make room, for somebody.
func (h *hanging) ends(t *testing.T, other *asking) {
	t.Helper()
	if len(h.told) == 0 {
		return
	}
	h.s.release(h.held[h.told[len(h.told)-1]])
	synctest.Wait()
	if !other.served() {
		t.Error("the place is another's")
	}
}

// What hangs makes room for a slow directory that has less, one request at a time and until
// they have about as many; not for one whose tenant has all it may.
func TestSlowShareEvenly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newSlots(bound{40, 1 << 20}, bound{requests: 2}) // 5 for slow ones
		h := hangs(t, s, 5)
		well := s.area(forReads, "well/object")
		s.change(well, func() { well.slow = true })
		hold(t, s, tail(1).by("x"), tail(1).by("x"))
		sated := ask(s, tail(1).in(well).by("x"))
		h.are(t, 0, "its tenant may have no more")
		first, second, third := ask(s, tail(1).in(well)), ask(s, tail(1).in(well)), ask(s, tail(1).in(well))
		h.are(t, 1, "one is ending, and has not ended")
		h.ends(t, first)
		h.are(t, 2, "the next")
		h.ends(t, second)
		h.are(t, 2, "they have three and two")
		if !slices.Equal(h.told, []int{4, 3}) {
			t.Errorf("not the youngest are to make room: %v", h.told)
		}
		third.leave()
		sated.leave()
	})
}

// Nobody is to make room where there is some: who waits there waits for something else.
func TestSlowShareWhatIsFull(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newSlots(bound{40, 1 << 20}, bound{}) // 5 for slow ones
		h := hangs(t, s, 4)
		for range 36 {
			hold(t, s, tail(1))
		}
		well := s.area(forReads, "well/object")
		s.change(well, func() { well.slow = true })
		waits := ask(s, tail(1).in(well))
		h.are(t, 0, "all slots are taken, and not by slow ones")
		waits.leave()
	})
}

// Whatever directories do, and however callers leave (called off, timed out, panicking, with the
// Endpoint), nothing of what they had is left, and what is well is served all the while.
func TestEndpointSiege(t *testing.T) {
	seeds := 4
	if os.Getenv("SEGTIER_SOAK") != "" {
		seeds = 100
	}
	for range seeds {
		bubble.Test(t, func(t *testing.T) { besiege(t, rand.Uint64()) })
	}
}

func besiege(t *testing.T, seed uint64) {
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex // of rng, from here on
	chance := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n)
	}
	dirs := []string{"well", "fine", "hang", "late", "busy", "sour", "moody", "panic"}
	s := &sickLooks{newWards(t, func(ctx context.Context, dir string) error {
		if dir == "moody" {
			dir = dirs[chance(6)]
		}
		switch dir {
		case "hang":
			<-ctx.Done()
			return ctx.Err()
		case "late":
			return pause(ctx, time.Duration(3+chance(4))*time.Second)
		case "busy":
			return &objstore.Error{Op: "get", Err: objstore.ErrThrottled, RetryAfter: time.Duration(chance(3)) * time.Second}
		case "sour":
			return io.ErrUnexpectedEOF
		case "panic":
			if chance(8) == 0 {
				panic("a bug of the store's")
			}
		}
		return pause(ctx, time.Duration(1+chance(40))*time.Millisecond)
	})}
	e, err := New(s, Options{
		Requests: 8 + chance(24), BytesInFlight: int64(800 + chance(1500)), TenantRequests: chance(4), TenantBytesInFlight: int64(chance(2) * 250),
		HedgeBytes: int64(chance(2) * 1000), RetryBudget: 10 + chance(1000),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var well atomic.Int64
	one := func(dir string) {
		defer func() { _ = recover() }() // of the store or of the caller
		ctx, stop := context.WithTimeout(ctx, time.Duration(chance(20_000))*time.Millisecond)
		defer stop()
		if chance(10) == 0 {
			_, _ = e.Stat(ctx, dir+"/object")
			return
		}
		req := read(s.data, 40, 60)
		req.Key, req.Class, req.Stream, req.Tenant = dir+"/object", Class(chance(4)), uint64(chance(5)), []string{"", "", "a", "b"}[chance(4)]
		if chance(2) == 0 {
			req.Urgency = NewUrgency(req.Class)
			wg.Go(func() {
				_ = pause(ctx, time.Duration(chance(3000))*time.Millisecond)
				req.Urgency.RaiseFor(Class(chance(4)), []string{"", "a", "b"}[chance(3)])
			})
		}
		if all := req.Pieces; chance(2) == 0 {
			req.Pieces = all[:1]
			req.Turn = func(turn *Turn) (int64, []Piece, error) {
				switch taken := turn.Take(60, uint64(chance(5))); {
				case chance(20) == 0:
					panic("a bug of the caller's")
				case chance(10) == 0:
					return 0, nil, context.Canceled
				case taken:
					return 0, all, nil
				}
				return 0, all[:1], nil
			}
		}
		if chance(10) == 0 {
			req.Done = func(int) { panic("a bug of the caller's") }
		}
		if _, err := e.Read(ctx, req); err == nil && dir == "well" {
			well.Add(1)
		}
	}
	for range 40 {
		dir := dirs[chance(len(dirs))]
		wg.Go(func() {
			for ctx.Err() == nil {
				one(dir)
				_ = pause(ctx, time.Duration(1+chance(300))*time.Millisecond)
			}
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			one("well")
			_ = pause(ctx, time.Duration(1+chance(300))*time.Millisecond)
		}
	})
	for range 3 {
		before := well.Load()
		_ = pause(ctx, 30*time.Second)
		if well.Load() == before {
			t.Errorf("half a minute without one read of what is well: %+v", e.Stats())
		}
	}
	if chance(2) == 0 {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	cancel()
	wg.Wait()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	idle(t, e)
	slots := e.slots
	slots.mu.Lock()
	defer slots.mu.Unlock()
	for i, r := range slots.rooms {
		if r.taken != (bound{}) {
			t.Errorf("room %d has %+v", i, r.taken)
		}
	}
	for key, a := range slots.areas.known {
		if a.calls != 0 || a.seated != 0 || a.overdue != 0 || a.taken != ([nLines]bound{}) {
			t.Errorf("%v: %d calls, %d seated, %d overdue, %+v in flight", key, a.calls, a.seated, a.overdue, a.taken)
		}
	}
	if n := len(slots.areas.seats) - len(slots.areas.free); n != 0 || slots.waiting != 0 || len(slots.tenants) != 0 || !slots.turns.empty() {
		t.Errorf("%d seats, %d waiters, tenants %v left", n, slots.waiting, slots.tenants)
	}
}

// A directory that was forgotten because there are so many is not one that nobody has heard of:
// who reads more of them in turn than are remembered has all of the slots.
func TestForgottenAreasAreNotFresh(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		s := newWards(t, func(ctx context.Context, _ string) error {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			return pause(ctx, 20*time.Millisecond)
		})
		e := open(t, s, Options{Requests: 16})
		var next atomic.Int64
		round := func() int64 {
			most.Store(0)
			next.Store(0)
			var wg sync.WaitGroup
			for range 32 {
				wg.Go(func() {
					for i := next.Add(1); i <= maxAreas+100; i = next.Add(1) {
						if err := s.read(t.Context(), e, fmt.Sprint(i)); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			return most.Load()
		}
		if n := round(); n > 10 { // a few of 4,000 are taken for others that have answered
			t.Errorf("%d at a time of directories that have not answered, a half of the slots is 8", n)
		}
		if n := round(); n != 16 {
			t.Errorf("%d at a time of 16, though all have answered before", n)
		}
	})
}
