package endpoint

import (
	"container/list"
	"context"
	"errors"
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"
)

// area is what is learned of the objects in one directory: for the objects of package
// object, of one partition. Stores throttle ranges of keys, and what is broken or busy
// behind one of them says nothing of the others. So what is wrong with an area is
// charged to it, and only areas that something is wrong with have limits:
//
//	fresh      it has not answered yet: all such reads together have half of the slots
//	throttled  it has refused: they share what the limiters have learned that is borne
//	slow       most of what it was asked is overdue: they have an eighth together, of the bytes too;
//	           who has least of that is served first, and has its place from who has most when
//	           that is overdue, so that who answers is soon well again
//
// A store that throttles all of its areas has all of them in that limit after one refusal
// each, and so is asked less as a whole.
type area struct {
	key   areaKey       // constant
	place *list.Element // in areas.order; constant

	pauseUntil atomic.Int64 // as Endpoint.pauseUntil, for this area alone
	share      share        // of the retry budget

	// All that follows is guarded by slots.mu.
	calls     int           // in progress
	taken     [nLines]bound // of slots
	fresh     bool
	throttled bool
	slow      bool
	clean     int // answers since it refused
	quick     int // requests in a row that ended in time, while it is slow
	overdue   int // requests in flight that are
	seated    int // requests in flight that may be
}

// areaKey names an area.
type areaKey struct {
	kind areaKind
	dir  string
}

// areaKind tells apart what a store throttles apart.
type areaKind uint8

const (
	forReads areaKind = iota
	forWrites
	forListing
)

// health is why requests to an area are bounded.
type health uint8

const (
	isWell health = iota // they are not
	isFresh
	isThrottled
	isSlow
	nHealths
)

func (a *area) health() health {
	switch {
	case a == nil:
		return isWell
	case a.slow:
		return isSlow
	case a.throttled:
		return isThrottled
	case a.fresh:
		return isFresh
	}
	return isWell
}

const (
	// maxAreas bounds the areas that are remembered beside those in use: some 300
	// bytes each.
	maxAreas = 4096
	// forgetAtOnce is at how many of them is looked for each that is new.
	forgetAtOnce = 8
	// A request is overdue when it has had its slot for overdueAfter and overdueTimes as long
	// as is usual for what it has got.
	overdueAfter = time.Second
	overdueTimes = 4
	// usualTime is what a MiB is taken to need until it is known.
	usualTime = 250 * time.Millisecond
	// quickAgain is how many requests in a row must end in time until an area is no longer slow.
	quickAgain = 8
	// wellFor is how long the time that areas need which are well is believed to be
	// usual when they do not answer: then the store may be slow as a whole.
	wellFor = 5 * time.Second
	// looksApart is how often is looked for what is overdue, and watchEvery how often while
	// somebody waits and nothing happens.
	looksApart = 20 * time.Millisecond
	watchEvery = 250 * time.Millisecond
)

// areas are those that are known, and what is usual in them. It is guarded by slots.mu.
type areas struct {
	known map[areaKey]*area
	order list.List // of *area, the one that was asked last at the back
	heard heard     // those that have answered, forgotten or not

	seats  []seat // of reads in flight
	free   []int  // seats
	usual  time.Duration
	wellAt time.Time // when an area that is well answered last
	looked time.Time // for what is overdue
	watch  *time.Timer
}

// seat is a read in flight.
type seat struct {
	area    *area // nil: nobody's
	since   time.Time
	size    int64 // bytes in flight
	overdue bool
	call    *call                   // nil: unknown
	stop    context.CancelCauseFunc // of the call; nil: it was told
}

// late reports whether a read has had its slot for overdueTimes as long as is usual for what
// it has got.
func (as *areas) late(s *seat, now time.Time) bool {
	got := s.size
	if s.call != nil {
		got = s.call.got.Load()
	}
	return now.Sub(s.since) > as.patience(got)
}

// patience is how long a read that has got n bytes may have taken.
func (as *areas) patience(n int64) time.Duration {
	return overdueAfter + overdueTimes*time.Duration(float64(as.usual)*mibs(n))
}

// mibs is what so many bytes are taken to need, with their request.
func mibs(n int64) float64 { return float64(n+requestCost) / (1 << 20) }

// errOverdue ends an attempt that is overdue, for others who wait. It goes on where it was,
// when there is a slot for one more of its area.
var errOverdue = errors.New("the slot is needed by others")

// outcome is how a request came to its end.
type outcome uint8

const (
	wasLeft outcome = iota // before its end
	wentWrong
	wentWell
)

