package checksum

import "fmt"

// Sum is the CRC-32C of a run of bytes and its length.
type Sum struct {
	Len    int64  // bytes
	CRC32C uint32 // of those bytes; 0 for no bytes
}

// Append returns the sum of the bytes of s followed by those of t.
func (s Sum) Append(t Sum) Sum {
	return Sum{Len: s.Len + t.Len, CRC32C: Combine(s.CRC32C, t.CRC32C, t.Len)}
}

// A Cutter sums a stream once and cuts the sums at the multiples of several
// sizes at the same time, for example at every chunk and at every part. It
// allocates only to hold the sums. The zero Cutter sums the whole stream
// without a cut. It is not safe for concurrent use.
type Cutter struct {
	rulers []ruler
	total  Sum
}

// ruler cuts at the multiples of size.
type ruler struct {
	size int64
	done []Sum // finished pieces, each size bytes long
	open Sum   // the piece being summed, shorter than size
}

// NewCutter returns a Cutter for pieces of the given sizes in bytes, each
// greater than zero. It panics on any other size.
func NewCutter(sizes ...int64) *Cutter {
	c := &Cutter{}
	for _, size := range sizes {
		if size <= 0 {
			panic(fmt.Sprintf("checksum: NewCutter with piece size %d", size))
		}
		c.rulers = append(c.rulers, ruler{size: size})
	}
	return c
}

// Write adds p to the stream. It never fails and does not keep p.
func (c *Cutter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		// The longest run that crosses no border of any ruler: summed once,
		// then appended to every open piece.
		step := int64(len(p))
		for i := range c.rulers {
			step = min(step, c.rulers[i].size-c.rulers[i].open.Len)
		}
		s := Sum{Len: step, CRC32C: CRC32C(p[:step])}
		p = p[step:]
		c.total = c.total.Append(s)
		for i := range c.rulers {
			r := &c.rulers[i]
			r.open = r.open.Append(s)
			if r.open.Len == r.size {
				r.done = append(r.done, r.open)
				r.open = Sum{}
			}
		}
	}
	return n, nil
}

// Pieces returns the sums of the pieces of the i-th size given to NewCutter, in
// order; the last may be shorter. The result is the caller's.
func (c *Cutter) Pieces(i int) []Sum {
	r := &c.rulers[i]
	out := make([]Sum, 0, len(r.done)+1)
	out = append(out, r.done...)
	if r.open.Len > 0 {
		out = append(out, r.open)
	}
	return out
}

// Total returns the sum of the whole stream so far.
func (c *Cutter) Total() Sum { return c.total }
