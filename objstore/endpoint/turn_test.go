package endpoint

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
)

// What a Read reads is asked when it has its slot, and asked again as long as no byte
// has come; then it stays.
func TestTurn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		data := content(1000)
		var log lines
		store := storetest.Inject(filled(t, data), storetest.Rules(
			rule("get", 1, storetest.Fault{Kind: storetest.FailBefore}),
			rule("get", 2, storetest.Fault{Kind: storetest.Cut, At: 0}),
			rule("get", 3, storetest.Fault{Kind: storetest.Flip, At: 10}), // the first piece is wrong
		))
		e := open(t, storetest.Log(store, log.add), Options{Requests: 1})
		busy, err := e.slots.acquireAs(t.Context(), want{n: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		whole := read(data, 100, 200, 300, 400)
		req := whole
		req.Off, req.Pieces, req.Urgency = 300, whole.Pieces[2:3], NewUrgency(BackfillDemand)
		turns := 0
		req.Turn = func(turn *Turn) (int64, []Piece, error) {
			turns++
			if req.Urgency.Waiting() {
				t.Error("it has its turn, and waits for it")
			}
			if turns == 1 {
				return 300, whole.Pieces[2:3], nil
			}
			if !turn.Take(400, 0) {
				t.Error("no room for 400 bytes more")
			}
			return 300, whole.Pieces[2:], nil
		}
		var done []int
		req.Done = func(i int) { done = append(done, i) }
		var reading sync.WaitGroup
		reading.Go(func() {
			_, err := e.Read(t.Context(), req)
			if err != nil || !bytes.Equal(bytesOf(whole)[300:], data[300:]) || !slices.Equal(done, []int{0, 1}) || turns != 3 {
				t.Errorf("%v, %v done, asked %d times; or other bytes", err, done, turns)
			}
		})
		synctest.Wait()
		if turns != 0 || !req.Urgency.Waiting() {
			t.Errorf("asked %d times what to read, without a slot; it waits: %v", turns, req.Urgency.Waiting())
		}
		e.slots.release(busy)
		synctest.Wait()
		if !req.Urgency.Waiting() {
			t.Error("does not wait for its next try")
		}
		reading.Wait()
		if req.Urgency.Waiting() {
			t.Error("waits, at its end")
		}
		log.check(t, get(300, 600, storetest.ErrInjected.Error()), get(300, 1000, "0 bytes, then unexpected EOF"), get(300, 1000, "300 bytes"), get(300, 1000, "700 bytes"))
		idle(t, e)
	})
}

// Who has nothing to read any more makes no GET, and no other try.
func TestNoTurn(t *testing.T) {
	data := content(100)
	e := open(t, filled(t, data), Options{})
	gone := errors.New("gone")
	for _, turn := range []func(*Turn) (int64, []Piece, error){
		func(*Turn) (int64, []Piece, error) { return 0, nil, gone },
		func(*Turn) (int64, []Piece, error) { return 50, read(data, 60).Pieces, nil }, // beyond the end
		func(*Turn) (int64, []Piece, error) { return 0, nil, nil },
	} {
		req := read(data, 100)
		req.Turn = turn
		if _, err := e.Read(t.Context(), req); !errors.Is(err, errNoTurn) || e.Stats().Gets != 0 || e.Stats().Retries != 0 {
			t.Errorf("%v; %+v", err, e.Stats())
		}
		idle(t, e)
	}
}

// More is to be had only within what may be in flight, of all and of the tenant, and
// what is not read after all is given back.
func TestTakeKeepsToTheBounds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		data := content(1000)
		gate := make(chan struct{})
		e := open(t, storetest.Inject(filled(t, data), always(storetest.Fault{Kind: storetest.Wait, Gate: gate})),
			Options{BytesInFlight: 800, TenantBytesInFlight: 500})
		other, err := e.slots.acquireAs(t.Context(), backfill(100), nil)
		if err != nil {
			t.Fatal(err)
		}
		whole := read(data, 100, 200, 300, 400)
		try := func(tenant string, class Class, n int64, want bool) {
			t.Helper()
			req := whole
			req.Pieces, req.Tenant, req.Class = whole.Pieces[:1], tenant, class
			req.Turn = func(turn *Turn) (int64, []Piece, error) {
				got := turn.Take(n, 0)
				if got != want {
					t.Errorf("%d bytes more for %q: %v, want %v", n, tenant, got, want)
				}
				if !got {
					return 0, whole.Pieces[:1], nil
				}
				return 0, whole.Pieces[:2], nil // fewer
			}
			ctx, cancel := context.WithCancel(t.Context())
			var reading sync.WaitGroup
			reading.Go(func() {
				if _, err := e.Read(ctx, req); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
			synctest.Wait()
			if st := e.Stats(); want && st.BytesInFlight != 400 || !want && st.BytesInFlight > 800 {
				t.Errorf("%d bytes in flight", st.BytesInFlight)
			}
			cancel()
			reading.Wait()
			if st := e.Stats(); st.BytesInFlight != 100 || st.RequestsInFlight != 1 {
				t.Errorf("%+v", st)
			}
		}
		try("", TailDemand, 600, true)
		try("", TailDemand, 601, false)
		try("", BackfillDemand, 500, true) // an eighth is the tail's
		try("", BackfillDemand, 501, false)
		try("one", TailDemand, 400, true)
		try("one", TailDemand, 401, false)
		e.slots.release(other)
	})
}

