package metadata

import (
	"fmt"
	"iter"
	"math"

	"github.com/segtier/segtier/segment"
)

// View is a partition's metadata at one moment. It is immutable: it may be read
// by any number of goroutines, without locks, for as long as they like. No
// lookup allocates.
//
// # Which segment has an offset
//
// A lineage says which leader epoch an offset belongs to; a segment says the
// same of the offsets it holds. A FINISHED segment covers an offset for a
// lineage if both name the same epoch ([Segment.Along]). Where several do, the
// one that was FINISHED last counts, as in Kafka, except that Kafka looks only
// at the segment with the greatest start and so loses offsets behind a short
// segment; here every FINISHED segment that covers an offset is looked at.
//
// A nil lineage means the newest history that the metadata itself tells
// ([View.Lineage]). It is a guess where an unclean election happened below
// offsets that were never tiered; a broker gives its own.
//
// # What it holds
//
// Every segment whose id was ever seen: superseded ones, unfinished ones, and,
// by Get alone, those that have ended.
type View struct {
	partition segment.Partition
	finished  offsetIndex // COPY_SEGMENT_FINISHED
	others    offsetIndex // COPY_SEGMENT_STARTED and DELETE_SEGMENT_STARTED
	ids       idIndex     // all, ended ones too
	epochs    epochRows
	lineage   segment.Lineage // of epochs
	order     uint64          // FINISHED events seen
}

// NewView returns a View of the segments. FINISHED ones are taken to have been
// FINISHED in the order given. The segments are shared with the View and must
// not be modified any more; they must all belong to p.
func NewView(p segment.Partition, segs ...*Segment) *View {
	latest := make(map[segment.UUID]entry, len(segs))
	v := &View{partition: p}
	for _, s := range segs {
		old, known := latest[s.ID]
		latest[s.ID] = v.number(s, old, known)
		v.epochs, _ = v.epochs.with(s)
	}
	v.lineage = v.epochs.lineage()
	var finished, others []entry
	ids := make([]entry, 0, len(latest))
	for _, e := range latest {
		ids = append(ids, e)
		switch e.seg.State {
		case CopySegmentFinished:
			finished = append(finished, e)
		case CopySegmentStarted, DeleteSegmentStarted:
			others = append(others, e)
		default: // ended: its id alone is kept
		}
	}
	v.finished, v.others, v.ids = newOffsetIndex(finished), newOffsetIndex(others), newIDIndex(ids)
	return v
}

// With returns the View after s took the place of the segment with its id, or
// was added. What may follow what is for [Step] to say, not checked here. s is
// shared with the View and must not be modified any more.
func (v *View) With(s *Segment) *View {
	n := *v
	old, known := v.ids.get(&s.ID)
	e := n.number(s, old, known)
	n.ids = v.ids.with(e)
	if known {
		switch old.seg.State {
		case CopySegmentFinished:
			n.finished = n.finished.without(old.seg)
		case CopySegmentStarted, DeleteSegmentStarted:
			n.others = n.others.without(old.seg)
		default: // ended ids are in no index
		}
	}
	switch s.State {
	case CopySegmentFinished:
		n.finished = n.finished.with(e)
	case CopySegmentStarted, DeleteSegmentStarted:
		n.others = n.others.with(e)
	default: // ended ids are in no index
	}
	var moved bool
	if n.epochs, moved = v.epochs.with(s); moved {
		n.lineage = n.epochs.lineage()
	}
	return &n
}

// number gives s its place in the order of FINISHED events. A repeated one keeps
// its place: a replay must not hide what was FINISHED since.
func (v *View) number(s *Segment, old entry, known bool) entry {
	if s.Partition != v.partition {
		panic(fmt.Sprintf("metadata: segment of %s given to the View of %s", s.Partition, v.partition))
	}
	switch {
	case s.State != CopySegmentFinished:
		return entry{seg: s}
	case known && old.seg.State == CopySegmentFinished:
		return entry{seg: s, order: old.order}
	}
	v.order++
	return entry{seg: s, order: v.order}
}

// Partition returns the partition.
func (v *View) Partition() segment.Partition { return v.partition }

// Get returns a segment by its id, in whatever state it is. A segment that has
// ended (DELETE_SEGMENT_FINISHED) is found for as long as the store remembers
// it, maybe without its custom metadata.
func (v *View) Get(id segment.UUID) (*Segment, bool) {
	e, ok := v.ids.get(&id)
	return e.seg, ok
}

// All yields the segments in every state but DELETE_SEGMENT_FINISHED, ascending
// by StartOffset.
func (v *View) All() iter.Seq[*Segment] {
	return func(yield func(*Segment) bool) {
		fs, os := cursor{x: v.finished}, cursor{x: v.others}
		f, haveF := fs.next()
		o, haveO := os.next()
		for haveF || haveO {
			var s *Segment
			if !haveO || haveF && compareOffsets(f, o) < 0 {
				s = f.seg
				f, haveF = fs.next()
			} else {
				s = o.seg
				o, haveO = os.next()
			}
			if !yield(s) {
				return
			}
		}
	}
}

