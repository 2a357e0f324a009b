package metadata

import (
	"cmp"
	"math"
	"slices"

	"github.com/segtier/segtier/segment"
)

// Exactly returns the segments of exactly this range, in every state but
// DELETE_SEGMENT_FINISHED: the FINISHED ones, and then the others.
func (v *View) Exactly(start, end int64) (segs []*Segment) {
	for _, x := range [...]offsetIndex{v.finished, v.others} {
		c := x.lookBack(start, end)
		for r, ok := c.next(); ok && r.row().start == start; r, ok = c.next() {
			if r.row().end == end {
				s := r.unpack(v.partition)
				segs = append(segs, &s)
			}
		}
	}
	return segs
}

// Started returns the copies in flight of exactly this range that this writer
// has announced, in no particular order. Where the store does not keep leader
// epochs, the broker alone decides.
func (v *View) Started(w Writer, start, end int64) (segs []*Segment) {
	for _, s := range v.Exactly(start, end) {
		if s.State == CopySegmentStarted && s.BrokerID == w.BrokerID &&
			(s.LeaderEpoch == w.LeaderEpoch || s.LeaderEpoch == -1) {
			segs = append(segs, s)
		}
	}
	return segs
}

// Finished returns the FINISHED segments in the order of their FINISHED events:
// the order in which NewView wants them.
func (v *View) Finished() []*Segment {
	refs := make([]ref, 0, v.count)
	c := cursor{x: v.finished}
	for r, ok := c.next(); ok; r, ok = c.next() {
		refs = append(refs, r)
	}
	slices.SortFunc(refs, func(a, b ref) int { return cmp.Compare(a.row().order, b.row().order) })
	return v.unpackAll(refs)
}

func (v *View) unpackAll(refs []ref) []*Segment {
	segs := make([]*Segment, len(refs))
	for i, r := range refs {
		s := r.unpack(v.partition)
		segs[i] = &s
	}
	return segs
}

// HighestOffset returns the greatest offset of a leader epoch that was ever
// FINISHED. Deletions do not reduce it. Not ok: none was.
func (v *View) HighestOffset(epoch int32) (int64, bool) {
	i, ok := v.epochs.find(epoch)
	if !ok || v.epochs[i].Highest < 0 {
		return -1, false
	}
	return v.epochs[i].Highest, true
}

// EpochEnd returns the first offset after a leader epoch of the newest history
// that the metadata tells: where the next one begins; after the latest, behind
// its highest offset. Not ok: the history does not have the epoch, or nothing
// says how far the latest one goes.
func (v *View) EpochEnd(epoch int32) (int64, bool) {
	end, ok := v.lineage.EndOf(epoch)
	if !ok || end != math.MaxInt64 {
		return end, ok
	}
	highest, ok := v.HighestOffset(epoch)
	return highest + 1, ok
}

// ByEpoch returns the segments that have offsets of a leader epoch, in every
// state but DELETE_SEGMENT_FINISHED, ascending by StartOffset; of those with the
// same start, the referenced ones first. It is Kafka's list of an epoch.
func (v *View) ByEpoch(epoch int32) []*Segment {
	referenced, unreferenced := v.split(epoch)
	refs := append(referenced, unreferenced...)
	slices.SortStableFunc(refs, func(a, b ref) int { return cmp.Compare(a.row().start, b.row().start) })
	return v.unpackAll(refs)
}

// Referenced divides what ByEpoch returns, every segment into exactly one of
// two: referenced are FINISHED segments that a lookup in this epoch finds for
// some offset; unreferenced are those that later ones have superseded, and those
// in other states. Both ascend by StartOffset.
func (v *View) Referenced(epoch int32) (referenced, unreferenced []*Segment) {
	r, u := v.split(epoch)
	return v.unpackAll(r), v.unpackAll(u)
}

// span is a range of offsets, inclusive, and the segment that it is of.
type span struct {
	ref
	lo, hi int64
}

func (v *View) split(epoch int32) (referenced, unreferenced []ref) {
	finished := v.spans(v.finished, epoch)
	others := v.spans(v.others, epoch)
	// The one that was FINISHED last has all its offsets, the one before what is
	// left, and so on.
	slices.SortFunc(finished, func(a, b span) int { return cmp.Compare(b.row().order, a.row().order) })
	var taken spanSet
	for _, s := range finished {
		if taken.add(s.lo, s.hi) {
			referenced = append(referenced, s.ref)
		} else {
			unreferenced = append(unreferenced, s.ref)
		}
	}
	for _, s := range others {
		unreferenced = append(unreferenced, s.ref)
	}
	byStart := func(a, b ref) int {
		w := b.row()
		return compareRow(a.row(), w.start, &w.id)
	}
	slices.SortFunc(referenced, byStart)
	slices.SortFunc(unreferenced, byStart)
	return referenced, unreferenced
}

// spans returns the offsets that segments of an index have in an epoch.
func (v *View) spans(x offsetIndex, epoch int32) (spans []span) {
	i, ok := v.epochs.find(epoch)
	if !ok {
		return nil
	}
	c := x.lookBack(v.epochs[i].last, v.epochs[i].Start)
	for r, ok := c.next(); ok; r, ok = c.next() {
		epochs := r.epochs()
		if j, ok := findEpoch(epochs, epoch); ok {
			if lo, hi := epochRange(epochs, r.row().end, j); lo <= hi {
				spans = append(spans, span{r, lo, hi})
			}
		}
	}
	return spans
}

// spanSet is a set of offsets: ranges that do not touch, ascending.
type spanSet []struct{ lo, hi int64 }

// add adds a range and reports whether any of it was new.
func (s *spanSet) add(lo, hi int64) bool {
	t := *s
	// Those from i to before j touch the range.
	i, _ := slices.BinarySearchFunc(t, lo, func(x struct{ lo, hi int64 }, lo int64) int {
		if x.hi < lo && x.hi+1 < lo {
			return -1
		}
		return 1
	})
	j := i
	if i < len(t) && t[i].lo <= lo && t[i].hi >= hi {
		return false
	}
	n := struct{ lo, hi int64 }{lo, hi}
	for ; j < len(t) && t[j].lo <= max(hi, hi+1); j++ {
		n.lo, n.hi = min(n.lo, t[j].lo), max(n.hi, t[j].hi)
	}
	*s = slices.Replace(t, i, j, n)
	return true
}

// Size returns how many bytes of log the FINISHED segments have, each counted
// once, and how many they are. It costs nothing.
func (v *View) Size() (bytes int64, segments int) { return v.bytes, v.count }

// SizeWithin is Size of those segments alone that are whole in the lineage
// ([Segment.Within]): what Kafka's retention by size counts.
func (v *View) SizeWithin(lineage segment.Lineage) (bytes int64, segments int) {
	lineage = v.resolve(lineage)
	c := cursor{x: v.finished}
	for r, ok := c.next(); ok; r, ok = c.next() {
		if within(r.epochs(), r.row().end, lineage) {
			bytes += int64(r.row().size)
			segments++
		}
	}
	return bytes, segments
}

// EpochSize is Kafka's remoteLogSize: the sum over what ByEpoch returns, in every
// state, and so counts a segment in each of its epochs. It is for comparison with
// Kafka; what retention counts is SizeWithin.
func (v *View) EpochSize(epoch int32) (bytes int64) {
	for _, x := range [...]offsetIndex{v.finished, v.others} {
		for _, s := range v.spans(x, epoch) {
			bytes += int64(s.row().size)
		}
	}
	return bytes
}
