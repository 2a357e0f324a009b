package endpoint

import (
	"context"
	"hash/maphash"
	"sync"
)

// slots bounds the requests, and the bytes they carry, that are in flight, and
// says whose turn it is. A request takes its place in each of the rooms that its
// line needs, all at once or none, so that one which waits holds nothing.
//
// The rooms are nested: everything holds behindTail and that background, and each
// is smaller than the one around it by what is kept for those who need only that
// one: an eighth for demand at the tail, another eighth for demand. Prefetch has one
// for itself, of the size that crowd learns; and upkeep, which is deletes and looks at
// objects, has an eighth. Requests to an area that something is wrong with have rooms of
// their own: see area. Where it is throttled, reads have three that are nested likewise,
// and writes one: how many of each the store can bear is learned apart.
//
// Turns are a deficit round-robin over lines, in each over tenants, and in each of
// those over streams. A request whose turn it is and for which a room has no place
// holds that room: nobody takes a place in it before, or a large request would wait
// for as long as there are small ones. Those who do not need that room go on. One
// whose tenant has enough in flight holds nothing, and keeps its turn.
type slots struct {
	perTenant bound         // 0 is none
	needs     [nLanes][]int // the rooms of each lane, from the one that fewest share

	mu      sync.Mutex
	areas   areas              // guarded by mu
	rooms   [nRooms]room       // guarded by mu
	tenants map[string]*tenant // those in flight or waiting; guarded by mu
	turns   turns              // who waits; guarded by mu
	waiting int                // guarded by mu
}

// The rooms, from the one that fewest share.
const (
	upkeep = iota
	inCrowd
	slowReads
	freshReads
	readsAhead
	readsBehindTail
	reads
	writes
	answering // reads of areas that are not slow: to know how many there are
	background
	behindTail
	everything
	nRooms
)

// bound is what may be in flight.
type bound struct {
	requests int
	bytes    int64
}

// room is a bound and what is taken of it.
type room struct {
	bound
	taken bound
}

func (r *room) add(b bound, sign int) {
	r.taken.requests += sign * b.requests
	r.taken.bytes += int64(sign) * b.bytes
}

// full reports whether there is no place for a request of n bytes. One that is larger than
// the room has it when it is empty.
func (r *room) full(n int64) bool {
	return r.taken.requests >= r.requests || n > r.bytes-r.taken.bytes && r.taken.bytes > 0
}

// tenant is what one tenant has in flight, and how many of its requests wait.
type tenant struct {
	taken   bound
	waiting int
}

// line is where requests of one kind wait: a Class, writing, or upkeep.
type line uint8

const (
	writing line = iota + line(Prefetch) + 1
	deleting
	looking // at what an object is, without its bytes
	nLines
)

// lane is a line, of those whose areas are as well: requests that need the same rooms.
type lane uint8

const nLanes = lane(nLines) * lane(nHealths)

func (l line) lane(h health) lane { return lane(h)*lane(nLines) + lane(l) }

func (l lane) line() line { return line(l) % nLines }

// weight is the share of a line while all of them want more than there is.
func (l line) weight() int64 {
	switch Class(l) {
	case TailDemand:
		return 8
	case BackfillDemand, TailPrefetch:
		return 4
	case Prefetch:
		return 2
	}
	if l == writing {
		return 4
	}
	return 1 // of upkeep
}

const (
	// requestCost is what a request costs beside its bytes, in bytes: a slot is
	// taken for the time to the first byte too.
	requestCost = 1 << 20
	// quantum is what a stream may take in its turn: a run of 8 MiB, some small
	// requests, or a part of a larger one. Lines have smaller ones: nobody waits
	// long for the turn of another line.
	quantum = 8<<20 + requestCost
)

// want is what a request asks for.
type want struct {
	line   line
	stream uint64
	tenant string
	n      int64 // bytes it carries
	area   *area // nil: none
	seat   int   // from 1 on, of a read that has its slot; 0: none
	call   *call // of a read; nil: nobody whom it could be taken from
}

// lane returns where a request belongs, as its area is now.
func (w *want) lane() lane { return w.line.lane(w.area.health()) }

