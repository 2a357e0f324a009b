package metadata

import (
	"sort"

	"github.com/segtier/segtier/segment"
)

// offsetIndex is the directory of blocks, ascending by (start, id).
type offsetIndex []offsetDir

type offsetDir struct {
	first  int64 // start of the block's first row
	before int64 // greatest end in all earlier blocks, -1 if none
	block  *block
}

// link sets what the directory repeats of its blocks. x must be a fresh copy.
func (x offsetIndex) link() {
	before := int64(-1)
	for i := range x {
		x[i].first, x[i].before = x[i].block.starts[0], before
		before = max(before, x[i].block.reach[len(x[i].block.reach)-1])
	}
}

// blockOf returns the block that holds (start, id) or would.
func (x offsetIndex) blockOf(start int64, id *segment.UUID) int {
	return max(0, sort.Search(len(x), func(i int) bool { return compareRow(&x[i].block.rows[0], start, id) > 0 })-1)
}

// get returns the row of a segment.
func (x offsetIndex) get(start int64, id *segment.UUID) (ref, bool) {
	if len(x) == 0 {
		return ref{}, false
	}
	b := x[x.blockOf(start, id)].block
	i, ok := b.search(start, id)
	return ref{b, i}, ok
}

// with returns x with a segment that it does not have.
func (x offsetIndex) with(s *Segment, order uint64) offsetIndex {
	if len(x) == 0 {
		var p packer
		p.add(s, order)
		return p.index()
	}
	at := x.blockOf(s.StartOffset, &s.ID)
	old := x[at].block
	i, _ := old.search(s.StartOffset, &s.ID)
	b := newBlock(len(old.rows)+1, len(old.epochs)+len(s.Epochs), len(old.custom)+len(s.Custom))
	b.addRows(old, 0, i)
	b.add(s, order)
	b.addRows(old, i, len(old.rows))
	return x.replace(at, b)
}

// without returns x without a segment.
func (x offsetIndex) without(start int64, id *segment.UUID) offsetIndex {
	if len(x) == 0 {
		return x
	}
	at := x.blockOf(start, id)
	old := x[at].block
	i, ok := old.search(start, id)
	if !ok {
		return x
	}
	b := newBlock(len(old.rows)-1, len(old.epochs), len(old.custom))
	b.addRows(old, 0, i)
	b.addRows(old, i+1, len(old.rows))
	return x.replace(at, b)
}

// replace returns x with block at replaced by b, which is not sealed.
func (x offsetIndex) replace(at int, b *block) offsetIndex {
	n := make(offsetIndex, 0, len(x)+1)
	n = append(n, x[:at]...)
	switch {
	case len(b.rows) > maxBlock:
		half := len(b.rows) / 2
		n = append(n, offsetDir{block: b.part(0, half)}, offsetDir{block: b.part(half, len(b.rows))})
	case len(b.rows) > 0:
		n = append(n, offsetDir{block: b.seal()})
	}
	n = append(n, x[at+1:]...)
	n.link()
	return n
}

// cursor walks rows ascending.
type cursor struct {
	x        offsetIndex
	block, i int
}

// next returns the next row, not ok after the last.
func (c *cursor) next() (ref, bool) {
	if c.block == len(c.x) {
		return ref{}, false
	}
	r := ref{c.x[c.block].block, c.i}
	if c.i++; c.i == len(r.b.rows) {
		c.block, c.i = c.block+1, 0
	}
	return r, true
}

// after returns a cursor at the first row with start > offset.
func (x offsetIndex) after(offset int64) cursor {
	lo, hi := 0, len(x) // first block that begins after offset
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); x[mid].first > offset {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if lo == 0 {
		return cursor{x: x}
	}
	starts := x[lo-1].block.starts
	a, b := 0, len(starts)
	for a < b {
		if mid := int(uint(a+b) >> 1); starts[mid] > offset {
			b = mid
		} else {
			a = mid + 1
		}
	}
	if a == len(starts) {
		return cursor{x: x, block: lo}
	}
	return cursor{x: x, block: lo - 1, i: a}
}

// lookBack walks the rows that begin at or before an offset and end at or after
// one, backwards by start. It is Kafka's floor entry, and then those before it
// that reach as far: usually none, which it sees without looking.
type lookBack struct {
	x        offsetIndex
	block, i int
	reaching int64 // rows that end before it are skipped; may grow while walking
}

// lookBack starts at the rows with start <= from that reach an offset.
func (x offsetIndex) lookBack(from, reaching int64) lookBack {
	a := x.after(from)
	c := lookBack{x: x, block: a.block, i: a.i - 1, reaching: reaching}
	if c.i < 0 {
		c.previousBlock()
	}
	return c
}

func (c *lookBack) previousBlock() {
	if c.block--; c.block >= 0 {
		c.i = len(c.x[c.block].block.rows) - 1
	}
}

// next returns the next row, not ok after the last.
func (c *lookBack) next() (ref, bool) {
	for c.block >= 0 {
		b := c.x[c.block].block
		for c.i >= 0 && b.reach[c.i] >= c.reaching {
			r := ref{b, c.i}
			c.i--
			if b.rows[r.i].end >= c.reaching {
				return r, true
			}
		}
		if c.x[c.block].before < c.reaching {
			c.block = -1
			break
		}
		c.previousBlock()
	}
	return ref{}, false
}