// What is not read after all is for those who wait at once, not when the read ends.
func TestWhatIsGivenBackIsForThoseWhoWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		data := content(1000)
		gate := make(chan struct{})
		e := open(t, storetest.Inject(filled(t, data), always(storetest.Fault{Kind: storetest.Wait, Gate: gate})), Options{BytesInFlight: 800})
		busy, err := e.slots.acquireAs(t.Context(), want{n: 700}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var reading sync.WaitGroup
		start := func(turn func(*Turn) (int64, []Piece, error)) {
			req := read(data, 500)
			req.Turn = turn
			reading.Go(func() {
				if _, err := e.Read(t.Context(), req); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		fewer := read(data, 100).Pieces
		start(func(*Turn) (int64, []Piece, error) { return 0, fewer, nil })
		start(nil)
		if st := e.Stats(); st.RequestsInFlight != 1 || st.Waiting != 2 {
			t.Fatalf("%+v", st)
		}
		e.slots.release(busy)
		synctest.Wait() // both would take 1000 bytes; one has asked for 100
		if st := e.Stats(); st.RequestsInFlight != 2 || st.BytesInFlight != 600 || st.Waiting != 0 {
			t.Errorf("%d requests of %d bytes in flight, %d wait; want both, of 600", st.RequestsInFlight, st.BytesInFlight, st.Waiting)
		}
		close(gate)
		reading.Wait()
		idle(t, e)
	})
}

// What a request is widened by is paid for by the stream whose bytes they are, not by the
// one whose turn it was.
func TestWhoIsTakenAlongPays(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newSlots(bound{1, 1 << 30}, bound{})
		hold(t, s, backfill(1))
		const much = 9 << 20 // more than a quantum, with what a request costs
		pays, does := ask(s, backfill(1).of(1)), ask(s, backfill(1).of(1))
		other := ask(s, backfill(1).of(2))
		w := backfill(1)
		if !s.widen(&w, much, 1) {
			t.Fatal("no room")
		}
		s.release(w)
		synctest.Wait()
		if pays.served() || !other.served() {
			t.Error("it was the turn of who had much already")
		}
		other.giveBack(s)
		pays.giveBack(s)
		does.giveBack(s)
		nothingLeft(t, s)
	})
}

// A Read that another tenant pays for, who waits for it too, is not made longer at his
// cost.
func TestNobodyPaysForStrangers(t *testing.T) {
	data := content(1000)
	e := open(t, filled(t, data), Options{TenantRequests: 1})
	busy, err := e.slots.acquireAs(t.Context(), backfill(1).by("own"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.slots.release(busy)
	req := read(data, 100)
	req.Tenant, req.Urgency = "own", NewUrgency(BackfillDemand)
	req.Urgency.RaiseFor(BackfillDemand, "other")
	req.Turn = func(turn *Turn) (int64, []Piece, error) {
		if turn.Take(1, 0) {
			t.Error("a byte more, of a tenant who has not asked for it")
		}
		return 0, req.Pieces, nil
	}
	if _, err := e.Read(t.Context(), req); err != nil {
		t.Error(err)
	}
}

// The last of several tries takes nobody along: who waited beside it would fail with it,
// without the other tries that he has by himself.
func TestALastTryTakesNobodyAlong(t *testing.T) {
	for name, c := range map[string]struct {
		err            error
		attempts, last int
	}{
		"faults":         {nil, 3, 3},
		"throttled":      {objstore.ErrThrottled, 3, maxThrottled},
		"no other tries": {nil, 1, -1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				data := content(300)
				e := open(t, storetest.Inject(filled(t, data), always(storetest.Fault{Kind: storetest.FailBefore, Err: c.err})), Options{Attempts: c.attempts})
				req := read(data, 100)
				turns := 0
				req.Turn = func(turn *Turn) (int64, []Piece, error) {
					turns++
					if got, want := turn.Take(1, 0), turns != c.last; got != want {
						t.Errorf("try %d takes along: %v, want %v", turns, got, want)
					}
					return 0, req.Pieces, nil
				}
				if _, err := e.Read(t.Context(), req); err == nil || turns != max(c.last, 1) {
					t.Errorf("%d tries: %v", turns, err)
				}
				idle(t, e)
			})
		})
	}
}
