package metadata

import (
	"cmp"
	"math"
	"slices"

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
	for i := range s.Epochs {
		lo, hi := s.epochRange(i)
		start, end, known := epochSpan(l, s.Epochs[i].Epoch)
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

// lastAlong returns the greatest offset on which the segment agrees with l.
func (s *Segment) lastAlong(l segment.Lineage) (int64, bool) {
	for i := len(s.Epochs) - 1; i >= 0; i-- {
		lo, hi := s.epochRange(i)
		start, end, ok := epochSpan(l, s.Epochs[i].Epoch)
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
func (s *Segment) Within(l segment.Lineage) bool {
	have, want := withoutEmpty(s.Epochs), withoutEmpty(l)
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
	return j+1 == len(want) || s.EndOffset < want[j+1].Start
}

// epochRange returns the offsets that the i-th epoch has in the segment,
// inclusive; lo > hi if it has none.
func (s *Segment) epochRange(i int) (lo, hi int64) {
	if i+1 < len(s.Epochs) {
		return s.Epochs[i].Start, s.Epochs[i+1].Start - 1
	}
	return s.Epochs[i].Start, s.EndOffset
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
// next one begins where they do.
func withoutEmpty(l segment.Lineage) segment.Lineage {
	out := make(segment.Lineage, 0, len(l))
	for i, e := range l {
		if i+1 == len(l) || e.Start != l[i+1].Start {
			out = append(out, e)
		}
	}
	return out
}

// epochRow is what a View remembers of one leader epoch, for ever: it outlives
// the segments, as in Kafka.
type epochRow struct {
	epoch   int32
	start   int64 // least offset at which a segment says that the epoch begins
	highest int64 // greatest offset of the epoch that was ever FINISHED, -1 if none
}

// epochRows is ascending by epoch and immutable.
type epochRows []epochRow

// with returns the rows with what s says added, and whether a start changed.
func (r epochRows) with(s *Segment) (rows epochRows, moved bool) {
	rows = r
	own := false // rows is a copy
	for i := range s.Epochs {
		lo, hi := s.epochRange(i)
		if lo > hi {
			continue
		}
		row := epochRow{epoch: s.Epochs[i].Epoch, start: lo, highest: -1}
		if s.State == CopySegmentFinished {
			row.highest = hi
		}
		j, found := slices.BinarySearchFunc(rows, row.epoch, func(x epochRow, e int32) int { return cmp.Compare(x.epoch, e) })
		if found {
			old := rows[j]
			row.start, row.highest = min(row.start, old.start), max(row.highest, old.highest)
			if row == old {
				continue
			}
			moved = moved || row.start != old.start
		} else {
			moved = true
		}
		if !own {
			rows, own = slices.Clone(rows), true
		}
		if found {
			rows[j] = row
		} else {
			rows = slices.Insert(rows, j, row)
		}
	}
	return rows, moved
}

// lineage is the newest history that the rows tell: as in Kafka's epoch cache, a
// later epoch ends all that claim to begin at or after it.
func (r epochRows) lineage() segment.Lineage {
	l := make(segment.Lineage, 0, len(r))
	for _, row := range r {
		for len(l) > 0 && l[len(l)-1].Start >= row.start {
			l = l[:len(l)-1]
		}
		l = append(l, segment.EpochStart{Epoch: row.epoch, Start: row.start})
	}
	return l
}
