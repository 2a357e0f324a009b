package index

import (
	"encoding/binary"
	"io"

	"github.com/segtier/segtier/segment"
)

// Checker checks in step with a walk over a segment's log that its indexes
// agree with it, and that the log's offsets lie within the segment. It holds a
// few KiB, whatever the size of the files.
//
// It accepts what any version of Kafka has written, compacted segments
// included, and refuses indexes of another log and entries that a lookup would
// be led astray by. In particular
//
//   - the position of an offset entry is the start of a batch; all batches
//     before it end before the entry's offset; that offset is the last one of
//     the batch there or of a later one before the next entry. Brokers before
//     1.0 wrote the first offset of the batch instead, and compaction writes
//     that of a record it kept where those behind it are gone;
//   - the timestamp of a time entry is the greatest of all batches up to the one
//     that holds the entry's offset;
//   - the marker of an aborted transaction is there, of the same producer.
//
// It is not safe for concurrent use.
type Checker struct {
	base, end int64
	last      int64 // offset of the batch before
	greatest  int64 // timestamp so far

	offsets, times, txns *stream

	// The entries to be met next; nil: none is left.
	offset, time, txn []byte

	started bool
	found   bool // the batch at the position of offset has been met
	err     error
}

// NewChecker returns a Checker of the segment with offsets base to end, both
// included. The readers hand out its offset, time and transaction index; nil is
// a file that the segment does not have. They are read in step with the log; once
// Close has returned nil, all have been read to their ends.
func NewChecker(base, end int64, offset, time, txn io.Reader) *Checker {
	return &Checker{
		base: base, end: end, last: -1, greatest: -1,
		offsets: newStream(segment.OffsetIndex, offsetEntry, base, followOffset, offset),
		times:   newStream(segment.TimeIndex, timeEntry, base, followTime, time),
		txns:    newStream(segment.TxnIndex, txnEntry, base, followTxn, txn),
	}
}

// start reads the first entries.
func (c *Checker) start() error {
	if c.started {
		return nil
	}
	c.started = true
	var err error
	if c.offset, err = c.offsets.next(); err != nil {
		return err
	}
	if c.time, err = c.times.next(); err != nil {
		return err
	}
	c.txn, err = c.txns.next()
	return err
}

// Batch takes the log's next batch and its position; it can be a
// segment.Walker's Batch. It returns an *Error if an index does not agree with
// it or the batch does not belong into the segment, and an error of a reader as
// it is, wrapped. An error stays.
func (c *Checker) Batch(pos int64, h segment.Header) error {
	if c.err == nil {
		c.err = c.batch(pos, &h)
	}
	return c.err
}

func (c *Checker) batch(pos int64, h *segment.Header) error {
	if err := c.start(); err != nil {
		return err
	}
	if h.BaseOffset < c.base || h.LastOffset > c.end {
		return corrupt(segment.Log, -1, "the batch at position %d has offsets %d to %d, the segment %d to %d",
			pos, h.BaseOffset, h.LastOffset, c.base, c.end)
	}
	if err := c.checkOffset(pos, h); err != nil {
		return err
	}
	if err := c.checkTime(h); err != nil {
		return err
	}
	if err := c.checkTxn(h); err != nil {
		return err
	}
	c.last = h.LastOffset
	return nil
}

// checkOffset compares the offset index with the batch at pos. At most one entry
// ends with a batch.
func (c *Checker) checkOffset(pos int64, h *segment.Header) (err error) {
	if c.offset == nil {
		return nil
	}
	offset := c.base + int64(binary.BigEndian.Uint32(c.offset))
	at := int64(binary.BigEndian.Uint32(c.offset[4:]))
	entry := c.offsets.n - 1
	if !c.found {
		switch {
		case at > pos:
			return nil
		case at < pos:
			return corrupt(segment.OffsetIndex, entry, "no batch of the log begins at its position %d", at)
		case offset <= c.last:
			return corrupt(segment.OffsetIndex, entry, "its offset %d lies before position %d, where the batch before ends with offset %d", offset, at, c.last)
		}
		c.found = true
	}
	if offset > h.LastOffset {
		return nil // of a later batch
	}
	if offset < h.LastOffset {
		first := at == pos && offset == h.BaseOffset
		// Of magic 0 and 1 the first offset of a compressed batch is not known.
		first = first || at == pos && h.Magic < 2 && h.Codec() != segment.CodecNone
		kept := offset >= h.BaseOffset && int64(h.Count) <= h.LastOffset-h.BaseOffset
		if !first && !kept {
			return corrupt(segment.OffsetIndex, entry, "no batch of the log ends with its offset %d", offset)
		}
	}
	c.found = false
	if c.offset, err = c.offsets.next(); err != nil || c.offset == nil {
		return err
	}
	if next := int64(binary.BigEndian.Uint32(c.offset[4:])); next <= pos {
		return corrupt(segment.OffsetIndex, entry+1, "its position %d lies before the end of offset %d of the entry before", next, offset)
	}
	return nil
}

// checkTime compares the time index with the batch of header h.
func (c *Checker) checkTime(h *segment.Header) (err error) {
	before := c.greatest
	c.greatest = max(c.greatest, h.MaxTimestamp)
	for c.time != nil {
		ts := int64(binary.BigEndian.Uint64(c.time))
		offset := c.base + int64(binary.BigEndian.Uint32(c.time[8:]))
		if offset > h.LastOffset {
			return nil
		}
		greatest := c.greatest
		if offset < h.BaseOffset && h.Magic == 2 {
			greatest = before // the entry lies in front of this batch
		}
		if ts != greatest {
			return corrupt(segment.TimeIndex, c.times.n-1, "it says that offsets up to %d have timestamps up to %d, but the log has %d", offset, ts, greatest)
		}
		if c.time, err = c.times.next(); err != nil {
			return err
		}
	}
	return nil
}

// checkTxn compares the transaction index with the batch of header h.
func (c *Checker) checkTxn(h *segment.Header) (err error) {
	if c.txn == nil {
		return nil
	}
	t := decodeTxn(c.txn)
	switch {
	case t.LastOffset > h.LastOffset:
		return nil
	case t.LastOffset < h.LastOffset || !h.Control() || t.ProducerID != h.ProducerID:
		return corrupt(segment.TxnIndex, c.txns.n-1, "the log has no marker of producer %d at offset %d", t.ProducerID, t.LastOffset)
	}
	c.txn, err = c.txns.next()
	return err
}

// Close says that the log has ended. It returns an error if an index has entries
// beyond it, and otherwise what Batch has returned.
func (c *Checker) Close() error {
	if c.err == nil {
		c.err = c.close()
	}
	return c.err
}

func (c *Checker) close() error {
	if err := c.start(); err != nil {
		return err
	}
	const beyond = "it points beyond the end of the log, which ends with offset %d"
	switch {
	case c.offset != nil:
		return corrupt(segment.OffsetIndex, c.offsets.n-1, beyond, c.last)
	case c.time != nil:
		return corrupt(segment.TimeIndex, c.times.n-1, beyond, c.last)
	case c.txn != nil:
		return corrupt(segment.TxnIndex, c.txns.n-1, beyond, c.last)
	}
	return nil
}
