package index

import (
	"errors"
	"fmt"
	"io"

	"github.com/segtier/segtier/segment"
)

// streamBuffer is how many bytes of an index file are in memory at a time: some
// hundred entries of any kind, and a multiple of the size of each.
const streamBuffer = 10 * 408

// stream reads the entries of an index file one after another. It accepts and
// refuses exactly what entries does.
type stream struct {
	kind  segment.FileKind
	size  int // of an entry
	base  int64
	check follow

	r      io.Reader // nil at its end
	buf    [streamBuffer]byte
	lo, hi int // what is in buf
	prev   [txnEntry]byte
	n      int64 // entries returned
}

func newStream(kind segment.FileKind, size int, base int64, check follow, r io.Reader) *stream {
	return &stream{kind: kind, size: size, base: base, check: check, r: r}
}

// fill makes at least n bytes ready, or all that there are.
func (s *stream) fill(n int) error {
	if s.hi-s.lo >= n || s.r == nil {
		return nil
	}
	s.hi = copy(s.buf[:], s.buf[s.lo:s.hi])
	s.lo = 0
	k, err := io.ReadAtLeast(s.r, s.buf[s.hi:], n-s.hi)
	s.hi += k
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		s.r = nil
		err = nil
	}
	if err != nil {
		return fmt.Errorf("reading the %v: %w", s.kind, err)
	}
	return nil
}

// next returns the next entry, valid until the call after. It returns nil at the
// end; then the file has been read to its end.
func (s *stream) next() ([]byte, error) {
	if err := s.fill(2 * s.size); err != nil {
		return nil, err
	}
	have := s.buf[s.lo:s.hi]
	switch {
	case len(have) == 0:
		return nil, nil
	case len(have) < s.size && s.kind != segment.TxnIndex:
		return nil, corrupt(s.kind, s.n, "only %d of its %d bytes are there", len(have), s.size)
	case len(have) < s.size:
		s.lo = s.hi
		return nil, nil
	case s.n == 0 && len(have) > s.size && allZero(have[:min(2*s.size, len(have))]):
		zero, err := s.tail()
		if err != nil || zero {
			return nil, err
		}
		return nil, corrupt(s.kind, 1, "entries follow zeros")
	}
	e := have[:s.size]
	var prev []byte
	if s.n > 0 {
		prev = s.prev[:s.size]
	}
	if reason := s.check(s.base, prev, e); reason != "" {
		zero, err := s.tail()
		if err != nil || zero {
			return nil, err
		}
		return nil, corrupt(s.kind, s.n, "%s", reason)
	}
	copy(s.prev[:], e)
	s.lo += s.size
	s.n++
	return s.prev[:s.size], nil
}

// tail reads on for as long as there are only zeros, and reports whether that
// was to the end.
func (s *stream) tail() (bool, error) {
	odd := 0
	for {
		if !allZero(s.buf[s.lo:s.hi]) {
			return false, nil
		}
		odd = (odd + s.hi - s.lo) % s.size
		s.lo = s.hi
		if err := s.fill(1); err != nil {
			return false, err
		}
		if s.lo == s.hi {
			if odd != 0 && s.kind != segment.TxnIndex {
				return false, corrupt(s.kind, -1, "its length is not a multiple of %d", s.size)
			}
			return true, nil
		}
	}
}
