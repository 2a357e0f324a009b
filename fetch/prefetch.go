package fetch

import (
	"context"
	"sync"
	"time"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/segment"
)

// follow notes a read of chunks [c, to) of a segment before it begins, and returns
// the stream that it belongs to, locked. It is nil for a look at one place, and for
// a read that goes on from nowhere.
func (rd *reading) follow(req *Request, last *stream, t *tail, at *place, offset int64, c, to int, in *holding) *stream {
	r := rd.r
	in.lanes = nil
	if req.Hint == TimeQuery {
		return nil
	}
	k := reach{
		offset: offset, seg: t.id, start: at.start, upper: at.upper,
		c: c, to: to, chunks: len(t.Table.Chunks), hint: req.Hint,
	}
	var f found
	sought, alone := false, false
	if s := req.own(r); s != nil {
		if f, sought, alone = s.follow(&k); alone { // it may have sought within the segment
			in.lanes = s.lanes
		} else if req.stream != nil {
			return nil // closed meanwhile; who names a Cursor that is closed is found by his reads
		}
	}
	if !alone {
		l, forgotten := r.streams.of(t, logOf(rd.p))
		if forgotten != nil {
			for _, s := range forgotten.forget() {
				r.drop(s)
			}
		}
		if f = l.follow(&r.streams.ids, last, &k, in); f.gone != nil {
			r.drop(f.gone)
		}
	}
	s := f.s
	if s == nil {
		return nil
	}
	s.mu.Lock()
	s.hint, s.reads = f.hint, f.reads
	if sought && !s.covers(t.id, c) {
		r.elsewhere(s)
	}
	if f.begin != nil && f.begin.seg == t.id {
		s.enter(t, at.upper, at.stop(t), f.begin.c, f.begin.to)
	}
	r.vain(s.enter(t, at.upper, at.stop(t), c, to))
	s.pace()
	ahead := s.way[0].stop // it goes on in the next segment
	if last := &s.way[len(s.way)-1]; last.t.id == t.id {
		ahead = last.chunk(s.front)
	}
	s.reach.Store(int64(ahead))
	return s
}

// drop ends what is done for a stream whose place is another's.
func (r *Reader) drop(s *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true // a read of it may be about to plan still
	r.elsewhere(s)
	r.streams.gone(s)
}

// stop returns the chunk behind the last one that may be read.
func (at *place) stop(t *tail) int {
	if at.upper <= at.end {
		return t.Table.ForOffset(at.upper-1) + 1
	}
	return len(t.Table.Chunks)
}

// elsewhere notes that the reader of s, which is locked, has left the place where
// it was.
func (r *Reader) elsewhere(s *stream) { r.vain(s.leave()) }

// vain notes bytes that were fetched ahead in vain, and those that were not, after
// all, because they were called off.
func (r *Reader) vain(wasted, saved int64) {
	if saved > 0 {
		r.stats.calledOff.Add(saved)
	}
	if wasted > 0 {
		r.lost(wasted)
	}
}

// lost notes bytes that were fetched ahead in vain.
func (r *Reader) lost(n int64) {
	r.stats.wasted.Add(n)
	r.waste.note(0, n, r.cache.MemoryBytes())
}

// eager says that s is worth fetching ahead for: it was announced, or has read in
// sequence often enough. That is more often when much is fetched in vain.
func (r *Reader) eager(s *stream) bool {
	return !s.over && (s.hint != Detect || s.reads > 1 && (s.window > 0 || s.reads >= 2<<r.waste.brake(r.cache.MemoryBytes())))
}

