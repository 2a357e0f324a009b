package fetch

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/segtier/segtier/segment"
)

// Hint is what a caller knows of its reads to come. The zero value is useful.
type Hint uint8

// The hints.
const (
	// Detect: nothing is known. Who reads in sequence is recognised at the second
	// read, small jumps notwithstanding.
	Detect Hint = iota
	// Sequential: the reads go on from here. Fetching ahead begins at once.
	Sequential
	// Scan: as Sequential, far and once: a backfill. The runs are as long as they get.
	Scan
	// Tail: as Sequential, but at the end of the log: little is fetched ahead.
	Tail
	// TimeQuery: a look at one place. Nothing is fetched ahead, and nothing is concluded.
	TimeQuery
)

// cursor is where a stream reads: what tells it from others.
type cursor struct {
	p       partitionID
	last    int64        // offset of the last read
	next    int64        // offset behind the last read; -1 while it goes on
	alt     int64        // what next was before a jump: it may have been another's
	seg     segment.UUID // where it read last
	chunk   int          // that the next read begins in
	upper   int64        // offset behind what may be read of the segment
	chunks  int          // of the segment
	reach   int          // chunk of seg up to which is on its way, for jumps ahead
	reads   int          // in sequence
	touched int64        // by the table's clock
}

type partitionID struct {
	topic  segment.UUID
	number int32
}

const (
	// A read in sequence begins in one of the chunks from back before to forth behind the one behind
	// the last that was read: consumers skip what they know, and come back for
	// what they could not take.
	back, forth = 2, 2
	// maxLanes bounds the streams of one partition that are told apart.
	maxLanes = 32
	// maxPartitions bounds the partitions that are remembered, in each shard.
	maxPartitions = 1024
	streamShards  = 16
)

// goesOn says whether a read of seg, which begins with offset start, at offset,
// in chunk c of it, goes on where the cursor is. Where nothing but one read is
// known, only the very next offset does: reads at random come near each other often.
// A reader that is known to go on may jump a little, or over what is on its way.
func (k *cursor) goesOn(seg segment.UUID, start, offset int64, c int, known bool) bool {
	switch {
	case offset == k.next || offset == k.alt || offset == k.last && k.reads > 0:
		return true // also once more, because nobody had the patience to wait for it
	case !known:
		return k.next < 0 && seg == k.seg && c == k.chunk // the read before is not at its end yet
	case seg == k.seg:
		return c >= k.chunk-back && c <= max(k.chunk+forth, k.reach)
	default: // of one segment into the next
		return start == k.upper && c+max(k.chunks-k.chunk, 0) <= forth
	}
}

// stream is one reader in sequence, as far as we can tell.
type stream struct {
	id uint64 // constant
	mu sync.Mutex
	cursor
	hint Hint
	ahead
}

// lanes are the streams of one partition.
type lanes struct {
	all []*stream // at most maxLanes
}

// streams finds the stream that a read belongs to.
type streams struct {
	clock  atomic.Int64  // counts reads
	ids    atomic.Uint64 // given to streams
	shards [streamShards]struct {
		mu    sync.Mutex
		lanes map[partitionID]*lanes
		_     [40]byte
	}

	mu     sync.Mutex
	active map[*stream]time.Time // those that are fetched ahead for, when they last were; guarded by mu
	swept  time.Time             // guarded by mu
	n      atomic.Int64          // len(active)
}

// of says whether a read belongs to the stream, which is locked.
func (s *stream) of(k *cursor, start, offset int64, c int) bool {
	return s.p == k.p && s.goesOn(k.seg, start, offset, c, s.reads > 1 || s.hint != Detect)
}

// moved notes a read.
func (s *stream) moved(k *cursor, offset, now int64, hint Hint) {
	if offset != s.last || s.reads == 0 {
		s.alt = -1
		if offset != s.next {
			s.alt = s.next
		}
		s.reads++
	}
	s.last = offset
	s.next = -1 // known when the read ends
	s.seg, s.chunk, s.upper, s.chunks, s.touched = k.seg, k.chunk, k.upper, k.chunks, now
	if hint != Detect {
		s.hint = hint
	}
}

// follow returns the stream that a read belongs to, locked, after noting the read
// in it: at offset, in chunk c of a segment that begins with offset start; k is
// where it ends. last may be the stream that the caller was in before, or nil.
// fresh is a stream that begins.
func (ss *streams) follow(last *stream, k *cursor, start, offset int64, c int, hint Hint) (s *stream, fresh bool) {
	now := ss.clock.Add(1)
	if last != nil {
		last.mu.Lock()
		if last.of(k, start, offset, c) {
			last.moved(k, offset, now, hint)
			return last, false
		}
		last.mu.Unlock()
	}
	sh := &ss.shards[(uint(k.p.number)^uint(k.p.topic[15]))%streamShards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l := sh.lanes[k.p]
	if l == nil {
		if sh.lanes == nil {
			sh.lanes = make(map[partitionID]*lanes)
		}
		for id := range sh.lanes { // any one will do
			if len(sh.lanes) < maxPartitions {
				break
			}
			delete(sh.lanes, id)
		}
		l = new(lanes)
		sh.lanes[k.p] = l
	}
	var oldest *stream
	age := int64(0)
	for _, s := range l.all {
		s.mu.Lock()
		if s.of(k, start, offset, c) {
			s.moved(k, offset, now, hint)
			return s, false
		}
		a := now - s.touched
		if s.reads > 1 {
			a /= 16 // one that never went on is replaced sooner
		}
		if oldest == nil || a > age { // below 0 if it was read by one that came later
			oldest, age = s, a
		}
		s.mu.Unlock()
	}
	if len(l.all) < maxLanes {
		oldest = &stream{id: ss.ids.Add(1)}
		l.all = append(l.all, oldest)
	}
	s = oldest
	s.mu.Lock()
	s.cursor = cursor{p: k.p, next: -1, alt: -1}
	s.hint = hint
	s.moved(k, offset, now, hint)
	return s, true
}

// gone takes a stream out of those that are active.
func (ss *streams) gone(s *stream) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.active, s)
	ss.n.Store(int64(len(ss.active)))
}

// idle is how long a stream that does not read keeps its share.
const idle = 10 * time.Second

// share returns how many bytes a stream may have ahead of it, of a budget for
// everything, and notes that it is active. A quarter of the budget is for what is
// ahead as long as few streams read; then an eighth: what others have read is
// needed again by those who follow.
func (ss *streams) share(s *stream, now time.Time, budget int64) int64 {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.active == nil {
		ss.active = make(map[*stream]time.Time)
	}
	ss.active[s] = now
	if now.Sub(ss.swept) > idle/4 {
		ss.swept = now
		for other, last := range ss.active {
			if now.Sub(last) > idle {
				delete(ss.active, other)
			}
		}
	}
	n := int64(len(ss.active))
	ss.n.Store(n)
	if n == 1 {
		return budget / 8 * 5
	}
	return budget / (2*n + 2*max(0, n-4))
}
