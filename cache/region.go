package cache

import "math"

// set is the entries of a region, in no order.
type set struct{ list []*entry }

func (s *set) add(e *entry) {
	e.index = len(s.list)
	s.list = append(s.list, e)
}

func (s *set) remove(e *entry) {
	last := s.list[len(s.list)-1]
	s.list[e.index], last.index = last, e.index
	s.list[len(s.list)-1] = nil
	s.list = s.list[:len(s.list)-1]
}

// idle returns how many bytes nobody leases, counting no further than enough.
func (s *set) idle(enough int64) (n int64) {
	for _, e := range s.list {
		if n >= enough {
			break
		}
		if !e.leased() {
			n += e.size
		}
	}
	return n
}

// set returns the set of a region, nil if it has none.
func (g *ledger) set(r region) *set {
	if r == window {
		return &g.window
	}
	if r == main {
		return &g.main
	}
	return nil
}

const (
	samples  = 32 // entries looked at for one victim
	poolSize = 32 // the worst of those, kept for the next time
)

// score says how much an entry is worth keeping: needed later is worse, and of
// what nobody will need, what was not used for longest.
type score struct {
	next float64 // bytes of clock until it is needed; +Inf: by nobody who is known
	seq  int64   // when it was last used, nearly
}

func (a score) worse(b score) bool {
	if a.next != b.next {
		return a.next > b.next
	}
	return a.seq < b.seq
}

// halfLife is after how many budgets of new chunks a use counts half. Longer, and
// what is read often is told apart better as long as that stays the same; shorter,
// and what was read often gives way sooner to what is now.
const halfLife = 4

// ranked returns the rank of who had another one, after n more uses: the
// logarithm of how often it was used, where each use counts half as much after each
// halfLife. It is that of the uses as they would count had they all been at age 0:
// so it stays, and ranks of different ages compare.
func ranked(rank, age float64, n uint32) float64 {
	return age + math.Log2(math.Exp2(rank-age)+float64(n))
}

// count notes the hits of an entry since it was last looked at. The caller holds mu.
func (g *ledger) count(e *entry) {
	hits := e.hits()
	if hits == e.seen {
		return
	}
	// Used since: a second chance. When is not known; halfway is, on average.
	e.seq += (g.clock.Load() - e.seq) / 2
	e.rank = ranked(e.rank, g.age, hits-e.seen)
	e.seen = hits
}

// score values an entry of the window. The caller holds mu.
func (g *ledger) score(e *entry) score {
	g.count(e)
	now := g.clock.Load()
	s := score{next: math.Inf(1), seq: e.seq}
	if e.log != nil {
		s.next = e.log.nextUse(e.place, now, g.budget)
	}
	return s
}

// random returns a number below n. The sequence is always the same: so are the
// decisions for the same requests.
func (g *ledger) random(n int) int {
	g.rng += 0x9E3779B97F4A7C15
	x := g.rng
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return int((x >> 33) % uint64(n))
}

// worst returns what the window misses least, nil if everything is leased, and
// whether nobody who is known will need it. The caller holds mu.
func (g *ledger) worst() (victim *entry, dead bool) {
	type candidate struct {
		e *entry
		s score
	}
	var buf [samples + poolSize]candidate
	list := buf[:0]
	add := func(e *entry) {
		if e.region != window || e.leased() {
			return
		}
		for _, c := range list {
			if c.e == e {
				return
			}
		}
		// Kept in order, worst first.
		s := g.score(e)
		if list = list[:min(len(list)+1, len(buf))]; len(list) == 0 {
			return
		}
		i := len(list) - 1
		for ; i > 0 && s.worse(list[i-1].s); i-- {
			list[i] = list[i-1]
		}
		list[i] = candidate{e, s}
	}
	for _, e := range g.pool {
		add(e)
	}
	if all := g.window.list; len(all) <= samples {
		for _, e := range all {
			add(e)
		}
	} else {
		for range samples {
			add(all[g.random(len(all))])
		}
		if len(list) == 0 { // bad luck, or nearly everything is leased
			for _, e := range all {
				if !e.leased() {
					add(e)
					break
				}
			}
		}
	}
	clear(g.pool)
	g.pool = g.pool[:0]
	if len(list) == 0 {
		return nil, false
	}
	for _, c := range list[1:] {
		if len(g.pool) < poolSize {
			g.pool = append(g.pool, c.e)
		}
	}
	return list[0].e, math.IsInf(list[0].s.next, 1)
}

// coldest returns an entry of main that is used little, nil if everything is leased.
// The caller holds mu.
func (g *ledger) coldest() (victim *entry) {
	all := g.main.list
	better := func(e *entry) {
		if e.leased() {
			return
		}
		if g.count(e); victim == nil || e.rank < victim.rank {
			victim = e
		}
	}
	if len(all) > samples {
		for range samples {
			better(all[g.random(len(all))])
		}
	}
	if victim == nil {
		for _, e := range all {
			better(e)
		}
	}
	return victim
}

