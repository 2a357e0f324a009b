package metadata

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/segtier/segtier/segment"
)

// A View keeps its segments packed, in sorted blocks without pointers, and
// unpacks one when it is asked for. A block is never modified: a changed View has
// a new directory and one or two new blocks, and shares all others with the View
// before it.

// maxBlock is the greatest number of segments in a block; a full one is split
// in two. It balances the copy of a block against the copy of the directory,
// for some 10^3 to 10^6 segments in a partition.
const maxBlock = 256

// fillBlock is how many segments a block has that was built in one go: the rest
// is room to grow.
const fillBlock = maxBlock/2 + maxBlock/4

// row is a segment without its partition, leader epochs and custom metadata,
// which lie in its block. What a lookup decides on comes first: that is one line
// of the processor's cache.
type row struct {
	start, end     int64
	reach          int64  // greatest end of all rows before it in the block, -1 if there are none
	order          uint64 // of its FINISHED event in the partition, 1 is the first; 0: it is not FINISHED
	epochs, custom uint32 // where its part of the block's epochs and custom metadata begins
	epochCount     uint32
	epoch          int32 // its first leader epoch
	customLen      uint8 // length of the custom metadata + 1, 0 if there is none
	state          State
	txnEmpty       bool
	size           uint32 // fits: MaxSegmentSize
	broker, leader int32

	maxTime, eventTime int64
	id                 segment.UUID
}

// block holds rows ascending by (start, id), not empty.
type block struct {
	samples []int64 // start of every sampleEvery-th row: a search begins here
	starts  []int64 // of each row, packed for searching
	rows    []row
	epochs  []segment.EpochStart
	custom  []byte

	end     int64 // greatest of the rows
	maxTime int64 // greatest of the rows

	// history, if not nil, says that the rows follow each other without gap or
	// overlap, and are one history of leader epochs: this one.
	history segment.Lineage
}

// sampleEvery is how many starts make up a line of the processor's cache: a
// search in a block that nobody has looked at lately then waits for memory three
// times, not six.
const sampleEvery = 8

// above returns the place of the first row that starts after offset.
func (b *block) above(offset int64) int {
	i := above(b.samples, offset) * sampleEvery
	if i == 0 {
		return 0 // the first row does
	}
	for i = i - sampleEvery + 1; i < len(b.starts) && b.starts[i] <= offset; i++ {
	}
	return i
}

// ref is one row of a block.
type ref struct {
	b *block
	i int
}

func (r ref) row() *row { return &r.b.rows[r.i] }

func (r ref) epochs() segment.Lineage {
	w := r.row()
	end := w.epochs + w.epochCount
	return r.b.epochs[w.epochs:end:end]
}

// epochFor returns the leader epoch of an offset in the row.
func (r ref) epochFor(offset int64) (int32, bool) {
	if w := r.row(); w.epochCount == 1 {
		return w.epoch, offset >= w.start // where its first epoch begins
	}
	return r.epochs().EpochFor(offset)
}

func (r ref) custom() []byte {
	w := r.row()
	if w.customLen == 0 {
		return nil
	}
	end := w.custom + uint32(w.customLen) - 1
	return r.b.custom[w.custom:end:end]
}

// along is Segment.Along of the row.
func (r ref) along(l segment.Lineage, from int64) (first, last int64, ok bool) {
	return along(r.epochs(), r.row().end, l, from)
}

// unpack returns the row as a segment. It shares the epochs and the custom
// metadata with the block.
func (r ref) unpack(p segment.Partition) Segment {
	w := r.row()
	return Segment{
		Partition: p, ID: w.id, StartOffset: w.start, EndOffset: w.end,
		MaxTimestamp: w.maxTime, EventTimestamp: w.eventTime, BrokerID: w.broker, LeaderEpoch: w.leader,
		SizeBytes: int64(w.size), Epochs: r.epochs(), Custom: r.custom(), State: w.state, TxnIndexEmpty: w.txnEmpty,
	}
}

// newBlock returns a block with room for exactly so much.
func newBlock(rows, epochs, custom int) *block {
	return &block{
		rows:   make([]row, 0, rows),
		epochs: make([]segment.EpochStart, 0, epochs),
		custom: make([]byte, 0, custom),
	}
}

// add packs a segment behind the rows that are there.
func (b *block) add(s *Segment, order uint64) {
	w := row{
		id: s.ID, start: s.StartOffset, end: s.EndOffset, maxTime: s.MaxTimestamp, eventTime: s.EventTimestamp,
		order: order, broker: s.BrokerID, leader: s.LeaderEpoch, size: uint32(s.SizeBytes),
		epochs: uint32(len(b.epochs)), custom: uint32(len(b.custom)), state: s.State, txnEmpty: s.TxnIndexEmpty,
	}
	if len(s.Epochs) > 0 {
		w.epoch, w.epochCount = s.Epochs[0].Epoch, uint32(len(s.Epochs))
	}
	if s.Custom != nil {
		w.customLen = uint8(len(s.Custom) + 1) // at most MaxCustomSize
	}
	b.rows = append(b.rows, w)
	b.epochs = append(b.epochs, s.Epochs...)
	b.custom = append(b.custom, s.Custom...)
}

