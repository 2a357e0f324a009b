package fetch

import (
	"slices"

	"github.com/segtier/segtier/objstore/endpoint"
)

// seats are the flights that come with one read: the pilot's own, and those of other
// callers that it has taken along.
//
// What a GET reads is decided when its turn comes, not when it is asked for: then
// whoever waits for the chunks beside is taken along. So nobody waits for others to come
// by, and nobody's turn comes later for it:
//
//	waiting   [4,5) A   [5,6) B   [9,10) C   [6,7) D   ─► A's turn: GET [4,7)
//	                    └──────── taken along ─┘           C's turn: GET [9,10)
//
// Behind the pilot's own chunks, which come no later for that, there is room for a run
// of the usual length. What lies before them comes first, so of that there is as much at
// most as takes less time than the first byte of the GET that it saves, and two chunks, as
// with gaps. Without it who asks in descending order would share nothing: 64 readers at
// random places, with 8 slots, made .84 of the GETs with what is behind alone and .71 with
// both, and half of the reads, and the slowest, took a tenth less time for it (bench
// TestStrangersShareGets). With more before them hardly any GET less was made.
//
// Taken along is who waits for a slot or for his next try, no byte of his having come; in
// the same line, which keeps demand from waiting behind what nobody waits for, and
// prefetch out of the slots that are kept for demand; for the same tenant, who is held to his
// bounds; and not of the same stream or caller, who had reasons to cut what he wants.
// The bytes must be to be had at once, and it is the stream whose they are that pays for them.
// And the GET must not be the last of the pilot's tries: who has more by himself is
// not to fail with it.
//
// Who was taken along waits for the pilot's read, whose failure is his own, but for
// damage: that is one chunk's, so all who are not served yet go on by themselves.
type seats struct {
	self   [1]*flight
	aboard []*flight // in order of their chunks; guarded by t.mu
}

// expects reports whether a chunk is still to come. The caller holds t.mu.
func (f *flight) expects() bool {
	return slices.ContainsFunc(f.aboard, func(p *flight) bool { return p.done < p.limit })
}

// clear lets those go of whom nothing is wanted any more, and reports whether anybody
// is left. The caller holds t.mu.
func (f *flight) clear() bool {
	f.aboard = slices.DeleteFunc(f.aboard, func(p *flight) bool {
		gone := p.done == p.limit
		if gone && p != f {
			p.leave(errSought, false)
		}
		return gone
	})
	return len(f.aboard) > 0
}

// reach returns the chunks of a read, from the first to the last one that is still to
// come; false if there is none. The caller holds t.mu.
func (f *flight) reach() (all span, ok bool) {
	for _, p := range f.aboard {
		if p.done == p.limit {
			continue
		}
		if at := p.span(); ok {
			all.to = at.to
		} else {
			all, ok = at, true
		}
	}
	return all, ok
}

// board takes those along who wait beside. The caller holds t.mu.
func (f *flight) board(turn *endpoint.Turn) {
	chunk := f.t.Table.ChunkSize
	most := int(max(f.r.o.RunBytes/2/chunk, 1))
	before := 0
	mine, _ := f.reach()
	if f.done < f.limit { // less what tries that failed have brought
		before = f.r.gap(chunk) - (f.span().from - mine.from)
	}
	for {
		mine, _ = f.reach()
		if g, _ := f.beside(turn, most-mine.len(), func(at span) bool { return at.from == mine.to }); g != nil {
			f.take(g, len(f.aboard))
			continue
		}
		g, n := f.beside(turn, min(most-mine.len(), before), func(at span) bool { return at.to == mine.from })
		if g == nil {
			return
		}
		before -= n
		f.take(g, 0)
	}
}

// beside returns a flight of at most so many chunks that may be taken along, is where it
// should be, and has room for its bytes in the GET; and how many chunks those are. It is
// nil if there is none. The caller holds t.mu.
func (f *flight) beside(turn *endpoint.Turn, most int, where func(span) bool) (g *flight, chunks int) {
	if most <= 0 {
		return nil, 0
	}
	table := &f.t.Table
	for _, g := range f.t.flights {
		at, ok := g.reach()
		if !ok || at.len() > most || !where(at) || !f.mayTake(g) {
			continue
		}
		if !turn.Take(min(table.Start(at.to), table.LogSize())-table.Start(at.from), g.stream) {
			break
		}
		return g, at.len()
	}
	return nil, 0
}

// mayTake reports whether f may take g along. The caller holds t.mu.
func (f *flight) mayTake(g *flight) bool {
	return g.party != f.party && (g.stream != f.stream || g.stream == 0) && g.tenant == f.tenant &&
		g.arrived == nil && !g.alone && !g.fixed && g.cancel != nil &&
		g.urgency.Class() == f.urgency.Class() && g.urgency.Waiting()
}

// take takes g along, with those whom it has taken along. If its slot is given to it at
// this moment it still has to ask what to read, under the lock that the caller holds,
// and finds that it has a pilot.
func (f *flight) take(g *flight, at int) {
	f.r.stats.shared.Add(1)
	g.arrived = make(chan struct{})
	g.cancel(errTaken)
	g.clear()
	for _, p := range g.aboard {
		p.pilot = f
	}
	f.aboard = slices.Insert(f.aboard, at, g.aboard...)
	if g.pilot == nil {
		g.leave(errSought, false) // it has brought others alone
	}
	g.self[0] = g
	g.aboard = g.self[:]
}

// alight lets everybody go whom f has taken along, with what its read has come to.
// alone is whether those who are not served yet go on by themselves. The caller holds
// t.mu.
func (f *flight) alight(err error, alone bool) {
	for _, p := range f.aboard {
		if p != f {
			p.leave(err, alone)
		}
	}
	clear(f.aboard)
	f.self[0] = f
	f.aboard = f.self[:]
	f.alone = alone
}

// leave has a flight that was taken along be its own again. The caller holds t.mu.
func (f *flight) leave(err error, alone bool) {
	f.pilot, f.err, f.alone = nil, err, alone
	close(f.arrived)
}
