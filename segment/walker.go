package segment

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/segtier/segtier/checksum"
)

// VerifyBatch decodes the header of the one whole batch in raw and checks that
// raw is exactly as long as the header says and has the recorded CRC. It does
// not allocate unless it fails, which it does with a *BatchError at position 0.
func VerifyBatch(raw []byte) (Header, error) {
	h, err := ParseHeader(raw)
	if err = whole(raw, &h, err); err != nil {
		return h, err
	}
	if got := sumBatch(&h, 0, raw, 0); got != h.CRC {
		return h, mismatch(0, &h, got)
	}
	return h, nil
}

// A Walker checks a stream of batches that is written to it in arbitrary
// pieces, such as a log file read by chunks, and calls Batch for each. It
// allocates nothing. Set Batch and use it; it is not safe for concurrent use.
//
// After an error every later Write and Close returns the same error, until
// Reset.
type Walker struct {
	// Batch is called for every batch once its last byte has been written and
	// its CRC has been verified, with the position of its first byte in the
	// stream. An error stops the walk and is returned by Write as it is. Nil
	// only verifies.
	Batch func(pos int64, h Header) error

	pos  int64 // of the batch being read
	last int64 // offset of the batch before it; -1 at the start
	used bool  // last is valid

	h    Header
	open bool             // h is decoded
	crc  uint32           // of the part of the batch that was written
	done int32            // bytes of the batch that were written
	head [HeaderSize]byte // its beginning, until h is decoded

	err error
}

// Write takes the next bytes of the stream; it does not keep p. It returns a
// *BatchError if they are not what brokers write: nonsense in a header, a wrong
// CRC, an offset that is not greater than that of the batch before.
func (w *Walker) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 && w.err == nil {
		p = p[w.step(p):]
	}
	return n - len(p), w.err
}

// step takes some bytes of p, which is not empty, and returns how many.
func (w *Walker) step(p []byte) int {
	if w.open {
		k := min(len(p), int(w.h.Size-w.done))
		w.take(p[:k])
		return k
	}
	if w.done == 0 {
		// The common case: the header lies in p as a whole.
		err := w.h.parse(p)
		if err == nil {
			w.begin()
			k := min(len(p), int(w.h.Size))
			w.take(p[:k])
			return k
		}
		if !errors.Is(err, ErrShort) {
			w.err = at(err, w.pos)
			return 0
		}
	}
	// Gather the header. Magic 0 and 1 need fewer bytes of it, and no entry is
	// shorter than what they need, so this takes nothing of a next entry.
	want := legacyHeaderSize
	if w.done >= MinHeaderSize && w.head[16] == 2 {
		want = HeaderSize
	}
	k := copy(w.head[w.done:want], p)
	w.done += int32(k)
	head := w.head[:w.done]
	err := w.h.parse(head)
	switch {
	case err == nil:
		w.begin()
		w.take(head)
	case !errors.Is(err, ErrShort):
		w.err = at(err, w.pos)
	}
	return k
}

// begin starts the batch with header w.h, none of which has been taken.
func (w *Walker) begin() {
	w.open, w.crc, w.done = true, 0, 0
	if w.used && w.h.LastOffset <= w.last {
		w.err = &BatchError{
			Pos: w.pos, Offset: w.h.BaseOffset,
			Reason: fmt.Sprintf("its last offset %d does not follow offset %d of the batch before", w.h.LastOffset, w.last),
		}
	}
}

// take adds p, bytes of the current batch, and ends the batch with its last.
func (w *Walker) take(p []byte) {
	if w.err != nil {
		return
	}
	w.crc = sumBatch(&w.h, w.crc, p, w.done)
	w.done += int32(len(p))
	if w.done < w.h.Size {
		return
	}
	if w.crc != w.h.CRC {
		w.err = mismatch(w.pos, &w.h, w.crc)
		return
	}
	pos := w.pos
	w.pos += int64(w.h.Size)
	w.last, w.used = w.h.LastOffset, true
	w.open, w.done = false, 0
	if w.Batch != nil {
		w.err = w.Batch(pos, w.h)
	}
}

// Pos returns the position behind the last whole and verified batch, where the
// batch that is being read begins.
func (w *Walker) Pos() int64 { return w.pos }

// Close says that the stream has ended. It returns a *BatchError that wraps
// io.ErrUnexpectedEOF if that is inside a batch.
func (w *Walker) Close() error {
	if w.err == nil && w.done > 0 {
		h := w.h
		if !w.open {
			h, _ = ParseHeader(w.head[:w.done])
		}
		w.err = truncated(w.pos, int64(w.done), h, w.open)
	}
	return w.err
}

// Reset makes w ready for another stream; Batch stays.
func (w *Walker) Reset() { *w = Walker{Batch: w.Batch} }

// sumBatch adds p, which lies at byte off of a batch, to the batch's CRC.
func sumBatch(h *Header, crc uint32, p []byte, off int32) uint32 {
	from := int32(crcFieldEnd)
	if h.Magic < 2 {
		from = legacyCRCFrom
	}
	if off < from {
		p = p[min(int(from-off), len(p)):]
	}
	if h.Magic < 2 {
		return crc32.Update(crc, crc32.IEEETable, p)
	}
	return checksum.Update(crc, p)
}

// whole checks that raw is exactly the batch whose header ParseHeader returned
// together with err.
func whole(raw []byte, h *Header, err error) error {
	switch have := int64(len(raw)); {
	case errors.Is(err, ErrShort):
		return truncated(0, have, *h, false)
	case err != nil:
		return err
	case have < int64(h.Size):
		return truncated(0, have, *h, true)
	case have > int64(h.Size):
		return h.corrupt("%d bytes follow the %d of the batch", have-int64(h.Size), h.Size)
	}
	return nil
}

func mismatch(pos int64, h *Header, got uint32) error {
	e := &BatchError{Pos: pos, Offset: h.BaseOffset, Reason: "wrong CRC"}
	if h.Magic < 2 {
		e.Reason = fmt.Sprintf("wrong CRC-32: recorded %08x, read %08x", h.CRC, got)
		return e
	}
	e.Err = &checksum.MismatchError{What: "batch", Off: pos + crcFieldEnd, Len: int64(h.Size) - crcFieldEnd, Want: h.CRC, Got: got}
	return e
}

// truncated is the error for a batch of which only have bytes are there. Its
// header is known if whole.
func truncated(pos, have int64, h Header, whole bool) error {
	e := &BatchError{Pos: pos, Offset: -1, Err: io.ErrUnexpectedEOF}
	if whole {
		e.Offset = h.BaseOffset
		e.Reason = fmt.Sprintf("truncated: %d of its %d bytes are there", have, h.Size)
	} else {
		e.Reason = fmt.Sprintf("truncated: its first %d bytes are not a whole header", have)
	}
	return e
}

// at returns err, a *BatchError of ParseHeader, moved to pos.
func at(err error, pos int64) error {
	if be, ok := errors.AsType[*BatchError](err); ok {
		be.Pos = pos
	}
	return err
}
