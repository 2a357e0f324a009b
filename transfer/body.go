package transfer

import (
	"bytes"
	"errors"
	"io"

	"github.com/segtier/segtier/segment"
)

// bytesReader returns a reader of b, nil if there is nothing in it.
func bytesReader(b []byte) io.Reader {
	if len(b) == 0 {
		return nil
	}
	return bytes.NewReader(b)
}

// body is an object's bytes as an upload reads them: the files in place, the
// tail from memory. Its ReadAt may be called concurrently.
type body struct {
	sections []bodySection // without gaps, from 0
	size     int64
}

type bodySection struct {
	r        io.ReaderAt
	off, len int64
}

// body returns the bytes of the object that ends with tail.
func (p *Plan) body(src segment.Source, tail []byte) *body {
	b := &body{}
	for i, s := range p.head {
		if s.Len > 0 {
			file, _ := src.File(segment.FileKind(i))
			b.add(file, s.Len)
		}
	}
	b.add(bytes.NewReader(tail), int64(len(tail)))
	return b
}

func (b *body) add(r io.ReaderAt, n int64) {
	b.sections = append(b.sections, bodySection{r: r, off: b.size, len: n})
	b.size += n
}

// ReadAt implements io.ReaderAt. A file that has become shorter than it was
// scanned is ErrSourceChanged.
func (b *body) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, errors.New("transfer: negative offset")
	}
	for _, s := range b.sections {
		if len(p) == n {
			return n, nil
		}
		at := off + int64(n) - s.off
		if at < 0 || at >= s.len {
			continue
		}
		want := min(s.len-at, int64(len(p)-n))
		k, err := s.r.ReadAt(p[n:n+int(want)], at)
		n += k
		if int64(k) == want {
			continue
		}
		if err == nil || errors.Is(err, io.EOF) {
			err = ErrSourceChanged
		}
		return n, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