func newSlots(all, perTenant bound) *slots {
	s := &slots{tenants: make(map[string]*tenant), perTenant: perTenant}
	s.areas.known, s.areas.usual = make(map[areaKey]*area), usualTime
	s.areas.heard.seed = maphash.MakeSeed()
	for l := range nLanes {
		s.needs[l] = roomsOf(l.line(), health(l/lane(nLines)))
	}
	for i := range s.rooms {
		s.rooms[i].bound = all
	}
	for _, i := range [...]int{behindTail, background} {
		s.rooms[i].bound = bound{without(i, all.requests), without(i, all.bytes)}
	}
	s.rooms[upkeep].requests = max(1, all.requests/8)
	s.rooms[slowReads].bound = bound{max(1, all.requests/8), all.bytes / 8}
	s.rooms[freshReads].requests = max(1, all.requests/2)
	s.rooms[inCrowd].requests = without(background, all.requests)
	s.limitReads(all.requests)
	return s
}

// roomsOf returns the rooms of a line, from the one that fewest share.
func roomsOf(l line, h health) (rooms []int) {
	if l == deleting || l == looking {
		rooms = append(rooms, upkeep)
	}
	// What is fetched ahead of those who get nothing does not fill the line.
	if Class(l) == Prefetch && h != isSlow {
		rooms = append(rooms, inCrowd)
	}
	first := everything // of those that are nested
	switch {
	case l == line(BackfillDemand):
		first = behindTail
	case l != line(TailDemand):
		first = background
	}
	switch isRead := l != writing && l != deleting; {
	case isRead && h == isSlow:
		rooms = append(rooms, slowReads)
	case isRead && h == isFresh:
		rooms = append(rooms, freshReads, answering)
	case isRead && h == isThrottled:
		for i := first - background + readsAhead; i <= reads; i++ {
			rooms = append(rooms, i)
		}
		rooms = append(rooms, answering)
	case isRead:
		rooms = append(rooms, answering)
	case h == isThrottled:
		rooms = append(rooms, writes)
	}
	for i := first; i <= everything; i++ {
		rooms = append(rooms, i)
	}
	return rooms
}

// without returns how much of n a nested room has.
func without[N int | int64](room int, n N) N {
	switch room {
	case behindTail, readsBehindTail:
		return n - n/8
	case background, readsAhead:
		return n - n/4
	}
	return n
}

// waiter is a want that waits.
type waiter struct {
	want                  // constant once ready is closed
	at      *turns        // of its stream
	urgency *Urgency      // nil: its line is what it is
	ready   chan struct{} // closed, under mu, when the slot is the waiter's
}

// acquire waits for what w wants. A request larger than a room takes a place in it
// when it is empty. What it returns is what was taken, to be given back as it is.
func (s *slots) acquire(ctx context.Context, w want) (want, error) {
	return s.acquireAs(ctx, w, nil)
}

// acquireAs is acquire for a Read, whose line is its urgency, if it has one.
func (s *slots) acquireAs(ctx context.Context, w want, u *Urgency) (want, error) {
	if ctx.Err() != nil {
		return w, context.Cause(ctx)
	}
	w.n = s.clamp(w.n)
	s.mu.Lock()
	if u != nil {
		u.queue.Store(s)
		w.line, w.tenant = line(u.Class()), s.payer(w.tenant, u)
	}
	s.look()
	if s.waiting == 0 && s.full(&w) < 0 && !s.sated(w.tenant) {
		s.take(&w)
		s.mu.Unlock()
		return w, nil
	}
	wait := &waiter{want: w, urgency: u, ready: make(chan struct{})}
	s.enqueue(wait)
	s.wake()
	s.look()
	s.mu.Unlock()

	select {
	case <-wait.ready:
		return wait.want, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-wait.ready: // given in the same instant: give it back
		s.give(&wait.want, wasLeft)
	default:
		s.dequeue(wait)
	}
	s.wake() // others may fit where this one did not
	return w, context.Cause(ctx)
}

// raise moves a Read that waits to the line of its urgency, and to whose it is.
func (s *slots) raise(u *Urgency) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := u.waiter
	if w == nil {
		return
	}
	now := w.want
	if now.line, now.tenant = line(u.Class()), s.payer(w.tenant, u); now == w.want {
		return // and keeps its place
	}
	s.dequeue(w)
	w.want = now
	s.enqueue(w)
	s.wake()
}