// plan sets how much may be ahead of s, and in what runs. It is false if nothing
// is to be fetched ahead.
func (r *Reader) plan(s *stream, chunk int64) bool {
	if !r.eager(s) {
		return false
	}
	_, rate := r.meter.known()
	paced := s.aheadClass() == endpoint.TailPrefetch && rate > 0 && rate < slowConnection
	share := r.streams.share(s, time.Now(), r.cache.MemoryBytes(), paced) >> r.waste.brake(r.cache.MemoryBytes())
	if s.hint == Tail {
		share = min(share, 2*chunk)
	}
	if s.window == 0 || rate > 0 && !s.search.informed {
		s.search.start(rate, int(r.streams.n.Load()))
	}
	runs := int64(s.search.runs())
	read := s.at - s.from
	unit := r.o.RunBytes
	if !s.search.informed {
		// How fast a connection is will be known soon. A long run on a slow one would
		// hold up everything behind it.
		unit /= 16
	}
	if s.hint == Detect {
		// What it has read says how much it may read on.
		share = min(share, 8*read)
	}
	s.far = s.hint == Scan || read >= backfill*r.o.RunBytes
	if !s.far {
		unit = min(unit, r.o.RunBytes/2)
	}
	if paced {
		// It needs each chunk at its time, and nothing else from the store: one that is
		// behind others in a run comes as late as they do.
		unit = chunk
		runs = max(runs, min(share/unit, maxRuns))
	}
	for unit > chunk && unit*runs > share {
		// Short of memory, fewer runs. But where connections are slow, the reader waits
		// long for the end of each run, and more and shorter ones serve it better.
		if runs > 2 && (rate >= slowConnection || rate > 0 && float64(unit)/rate < shortRun.Seconds()) {
			runs /= 2
		} else {
			unit /= 2
		}
	}
	s.grows = runs >= int64(s.search.runs()) && (2*runs*unit <= share || rate < slowConnection && unit > chunk)
	s.unit = max(unit, chunk)
	s.window = min(s.unit*runs*3/2, share) // what has come and is not read yet is no run in flight
	return s.window >= chunk
}

const (
	// slowConnection is a rate, in bytes/s, far below what object stores give.
	slowConnection = 32 << 20
	// shortRun is how long a run may take on a slow connection if more of them are
	// wanted than there is memory for.
	shortRun = 150 * time.Millisecond
)

// wait is how long a read waited for the store.
type wait struct {
	began  time.Time // zero: not at all
	stream bool      // that is fetched ahead for
}

// ask asks for what a read needs, up to limit bytes from where its offset may be,
// in chunk c, and for what comes behind it if it is one of a sequence: the demand first.
// Nothing is waited for.
func (rd *reading) ask(ctx context.Context, req *Request, at *place, c int, offset, limit int64, in *holding) (w wait) {
	r, p, last := rd.r, &in.pins, in.stream
	in.stream = nil
	t := p.t
	if c == len(t.Table.Chunks) {
		return w
	}
	to := t.chunk(min(t.Table.Chunks[c].FirstBatch+limit, t.Table.LogSize())-1) + 1
	p.restart(c)
	s := rd.follow(req, last, t, at, offset, c, to, in)
	in.stream = s
	if s != nil {
		defer s.mu.Unlock()
	}
	if s != nil {
		p.whose.class, p.whose.stream = s.class(), s.id
	}
	fills := r.acquire(p, to-1, nil)
	if n := len(p.leases); n > 0 && !p.leases[n-1].Ready() {
		w.began = time.Now()
		if s != nil {
			s.reading++
		}
	} else if s != nil {
		s.reading = 0 // those that failed had not told
	}
	chunk := t.Table.ChunkSize
	if s == nil || len(fills) == 0 && (s.at < s.retry || s.window > 0 && s.front-s.at+s.unit > s.window) || !r.plan(s, chunk) {
		if len(fills) > 0 {
			r.start(ctx, t, fills, r.demand(t, p.whose), nil)
		}
		return w
	}
	w.stream = true
	pl := s.order(chunk, r.gap(chunk), s.class(), rd.tenant)
	if n := len(fills); n > 0 {
		l := &s.way[0]
		for _, f := range fills {
			c := int(f.Key().Chunk)
			if pos := l.start + t.Table.Start(c); s.window > 0 && pos < s.was && !t.again(c) {
				r.lost(t.Table.Len(c)) // it was here, and went before it was read
			}
		}
		if int(fills[n-1].Key().Chunk) == to-1 && to < l.stop {
			// What is demanded is the beginning of a run.
			run := nextRun(to, l.stop, pl.unit, int(s.window/chunk))
			if to%pl.unit == 0 {
				run.to = run.from // it was the end of one
			}
			for c := run.from; c < run.to; c++ {
				fill, led, ok := r.lead(t, c, s.id)
				if !ok {
					break
				}
				if led {
					fills = append(fills, fill)
					r.note(s, l, c)
				}
				s.front = max(s.front, l.start+min(t.Table.Start(c+1), t.Table.LogSize()))
			}
		}
		s.fly(r.start(ctx, t, fills, pl, nil))
	}
	rd.more(ctx, s)
	return w
}

