package endpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/internal/bubble"
)

// tail, backfill, pacing, ahead and part are wants of n bytes.
func tail(n int64) want     { return want{line: line(TailDemand), n: n} }
func backfill(n int64) want { return want{line: line(BackfillDemand), n: n} }
func ahead(n int64) want    { return want{line: line(Prefetch), n: n} }
func pacing(n int64) want   { return want{line: line(TailPrefetch), n: n} }
func part(n int64) want     { return want{line: writing, n: n} }
func removal() want         { return want{line: deleting} }
func look() want            { return want{line: looking} }

// sick returns areas for reads and for writes that are as well.
func sick(h health) (reads, writes *area) {
	reads = &area{fresh: h == isFresh, throttled: h == isThrottled, slow: h == isSlow}
	return reads, &area{key: areaKey{kind: forWrites}, throttled: h == isThrottled}
}

// in returns w as a want of an area.
func (w want) in(a *area) want { w.area = a; return w }

// of returns w as a want of a stream.
func (w want) of(stream uint64) want { w.stream = stream; return w }

// by returns w as a want of a tenant.
func (w want) by(tenant string) want { w.tenant = tenant; return w }

// asking has somebody ask for w. He is served once got is closed, and gives back
// when told so.
type asking struct {
	w      want
	u      *Urgency // of a read
	cancel context.CancelFunc
	got    chan struct{}
	done   chan struct{}
	err    error
}

func ask(s *slots, w want) *asking {
	ctx, cancel := context.WithCancel(context.Background())
	a := &asking{w: w, cancel: cancel, got: make(chan struct{}), done: make(chan struct{})}
	if w.line < writing {
		a.u = NewUrgency(Class(w.line))
	}
	go func() {
		defer close(a.done)
		var taken want
		if taken, a.err = s.acquireAs(ctx, w, a.u); a.err == nil {
			a.w = taken
			close(a.got)
		}
	}()
	synctest.Wait()
	return a
}

func (a *asking) served() bool {
	select {
	case <-a.got:
		return true
	default:
		return false
	}
}

// giveBack ends what was served.
func (a *asking) giveBack(s *slots) {
	<-a.got
	s.release(a.w)
	synctest.Wait()
}

// raise makes what may wait more urgent.
func (a *asking) raise(c Class) {
	if a.u == nil {
		return
	}
	a.u.Raise(c)
	synctest.Wait()
	if !a.served() {
		a.w.line = line(a.u.Class())
	}
}

func (a *asking) leave() {
	a.cancel()
	<-a.done
	synctest.Wait()
}

func hold(t *testing.T, s *slots, ws ...want) {
	t.Helper()
	for _, w := range ws {
		if a := ask(s, w); !a.served() {
			t.Fatalf("%+v has to wait", w)
		}
	}
}

// Within a stream slots are given in the order of asking, whatever their size.
func TestAStreamIsServedInOrder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newSlots(bound{10, 100}, bound{})
		hold(t, s, tail(60))
		var waiting []*asking
		for _, n := range []int64{80, 30, 1000, 1} { // 30 and 1 would fit at once
			waiting = append(waiting, ask(s, tail(n)))
		}
		s.release(tail(60))
		synctest.Wait()
		for i, a := range waiting {
			if !a.served() {
				t.Fatalf("request %d is not served", i)
			}
			for _, later := range waiting[i+1:] {
				if later.served() && a.w.n+later.w.n > 100 {
					t.Errorf("%+v overtook %+v", later.w, a.w)
				}
			}
			a.giveBack(s)
		}
		nothingLeft(t, s)
	})
}

// Who stops waiting makes room for those behind.
func TestSlotsWaiterLeaves(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newSlots(bound{10, 100}, bound{})
		hold(t, s, tail(60))
		large, small := ask(s, tail(80)), ask(s, tail(40))
		if small.served() {
			t.Error("the small one overtook")
		}
		large.leave()
		if !small.served() || !errors.Is(large.err, context.Canceled) {
			t.Errorf("served: %v; %v", small.served(), large.err)
		}
		if taken, waiting := s.inFlight(); taken != (bound{2, 100}) || waiting != 0 {
			t.Errorf("%+v in flight, %d wait", taken, waiting)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.acquire(ctx, tail(0)); !errors.Is(err, context.Canceled) {
			t.Errorf("acquire when cancelled: %v", err)
		}
	})
}

