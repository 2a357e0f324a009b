package transfer

import (
	"errors"
	"fmt"
	"io"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/index"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/segment"
)

// sectionBuffer is how many bytes of an index a full read asks for at once, while
// it reads the index in step with the log.
const sectionBuffer = 1 << 20

// sectionReader reads a section of an object as a stream, and sums it on its way.
type sectionReader struct {
	r    *fullRead
	s    object.Section
	buf  []byte
	rest []byte // of buf, read and not handed out
	off  int64  // bytes of the section read
	sum  uint32
}

func (r *fullRead) sectionReader(s object.Section) *sectionReader {
	return &sectionReader{r: r, s: s, buf: make([]byte, min(r.tail.Sections[s].Len, sectionBuffer))}
}

// orNil is s, or nil if there is no such file.
func (s *sectionReader) orNil() io.Reader {
	if len(s.buf) == 0 {
		return nil
	}
	return s
}

// Read implements io.Reader.
func (s *sectionReader) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		e := s.r.tail.Sections[s.s]
		if s.off == e.Len {
			return 0, io.EOF
		}
		b := s.buf[:min(e.Len-s.off, int64(len(s.buf)))]
		if err := s.r.piece(s.s, s.off, b); err != nil {
			return 0, err
		}
		s.sum = checksum.Update(s.sum, b)
		s.off += int64(len(b))
		s.rest = b
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// finish reads what is left and says whether the section has its sum; a wrong one
// is reported.
func (s *sectionReader) finish() (sound bool, err error) {
	if _, err := io.Copy(io.Discard, s); err != nil {
		return false, err
	}
	return s.r.checkSection(s.s, s.sum), nil
}

// piece reads a part of a section.
func (r *fullRead) piece(s object.Section, off int64, b []byte) error {
	e := r.tail.Sections[s]
	if err := r.wait(int64(len(b))); err != nil {
		return err
	}
	_, err := r.ep.Read(r.ctx, endpoint.ReadRequest{
		Key: r.key, Off: e.Off + off, IfMatch: r.identity, ObjectSize: r.loc.ObjectSize,
		Pieces: []endpoint.Piece{{Buf: b, NoVerify: true}},
	})
	if err != nil {
		return damage(r.key, e.Off+off, int64(len(b)), s.String(), err)
	}
	return nil
}

// checkSection compares the sum of a section that was read with the recorded one.
func (r *fullRead) checkSection(s object.Section, sum uint32) (sound bool) {
	e := r.tail.Sections[s]
	if sum == e.CRC32C {
		return true
	}
	r.report(&DamageError{
		Reason: Corrupt, Key: r.key, Off: e.Off, Len: e.Len, What: s.String(),
		Err: &checksum.MismatchError{What: s.String(), Off: e.Off, Len: e.Len, Want: e.CRC32C, Got: sum},
	})
	return false
}

// indexCheck holds an object's indexes against its log while both are read.
type indexCheck struct {
	r       *fullRead
	offset  *sectionReader
	time    *sectionReader
	checker *index.Checker
	fault   *index.Error // the first disagreement
	failed  error        // reading an index failed
}

func newIndexCheck(r *fullRead) *indexCheck {
	c := &indexCheck{r: r, offset: r.sectionReader(object.OffsetIndex), time: r.sectionReader(object.TimeIndex)}
	txn := r.tail.Sections[object.TxnIndex]
	at := txn.Off - r.loc.TailOffset
	h := &r.tail.Header
	c.checker = index.NewChecker(h.StartOffset, h.EndOffset, c.offset.orNil(), c.time.orNil(), bytesReader(r.tailBytes[at:at+txn.Len]))
	return c
}

// batch takes the next batch of the log.
func (c *indexCheck) batch(pos int64, h segment.Header) {
	if c.fault == nil && c.failed == nil {
		c.take(c.checker.Batch(pos, h))
	}
}

func (c *indexCheck) take(err error) {
	if err != nil && !errors.As(err, &c.fault) {
		c.failed = err
	}
}

// close ends the check; whole says that every batch of the log was seen. A
// disagreement is a finding only where the index is what was copied: one with a
// wrong sum says nothing more.
func (c *indexCheck) close(whole bool) error {
	if whole && c.fault == nil && c.failed == nil {
		c.take(c.checker.Close())
	}
	if c.failed != nil {
		return c.failed
	}
	sound := map[object.Section]bool{object.TxnIndex: true} // checked with the tail
	for _, s := range []*sectionReader{c.offset, c.time} {
		ok, err := s.finish()
		if err != nil {
			return err
		}
		sound[s.s] = ok
	}
	if c.fault == nil || !whole {
		return nil // not every batch was seen
	}
	s := object.OffsetIndex
	switch c.fault.Kind {
	case segment.TimeIndex:
		s = object.TimeIndex
	case segment.TxnIndex:
		s = object.TxnIndex
	default:
	}
	if !sound[s] {
		return nil
	}
	e := c.r.tail.Sections[s]
	c.r.report(&DamageError{
		Reason: Mismatch, Key: c.r.key, Off: e.Off, Len: e.Len, What: s.String(),
		Err: fmt.Errorf("%w: %w", errDisagrees, c.fault),
	})
	return nil
}

// errDisagrees: an index is as it was copied, and leads to other batches than the
// log has.
var errDisagrees = errors.New("it does not agree with the log")