// addRows copies the rows [from, to) of another block behind those that are there.
func (b *block) addRows(src *block, from, to int) {
	if from == to {
		return
	}
	epochs, custom := src.bounds(from, to)
	base := len(b.rows)
	b.rows = append(b.rows, src.rows[from:to]...)
	for i := base; i < len(b.rows); i++ {
		b.rows[i].epochs += uint32(len(b.epochs)) - epochs[0] // wraps around, and back
		b.rows[i].custom += uint32(len(b.custom)) - custom[0]
	}
	b.epochs = append(b.epochs, src.epochs[epochs[0]:epochs[1]]...)
	b.custom = append(b.custom, src.custom[custom[0]:custom[1]]...)
}

// bounds returns where the epochs and the custom metadata of rows lie.
func (b *block) bounds(from, to int) (epochs, custom [2]uint32) {
	at := func(i int) (uint32, uint32) {
		if i < len(b.rows) {
			return b.rows[i].epochs, b.rows[i].custom
		}
		return uint32(len(b.epochs)), uint32(len(b.custom))
	}
	epochs[0], custom[0] = at(from)
	epochs[1], custom[1] = at(to)
	return epochs, custom
}

// part returns a block of the rows [from, to).
func (b *block) part(from, to int) *block {
	epochs, custom := b.bounds(from, to)
	n := newBlock(to-from, int(epochs[1]-epochs[0]), int(custom[1]-custom[0]))
	n.addRows(b, from, to)
	return n.seal()
}

// seal computes what the block says of its rows. They are complete and sorted.
func (b *block) seal() *block {
	samples := (len(b.rows) + sampleEvery - 1) / sampleEvery
	longs := make([]int64, samples+len(b.rows))
	b.samples, b.starts = longs[:samples:samples], longs[samples:]
	b.end, b.maxTime = -1, b.rows[0].maxTime
	for i := range b.rows {
		w := &b.rows[i]
		w.reach, b.starts[i], b.samples[i/sampleEvery] = b.end, w.start, b.rows[i-i%sampleEvery].start
		b.end, b.maxTime = max(b.end, w.end), max(b.maxTime, w.maxTime)
	}
	b.history = b.oneHistory()
	return b
}

// oneHistory returns the history that all rows together are, nil if they are none.
func (b *block) oneHistory() segment.Lineage {
	for i := 1; i < len(b.rows); i++ {
		if b.rows[i].start != b.rows[i-1].end+1 {
			return nil
		}
	}
	changes := 1
	for i := 1; i < len(b.epochs); i++ {
		switch d := cmp.Compare(b.epochs[i].Epoch, b.epochs[i-1].Epoch); {
		case d < 0:
			return nil
		case d > 0:
			changes++
		}
	}
	if changes == 1 {
		return b.epochs[:1:1] // mostly
	}
	h := make(segment.Lineage, 0, changes)
	for _, e := range b.epochs {
		if len(h) == 0 || h[len(h)-1].Epoch != e.Epoch {
			h = append(h, e)
		}
	}
	return h
}

// search returns the place of (start, id) in the block, and whether it is there.
func (b *block) search(start int64, id *segment.UUID) (int, bool) {
	return slices.BinarySearchFunc(b.rows, start, func(w row, start int64) int { return compareRow(&w, start, id) })
}

func compareRow(w *row, start int64, id *segment.UUID) int {
	if w.start != start {
		return cmp.Compare(w.start, start)
	}
	return bytes.Compare(w.id[:], id[:])
}

// packer collects segments in any order and makes the sorted index of them. It
// needs the memory that they take, twice for a moment.
type packer struct {
	blocks []*block // not sealed, not sorted
	refs   []ref
}

// packBlock is how many rows a packer puts into one of its blocks.
const packBlock = 1024

func (p *packer) add(s *Segment, order uint64) {
	n := len(p.blocks)
	if n == 0 || len(p.blocks[n-1].rows) == packBlock {
		p.blocks = append(p.blocks, newBlock(0, 0, 0)) // grows
		n++
	}
	b := p.blocks[n-1]
	p.refs = append(p.refs, ref{b, len(b.rows)})
	b.add(s, order)
}

// index returns what was added, sorted. The packer is empty afterwards.
func (p *packer) index() offsetIndex {
	refs := p.refs
	slices.SortFunc(refs, func(a, b ref) int {
		w := b.row()
		return compareRow(a.row(), w.start, &w.id)
	})
	blocks := make([]*block, 0, (len(refs)+fillBlock-1)/fillBlock)
	for chunk := range slices.Chunk(refs, fillBlock) {
		var epochs, custom int
		for _, r := range chunk {
			epochs += len(r.epochs())
			custom += len(r.custom())
		}
		b := newBlock(len(chunk), epochs, custom)
		for _, r := range chunk {
			b.addRows(r.b, r.i, r.i+1)
		}
		blocks = append(blocks, b.seal())
	}
	*p = packer{}
	return newOffsetIndex(blocks)
}