// What others leave is the tail's, and of what prefetch and uploads leave it is
// all demand's.
func TestReserves(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, size := range []bound{{16, 1 << 40}, {1 << 20, 16}} { // requests are short, or bytes
			s := newSlots(size, bound{})
			fill := func(w want, n int) {
				t.Helper()
				w.n = 1
				for range n {
					hold(t, s, w)
				}
				if a := ask(s, w); a.served() {
					t.Errorf("%+v has more than %d", w, n)
				} else {
					a.leave()
				}
			}
			fill(ahead(1), 12)
			fill(part(1), 0)
			fill(backfill(1), 2)
			fill(tail(1), 2)
		}
		s := newSlots(bound{1, 1}, bound{}) // nothing to reserve, and everybody is served
		for _, w := range []want{ahead(5), part(5), backfill(5), tail(5)} {
			hold(t, s, w)
			s.release(w)
		}
	})
}

// While areas are asked for fewer, the reserves among them shrink along, what writes is
// not held up by what reads, and others are held up by neither.
func TestLimits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newSlots(bound{64, 1 << 40}, bound{})
		s.limitReads(8)
		r, w := sick(isThrottled)
		for range 6 {
			hold(t, s, ahead(1).in(r))
		}
		waiting := []*asking{ask(s, ahead(1).in(r)), ask(s, ahead(1).in(r))}
		hold(t, s, backfill(1).in(r))
		waiting = append(waiting, ask(s, backfill(1).in(r)))
		hold(t, s, tail(1).in(r))
		waiting = append(waiting, ask(s, tail(1).in(r)))
		hold(t, s, part(1).in(w), part(1).in(w))
		for _, a := range waiting {
			if a.served() {
				t.Errorf("%+v is served beyond the limit", a.w)
			}
		}
		other, _ := sick(isWell)
		hold(t, s, ahead(1).in(other), ahead(1))
		s.limitReads(12)
		synctest.Wait()
		for _, a := range waiting {
			if !a.served() {
				t.Errorf("%+v is not served", a.w)
			}
		}
		s.limitReads(1)
		s.limitWrites(2)
		for _, a := range []*asking{ask(s, tail(1).in(r)), ask(s, part(1).in(w))} {
			if a.served() {
				t.Errorf("%+v is served beyond the limit", a.w)
			}
			a.leave()
		}
	})
}

// flood has a stream always ask for more, many at a time, in virtual time: each
// keeps its slot for a millisecond. It counts what it got.
func flood(ctx context.Context, wg *sync.WaitGroup, s *slots, w want, many int, got *atomic.Int64) {
	for range many {
		wg.Go(func() {
			for {
				w, err := s.acquire(ctx, w)
				if err != nil {
					return
				}
				got.Add(w.n + requestCost)
				<-time.After(time.Millisecond)
				s.release(w)
			}
		})
	}
}

// Nobody is starved: a large request of any line, stream or tenant gets its turn
// although small ones of another never end.
func TestNobodyStarves(t *testing.T) {
	const mib = 1 << 20
	large := []want{tail(32 * mib), backfill(32 * mib), ahead(32 * mib), part(32 * mib)}
	for _, victim := range large {
		for _, other := range large {
			for _, perTenant := range []bound{{}, {2, 0}, {0, 2 * mib}} {
				other.n = mib
				victim.stream, other.stream = 1, 2
				victim.tenant, other.tenant = "a", "a"
				name := fmt.Sprintf("%d beside %d, %+v", victim.line, other.line, perTenant)
				bubble.Test(t, func(t *testing.T) {
					s := newSlots(bound{4, 33 * mib}, perTenant)
					ctx, cancel := context.WithCancel(t.Context())
					var wg sync.WaitGroup
					var got atomic.Int64
					for i := range uint64(20) {
						flood(ctx, &wg, s, other.of(2+i), 2, &got)
					}
					<-time.After(10 * time.Millisecond)
					start := time.Now()
					patience, stop := context.WithTimeout(ctx, time.Minute)
					defer stop()
					if victim, err := s.acquire(patience, victim); err != nil {
						t.Errorf("%s: %v", name, err)
					} else {
						// 81 streams of a quantum each, one of them eight times, in the worst
						// case one request at a time.
						if wait := time.Since(start); wait > time.Second {
							t.Errorf("%s: waited %v", name, wait)
						}
						s.release(victim)
					}
					cancel()
					wg.Wait()
					nothingLeft(t, s)
				})
			}
		}
	}
}

