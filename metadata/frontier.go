package metadata

import (
	"math"

	"github.com/segtier/segtier/segment"
)

// CoveredUpTo returns the greatest offset such that every offset from from up to
// it is covered by a FINISHED segment of the lineage, from-1 if from is not. With
// the partition's log start as from it is the frontier: what ends at or below it
// is readable from the tier in full.
func (v *View) CoveredUpTo(lineage segment.Lineage, from int64) int64 {
	lineage = v.resolve(lineage)
	at := from
	for {
		seg, ok := v.Lookup(lineage, at)
		if !ok {
			return at - 1
		}
		_, last, _ := seg.Along(lineage, at)
		if last == math.MaxInt64 {
			return last
		}
		at = last + 1
	}
}
