package transfer

import (
	"fmt"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/segment"
)

// tableBuilder makes the chunk table while the batches of a log go by, and
// checks that they lie in the segment's range and do not overlap.
type tableBuilder struct {
	first, last int64 // offsets of the segment
	table       object.Table
	maxTime     int64
	next        int64 // the lowest offset that the next batch may begin at
}

func newTableBuilder(first, last, logSize, chunkSize int64) *tableBuilder {
	t := &tableBuilder{
		first: first, last: last, next: first, maxTime: -1,
		table: object.Table{ChunkSize: chunkSize, Chunks: make([]object.Chunk, (logSize+chunkSize-1)/chunkSize)},
	}
	for i := range t.table.Chunks {
		t.table.Chunks[i] = object.Chunk{FirstBatch: -1, BaseOffset: -1, MaxTimestamp: -1}
	}
	return t
}

// batch takes the next batch of the log.
func (t *tableBuilder) batch(pos int64, h segment.Header) error {
	fail := func(reason string) error {
		return &segment.BatchError{Pos: pos, Offset: h.BaseOffset, Reason: reason}
	}
	switch {
	case h.BaseOffset < t.first || h.LastOffset > t.last:
		return fail(fmt.Sprintf("offsets %d to %d lie outside the segment, %d to %d", h.BaseOffset, h.LastOffset, t.first, t.last))
	case h.BaseOffset < t.next:
		// Lookups by offset rest on batches that follow each other.
		return fail(fmt.Sprintf("begins before offset %d, where the batch before it ends", t.next))
	}
	t.next = h.LastOffset + 1
	t.maxTime = max(t.maxTime, h.MaxTimestamp)
	c := &t.table.Chunks[pos/t.table.ChunkSize]
	if c.FirstBatch < 0 {
		c.FirstBatch, c.BaseOffset = pos, h.BaseOffset
	}
	c.MaxTimestamp = t.maxTime
	return nil
}

// done completes the table with the sums of the chunks.
func (t *tableBuilder) done(sums []checksum.Sum) object.Table {
	ts := int64(-1)
	for i := range t.table.Chunks {
		c := &t.table.Chunks[i]
		ts = max(ts, c.MaxTimestamp) // chunks in which no batch starts
		c.MaxTimestamp = ts
		c.Len, c.CRC32C = int32(sums[i].Len), sums[i].CRC32C
	}
	return t.table
}
