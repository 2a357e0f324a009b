package metadata

import (
	"bytes"
	"cmp"
	"slices"
	"sort"

	"github.com/segtier/segtier/segment"
)

// A View keeps its segments in sorted blocks. A block is never modified: a
// changed View has new directories and one or two new blocks in each, and
// shares all others with the View before it.

// maxBlock is the greatest number of segments in a block; a full one is split
// in two. It balances the copy of a block against the copy of the directory,
// for some 10^3 to 10^6 segments in a partition.
const maxBlock = 256

// entry is a segment and, if it is FINISHED, the number of its FINISHED event in
// the partition's order: 1 is the first. Of two that cover an offset the later
// one counts.
type entry struct {
	seg   *Segment
	order uint64
}

// offsetBlock holds entries ascending by (StartOffset, ID), not empty.
type offsetBlock struct {
	entries []entry
	starts  []int64 // StartOffset of each entry, packed for searching
	reach   []int64 // greatest EndOffset of each entry and all before it in the block
}

// offsetIndex is the directory of blocks ascending by StartOffset.
type offsetIndex []offsetDir

type offsetDir struct {
	first  int64 // StartOffset of the block's first entry
	before int64 // greatest EndOffset in all earlier blocks, -1 if none
	block  *offsetBlock
}

func newOffsetBlock(entries []entry) *offsetBlock {
	b := &offsetBlock{entries: entries, starts: make([]int64, len(entries)), reach: make([]int64, len(entries))}
	reach := int64(-1)
	for i, e := range entries {
		reach = max(reach, e.seg.EndOffset)
		b.starts[i], b.reach[i] = e.seg.StartOffset, reach
	}
	return b
}

// newOffsetIndex takes entries over and sorts them.
func newOffsetIndex(entries []entry) offsetIndex {
	slices.SortFunc(entries, compareOffsets)
	var x offsetIndex
	for chunk := range slices.Chunk(entries, maxBlock/2+maxBlock/4) { // room to grow
		x = append(x, offsetDir{block: newOffsetBlock(slices.Clone(chunk))})
	}
	x.link()
	return x
}

func compareOffsets(a, b entry) int {
	if c := cmp.Compare(a.seg.StartOffset, b.seg.StartOffset); c != 0 {
		return c
	}
	return bytes.Compare(a.seg.ID[:], b.seg.ID[:])
}

// link sets what the directory repeats of its blocks. x must be a fresh copy.
func (x offsetIndex) link() {
	before := int64(-1)
	for i := range x {
		x[i].first, x[i].before = x[i].block.starts[0], before
		before = max(before, x[i].block.reach[len(x[i].block.reach)-1])
	}
}

// with returns x with e in it.
func (x offsetIndex) with(e entry) offsetIndex {
	if len(x) == 0 {
		return newOffsetIndex([]entry{e})
	}
	b := max(0, sort.Search(len(x), func(i int) bool { return compareOffsets(x[i].block.entries[0], e) > 0 })-1)
	old := x[b].block.entries
	at, _ := slices.BinarySearchFunc(old, e, compareOffsets)
	entries := make([]entry, 0, len(old)+1)
	entries = append(append(append(entries, old[:at]...), e), old[at:]...)
	return x.replace(b, entries)
}

// without returns x without the segment.
func (x offsetIndex) without(s *Segment) offsetIndex {
	e := entry{seg: s}
	b := sort.Search(len(x), func(i int) bool { return compareOffsets(x[i].block.entries[0], e) > 0 }) - 1
	if b < 0 {
		return x
	}
	old := x[b].block.entries
	at, ok := slices.BinarySearchFunc(old, e, compareOffsets)
	if !ok {
		return x
	}
	return x.replace(b, slices.Delete(slices.Clone(old), at, at+1))
}

// replace returns x with the entries of block b replaced.
func (x offsetIndex) replace(b int, entries []entry) offsetIndex {
	n := make(offsetIndex, 0, len(x)+1)
	n = append(n, x[:b]...)
	switch {
	case len(entries) > maxBlock:
		half := len(entries) / 2
		n = append(n, offsetDir{block: newOffsetBlock(entries[:half:half])}, offsetDir{block: newOffsetBlock(entries[half:])})
	case len(entries) > 0:
		n = append(n, offsetDir{block: newOffsetBlock(entries)})
	}
	n = append(n, x[b+1:]...)
	n.link()
	return n
}