// Who all want more than there is get shares: lines by their weights, tenants and
// streams equal ones, however many requests they make and however large.
func TestShares(t *testing.T) {
	const mib = 1 << 20
	share := func(t *testing.T, wants map[want]int64, perTenant bound) {
		t.Helper()
		bubble.Test(t, func(t *testing.T) {
			s := newSlots(bound{7, 1 << 40}, perTenant) // nothing is reserved
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var wg sync.WaitGroup
			got := make(map[want]*atomic.Int64)
			for w := range wants {
				got[w] = new(atomic.Int64)
				flood(ctx, &wg, s, w, 40, got[w])
			}
			wg.Wait()
			var sum, weights int64
			for w, weight := range wants {
				sum, weights = sum+got[w].Load(), weights+weight
			}
			for w, weight := range wants {
				fair := float64(sum) * float64(weight) / float64(weights)
				if r := float64(got[w].Load()) / fair; r < 0.95 || r > 1.05 {
					t.Errorf("%+v got %.2f of its share", w, r)
				}
			}
			nothingLeft(t, s)
		})
	}
	share(t, map[want]int64{tail(mib): 8, backfill(8 * mib): 4, ahead(16 * mib): 2, part(5 * mib): 4}, bound{})
	share(t, map[want]int64{pacing(mib): 4, ahead(mib): 2}, bound{})
	share(t, map[want]int64{part(0): 4, ahead(0): 2}, bound{})
	share(t, map[want]int64{tail(mib).of(1): 1, tail(8 * mib).of(2): 1, tail(0).of(3): 1}, bound{})
	share(t, map[want]int64{ // a tenant with many streams has no more than one with few
		backfill(mib).by("a").of(1): 3, backfill(mib).by("b").of(1): 1, backfill(mib).by("b").of(2): 1, backfill(mib).by("b").of(3): 1,
	}, bound{})
}

// A tenant has no more than it may, and holds up nobody else.
func TestTenants(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newSlots(bound{100, 1000}, bound{3, 100})
		a1, a2 := ask(s, tail(10).by("a")), ask(s, backfill(95).by("a"))
		if !a1.served() || !a2.served() {
			t.Error("not served: 10 bytes are less than 100")
		}
		third := ask(s, tail(1).by("a").of(1))
		fourth := ask(s, ahead(1).by("a").of(1))
		if third.served() || fourth.served() {
			t.Error("served beyond the bytes of a tenant")
		}
		hold(t, s, ahead(10).by("b"), tail(10).by("b"), tail(10), tail(10), tail(10), tail(200))
		a1.giveBack(s) // 95 of 100: the next may go beyond
		if !third.served() || !fourth.served() {
			t.Error("not served when there was room")
		}
		b := ask(s, tail(1).by("b"))
		if fifth := ask(s, tail(0).by("a")); fifth.served() || !b.served() {
			t.Errorf("three are what a tenant may have: %v %v", fifth.served(), b.served())
		} else {
			a2.giveBack(s)
			if !fifth.served() {
				t.Error("not served when there was room")
			}
		}
	})
}

func nothingLeft(t *testing.T, s *slots) {
	t.Helper()
	taken, waiting := s.inFlight()
	if taken != (bound{}) || waiting != 0 || len(s.tenants) != 0 || !s.turns.empty() || len(s.turns.children) != 0 {
		t.Errorf("%+v, %d waiters, tenants %v left", taken, waiting, s.tenants)
	}
	for i, r := range s.rooms {
		if r.taken != (bound{}) {
			t.Errorf("%+v left in room %d", r.taken, i)
		}
	}
}

