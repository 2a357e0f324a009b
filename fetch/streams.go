package fetch

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segtier/segtier/cache"
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

const (
	// A read in sequence begins in one of the chunks from back before to forth behind the one behind
	// the last that was read: consumers skip what they know, and come back for
	// what they could not take.
	back, forth = 2, 2
	// maxLanes bounds the streams of one partition that are told apart, and maxFirst
	// the reads that may be the first of another.
	maxLanes, maxFirst = 32, 32
	// retiredAfter is for how many reads of others in its partition a stream that does not
	// read is kept.
	retiredAfter = 16 * maxLanes
	// trustedAfter is how many reads must have begun where the one before ended until the cache
	// is told of a consumer, whatever little jumps come then. One does by chance.
	trustedAfter = 2
	// maxPartitions bounds the partitions that are remembered, in each shard.
	maxPartitions = 1024
	streamShards  = 16
)

// reach is a read as it begins: at an offset, of chunks [c, to) of a segment.
type reach struct {
	offset int64
	seg    segment.UUID
	start  int64 // offset that the segment begins with
	upper  int64 // offset behind what may be read of it
	c, to  int
	chunks int // of the segment
	hint   Hint
}

// lane is where a stream reads: what tells it from others.
type lane struct {
	first   int64        // offset where the sequence began
	last    int64        // offset of the last read
	next    int64        // offset behind the last read; -1 while it goes on
	alt     int64        // what next was before a jump: it may have been another's
	seg     segment.UUID // where it read last
	chunk   int          // that the next read begins in
	upper   int64        // offset behind what may be read of the segment
	chunks  int          // of the segment
	reads   int          // in sequence
	steps   int          // of those, in a row, that began exactly where the one before ended
	hint    Hint
	touched int64         // by the clock of its lanes
	cursor  *cache.Cursor // that tells the cache; nil: not yet
}

// here says whether a read at offset is this lane's next, or once more its last,
// because nobody had the patience to wait for it.
func (k *lane) here(offset int64) bool {
	return offset == k.next || offset == k.alt || offset == k.last && k.reads > 0
}

// near says whether a read may be this lane's, with a little jump, or one over what
// is on its way, which goes up to chunk ahead.
func (k *lane) near(at *reach, ahead int) bool {
	if at.seg == k.seg {
		return at.c >= k.chunk-back && at.c <= max(k.chunk+forth, ahead)
	}
	return at.start == k.upper && at.c+max(k.chunks-k.chunk, 0) <= forth // of one segment into the next
}

// move notes a read.
func (k *lane) move(at *reach, now int64) {
	if at.offset != k.last || k.reads == 0 {
		k.alt = -1
		if k.steps++; at.offset != k.next {
			k.alt = k.next
			k.steps = 0
		}
		k.reads++
	}
	k.last = at.offset
	k.next = -1 // known when the read ends
	k.seg, k.chunk, k.upper, k.chunks, k.touched = at.seg, at.to, at.upper, at.chunks, now
	if at.hint != Detect {
		k.hint = at.hint
	}
}

// stream is one reader in sequence, as far as we can tell.
type stream struct {
	id    uint64 // constant
	lanes *lanes // constant
	lane  lane   // guarded by lanes.mu
	gone  bool   // another has its place; guarded by lanes.mu

	reach atomic.Int64 // chunk of its segment up to which is on its way, for jumps ahead

	mu    sync.Mutex
	hint  Hint // of the read that goes on
	reads int  // in sequence, with that one
	ahead
}

// lanes are the streams of one partition, and the reads that may be the first of
// one. Who reads here and there costs a look at either, and leaves no more than
// such a read.
type lanes struct {
	log  cache.Log   // constant
	gone atomic.Bool // these are forgotten: others are the partition's. Set under mu.

	mu    sync.Mutex
	clock int64     // counts reads
	known []*stream // at most maxLanes

	// Reads that went on from nowhere, the latest of them. What each read is compared
	// with lies together.
	next  []int64 // offset behind it; -1 while it goes on, or if there is none
	last  []int64 // its offset; -1 if there is none
	rest  []first
	free  int    // places of those that became streams
	begun uint64 // how many there were
}

// first is the rest of what is known of such a read.
type first struct {
	ticket uint64 // its number, from 1 on; 0: there is none
	reach
}

// goesOn says whether a read begins where f, which is not at its end yet, will be.
func (f *first) goesOn(at *reach) bool {
	return f.ticket != 0 && f.seg == at.seg && f.to == at.c && f.offset != at.offset
}

// streams finds the stream that a read belongs to.
type streams struct {
	ids    atomic.Uint64 // given to streams
	shards [streamShards]struct {
		mu     sync.Mutex
		lanes  map[cache.Log]*lanes
		closed bool
		_      [40]byte
	}

	mu     sync.Mutex
	active map[*stream]time.Time // those that are fetched ahead for, when they last were; guarded by mu
	swept  time.Time             // guarded by mu
	n      atomic.Int64          // len(active)
}

