package metadata

import (
	"math"

	"github.com/segtier/segtier/segment"
)

// Along returns the first run of offsets, at or after from, on which the
// segment and the history l agree about the leader epoch: first to last,
// inclusive. Those are the offsets that may be read out of the segment by
// somebody with this history; a segment copied before an unclean election may
// agree with it only in part. Not ok: there are none.
//
// That the epoch alone decides is Kafka's rule: a leader epoch has one leader,
// so two logs that hold an offset in the same epoch are equal up to there.
func (s *Segment) Along(l segment.Lineage, from int64) (first, last int64, ok bool) {
	return along(s.Epochs, s.EndOffset, l, from)
}

// along is Along of a segment with these epochs and this end.
func along(epochs segment.Lineage, segEnd int64, l segment.Lineage, from int64) (first, last int64, ok bool) {
	for i := range epochs {
		lo, hi := epochRange(epochs, segEnd, i)
		start, end, known := epochSpan(l, epochs[i].Epoch)
		if !known {
			continue
		}
		lo, hi = max(lo, start), min(hi, end)
		if !ok {
			lo = max(lo, from)
		}
		switch {
		case lo > hi:
			continue // no offsets in common, or all before from
		case !ok:
			first, last, ok = lo, hi, true
		case lo == last+1:
			last = hi
		default:
			return first, last, true
		}
	}
	return first, last, ok
}

// lastAlong returns the greatest offset on which a segment agrees with l.
func lastAlong(epochs segment.Lineage, segEnd int64, l segment.Lineage) (int64, bool) {
	for i := len(epochs) - 1; i >= 0; i-- {
		lo, hi := epochRange(epochs, segEnd, i)
		start, end, ok := epochSpan(l, epochs[i].Epoch)
		if ok && max(lo, start) <= min(hi, end) {
			return min(hi, end), true
		}
	}
	return 0, false
}

// Within reports whether the whole segment belongs to the history l: Kafka's
// test for which segments retention may count and expire
// (isRemoteSegmentWithinLeaderEpochs), without its comparison with the log end,
// which only the host knows. Offsets before l begins do not count: the log start
// may have moved into the segment.
func (s *Segment) Within(l segment.Lineage) bool { return within(s.Epochs, s.EndOffset, l) }

// within is Within of a segment with these epochs and this end.
func within(epochs segment.Lineage, segEnd int64, l segment.Lineage) bool {
	have, want := withoutEmpty(epochs), withoutEmpty(l)
	if len(have) == 0 || len(want) == 0 {
		return false
	}
	last := have[len(have)-1].Epoch
	if last < want[0].Epoch || last > want[len(want)-1].Epoch {
		return false
	}
	i := 0
	for have[i].Epoch < want[0].Epoch {
		i++ // ends: last is not smaller
	}
	j, ok := findEpoch(want, have[i].Epoch)
	if !ok || j > 0 && have[i].Start < want[j].Start {
		return false // unknown, or it begins before the history lets its epoch begin
	}
	// From here on both must go through the same epochs at the same offsets.
	for ; i+1 < len(have); i, j = i+1, j+1 {
		if j+1 == len(want) || have[i+1] != want[j+1] {
			return false
		}
	}
	return j+1 == len(want) || segEnd < want[j+1].Start
}

// epochRange returns the offsets that the i-th epoch has in a segment that ends
// at segEnd, inclusive; lo > hi if it has none.
func epochRange(epochs segment.Lineage, segEnd int64, i int) (lo, hi int64) {
	if i+1 < len(epochs) {
		return epochs[i].Start, epochs[i+1].Start - 1
	}
	return epochs[i].Start, segEnd
}

// epochSpan returns the offsets that an epoch has in l, inclusive; start > end
// if it has none.
func epochSpan(l segment.Lineage, epoch int32) (start, end int64, ok bool) {
	i, ok := findEpoch(l, epoch)
	switch {
	case !ok:
		return 0, 0, false
	case i+1 < len(l):
		return l[i].Start, l[i+1].Start - 1, true
	}
	return l[i].Start, math.MaxInt64, true
}

// findEpoch is written out because a closure would cost a call per step on the
// way of every read.
func findEpoch(l segment.Lineage, epoch int32) (int, bool) {
	lo, hi := 0, len(l)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); l[mid].Epoch < epoch {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(l) && l[lo].Epoch == epoch
}

// withoutEmpty returns l without the epochs that have no offsets, because the
// next one begins where they do; l itself if there are none.
func withoutEmpty(l segment.Lineage) segment.Lineage {
	empty := func(i int) bool { return i+1 < len(l) && l[i].Start == l[i+1].Start }
	n := 0
	for i := range l {
		if empty(i) {
			n++
		}
	}
	if n == 0 {
		return l
	}
	out := make(segment.Lineage, 0, len(l)-n)
	for i, e := range l {
		if !empty(i) {
			out = append(out, e)
		}
	}
	return out
}