// try takes what w wants if it is to be had at once, nobody waits, and nothing is
// wrong with its area. Nobody looks whether it becomes overdue.
func (s *slots) try(w want) bool {
	w.n = s.clamp(w.n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting > 0 || w.area.health() != isWell || s.full(&w) >= 0 || s.sated(w.tenant) {
		return false
	}
	s.account(&w, 1)
	return true
}

// release gives back what acquire or try took.
func (s *slots) release(w want) { s.ended(w, wasLeft) }

// ended is release, and says how what was taken ended.
func (s *slots) ended(w want, how outcome) {
	w.n = s.clamp(w.n)
	s.mu.Lock()
	s.give(&w, how)
	s.look()
	s.wake()
	s.mu.Unlock()
}

// limitCrowd bounds what prefetch has in flight anew.
func (s *slots) limitCrowd(n int) {
	s.mu.Lock()
	s.rooms[inCrowd].requests = n
	s.wake()
	s.mu.Unlock()
}

// busy returns how many reads are in flight, but for those to areas that are slow, and
// whether prefetch for several streams waits for room: one stream by itself is in nobody's way.
func (s *slots) busy() (n int, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	streams := 0
	if ahead := s.turns.children[turnKey{number: uint64(line(Prefetch).lane(isWell))}]; ahead != nil {
		for _, tenant := range ahead.children {
			streams += len(tenant.children)
		}
	}
	return s.rooms[answering].taken.requests, streams > 1 && s.full(&want{line: line(Prefetch)}) >= 0
}

// limitReads and limitWrites bound the requests of one kind to areas that are throttled
// anew. The bound may be below what is in flight: then none is given until enough have
// ended. Where there is none any more, no area is throttled.
func (s *slots) limitReads(n int) { s.limit(n, forReads, reads, readsBehindTail, readsAhead) }

func (s *slots) limitWrites(n int) { s.limit(n, forWrites, writes) }

func (s *slots) limit(n int, kind areaKind, rooms ...int) {
	s.mu.Lock()
	if n == s.rooms[everything].requests {
		s.pardon(kind)
	}
	for _, i := range rooms {
		s.rooms[i].requests = without(i, n)
	}
	s.wake()
	s.mu.Unlock()
}

// inFlight returns what is taken, and how many wait.
func (s *slots) inFlight() (taken bound, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rooms[everything].taken, s.waiting
}

// clamp returns how many bytes a request counts for. That bound never changes.
func (s *slots) clamp(n int64) int64 { return max(0, min(n, s.rooms[everything].bytes)) }

// All that follow need mu.

// full returns a room that has no place for w, -1 if there is none. Of several it
// is the one that fewest share.
func (s *slots) full(w *want) int {
	for _, i := range s.needs[w.lane()] {
		if s.rooms[i].full(w.n) {
			return i
		}
	}
	return -1
}

// sated reports whether a tenant has as much in flight as it may. Its last request
// may go beyond its bytes: were it to wait until it fits, small ones would pass it
// for ever.
func (s *slots) sated(name string) bool {
	if name == "" {
		return false
	}
	t := s.tenants[name]
	return t != nil && (s.perTenant.requests > 0 && t.taken.requests >= s.perTenant.requests ||
		s.perTenant.bytes > 0 && t.taken.bytes >= s.perTenant.bytes)
}

// payer returns the tenant of a Read: its own, or if that one has enough in flight another
// who waits for it too, and has not.
func (s *slots) payer(own string, u *Urgency) string {
	if also := u.also.Load(); also != nil && s.sated(own) && !s.sated(*also) {
		return *also
	}
	return own
}

func (s *slots) take(w *want) {
	s.account(w, 1)
	s.sit(w)
}

func (s *slots) give(w *want, how outcome) {
	s.rise(w, how)
	s.account(w, -1)
}

func (s *slots) account(w *want, sign int) {
	b := bound{1, w.n}
	for _, i := range s.needs[w.lane()] {
		s.rooms[i].add(b, sign)
	}
	if w.area != nil {
		t := &w.area.taken[w.line]
		t.requests += sign
		t.bytes += int64(sign) * w.n
	}
	if w.tenant == "" {
		return
	}
	t := s.tenant(w.tenant)
	t.taken.requests += sign
	t.taken.bytes += int64(sign) * w.n
	s.forget(w.tenant, t)
}

func (s *slots) tenant(name string) *tenant {
	t := s.tenants[name]
	if t == nil {
		t = new(tenant)
		s.tenants[name] = t
	}
	return t
}

// forget drops a tenant that has nothing left.
func (s *slots) forget(name string, t *tenant) {
	if t.taken.requests == 0 && t.waiting == 0 {
		delete(s.tenants, name)
	}
}

// leaf returns where requests of a stream wait that are as w. In slow areas each by itself:
// who waits for one that hangs is not to be in the way of the others.
func (w *want) leaf(stream uint64) turnKey {
	key := turnKey{number: stream}
	if w.area.health() == isSlow {
		key.name = w.area.key.dir
	}
	return key
}

// queue puts a waiter behind those of its stream, in its lane.
func (s *slots) queue(w *waiter) {
	w.at = s.turns.
		child(turnKey{number: uint64(w.lane())}, requestCost*w.line.weight()).
		child(turnKey{name: w.tenant}, quantum).
		child(w.leaf(w.stream), quantum)
	w.at.add(w)
}

func (s *slots) enqueue(w *waiter) {
	s.queue(w)
	if w.urgency != nil {
		w.urgency.waiter = w
	}
	s.waiting++
	if w.tenant != "" {
		s.tenant(w.tenant).waiting++
	}
}

// dequeue removes a waiter that got its slot, or leaves.
func (s *slots) dequeue(w *waiter) {
	w.at.remove(w)
	if w.urgency != nil {
		w.urgency.waiter = nil
	}
	s.waiting--
	if w.tenant != "" {
		t := s.tenant(w.tenant)
		t.waiting--
		s.forget(w.tenant, t)
	}
}

// wake gives slots to those whose turn it is, as long as there are any. Who holds
// a room is found anew each time: it has kept its turn.
func (s *slots) wake() {
	var held [nRooms]bool
	least := -1 // in flight of a slow area that somebody waits for; -1: not known
	equal := true
	passed := func(t *turns) bool {
		switch t.depth {
		case lineDepth:
			for _, i := range s.needs[t.key.number] {
				if held[i] {
					return true
				}
			}
		case tenantDepth:
			return s.sated(t.key.name)
		case streamDepth:
			// Of the areas that are slow, who has least is served first: all of their room
			// is not for one that hangs.
			if a := t.waiters[0].area; equal && a.health() == isSlow {
				if least < 0 {
					least = s.leastOfSlow().area.seated
				}
				return a.seated > least
			}
		}
		return false
	}
	for s.waiting > 0 && !held[everything] {
		if r := &s.rooms[slowReads]; r.taken.requests >= r.requests {
			held[slowReads] = true
		}
		w := s.turns.next(passed)
		if w == nil {
			if !equal || least < 0 {
				return
			}
			equal = false // who has least may not go now, for other reasons
			continue
		}
		if i := s.full(&w.want); i >= 0 {
			held[i] = true
			continue
		}
		w.at.charge(w.n + requestCost)
		s.dequeue(w)
		s.take(&w.want)
		close(w.ready)
		// Who held a room may be one whose tenant has enough in flight by now.
		held, least, equal = [nRooms]bool{}, -1, true
	}
}

// leastOfSlow returns one who waits for the slow area that has fewest requests in flight of
// those that somebody waits for whose tenant may have more; nil if there is none.
func (s *slots) leastOfSlow() (least *waiter) {
	for l := range nLines {
		waiting := s.turns.children[turnKey{number: uint64(l.lane(isSlow))}]
		if waiting == nil {
			continue
		}
		for _, tenant := range waiting.children {
			if s.sated(tenant.key.name) {
				continue
			}
			for _, stream := range tenant.children {
				if w := stream.waiters[0]; least == nil || w.area.seated < least.area.seated {
					least = w
				}
			}
		}
	}
	return least
}