// of returns the lanes of a partition, of which t is a tail.
func (ss *streams) of(t *tail, log cache.Log) (l *lanes, forgotten *lanes) {
	if l = t.lanes.Load(); l != nil && !l.gone.Load() {
		return l, nil
	}
	sh := &ss.shards[(uint(log.Number)^uint(log.ID[15]))%streamShards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if l = sh.lanes[log]; l == nil {
		l = &lanes{log: log}
		if sh.closed {
			l.gone.Store(true) // nobody would close its cursors
			return l, nil
		}
		if sh.lanes == nil {
			sh.lanes = make(map[cache.Log]*lanes)
		}
		if len(sh.lanes) >= maxPartitions {
			for id, other := range sh.lanes { // any one will do
				delete(sh.lanes, id)
				forgotten = other
				break
			}
		}
		sh.lanes[log] = l
	}
	t.lanes.Store(l)
	return l, forgotten
}

// close forgets everything. The cache is told that nobody reads here any more.
func (ss *streams) close() {
	for i := range ss.shards {
		sh := &ss.shards[i]
		sh.mu.Lock()
		all := sh.lanes
		sh.lanes, sh.closed = nil, true
		sh.mu.Unlock()
		for _, l := range all {
			l.forget()
		}
	}
}

// forget ends the lanes and returns their streams, which are nobody's any more.
func (l *lanes) forget() []*stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone.Store(true)
	for _, s := range l.known {
		s.end()
	}
	all := l.known
	l.known = nil
	return all
}

// end says that the stream's place is another's. The caller holds lanes.mu.
func (s *stream) end() {
	s.gone = true
	if s.lane.cursor != nil {
		s.lane.cursor.Close()
	}
}

// find returns the stream that a read goes on in, or else where the read is noted that
// it follows; nil and -1 if there is neither. Reads are told apart by where they begin;
// only who is not found so may have jumped a little. Where nothing but one read is
// known, only the very next offset goes on: reads at random come near each other often.
// last may be the stream that the caller was in before, or nil. The caller holds mu.
func (l *lanes) find(last *stream, at *reach) (s *stream, begin int) {
	if last != nil && (last.lanes != l || last.gone) {
		last = nil
	}
	if last != nil && last.lane.here(at.offset) {
		return last, -1
	}
	for _, s := range l.known {
		if s.lane.here(at.offset) {
			return s, -1
		}
	}
	for i, next := range l.next {
		if next == at.offset || next < 0 && l.rest[i].goesOn(at) {
			return nil, i
		}
	}
	if last != nil && last.lane.near(at, int(last.reach.Load())) {
		return last, -1
	}
	for _, s := range l.known {
		if s.lane.near(at, int(s.reach.Load())) {
			return s, -1
		}
	}
	return nil, -1
}

// begin notes a read that goes on from nowhere, and returns where, and its ticket.
// The caller holds mu.
func (l *lanes) begin(at *reach) (slot int, ticket uint64) {
	n := len(l.last)
	slot = n
	for i, last := range l.last {
		if last == at.offset { // once more
			slot = i
			break
		}
	}
	switch {
	case slot < n:
	case l.free > 0:
		slot = slices.Index(l.last, -1)
		l.free--
	case n < maxFirst:
		l.next, l.last, l.rest = append(l.next, -1), append(l.last, -1), append(l.rest, first{})
	default:
		slot = int(l.begun % maxFirst)
	}
	l.begun++
	f := &l.rest[slot]
	f.ticket, f.reach = l.begun, *at
	l.next[slot], l.last[slot] = -1, at.offset
	return slot, l.begun
}

// found is the stream that a read belongs to.
type found struct {
	s     *stream // nil: it goes on from nowhere
	hint  Hint
	reads int     // in sequence, with this one
	begin *first  // the first read of a stream that was found by this, its second; else nil
	gone  *stream // the one that had its place, if there were too many
}

// follow notes a read as it begins in the stream that it belongs to, which it returns
// not locked; or else as the first of one, maybe, and in `in` where that is.
func (l *lanes) follow(ids *atomic.Uint64, last *stream, at *reach, in *holding) (f found) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock++
	in.lanes = l
	s, one := l.find(last, at)
	switch {
	case s != nil:
	case one >= 0:
		begin := l.rest[one]
		f.begin = &begin
		s = &stream{id: ids.Add(1), lanes: l}
		s.lane = lane{first: f.begin.offset, next: -1, alt: -1}
		s.lane.move(&f.begin.reach, l.clock)
		s.lane.next = l.next[one]
		l.next[one], l.last[one], l.rest[one] = -1, -1, first{}
		l.free++
		f.gone = l.add(s)
	case at.hint != Detect:
		s = &stream{id: ids.Add(1), lanes: l}
		s.lane = lane{first: at.offset, next: -1, alt: -1}
		f.gone = l.add(s)
	default:
		if in.slot, in.ticket = l.begin(at); in.ticket%maxFirst == 0 {
			f.gone = l.retire()
		}
		return f
	}
	s.lane.move(at, l.clock)
	f.s, f.hint, f.reads = s, s.lane.hint, s.lane.reads
	return f
}