// served notes that a read has its bytes, however long that took.
func (r *Reader) served(s *stream, w *wait, bytes int64) {
	if s == nil {
		return
	}
	var stalled time.Duration
	if !w.began.IsZero() {
		stalled = time.Since(w.began)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if stalled > 0 {
		s.reading = max(s.reading-1, 0)
		s.stalled, s.waited = stalled, w.began.Add(stalled)
	}
	if s.window > 0 && s.search.read(bytes, stalled, s.window) {
		s.search.judge(time.Now(), s.grows)
	}
}

// more fetches ahead of s, which is locked, as far as its window allows.
func (rd *reading) more(ctx context.Context, s *stream) {
	for {
		last := &s.way[len(s.way)-1]
		table := &last.t.Table
		left := int64(last.stop)*table.ChunkSize + last.start - s.front
		// The next segment's tail is there before its data is wanted.
		var next *tail
		var at place
		if left <= s.window {
			next = rd.nextTail(ctx, s, last.upper, &at)
		}
		c := last.chunk(s.front)
		if c >= last.stop {
			if next == nil {
				if at.id == (segment.UUID{}) {
					s.retry = s.at + s.unit/2 // the tier ends here, for now
				}
				return
			}
			start := last.start + table.LogSize()
			s.way = append(s.way, leg{t: next, start: start, upper: at.upper, stop: at.stop(next)})
			s.front = start + next.Table.Start(next.Table.ForOffset(last.upper))
			continue
		}
		room := int((s.window - (s.front - s.at)) / table.ChunkSize)
		run := nextRun(c, last.stop, s.runChunks(table.ChunkSize), room)
		if run.len() == 0 {
			return
		}
		if !rd.r.runAhead(ctx, s, last, run, rd.tenant) {
			s.retry = s.at + table.ChunkSize // no memory now
			return
		}
	}
}

// runChunks returns how many chunks are in a run of the stream.
func (s *stream) runChunks(chunk int64) int { return int(max(s.unit/chunk, 1)) }

// class is whose turn a stream's demand is.
func (s *stream) class() endpoint.Class {
	if s.catchesUp() {
		return endpoint.BackfillDemand
	}
	return endpoint.TailDemand
}

// aheadClass is whose turn what is fetched ahead of it is.
func (s *stream) aheadClass() endpoint.Class {
	if s.hint == Scan || s.hint != Tail && (s.hurry > 0 || s.at-s.from < keepsPace) {
		return endpoint.Prefetch
	}
	return endpoint.TailPrefetch
}

// catchesUp says that the stream takes whatever it can get. That it has read much
// is not enough, since so has whoever reads at the tail for long.
func (s *stream) catchesUp() bool {
	switch s.hint {
	case Tail:
		return false
	case Scan:
		return true
	default:
		return s.far && s.hurry > 0
	}
}

const (
	// keepsPace is how much a stream has read before it is believed to keep pace.
	keepsPace = 4 << 20
	// atOnce is the longest pause of a reader that is in a hurry.
	atOnce = 10 * time.Millisecond
)

// pace learns from a read that begins whether its reader is in a hurry: whether it
// came back at once from a wait, or took its time. Who does not wait for the store says nothing,
// and is in nobody's way.
func (s *stream) pace() {
	sample := -1.0
	switch {
	case s.reading > 0: // several at a time, as they come
	case s.stalled == 0:
		return
	case time.Since(s.waited) < min(s.stalled/4, atOnce):
		sample = 1
	}
	s.stalled = 0
	s.hurry += (sample - s.hurry) / 8
}

// backfill is after how many of the longest runs in sequence a reader is taken for
// one that catches up: it wants a rate more than a quick answer.
const backfill = 2

// order plans GETs for the stream.
func (s *stream) order(chunk int64, gap int, class endpoint.Class, tenant string) order {
	return order{planner{unit: s.runChunks(chunk), gap: gap, grid: true}, whose{class, s.id, tenant}}
}

// nextTail moves to the segment that holds offset, and returns its tail if that is in
// memory; else it has it loaded, for s, which is locked. Both are zero at the end of the
// tier.
func (rd *reading) nextTail(ctx context.Context, s *stream, offset int64, at *place) *tail {
	if !rd.at(offset, at) || at.id == s.next && s.at < s.again && !rd.r.tails.has(at.id) {
		return nil
	}
	t, ready, isNew := rd.r.tails.join(at.id)
	if isNew {
		s.next, s.again = at.id, s.at+s.unit/2
		rd.r.load(ctx, t, rd.segment(at), rd.tenant)
	}
	if !ready || len(t.Table.Chunks) == 0 {
		return nil
	}
	return t
}

// runAhead fetches one run ahead of s, as far as it is not here, if there is
// memory. It is false if there is not.
func (r *Reader) runAhead(ctx context.Context, s *stream, l *leg, run span, tenant string) bool {
	var fills []cache.Fill
	t, ok := l.t, true
	for c := run.from; c < run.to && ok; c++ {
		var fill cache.Fill
		var led bool
		if fill, led, ok = r.lead(t, c, s.id); led {
			fills = append(fills, fill)
			r.note(s, l, c)
		}
		if ok {
			s.front = l.start + min(t.Table.Start(c+1), t.Table.LogSize())
		}
	}
	if len(fills) > 0 {
		s.fly(r.start(ctx, t, fills, s.order(t.Table.ChunkSize, r.gap(t.Table.ChunkSize), s.aheadClass(), tenant), nil))
	}
	return ok
}

// note writes down that chunk c is fetched for s.
func (r *Reader) note(s *stream, l *leg, c int) {
	p := piece{l.start + l.t.Table.Start(c), l.start + min(l.t.Table.Start(c+1), l.t.Table.LogSize())}
	r.stats.ahead.Add(p.to - p.from)
	r.waste.note(p.to-p.from, 0, r.cache.MemoryBytes())
	if n := len(s.issued); n > 0 && s.issued[n-1].to == p.from {
		s.issued[n-1].to = p.to
		return
	}
	s.issued = append(s.issued, p)
}

// lead takes on the fill of a chunk that nobody waits for, for a stream, unless it is
// here or on its way. It is not ok if there is no memory.
func (r *Reader) lead(t *tail, c int, stream uint64) (fill cache.Fill, led, ok bool) {
	key := cache.Key{Object: t.id, Chunk: uint32(c)}
	if r.cache.Has(key) {
		t.share(c, stream)
		return fill, false, true
	}
	var room cache.Reservation
	n := t.Table.Len(c)
	if !r.cache.TryReserve(n, &room) {
		return fill, false, false
	}
	var l cache.Lease
	outcome, fill := r.cache.Acquire(key, int(n), &room, &l)
	l.Release()
	room.Release() // somebody else led meanwhile
	if outcome == cache.Led {
		t.place(fill)
	}
	return fill, outcome == cache.Led, outcome != cache.Missing
}

// waste is the share of what is fetched ahead that nobody reads.
type waste struct {
	mu    sync.Mutex
	spent float64 // bytes fetched ahead, fading
	lost  float64 // of those, in vain
}

// memoryOfWaste is over how many bytes waste is averaged, at most: no more than the
// budget, lest a small cache be filled many times with what nobody reads before that is
// noticed.
const memoryOfWaste = 256 << 20

func (w *waste) note(spent, lost, budget int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fade := 1 - min(float64(spent)/float64(min(memoryOfWaste, budget)), 1)
	w.spent = w.spent*fade + float64(spent)
	w.lost = w.lost*fade + float64(lost)
}

// brake returns how often what is fetched ahead is to be halved: not at all as
// long as a tenth of it is in vain at most.
func (w *waste) brake(budget int64) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.spent < float64(min(memoryOfWaste, budget)/8) { // too little to judge
		return 0
	}
	switch share := w.lost / w.spent; {
	case share > .4:
		return 3
	case share > .2:
		return 2
	case share > .1:
		return 1
	}
	return 0
}
