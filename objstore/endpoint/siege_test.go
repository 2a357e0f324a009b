package endpoint

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
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
					turn.Take(take, 7)
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

// Looks at objects in a slow directory are taken back like reads, and so do not keep those
// from being.
func TestSlowLooksAreTakenBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &hangingStats{newWards(t, func(ctx context.Context, dir string) error {
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

type hangingStats struct{ *wards }

func (s *hangingStats) Stat(ctx context.Context, _ string) (objstore.Info, error) {
	<-ctx.Done()
	return objstore.Info{}, ctx.Err()
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