// Against brute force: whatever is asked for, given back and given up, the bounds
// hold, and who waits does so for a reason.
func TestSlotsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &slotsModel{
			all:       bound{rapid.IntRange(1, 20).Draw(rt, "requests"), rapid.Int64Range(1, 100).Draw(rt, "bytes")},
			perTenant: bound{rapid.IntRange(0, 3).Draw(rt, "tenant requests"), rapid.Int64Range(0, 60).Draw(rt, "tenant bytes")},
		}
		m.readLimit, m.writeLimit, m.crowdLimit = m.all.requests, m.all.requests, m.all.requests
		type step struct {
			do, pick int
			w        want
			health   int
		}
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{rapid.IntRange(0, 12).Draw(rt, "do"), rapid.IntRange(0, 1000).Draw(rt, "pick"), want{
				line:   line(rapid.IntRange(0, int(nLines)-1).Draw(rt, "line")),
				stream: rapid.Uint64Range(0, 3).Draw(rt, "stream"),
				tenant: rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(rt, "tenant"),
				n:      rapid.Int64Range(0, 150).Draw(rt, "n"),
			}, rapid.IntRange(0, int(nHealths)).Draw(rt, "health")}
		}), 1, 60).Draw(rt, "steps")
		inBubble(t, rt, func(fail failFunc) {
			s := newSlots(m.all, m.perTenant)
			// Two areas of each health for reads, one for writes, and none.
			var areas [2 * (nHealths + 1)]*area
			for h := range nHealths {
				areas[2*h], areas[2*h+1] = sick(h)
			}
			for _, st := range steps {
				switch running, waiting := m.split(); {
				case st.do < 5:
					if st.w.area = areas[2*st.health]; st.w.line == writing || st.w.line == deleting {
						st.w.area = areas[2*st.health+1]
					}
					m.asked = append(m.asked, ask(s, st.w))
				case st.do < 8 && len(running) > 0:
					m.drop(running[st.pick%len(running)]).giveBack(s)
				case st.do == 8 && len(waiting) > 0:
					m.drop(waiting[st.pick%len(waiting)]).leave()
				case st.do == 10 && len(m.asked) > 0:
					m.asked[st.pick%len(m.asked)].raise(Class(st.w.stream))
				case st.do == 12:
					// As it may come about: throttled or not, slow or not.
					if a := areas[st.pick%len(areas)]; a != nil {
						s.mu.Lock()
						s.change(a, func() {
							a.throttled, a.slow, a.fresh = st.health == int(isThrottled), st.health == int(isSlow), st.health == int(isFresh)
						})
						s.mu.Unlock()
						synctest.Wait()
					}
				case st.do == 11:
					m.crowdLimit = 1 + st.pick%m.all.requests
					s.limitCrowd(m.crowdLimit)
					synctest.Wait()
				case st.do == 9:
					if n := 1 + st.pick%m.all.requests; st.w.line == writing {
						m.writeLimit = n
						s.limitWrites(n)
					} else {
						m.readLimit = n
						s.limitReads(n)
					}
					synctest.Wait()
				}
				m.check(fail)
			}
			// Whatever has come about, everybody is served in the end.
			for len(m.asked) > 0 {
				running, _ := m.split()
				if len(running) == 0 {
					fail("%d wait, and nobody has a slot", len(m.asked))
					return
				}
				m.drop(running[0]).giveBack(s)
				m.check(fail)
			}
			if taken, waiting := s.inFlight(); taken != (bound{}) || waiting != 0 || len(s.tenants) != 0 || !s.turns.empty() {
				fail("%+v, %d waiters, tenants %v left", taken, waiting, s.tenants)
			}
		})
	})
}

// slotsModel knows who asked, and counts by hand.
type slotsModel struct {
	all, perTenant        bound
	readLimit, writeLimit int
	crowdLimit            int
	asked                 []*asking
	before                []*asking // who was served at the last check
}

func (m *slotsModel) split() (running, waiting []*asking) {
	for _, a := range m.asked {
		if a.served() {
			running = append(running, a)
		} else {
			waiting = append(waiting, a)
		}
	}
	return running, waiting
}

func (m *slotsModel) drop(a *asking) *asking {
	m.asked = slices.DeleteFunc(m.asked, func(b *asking) bool { return a == b })
	m.before = slices.DeleteFunc(m.before, func(b *asking) bool { return a == b })
	return a
}

