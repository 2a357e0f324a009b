package metadata

import (
	"cmp"
	"slices"

	"github.com/segtier/segtier/segment"
)

// epochRow is what a View remembers of one leader epoch, for ever: it outlives
// the segments, as in Kafka.
type epochRow struct {
	EpochInfo

	// last is the greatest offset that a segment says the epoch has, at least
	// Highest: where to look for segments of the epoch.
	last int64
}

// epochRows is ascending by epoch and immutable.
type epochRows []epochRow

func (r epochRows) find(epoch int32) (int, bool) {
	return slices.BinarySearchFunc(r, epoch, func(x epochRow, e int32) int { return cmp.Compare(x.Epoch, e) })
}

// with returns the rows with what a segment says added, and whether a start
// changed. Finished says that it is FINISHED or was.
func (r epochRows) with(s *Segment, finished bool) (rows epochRows, moved bool) {
	rows = r
	own := false // rows is a copy
	for i := range s.Epochs {
		lo, hi := epochRange(s.Epochs, s.EndOffset, i)
		if lo > hi {
			continue
		}
		row := epochRow{EpochInfo{Epoch: s.Epochs[i].Epoch, Start: lo, Highest: -1}, hi}
		if finished {
			row.Highest = hi
		}
		var m bool
		rows, m = rows.merge(row, &own)
		moved = moved || m
	}
	return rows, moved
}

// merge adds one row. It copies the rows first unless they are own, and says
// whether a start changed.
func (r epochRows) merge(row epochRow, own *bool) (rows epochRows, moved bool) {
	rows = r
	j, found := rows.find(row.Epoch)
	if found {
		old := rows[j]
		row.Start, row.Highest, row.last = min(row.Start, old.Start), max(row.Highest, old.Highest), max(row.last, old.last)
		if row == old {
			return rows, false
		}
		moved = row.Start != old.Start
	} else {
		moved = true
	}
	if !*own {
		rows, *own = slices.Clone(rows), true
	}
	if found {
		rows[j] = row
		return rows, moved
	}
	return slices.Insert(rows, j, row), moved
}

// lineage is the newest history that the rows tell: as in Kafka's epoch cache, a
// later epoch ends all that claim to begin at or after it.
func (r epochRows) lineage() segment.Lineage {
	l := make(segment.Lineage, 0, len(r))
	for _, row := range r {
		for len(l) > 0 && l[len(l)-1].Start >= row.Start {
			l = l[:len(l)-1]
		}
		l = append(l, segment.EpochStart{Epoch: row.Epoch, Start: row.Start})
	}
	return l
}
