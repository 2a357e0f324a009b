package cache

import (
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"
)

// Log names what cursors move along: a partition's log, across its segments.
type Log struct {
	ID     [16]byte // of the topic
	Number int32    // of the partition
}

// Place is where a chunk lies in its log, in offsets: those of the records from
// First on, before Next.
type Place struct {
	Log         Log
	First, Next int64
}

const (
	// forgottenAfter is after how many budgets of new chunks a reader that was not
	// heard of, and is late by that, is taken to be gone.
	forgottenAfter = 8
	// neverAfter is after how many budgets what is needed counts as never needed. It is
	// more: beside backfills a budget is a few seconds of the log.
	neverAfter = 32
)

// A Cursor is a reader's place in a log, announced by whoever knows of the reader.
// Its methods may be called concurrently.
type Cursor struct {
	c   *Cache
	log *logCursors

	// Guarded by log.mu.
	start, pos int64 // offsets: of its first read, and of its next
	last       int64 // clock of its last read, or of its announcement
	gap        int64 // clock between its reads, averaged
	mark       int64 // clock when rate was last taken, and where it was then
	markPos    int64
	rate       float64 // offsets for each byte of clock; 0: not known yet

	// It went back from turn to again, which it had read: it may go round and round.
	// turn is 0 if it never went, or has read on since.
	turn, again int64
}

// logCursors is the cursors of one log.
type logCursors struct {
	held atomic.Int64 // entries and cursors that point here: it must not be forgotten

	mu      sync.Mutex
	cursors []*Cursor
}

// logShard is a part of the logs.
type logShard struct {
	mu   sync.Mutex
	logs map[Log]*logCursors
	max  int // sweep when there are more
	_    [64]byte
}

const numLogShards = 16

// logOf returns the cursors of a log, which is not forgotten until held is
// decremented.
func (c *Cache) logOf(l Log) *logCursors {
	h := (binary.LittleEndian.Uint64(l.ID[8:]) ^ uint64(uint32(l.Number))*0x9E3779B97F4A7C15) * 0xD6E8FEB86659FD93
	s := &c.logs[h>>(64-4)]
	s.mu.Lock()
	defer s.mu.Unlock()
	lc := s.logs[l]
	if lc == nil {
		if s.logs == nil {
			s.logs, s.max = make(map[Log]*logCursors), 64
		}
		if len(s.logs) >= s.max {
			for k, old := range s.logs {
				if old.held.Load() == 0 {
					delete(s.logs, k)
				}
			}
			s.max = max(64, 2*len(s.logs))
		}
		lc = new(logCursors)
		s.logs[l] = lc
	}
	lc.held.Add(1)
	return lc
}

// Announce says that a reader will read a log from offset pos on, or has been doing so
// for a while. The cache keeps what it is about to need rather than what nobody is known
// to need. Close the Cursor when the reader ends.
func (c *Cache) Announce(l Log, pos int64) *Cursor {
	cur := &Cursor{c: c, log: c.logOf(l), start: pos, pos: pos}
	cur.last = c.ledger.clock.Load()
	cur.mark, cur.markPos = cur.last, pos
	cur.log.mu.Lock()
	cur.log.cursors = append(cur.log.cursors, cur)
	cur.log.mu.Unlock()
	return cur
}

// Read says that the reader has read the offsets from `from` on, before `to`, and
// goes on there. A jump is no mistake.
func (cur *Cursor) Read(from, to int64) {
	cur.log.mu.Lock()
	cur.move(from, to, cur.c.ledger.clock.Load(), cur.c.ledger.budgetNow.Load())
	cur.log.mu.Unlock()
}

// Close says that the reader is gone.
func (cur *Cursor) Close() {
	lc := cur.log
	lc.mu.Lock()
	defer lc.mu.Unlock()
	for i, other := range lc.cursors {
		if other == cur {
			lc.cursors = append(lc.cursors[:i], lc.cursors[i+1:]...)
			lc.held.Add(-1)
			return
		}
	}
}

// move notes a read. The caller holds log.mu.
func (cur *Cursor) move(from, to, now, budget int64) {
	switch {
	case from >= cur.pos && from <= cur.pos+(to-from): // it goes on
	case from >= cur.start && from < cur.pos: // back, and as fast as before
		if 2*(cur.pos-from) >= cur.turn-cur.again { // else it is a little jump within the round
			cur.turn, cur.again = cur.pos, from
		}
		cur.markPos += from - cur.pos
	default: // a seek
		cur.start, cur.rate, cur.turn = from, 0, 0
		cur.mark, cur.markPos = now, from
	}
	if cur.pos = to; to > cur.turn {
		cur.turn = 0
	}
	cur.gap += (now - cur.last - cur.gap) / 4
	cur.last = now
	// Over a while: readers come in bursts, and so do the chunks of others.
	if d := now - cur.mark; d >= budget/16 && to > cur.markPos {
		rate := float64(to-cur.markPos) / float64(max(d, 1))
		if cur.rate == 0 {
			cur.rate = rate
		}
		cur.rate += (rate - cur.rate) / 4
		cur.mark, cur.markPos = now, to
	}
}

// nextUse returns the bytes of clock until some cursor reaches a place, +Inf if
// none is on its way.
func (lc *logCursors) nextUse(p Place, now, budget int64) float64 {
	next := math.Inf(1)
	lc.mu.Lock()
	defer lc.mu.Unlock()
	fastest := 0.0
	for _, cur := range lc.cursors {
		fastest = max(fastest, cur.rate)
	}
	if fastest == 0 { // nobody has come far yet: a guess
		fastest = float64(max(p.Next-p.First, 1)) / float64(max(budget/256, 1))
	}
	for _, cur := range lc.cursors {
		d := p.First - cur.pos
		if cur.pos >= p.Next { // it has passed
			if cur.turn == 0 || cur.again >= p.Next {
				continue
			}
			d = cur.turn - cur.pos + max(p.First-cur.again, 0)
		}
		t := 0.0
		if d > 0 {
			rate := cur.rate
			if rate == 0 {
				rate = fastest
			}
			t = float64(d) / rate
		}
		// One that is late will probably be late for as long again.
		grace := 2 * cur.gap
		if cur.rate == 0 {
			grace = budget
		}
		if late := max(now-cur.last-grace, 0); late <= forgottenAfter*budget {
			next = min(next, t+float64(late))
		}
	}
	if next > neverAfter*float64(budget) {
		return math.Inf(1)
	}
	return next
}

// passed counts the cursors that have read a place from end to end.
func (lc *logCursors) passed(p Place) (n int) {
	lc.mu.Lock()
	defer lc.mu.Unlock()
	for _, cur := range lc.cursors {
		if cur.start <= p.First && cur.pos >= p.Next {
			n++
		}
	}
	return n
}
