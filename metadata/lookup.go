package metadata

import (
	"math"

	"github.com/segtier/segtier/segment"
)

// Lineage returns the newest history of leader epochs that the segments tell,
// in whatever state they are or were: where two disagree, the later epoch is
// right. Empty if there is no segment. It is shared and must not be modified.
func (v *View) Lineage() segment.Lineage { return v.lineage }

func (v *View) resolve(lineage segment.Lineage) segment.Lineage {
	if lineage == nil {
		return v.lineage
	}
	return lineage
}

// Lookup returns the FINISHED segment that covers offset in the lineage.
func (v *View) Lookup(lineage segment.Lineage, offset int64) (Segment, bool) {
	r, ok := v.lookup(v.resolve(lineage), offset)
	if !ok {
		return Segment{}, false
	}
	return r.unpack(v.partition), true
}

// Reach is a segment as far as reading an offset of it concerns.
type Reach struct {
	ID                     segment.UUID
	StartOffset, EndOffset int64 // of the segment, inclusive

	// Last is the offset up to which, from the one that was asked for on, the segment
	// may be read in the lineage, inclusive: see [Segment.Along].
	Last int64
}

// Reach is Lookup for who asks at every read: it says what of the segment is to be
// read, and unpacks nothing else.
func (v *View) Reach(lineage segment.Lineage, offset int64) (Reach, bool) {
	lineage = v.resolve(lineage)
	r, ok := v.lookup(lineage, offset)
	if !ok {
		return Reach{}, false
	}
	w := r.row()
	_, last, _ := r.along(lineage, offset)
	return Reach{w.id, w.start, w.end, last}, true
}

func (v *View) lookup(lineage segment.Lineage, offset int64) (best ref, found bool) {
	epoch, ok := lineage.EpochFor(offset)
	if !ok {
		return ref{}, false
	}
	// Mostly one segment covers an offset, and that is known without looking at
	// others.
	x := v.finished
	at := above(x.firsts, offset) - 1
	if at < 0 {
		return ref{}, false
	}
	d := &x.dirs[at]
	r := ref{d.block, d.block.above(offset) - 1}
	if w := r.row(); w.reach < offset && d.before < offset {
		have, ok := r.epochFor(offset)
		return r, w.end >= offset && ok && have == epoch
	}
	var order uint64
	c := lookBack{x: x, block: at, i: r.i, reaching: offset}
	for r, ok := c.next(); ok; r, ok = c.next() {
		if o := r.row().order; o > order {
			if have, ok := r.epochFor(offset); ok && have == epoch {
				best, order, found = r, o, true
			}
		}
	}
	return best, found
}

// Next returns the segment that covers offset in the lineage, or else the one
// that covers the smallest offset after it: where to go on reading behind a gap
// or a segment's end. [Segment.Along] says at which offset.
func (v *View) Next(lineage segment.Lineage, offset int64) (Segment, bool) {
	r, _, ok := v.next(v.resolve(lineage), offset)
	if !ok {
		return Segment{}, false
	}
	return r.unpack(v.partition), true
}

// next is Next with the offset that the segment covers.
func (v *View) next(lineage segment.Lineage, offset int64) (best ref, at int64, ok bool) {
	at = math.MaxInt64
	before := v.finished.lookBack(offset, offset)
	for r, ok := before.next(); ok; r, ok = before.next() {
		best, at = nearer(best, at, r, lineage, offset)
	}
	after := v.finished.after(offset)
	for r, ok := after.next(); ok && r.row().start <= at; r, ok = after.next() {
		best, at = nearer(best, at, r, lineage, offset)
	}
	return best, at, best.b != nil
}

// nearer returns r if it covers an offset from offset on that is smaller than
// at, which best covers, or the same one and was FINISHED later.
func nearer(best ref, at int64, r ref, lineage segment.Lineage, offset int64) (ref, int64) {
	first, _, ok := r.along(lineage, offset)
	if !ok || first > at || first == at && best.b != nil && r.row().order < best.row().order {
		return best, at
	}
	return r, first
}

// Earliest returns the segment that covers the smallest offset of the lineage
// in the tier, whatever the log start is.
func (v *View) Earliest(lineage segment.Lineage) (Segment, bool) {
	return v.Next(lineage, 0)
}

// Latest returns the segment that covers the greatest offset of the lineage in
// the tier.
func (v *View) Latest(lineage segment.Lineage) (Segment, bool) {
	r, _, ok := v.latest(v.resolve(lineage))
	if !ok {
		return Segment{}, false
	}
	return r.unpack(v.partition), true
}

func (v *View) latest(lineage segment.Lineage) (best ref, greatest int64, ok bool) {
	greatest = -1
	c := v.finished.lookBack(math.MaxInt64, 0)
	for r, ok := c.next(); ok; r, ok = c.next() {
		last, ok := lastAlong(r.epochs(), r.row().end, lineage)
		if ok && (last > greatest || last == greatest && r.row().order > best.row().order) {
			best, greatest = r, last
			c.reaching = last
		}
	}
	return best, greatest, best.b != nil
}

