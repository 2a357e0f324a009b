package transfer

import (
	"slices"

	"github.com/segtier/segtier/checksum"
)

// pieces are the sums of a run of an object's bytes, cut at the multiples of
// size as counted from the object's start. The first and the last piece may be
// shorter than size.
type pieces struct {
	size  int64 // > 0
	start int64 // where the run begins in the object
	sums  []checksum.Sum
	total checksum.Sum
}

// Write appends p to the run. It never fails.
func (r *pieces) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		at := r.start + r.total.Len
		if at%r.size == 0 || len(r.sums) == 0 {
			r.sums = append(r.sums, checksum.Sum{})
		}
		k := min(int64(len(p)), r.size-at%r.size)
		s := checksum.Sum{Len: k, CRC32C: checksum.CRC32C(p[:k])}
		last := &r.sums[len(r.sums)-1]
		*last = last.Append(s)
		r.total = r.total.Append(s)
		p = p[k:]
	}
	return n, nil
}

// join returns the run r followed by next, which begins where r ends.
func (r pieces) join(next pieces) pieces {
	out := pieces{size: r.size, start: r.start, total: r.total.Append(next.total)}
	out.sums = slices.Concat(r.sums, next.sums)
	if border := len(r.sums); border > 0 && len(next.sums) > 0 && next.start%r.size != 0 {
		// The border lies inside a piece, of which each run has a part.
		out.sums[border-1] = r.sums[border-1].Append(next.sums[0])
		out.sums = slices.Delete(out.sums, border, border+1)
	}
	return out
}
