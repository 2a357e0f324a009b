package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/mint"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/segment"
)

// ConfirmOptions are the rare wishes of a Confirm.
type ConfirmOptions struct {
	// Found, if not nil, is called for every damage in the order of the object,
	// from Confirm's own goroutine. The object is read on behind a damage as far
	// as that makes sense.
	Found func(*DamageError)

	// Pace, if not nil, is called before n bytes are asked for and returns when
	// they may be. Its error ends the reading.
	Pace func(ctx context.Context, n int64) error
}

// Confirm reads the whole object of a segment and proves that it is what its
// record says: h, the record, describes the same segment as the header in the
// object ([object.Header.Describes]), loc is its location, every chunk and every
// section has its sum, every batch its CRC and its place, and the indexes lead to
// the batches that are there. Memory is bounded by 10 MiB (or 2 MiB and one chunk)
// and the tail.
//
// A damaged object gives a *DamageError, the first one found (ErrDamaged).
// Whatever else keeps it from reading, such as a store that does not answer or a
// version that is not known, is an error that says nothing about the object.
func Confirm(ctx context.Context, ep *endpoint.Endpoint, h object.Header, loc object.Location, o ConfirmOptions) (Receipt, error) {
	r := &fullRead{ctx: ctx, ep: ep, key: h.Key(), loc: loc, found: o.Found, pace: o.Pace}
	if err := r.open(); err != nil {
		return Receipt{}, err
	}
	if r.tail == nil {
		return Receipt{}, r.verdict()
	}
	r.checkHeader(&h)
	c := newLogCheck(r)
	c.indexes = newIndexCheck(r)
	if err := r.log(c.chunk); err != nil {
		return Receipt{}, r.fail(err)
	}
	if err := c.close(); err != nil {
		return Receipt{}, r.fail(err)
	}
	if _, err := r.section(object.ProducerSnapshot, func([]byte) error { return nil }); err != nil {
		return Receipt{}, r.fail(err)
	}
	if err := r.verdict(); err != nil {
		return Receipt{}, err
	}
	// Every byte has been read and had its sum; that the sums of the sections
	// make up the object's was checked with the tail.
	return mint.New(mint.Facts{
		Partition:   h.Partition,
		SegmentID:   h.SegmentID,
		StartOffset: h.StartOffset,
		EndOffset:   h.EndOffset,
		LogSize:     h.SizeBytes,
		Key:         r.key,
		Object:      checksum.Sum{Len: loc.ObjectSize, CRC32C: loc.ObjectCRC32C},
		Location:    loc.Append(nil),
		Evidence:    "full read",
	}), nil
}

// checkHeader compares the header in the object with the record.
func (r *fullRead) checkHeader(h *object.Header) {
	if r.tail.Header.Describes(*h) {
		return
	}
	e := r.tail.Sections[object.HeaderSection]
	r.report(&DamageError{
		Reason: Mismatch, Key: r.key, Off: e.Off, Len: e.Len, What: "header",
		Err: fmt.Errorf("the object says %+v, the record %+v", r.tail.Header, *h),
	})
}

// logCheck walks the batches of a log that comes chunk by chunk. It loses its
// way in a damaged chunk and finds it again at the first batch that starts in a
// later one.
type logCheck struct {
	r       *fullRead
	walker  segment.Walker
	origin  int64 // where the walker began in the log
	batchAt int64 // position in the log of the batch that the walker is at
	lost    bool
	part    bool // some batches were not seen
	builder *tableBuilder
	indexes *indexCheck // nil: only the log is looked at
}

func newLogCheck(r *fullRead) *logCheck {
	h, t := &r.tail.Header, &r.tail.Table
	c := &logCheck{r: r, builder: newTableBuilder(h.StartOffset, h.EndOffset, t.LogSize(), t.ChunkSize)}
	c.walker.Batch = func(pos int64, h segment.Header) error {
		if err := c.builder.batch(c.origin+pos, h); err != nil {
			return err
		}
		if c.indexes != nil && !c.part {
			c.indexes.batch(c.origin+pos, h)
		}
		c.batchAt = c.origin + pos + int64(h.Size)
		return nil
	}
	return c
}

// chunk takes the next chunk, nil if it is damaged.
func (c *logCheck) chunk(i int, b []byte) error {
	t := &c.r.tail.Table
	if b == nil {
		c.lost, c.part = true, true
		return nil
	}
	if c.lost {
		first := t.Chunks[i].FirstBatch
		if first < 0 {
			return nil
		}
		c.walker.Reset()
		c.origin, c.batchAt, c.lost = first, first, false
		b = b[first-t.Start(i):]
	}
	if _, err := c.walker.Write(b); err != nil {
		c.batch(err, t.Start(i)+t.Len(i))
	}
	return nil
}

// batch reports a batch that is none, in a chunk that ends at end.
func (c *logCheck) batch(err error, end int64) {
	c.lost, c.part = true, true
	var be *segment.BatchError
	if errors.As(err, &be) {
		be.Pos = c.batchAt // of the log, not since the walker last found its way
	}
	c.r.report(&DamageError{
		Reason: Corrupt, Key: c.r.key, Off: c.batchAt, Len: end - c.batchAt,
		What: fmt.Sprintf("batch at position %d", c.batchAt), Err: err,
	})
}

// close ends the walk, and compares the chunk table and the indexes with what was
// seen.
func (c *logCheck) close() error {
	t := &c.r.tail.Table
	if !c.lost {
		if err := c.walker.Close(); err != nil {
			c.batch(err, t.LogSize())
		}
	}
	before := c.r.damages
	if c.indexes != nil {
		if err := c.indexes.close(!c.part); err != nil {
			return err
		}
	}
	if before > 0 {
		return nil // not every batch was seen
	}
	sums := make([]checksum.Sum, len(t.Chunks))
	for i, chunk := range t.Chunks {
		sums[i] = checksum.Sum{Len: int64(chunk.Len), CRC32C: chunk.CRC32C}
	}
	if got := c.builder.done(sums); !slices.Equal(got.Chunks, t.Chunks) {
		e := c.r.tail.Sections[object.ChunkTable]
		c.r.report(&DamageError{
			Reason: Mismatch, Key: c.r.key, Off: e.Off, Len: e.Len, What: "chunk table",
			Err: errors.New("it does not list the batches of the log"),
		})
	}
	return nil
}