// EarliestOffset returns the smallest offset of the lineage that is in the tier
// and not below the log start, and its leader epoch.
func (v *View) EarliestOffset(lineage segment.Lineage) (offset int64, epoch int32, ok bool) {
	lineage = v.resolve(lineage)
	if _, offset, ok = v.next(lineage, v.logStart); ok {
		epoch, ok = lineage.EpochFor(offset)
	}
	return offset, epoch, ok
}

// LatestOffset returns the greatest offset of the lineage that is in the tier,
// and its leader epoch: Kafka's latest tiered offset.
func (v *View) LatestOffset(lineage segment.Lineage) (offset int64, epoch int32, ok bool) {
	lineage = v.resolve(lineage)
	if _, offset, ok = v.latest(lineage); ok {
		epoch, ok = lineage.EpochFor(offset)
	}
	return offset, epoch, ok
}

// CopiedUpTo returns the last offset of the unbroken run of covered offsets that
// begins with the earliest one, -1 if none is covered: the host may delete local
// data up to there. It takes blocks of segments that follow each other at once,
// so a million segments cost some thousand steps.
func (v *View) CopiedUpTo(lineage segment.Lineage) int64 {
	lineage = v.resolve(lineage)
	end := int64(-1)
	r, at, ok := v.next(lineage, 0)
	for ok && (end < 0 || at == end+1) {
		if _, end, _ = r.along(lineage, at); end == math.MaxInt64 {
			break
		}
		end = v.skipBlocks(lineage, end)
		r, at, ok = v.next(lineage, end+1)
	}
	return end
}

// skipBlocks returns the end of the whole blocks that go on behind end, one after
// the other, and that the lineage covers; end itself if there are none.
func (v *View) skipBlocks(lineage segment.Lineage, end int64) int64 {
	at := v.finished.after(end)
	if at.i > 0 { // the rest of this block is as good as a whole one
		b := v.finished.dirs[at.block].block
		if b.history == nil || b.starts[at.i] != end+1 || !agrees(b, end+1, lineage) {
			return end
		}
		end = b.end
		at.block++
	}
	for ; at.block < len(v.finished.dirs); at.block++ {
		b := v.finished.dirs[at.block].block
		if v.finished.firsts[at.block] != end+1 || b.history == nil || !agrees(b, end+1, lineage) {
			break
		}
		end = b.end
	}
	return end
}

// agrees reports whether the lineage covers all offsets of a block from `from` on.
func agrees(b *block, from int64, lineage segment.Lineage) bool {
	first, last, ok := along(b.history, b.end, lineage, from)
	return ok && first == from && last == b.end
}

// Deleting returns a segment that covers offset in the lineage and is in
// DELETE_SEGMENT_STARTED, where one is. There may be several: copies that were
// given up, and were never readable, beside one that was. which says which of them
// is looked for; nil is any.
func (v *View) Deleting(lineage segment.Lineage, offset int64, which func(*Segment) bool) (Segment, bool) {
	lineage = v.resolve(lineage)
	c := v.others.lookBack(offset, offset)
	for r, ok := c.next(); ok; r, ok = c.next() {
		if r.row().state == DeleteSegmentStarted {
			if first, _, ok := r.along(lineage, offset); ok && first == offset {
				if seg := r.unpack(v.partition); which == nil || which(&seg) {
					return seg, true
				}
			}
		}
	}
	return Segment{}, false
}

// NextWithTxnIndex goes from offset on along the lineage, over segments that are
// known to hold no aborted transaction, to the first one that may. Not ok: there
// is none before upTo, the first offset that the tier does not have. At and
// beyond it transaction indexes must be searched elsewhere.
func (v *View) NextWithTxnIndex(lineage segment.Lineage, offset int64) (seg Segment, upTo int64, ok bool) {
	lineage = v.resolve(lineage)
	for {
		r, ok := v.lookup(lineage, offset)
		if !ok {
			return Segment{}, offset, false
		}
		if !r.row().txnEmpty {
			return r.unpack(v.partition), offset, true
		}
		_, last, _ := r.along(lineage, offset)
		if last == math.MaxInt64 {
			return Segment{}, last, false
		}
		offset = last + 1
	}
}

// Greatest returns the FINISHED segment with the greatest timestamp of those
// that cover an offset of the lineage; of equals the one with the least start.
func (v *View) Greatest(lineage segment.Lineage) (Segment, bool) {
	lineage = v.resolve(lineage)
	var best ref
	for i := range v.finished.dirs {
		b := v.finished.dirs[i].block
		if best.b != nil && b.maxTime <= best.row().maxTime {
			continue
		}
		for j := range b.rows {
			r := ref{b, j}
			if best.b != nil && r.row().maxTime <= best.row().maxTime {
				continue
			}
			if _, _, ok := r.along(lineage, 0); ok {
				best = r
			}
		}
	}
	if best.b == nil {
		return Segment{}, false
	}
	return best.unpack(v.partition), true
}