// make sees to it that n bytes are free. It evicts nothing if that would not
// suffice. The caller holds mu.
func (g *ledger) make(n int64) bool {
	need := g.used() + n - g.budget
	if need <= 0 {
		return true
	}
	if g.main.idle(need)+g.window.idle(need) < need {
		return false
	}
	for g.used()+n > g.budget {
		if !g.evict() {
			return false // somebody leased one meanwhile
		}
	}
	return true
}

// evict frees one chunk that nobody leases: the coldest of main if that has more
// than its share, else what the window misses least, unless main takes it. False:
// there is none. The caller holds mu.
func (g *ledger) evict() bool {
	for {
		victim, dead := (*entry)(nil), true
		// Ristretto keeps to the share of main by itself, a little later.
		if g.bytes[main] > g.mainTarget+max(g.budget/128, g.largest) {
			victim = g.coldest()
		}
		if victim == nil {
			victim, dead = g.worst()
		}
		if victim == nil {
			if victim, dead = g.coldest(), true; victim == nil {
				return false
			}
		}
		if victim.region == window && dead && g.mainTarget >= victim.size && victim.popular() {
			if victim = g.contest(victim); victim == nil {
				continue
			}
		}
		if victim.kill() { // from here on nobody can lease it
			g.ghosts.add(victim, dead, g.ghostsMax())
			g.move(victim, freed)
			victim.evicted = true
			g.evicted++
			return true
		}
	}
}

// contest has main take an entry from the window, and returns which is to be evicted
// instead, nil if none is yet. While main has room it takes what it gets. Then what was
// used twice as much as its coldest takes that one's place, whatever ristretto
// remembers of times that are over. It is to be that much: of chunks that are read in turn, more
// than there is room for, each looks a little better than those that were not
// read for longer, and none would stay until its turn. The rest ristretto judges, one at
// a time: what main loses to those that it takes in haste it does not get back. The
// caller holds mu.
func (g *ledger) contest(e *entry) *entry {
	if g.bytes[main]+e.size > g.mainTarget {
		other := g.coldest()
		if other != nil && e.rank > other.rank+1 {
			g.promote(e)
			return other
		}
		if g.bytes[main] > g.mainTarget { // ristretto has not judged the one before
			return e
		}
	}
	g.promote(e)
	return nil
}

// promote moves an entry to main, and has it offered to ristretto. The caller holds
// mu.
func (g *ledger) promote(e *entry) {
	g.move(e, main)
	g.largest = max(g.largest, e.size)
	e.state.Or(judged)
	g.offers = append(g.offers, e)
}

// popular says whether an entry that no cursor will reach deserves ristretto's
// judgement: two streams have read it, or it had left and was asked for again.
func (e *entry) popular() bool {
	if e.again {
		return true
	}
	if e.log != nil {
		if n := e.log.passed(e.place); n > 0 {
			return n > 1
		}
	}
	return e.hits() > 0 // of no stream that is known
}

// adapt ranks a chunk that has come, and moves the border between window and main by
// what one that comes back tells: one that left while a cursor was on its way needed
// more window, one that left because nobody was known to need it, or from main, more
// main. The caller holds mu.
func (g *ledger) adapt(e *entry) {
	old, ok := g.ghosts.take(e.hash)
	if !ok {
		e.rank = g.age
		return
	}
	e.rank = ranked(old.rank, g.age, 1)
	if e.again = old.frequency; old.frequency {
		g.mainTarget += e.size
	} else {
		g.mainTarget -= e.size
	}
	g.bound()
}

// bound keeps the share of main between a 256th and nine tenths. The
// caller holds mu.
func (g *ledger) bound() {
	g.mainTarget = min(max(g.mainTarget, g.budget/256), g.budget/10*9)
}

// ghosts are the hashes of chunks that were evicted, the latest few.
type ghosts struct {
	ring []uint64
	next int
	at   map[uint64]ghost
}

type ghost struct {
	slot      int
	rank      float64
	frequency bool // what would have kept it is knowing how often it is used
}

// ghostsMax is how many are remembered: four for each chunk that is here.
func (g *ledger) ghostsMax() int { return 4 * (len(g.window.list) + len(g.main.list)) }

func (s *ghosts) add(e *entry, frequency bool, limit int) {
	if s.at == nil {
		s.at = make(map[uint64]ghost)
	}
	limit = max(limit, 64)
	if len(s.ring) < limit {
		s.at[e.hash] = ghost{len(s.ring), e.rank, frequency}
		s.ring = append(s.ring, e.hash)
		return
	}
	s.next = (s.next + 1) % len(s.ring)
	if old := s.ring[s.next]; s.at[old].slot == s.next {
		delete(s.at, old)
	}
	s.ring[s.next] = e.hash
	s.at[e.hash] = ghost{s.next, e.rank, frequency}
}

// take forgets a ghost.
func (s *ghosts) take(hash uint64) (old ghost, ok bool) {
	old, ok = s.at[hash]
	delete(s.at, hash)
	return old, ok
}