// single returns the stream of one reader who announced himself. In lanes of its own it
// is not taken for another.
func (r *Reader) single(log cache.Log, offset int64) *stream {
	s := &stream{id: r.streams.ids.Add(1), lanes: &lanes{log: log}}
	s.alone = true
	s.lane = lane{first: offset, next: -1, alt: -1}
	return s
}

// finish ends such a stream. It may be called more than once.
func (r *Reader) finish(s *stream) {
	s.lanes.mu.Lock()
	s.end()
	s.lanes.mu.Unlock()
	r.drop(s)
}

// follow notes a read of a single's as it begins, and says whether he went elsewhere.
// It is not ok if he is gone.
func (s *stream) follow(at *reach) (f found, sought, ok bool) {
	s.lanes.mu.Lock()
	defer s.lanes.mu.Unlock()
	if s.gone {
		return f, false, false
	}
	k := &s.lane
	switch {
	case k.here(at.offset) || k.next < 0 && k.seg == at.seg && k.chunk == at.c: // there, or where that read will end
	case (k.reads > 1 || k.hint != Detect) && k.near(at, int(s.reach.Load())):
	default: // one who reads at random says nothing by each read
		sought = k.reads > 0
		*k = lane{first: at.offset, next: -1, alt: -1, cursor: k.cursor}
	}
	k.move(at, 0)
	return found{s: s, hint: k.hint, reads: k.reads}, sought, true
}

// add takes on a stream, in place of the one that was not heard of for longest if
// there are too many. The caller holds mu.
func (l *lanes) add(s *stream) (gone *stream) {
	if len(l.known) == maxLanes {
		gone = l.remove(l.oldest())
	}
	l.known = append(l.known, s)
	return gone
}

// retire removes a stream that was not heard of for long, if there is one: that reads
// at random go on from each other happens, and it is not to be a stream for good. The
// caller holds mu.
func (l *lanes) retire() (gone *stream) {
	if i := l.oldest(); i >= 0 && l.clock-l.known[i].lane.touched > retiredAfter {
		return l.remove(i)
	}
	return nil
}

func (l *lanes) oldest() int {
	oldest := len(l.known) - 1
	for i, s := range l.known {
		if s.lane.touched < l.known[oldest].lane.touched {
			oldest = i
		}
	}
	return oldest
}

func (l *lanes) remove(i int) *stream {
	s := l.known[i]
	s.end()
	l.known = slices.Delete(l.known, i, i+1)
	return s
}

// ended notes where a read ended. It returns the stream's cursor in the cache, if it
// has one, and whether it is time that it has.
func (l *lanes) ended(in *holding, announced bool) (cursor *cache.Cursor, wanted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := in.stream
	if s == nil {
		if l.rest[in.slot].ticket == in.ticket { // nobody else's by now
			l.next[in.slot] = in.next
		}
		return nil, false
	}
	k := &s.lane
	k.next = in.next
	wanted = k.cursor == nil && !announced && (k.hint != Detect || k.steps >= trustedAfter) && !s.gone && !l.gone.Load()
	return k.cursor, wanted
}

// announce tells the cache of a consumer who was found by its reads.
func (l *lanes) announce(c *cache.Cache, s *stream) *cache.Cursor {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.gone || l.gone.Load() {
		return nil // nobody would close it
	}
	if s.lane.cursor == nil {
		s.lane.cursor = c.Announce(l.log, s.lane.first)
	}
	return s.lane.cursor
}

// ended notes where a read ended, and tells the cache where its consumer is, if that
// is known: from req, or because it has read in sequence for a while.
func (r *Reader) ended(req *Request, in *holding) {
	var cursor *cache.Cursor
	if in.lanes != nil {
		var wanted bool
		if cursor, wanted = in.lanes.ended(in, req.announced(r)); wanted {
			cursor = in.lanes.announce(r.cache, in.stream)
		}
	}
	if req.announced(r) {
		cursor = req.Cursor.c
	}
	if cursor != nil {
		cursor.Read(req.Offset, in.next)
	}
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
// needed again by those who follow. late is a stream that cannot do with that: what is asked
// for when it is a share ahead would come too late.
func (ss *streams) share(s *stream, now time.Time, budget int64, late bool) int64 {
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
	if late {
		return budget / (2 * n)
	}
	return budget / (2*n + 2*max(0, n-4))
}
