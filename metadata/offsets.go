package metadata

import (
	"sort"

	"github.com/segtier/segtier/segment"
)

// offsetIndex is the directory of blocks, ascending by (start, id).
type offsetIndex struct {
	firsts []int64 // start of each block's first row, packed for searching
	dirs   []offsetDir
}

type offsetDir struct {
	block  *block
	before int64 // greatest end in all earlier blocks, -1 if none
}

// newOffsetIndex makes the directory of sorted blocks.
func newOffsetIndex(blocks []*block) offsetIndex {
	x := offsetIndex{make([]int64, len(blocks)), make([]offsetDir, len(blocks))}
	before := int64(-1)
	for i, b := range blocks {
		x.firsts[i], x.dirs[i] = b.starts[0], offsetDir{b, before}
		before = max(before, b.end)
	}
	return x
}

// blockOf returns the block that holds (start, id) or would.
func (x offsetIndex) blockOf(start int64, id *segment.UUID) int {
	return max(0, sort.Search(len(x.dirs), func(i int) bool { return compareRow(&x.dirs[i].block.rows[0], start, id) > 0 })-1)
}

// get returns the row of a segment.
func (x offsetIndex) get(start int64, id *segment.UUID) (ref, bool) {
	if len(x.dirs) == 0 {
		return ref{}, false
	}
	b := x.dirs[x.blockOf(start, id)].block
	i, ok := b.search(start, id)
	return ref{b, i}, ok
}

// with returns x with a segment that it does not have.
func (x offsetIndex) with(s *Segment, order uint64) offsetIndex {
	if len(x.dirs) == 0 {
		var p packer
		p.add(s, order)
		return p.index()
	}
	at := x.blockOf(s.StartOffset, &s.ID)
	old := x.dirs[at].block
	i, _ := old.search(s.StartOffset, &s.ID)
	b := newBlock(len(old.rows)+1, len(old.epochs)+len(s.Epochs), len(old.custom)+len(s.Custom))
	b.addRows(old, 0, i)
	b.add(s, order)
	b.addRows(old, i, len(old.rows))
	return x.replace(at, b)
}

// without returns x without a segment.
func (x offsetIndex) without(start int64, id *segment.UUID) offsetIndex {
	r, ok := x.get(start, id)
	if !ok {
		return x
	}
	b := newBlock(len(r.b.rows)-1, len(r.b.epochs), len(r.b.custom))
	b.addRows(r.b, 0, r.i)
	b.addRows(r.b, r.i+1, len(r.b.rows))
	return x.replace(x.blockOf(start, id), b)
}

// replace returns x with block at replaced by b, which is not sealed.
func (x offsetIndex) replace(at int, b *block) offsetIndex {
	blocks := make([]*block, 0, len(x.dirs)+1)
	add := func(dirs []offsetDir) {
		for i := range dirs {
			blocks = append(blocks, dirs[i].block)
		}
	}
	add(x.dirs[:at])
	switch {
	case len(b.rows) > maxBlock:
		half := len(b.rows) / 2
		blocks = append(blocks, b.part(0, half), b.part(half, len(b.rows)))
	case len(b.rows) > 0:
		blocks = append(blocks, b.seal())
	}
	add(x.dirs[at+1:])
	return newOffsetIndex(blocks)
}

// cursor walks rows ascending.
type cursor struct {
	x        offsetIndex
	block, i int
}

// next returns the next row, not ok after the last.
func (c *cursor) next() (ref, bool) {
	if c.block == len(c.x.dirs) {
		return ref{}, false
	}
	r := ref{c.x.dirs[c.block].block, c.i}
	if c.i++; c.i == len(r.b.rows) {
		c.block, c.i = c.block+1, 0
	}
	return r, true
}

// after returns a cursor at the first row with start > offset.
func (x offsetIndex) after(offset int64) cursor {
	lo := above(x.firsts, offset) // first block that begins after offset
	if lo == 0 {
		return cursor{x: x}
	}
	b := x.dirs[lo-1].block
	a := b.above(offset)
	if a == len(b.starts) {
		return cursor{x: x, block: lo}
	}
	return cursor{x: x, block: lo - 1, i: a}
}

// above returns the place of the first number greater than n in ascending ones.
// It is written out because a closure would cost a call per step.
func above(numbers []int64, n int64) int {
	lo, hi := 0, len(numbers)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); numbers[mid] > n {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
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
		c.i = len(c.x.dirs[c.block].block.rows) - 1
	}
}

// next returns the next row, not ok after the last.
func (c *lookBack) next() (ref, bool) {
	for c.block >= 0 {
		b := c.x.dirs[c.block].block
		for c.i >= 0 {
			r := ref{b, c.i}
			if c.i--; b.rows[r.i].reach < c.reaching {
				c.i = -1 // none before it reaches so far
			}
			if b.rows[r.i].end >= c.reaching {
				return r, true
			}
		}
		if c.x.dirs[c.block].before < c.reaching {
			c.block = -1
			break
		}
		c.previousBlock()
	}
	return ref{}, false
}