// Lineage returns the newest history of leader epochs that the segments tell,
// in whatever state they are or were: where two disagree, the later epoch is
// right. Empty if there is no segment. It is shared and must not be modified.
func (v *View) Lineage() segment.Lineage { return v.lineage }

// HighestOffset returns the greatest offset of a leader epoch that was ever
// FINISHED. Deletions do not reduce it. Not ok: none was.
func (v *View) HighestOffset(epoch int32) (int64, bool) {
	for _, r := range v.epochs { // a handful; and asked once per task, not per read
		if r.epoch == epoch {
			return r.highest, r.highest >= 0
		}
	}
	return -1, false
}

// Lookup returns the FINISHED segment that covers offset in the lineage.
func (v *View) Lookup(lineage segment.Lineage, offset int64) (*Segment, bool) {
	if lineage == nil {
		lineage = v.lineage
	}
	epoch, ok := lineage.EpochFor(offset)
	if !ok {
		return nil, false
	}
	var best entry
	c := v.finished.lookBack(offset, offset)
	for e, ok := c.next(); ok; e, ok = c.next() {
		if e.order > best.order {
			if have, ok := e.seg.Epochs.EpochFor(offset); ok && have == epoch {
				best = e
			}
		}
	}
	return best.seg, best.seg != nil
}

// Next returns the segment that covers offset in the lineage, or else the one
// that covers the smallest offset after it: where to go on reading behind a gap
// or a segment's end. [Segment.Along] says at which offset.
func (v *View) Next(lineage segment.Lineage, offset int64) (*Segment, bool) {
	e, _, ok := v.next(v.resolve(lineage), offset)
	return e.seg, ok
}

// next is Next with the offset that the segment covers.
func (v *View) next(lineage segment.Lineage, offset int64) (best entry, at int64, ok bool) {
	at = math.MaxInt64
	before := v.finished.lookBack(offset, offset)
	for e, ok := before.next(); ok; e, ok = before.next() {
		best, at = nearer(best, at, e, lineage, offset)
	}
	after := v.finished.after(offset)
	for e, ok := after.next(); ok && e.seg.StartOffset <= at; e, ok = after.next() {
		best, at = nearer(best, at, e, lineage, offset)
	}
	return best, at, best.seg != nil
}

// nearer returns e if it covers an offset from offset on that is smaller than
// at, which best covers, or the same one and was FINISHED later.
func nearer(best entry, at int64, e entry, lineage segment.Lineage, offset int64) (entry, int64) {
	first, _, ok := e.seg.Along(lineage, offset)
	if !ok || first > at || first == at && e.order < best.order {
		return best, at
	}
	return e, first
}

// Earliest returns the segment that covers the smallest offset of the lineage
// in the tier.
func (v *View) Earliest(lineage segment.Lineage) (*Segment, bool) {
	return v.Next(lineage, 0)
}

// Latest returns the segment that covers the greatest offset of the lineage in
// the tier.
func (v *View) Latest(lineage segment.Lineage) (*Segment, bool) {
	lineage = v.resolve(lineage)
	var best entry
	greatest := int64(-1)
	c := v.finished.lookBack(math.MaxInt64, 0)
	for e, ok := c.next(); ok; e, ok = c.next() {
		last, ok := e.seg.lastAlong(lineage)
		if ok && (last > greatest || last == greatest && e.order > best.order) {
			best, greatest = e, last
			c.reaching = last
		}
	}
	return best.seg, best.seg != nil
}

// CopiedUpTo returns the last offset of the unbroken run of covered offsets that
// begins with the earliest one, -1 if none is covered: the host may delete local
// data up to there.
func (v *View) CopiedUpTo(lineage segment.Lineage) int64 {
	lineage = v.resolve(lineage)
	end := int64(-1)
	e, at, ok := v.next(lineage, 0)
	for ok && (end < 0 || at == end+1) {
		if _, end, _ = e.seg.Along(lineage, at); end == math.MaxInt64 {
			break
		}
		e, at, ok = v.next(lineage, end+1)
	}
	return end
}

// Started returns the copies in flight of exactly this range that this writer
// has announced, in no particular order. Where the store does not keep leader
// epochs, the broker alone decides.
func (v *View) Started(w Writer, start, end int64) []*Segment {
	var found []*Segment
	c := v.others.lookBack(start, end)
	for e, ok := c.next(); ok && e.seg.StartOffset == start; e, ok = c.next() {
		s := e.seg
		if s.State == CopySegmentStarted && s.EndOffset == end && s.BrokerID == w.BrokerID &&
			(s.LeaderEpoch == w.LeaderEpoch || s.LeaderEpoch == -1) {
			found = append(found, s)
		}
	}
	return found
}

func (v *View) resolve(lineage segment.Lineage) segment.Lineage {
	if lineage == nil {
		return v.lineage
	}
	return lineage
}