// heard are the directories that have answered, nearly: two bits each of a Bloom filter, which
// begins anew before every sixteenth would be taken for one by mistake.
type heard struct {
	seed maphash.Seed
	bits [1 << 12]uint64
	n    int // bits set
}

func (h *heard) has(dir string) bool {
	n := maphash.String(h.seed, dir)
	for range 2 {
		if h.bits[n>>6%uint64(len(h.bits))]&(1<<(n%64)) == 0 {
			return false
		}
		n >>= 32
	}
	return true
}

func (h *heard) add(dir string) {
	if h.n >= 16*len(h.bits) {
		h.n, h.bits = 0, [len(h.bits)]uint64{}
	}
	n := maphash.String(h.seed, dir)
	for range 2 {
		if word, bit := &h.bits[n>>6%uint64(len(h.bits))], uint64(1)<<(n%64); *word&bit == 0 {
			*word |= bit
			h.n++
		}
		n >>= 32
	}
}

// area returns the area of a key for a call that begins; leave ends that.
func (s *slots) area(kind areaKind, key string) *area {
	if kind != forListing {
		key = key[:strings.LastIndexByte(key, '/')+1]
	}
	id := areaKey{kind, key}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.areas.known[id]
	if a == nil {
		s.forgetAreas()
		a = &area{key: id, fresh: kind == forReads && !s.areas.heard.has(key)}
		a.place = s.areas.order.PushBack(a)
		s.areas.known[id] = a
	} else {
		s.areas.order.MoveToBack(a.place)
	}
	a.calls++
	return a
}

func (s *slots) leave(a *area) {
	s.mu.Lock()
	a.calls--
	s.mu.Unlock()
}

// forgetAreas makes room for one more. Who is in use is spared, and not looked at again
// soon: there may be many. That is who has calls: they give their slots back before they end,
// and what a store keeps of an upload for longer counts where it did, whoever is known.
func (s *slots) forgetAreas() {
	for range forgetAtOnce {
		if len(s.areas.known) < maxAreas {
			return
		}
		a := s.areas.order.Front().Value.(*area)
		if a.calls > 0 {
			s.areas.order.MoveToBack(a.place)
			continue
		}
		s.areas.order.Remove(a.place)
		delete(s.areas.known, a.key)
	}
}

// refused notes that the store wants fewer requests to an area.
func (s *slots) refused(a *area) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.clean = 0
	s.change(a, func() { a.throttled = true })
}

// answered notes that an area did what it should. It returns whether it had refused
// before, so that what it bears is a lesson.
func (s *slots) answered(a *area) (lesson bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lesson = a.throttled
	if a.fresh {
		s.areas.heard.add(a.key.dir)
		s.change(a, func() { a.fresh = false })
	}
	// As many as the limit needs to come back from nothing.
	if n := s.rooms[everything].requests; lesson {
		if a.clean++; a.clean >= n*n/2 {
			s.change(a, func() { a.throttled = false })
		}
	}
	return lesson
}

// paused returns how many areas asked us to wait until later than now.
func (s *slots) paused(now int64) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.areas.known {
		if a.pauseUntil.Load() > now {
			n++
		}
	}
	return n
}

// pardon has all areas of a kind asked as if they had never refused.
func (s *slots) pardon(kind areaKind) {
	for _, a := range s.areas.known {
		if a.throttled && a.key.kind == kind {
			s.change(a, func() { a.throttled = false })
		}
	}
}

// change changes what is known of an area. What it has in flight then counts elsewhere,
// and who waits does so in other lanes.
func (s *slots) change(a *area, how func()) {
	before := a.health()
	how()
	after := a.health()
	if before == after {
		return
	}
	for l := range nLines {
		for _, i := range s.needs[l.lane(before)] {
			s.rooms[i].add(a.taken[l], -1)
		}
		for _, i := range s.needs[l.lane(after)] {
			s.rooms[i].add(a.taken[l], 1)
		}
		if waiting := s.turns.children[turnKey{number: uint64(l.lane(before))}]; waiting != nil {
			for _, w := range waiting.of(a, nil) {
				w.at.remove(w)
				s.queue(w)
			}
		}
	}
	s.wake()
}

// of appends the waiters of an area below t.
func (t *turns) of(a *area, to []*waiter) []*waiter {
	for _, w := range t.waiters {
		if w.area == a {
			to = append(to, w)
		}
	}
	for e := t.order.Front(); e != nil; e = e.Next() {
		to = e.Value.(*turns).of(a, to)
	}
	return to
}