// modelRoom is one of the bounds: for whom, and how much.
type modelRoom struct {
	lines   string // t, b, a, p, w, d, l
	healths string // w, f, t, s; "" is all
	bound
}

func (m *slotsModel) rooms() []modelRoom {
	const endless = 1 << 40
	r, w, q, b := m.readLimit, m.writeLimit, m.all.requests, m.all.bytes
	return []modelRoom{
		{"tbapwdl", "", m.all},
		{"bapwdl", "", bound{q - q/8, b - b/8}},
		{"apwdl", "", bound{q - q/4, b - b/4}},
		{"tbapl", "t", bound{r, endless}},
		{"bapl", "t", bound{r - r/8, endless}},
		{"apl", "t", bound{r - r/4, endless}},
		{"tbapl", "s", bound{max(1, q/8), b / 8}},
		{"tbapl", "f", bound{max(1, q/2), endless}},
		{"p", "wft", bound{m.crowdLimit, endless}},
		{"dl", "", bound{max(1, q/8), endless}},
		{"wd", "t", bound{w, endless}},
	}
}

func (r modelRoom) has(a *asking) bool {
	return slices.Contains([]byte(r.lines), "tbapwdl"[a.w.line]) && (r.healths == "" || slices.Contains([]byte(r.healths), "wfts"[a.w.area.health()]))
}

// sum returns what those of some requests have that are in a room.
func (m *slotsModel) sum(of []*asking, in func(*asking) bool) (b bound) {
	for _, a := range of {
		if in(a) {
			b.requests++
			b.bytes += min(a.w.n, m.all.bytes)
		}
	}
	return b
}

func (m *slotsModel) check(fail failFunc) {
	running, waiting := m.split()
	var fresh []*asking
	for _, a := range running {
		if !slices.Contains(m.before, a) {
			fresh = append(fresh, a)
		}
	}
	full := func(r modelRoom, a *asking) bool {
		have := m.sum(running, r.has)
		return r.has(a) && (have.requests >= r.requests || have.bytes > 0 && have.bytes+min(a.w.n, m.all.bytes) > r.bytes)
	}
	for _, r := range m.rooms() {
		have := m.sum(running, r.has)
		if have.requests > m.all.requests || have.bytes > m.all.bytes {
			fail("%+v are in flight", have)
		}
		// A limit may have been lowered since; but nothing is given beyond it.
		if n := m.sum(fresh, r.has); n.requests > 0 && have.requests > r.requests {
			fail("%+v in room %+v", have, r)
		} else if have.bytes > r.bytes && have.requests > 1 && m.sum(running, func(a *asking) bool { return r.has(a) && a.w.n > 0 }).requests > 1 {
			fail("%+v in room %+v", have, r)
		}
	}
	for _, name := range []string{"a", "b"} {
		mine := func(a *asking) bool { return a.w.tenant == name }
		have, last := m.sum(running, mine), int64(0)
		for _, a := range running {
			if mine(a) {
				last = max(last, min(a.w.n, m.all.bytes))
			}
		}
		if m.perTenant.requests > 0 && have.requests > m.perTenant.requests ||
			m.perTenant.bytes > 0 && have.bytes-last >= m.perTenant.bytes && have.requests > 1 && last > 0 {
			fail("tenant %s has %+v in flight", name, have)
		}
	}
	sated := func(a *asking) bool {
		have := m.sum(running, func(b *asking) bool { return b.w.tenant == a.w.tenant })
		return a.w.tenant != "" && (m.perTenant.requests > 0 && have.requests >= m.perTenant.requests ||
			m.perTenant.bytes > 0 && have.bytes >= m.perTenant.bytes)
	}
	// Who waits, waits for his tenant, for a room, or for somebody who does not
	// fit into a room that both need, or for somebody of the same stream.
	for _, a := range waiting {
		why := sated(a)
		for _, r := range m.rooms() {
			why = why || full(r, a)
			for _, b := range waiting {
				why = why || b != a && r.has(a) && full(r, b) && !sated(b)
			}
		}
		if !why {
			fail("%+v waits for nothing", a.w)
		}
	}
	m.before = running
}