// cursor walks entries ascending.
type cursor struct {
	x        offsetIndex
	block, i int
}

// next returns the next entry, not ok after the last.
func (c *cursor) next() (entry, bool) {
	if c.block == len(c.x) {
		return entry{}, false
	}
	entries := c.x[c.block].block.entries
	e := entries[c.i]
	if c.i++; c.i == len(entries) {
		c.block, c.i = c.block+1, 0
	}
	return e, true
}

// after returns a cursor at the first entry with StartOffset > offset.
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

// lookBack walks the entries that begin at or before an offset and end at or
// after one, backwards by StartOffset. It is Kafka's floor entry, and then those
// before it that reach as far: usually none, which it sees without looking.
type lookBack struct {
	x        offsetIndex
	block, i int
	reaching int64 // entries that end before it are skipped; may grow while walking
}

// lookBack starts at the entries with StartOffset <= from that reach an offset.
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
		c.i = len(c.x[c.block].block.entries) - 1
	}
}

// next returns the next entry, not ok after the last.
func (c *lookBack) next() (entry, bool) {
	for c.block >= 0 {
		b := c.x[c.block].block
		for c.i >= 0 && b.reach[c.i] >= c.reaching {
			e := b.entries[c.i]
			c.i--
			if e.seg.EndOffset >= c.reaching {
				return e, true
			}
		}
		if c.x[c.block].before < c.reaching {
			c.block = -1
			break
		}
		c.previousBlock()
	}
	return entry{}, false
}

// idIndex is the directory of blocks of entries ascending by ID.
type idIndex []idDir

type idDir struct {
	first   segment.UUID // ID of the first entry
	entries []entry      // immutable, not empty
}

func compareIDs(a, b entry) int { return bytes.Compare(a.seg.ID[:], b.seg.ID[:]) }

// newIDIndex takes entries over and sorts them.
func newIDIndex(entries []entry) idIndex {
	slices.SortFunc(entries, compareIDs)
	var x idIndex
	for chunk := range slices.Chunk(entries, maxBlock/2+maxBlock/4) {
		x = append(x, idDir{first: chunk[0].seg.ID, entries: slices.Clone(chunk)})
	}
	return x
}

// find returns the block that holds the id or would, and the place in it.
func (x idIndex) find(id *segment.UUID) (block, i int, ok bool) {
	lo, hi := 0, len(x)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); bytes.Compare(x[mid].first[:], id[:]) > 0 {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	block = max(0, lo-1)
	if block == len(x) {
		return block, 0, false
	}
	entries := x[block].entries
	a, b := 0, len(entries)
	for a < b {
		if mid := int(uint(a+b) >> 1); bytes.Compare(entries[mid].seg.ID[:], id[:]) < 0 {
			a = mid + 1
		} else {
			b = mid
		}
	}
	return block, a, a < len(entries) && entries[a].seg.ID == *id
}

func (x idIndex) get(id *segment.UUID) (entry, bool) {
	b, i, ok := x.find(id)
	if !ok {
		return entry{}, false
	}
	return x[b].entries[i], true
}

// with returns x with e in the place of any entry of the same ID.
func (x idIndex) with(e entry) idIndex {
	b, at, replace := x.find(&e.seg.ID)
	if b == len(x) {
		return newIDIndex([]entry{e})
	}
	old := x[b].entries
	entries := make([]entry, 0, len(old)+1)
	entries = append(append(entries, old[:at]...), e)
	if replace {
		at++
	}
	entries = append(entries, old[at:]...)
	n := make(idIndex, 0, len(x)+1)
	n = append(n, x[:b]...)
	if half := len(entries) / 2; len(entries) > maxBlock {
		n = append(n, idDir{first: entries[0].seg.ID, entries: entries[:half:half]})
		entries = entries[half:]
	}
	n = append(n, idDir{first: entries[0].seg.ID, entries: entries})
	return append(n, x[b+1:]...)
}