// sit notes that a read has its slot.
func (s *slots) sit(w *want) {
	if w.area == nil || w.area.key.kind != forReads {
		return
	}
	i := len(s.areas.seats)
	if n := len(s.areas.free); n > 0 {
		i = s.areas.free[n-1]
		s.areas.free = s.areas.free[:n-1]
	} else {
		s.areas.seats = append(s.areas.seats, seat{})
	}
	s.areas.seats[i] = seat{area: w.area, since: time.Now(), size: w.n, call: w.call}
	if c := w.call; c != nil {
		c.got.Store(0)
		s.areas.seats[i].stop = c.cancel
	}
	w.area.seated++
	w.seat = i + 1
}

// rise notes that it gives the slot back, and how it ended.
func (s *slots) rise(w *want, how outcome) {
	if w.seat == 0 {
		return
	}
	was, now := s.areas.seats[w.seat-1], time.Now()
	a, took, late := was.area, now.Sub(was.since), was.overdue || s.areas.late(&was, now)
	if a.seated--; was.overdue {
		a.overdue--
	}
	s.areas.seats[w.seat-1] = seat{}
	s.areas.free = append(s.areas.free, w.seat-1)
	w.seat = 0
	if how == wentWell {
		s.areas.note(a, took, w, now)
	}
	switch {
	case late:
		a.quick = 0
	case how != wasLeft && a.slow:
		if a.quick++; a.quick >= quickAgain && 2*a.overdue < max(a.seated, 1) {
			s.change(a, func() { a.slow = false })
		}
	}
}

// note learns what is usual from a read that went well.
func (as *areas) note(a *area, took time.Duration, w *want, now time.Time) {
	if !a.slow {
		if as.wellAt = now; w.n < crowdBody {
			return // it says something of the first byte alone
		}
	} else if now.Sub(as.wellAt) < wellFor {
		return
	}
	as.usual += (time.Duration(float64(took)/mibs(w.n)) - as.usual) / 16
}

// look finds the areas that are slow: of what they were asked at least a half is
// overdue. One request in many may be slow for reasons of its own. What they have beyond
// their room is taken from them if others wait.
func (s *slots) look() {
	if s.waiting > 0 && s.areas.watch == nil {
		s.areas.watch = time.AfterFunc(watchEvery, s.watch)
	}
	now := time.Now()
	if now.Sub(s.areas.looked) < looksApart {
		return
	}
	s.areas.looked = now
	for i := range s.areas.seats {
		seat := &s.areas.seats[i]
		if seat.area == nil || seat.overdue || !s.areas.late(seat, now) {
			continue
		}
		a := seat.area
		seat.overdue = true
		if a.overdue++; 2*a.overdue >= a.seated {
			a.quick = 0
			s.change(a, func() { a.slow = true })
		}
	}
	if s.othersWait() {
		s.takeBack(&s.rooms[slowReads])
	}
	s.even()
}

// othersWait reports whether somebody waits for an area that is not slow.
func (s *slots) othersWait() bool {
	for k := range s.turns.children {
		if health(k.number/uint64(nLines)) != isSlow {
			return true
		}
	}
	return false
}

// takeBack has as many of the requests that are overdue end as hold what is more than there
// is in the room, those included that are ending. One is left, however large: alone it may be.
func (s *slots) takeBack(r *room) {
	over, left := bound{r.taken.requests - r.requests, r.taken.bytes - r.bytes}, r.taken.requests
	for pass := range 2 {
		for i := range s.areas.seats {
			seat := &s.areas.seats[i]
			if over.requests <= 0 && over.bytes <= 0 || left <= 1 {
				return
			}
			if seat.area == nil || !seat.overdue || !seat.area.slow || seat.stop == nil == (pass == 1) {
				continue
			}
			over.requests--
			over.bytes -= seat.size
			left--
			if seat.stop != nil {
				seat.stop(errOverdue)
				seat.stop = nil
			}
		}
	}
}

// even has one overdue request end of the slow area that has most of their room, when there is
// no place for one that has less by two: who answers again could not show it before those who
// hang have stalled. It is the youngest, so that others come to their end. The next one follows
// when that has ended.
func (s *slots) even() {
	next := s.leastOfSlow()
	if next == nil || !s.rooms[slowReads].full(next.n) {
		return
	}
	var most *seat
	for i := range s.areas.seats {
		seat := &s.areas.seats[i]
		switch {
		case seat.area == nil || !seat.overdue || !seat.area.slow || seat.call == nil:
		case seat.stop == nil:
			return // it is ending
		case most == nil || seat.area.seated > most.area.seated,
			seat.area.seated == most.area.seated && seat.since.After(most.since):
			most = seat
		}
	}
	if most != nil && most.area.seated > next.area.seated+1 {
		most.stop(errOverdue)
		most.stop = nil
	}
}

// watch looks again while somebody waits.
func (s *slots) watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.areas.watch = nil
	s.look()
	s.wake()
}
