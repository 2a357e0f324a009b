package weather

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/segtier/segtier/checksum"
)

// sinkTail is how many of its last bytes are kept of an object that is not kept
// whole: a tail of package object is read back after it was written.
const sinkTail = 256 << 10

// received is a body that was taken and verified.
type received struct {
	size   int64
	crc32c uint32
	claim  claim
	sum    []byte // by the claim's algorithm; of CRC32C if there is none
	whole  []byte // all bytes, nil if they are not kept
	tail   []byte // the last bytes, if whole is nil
}

// receive reads the body of a write, sums it, and holds it to what its headers
// say.
func (x *exchange) receive() (*received, error) {
	h := x.r.Header
	claim, err := claimOf(h)
	if err != nil {
		return nil, err
	}
	var body io.Reader = x.r.Body
	size := x.r.ContentLength
	var chunks *chunkReader
	if strings.HasPrefix(h.Get("X-Amz-Content-Sha256"), "STREAMING-") || strings.Contains(h.Get("Content-Encoding"), "aws-chunked") {
		if size, err = parseNumber(h.Get("X-Amz-Decoded-Content-Length")); err != nil {
			return nil, &failure{http.StatusLengthRequired, "MissingContentLength", "You must provide the x-amz-decoded-content-length header.", 0}
		}
		chunks = newChunkReader(x.r.Body)
		body = chunks
	}
	if size < 0 {
		return nil, &failure{http.StatusLengthRequired, "MissingContentLength", "You must provide the Content-Length HTTP header.", 0}
	}
	got := &received{claim: claim, size: size}
	keep := x.s.store.reserve(size)
	if keep {
		got.whole = make([]byte, 0, size)
	}
	d := x.newDigests(claim)
	err = x.take(body, got, d)
	if err == nil && chunks != nil && claim.value == "" && claim.algorithm != noAlgorithm {
		got.claim.value = chunks.trailer[strings.ToLower(claim.algorithm.header())]
	}
	if err == nil {
		err = d.verify(h, got.claim)
	}
	if err != nil {
		if keep {
			x.s.store.release(size)
		}
		return nil, err
	}
	got.crc32c, got.sum = d.crc32c, d.sum()
	return got, nil
}

// take reads exactly got.size bytes.
func (x *exchange) take(body io.Reader, got *received, d *digests) error {
	b := pool.Get().(*buffers)
	defer pool.Put(b)
	piece := writeSize
	if x.schedule.ConnRate > 0 || x.schedule.TotalRate > 0 {
		piece = pacedSize
	}
	for total := int64(0); ; {
		n, err := body.Read(b.data[:piece])
		total += int64(n)
		if total > got.size {
			return errIncomplete
		}
		x.s.count.bytesIn.Add(int64(n))
		d.write(b.data[:n])
		if got.whole != nil {
			got.whole = append(got.whole, b.data[:n]...)
		} else if total > got.size-sinkTail {
			// Of the last bytes those in this piece.
			p := b.data[:n]
			if before := got.size - sinkTail - (total - int64(n)); before > 0 {
				p = p[before:]
			}
			got.tail = append(got.tail, p...)
		}
		if !x.throttle(&x.conn.in, &x.s.in, n) {
			return errIncomplete
		}
		if errors.Is(err, io.EOF) && total == got.size {
			return nil
		}
		if err != nil {
			var f *failure
			if errors.As(err, &f) {
				return f
			}
			return errIncomplete
		}
	}
}

// chunkReader decodes a body in aws-chunked encoding. Signatures are skipped.
type chunkReader struct {
	r       *bufio.Reader
	left    int64 // of the chunk
	started bool
	ended   bool
	trailer map[string]string // names in lower case
}

var errChunks = &failure{http.StatusBadRequest, "InvalidRequest", "The aws-chunked encoding of the body is malformed", 0}

func newChunkReader(r io.Reader) *chunkReader {
	return &chunkReader{r: bufio.NewReaderSize(r, writeSize)}
}

// Read implements io.Reader.
func (c *chunkReader) Read(p []byte) (int, error) {
	for c.left == 0 {
		if c.ended {
			return 0, io.EOF
		}
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if n > 0 {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// next reads the head of a chunk, or the trailer behind the last.
func (c *chunkReader) next() error {
	if c.started {
		if line, err := c.line(); err != nil || line != "" {
			return errChunks
		}
	}
	c.started = true
	line, err := c.line()
	if err != nil {
		return err
	}
	digits, _, _ := strings.Cut(line, ";")
	size, err := strconv.ParseUint(digits, 16, 40)
	if err != nil {
		return errChunks
	}
	if c.left = int64(size); size > 0 {
		return nil
	}
	c.ended, c.trailer = true, make(map[string]string)
	for len(c.trailer) < 16 {
		line, err := c.line()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || err == nil && line == "" {
			return nil
		}
		if err != nil {
			return err
		}
		name, value, _ := strings.Cut(line, ":")
		c.trailer[strings.ToLower(name)] = strings.TrimSpace(value)
	}
	return errChunks
}

// line reads a line, which is short.
func (c *chunkReader) line() (string, error) {
	b, err := c.r.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, bufio.ErrBufferFull) {
			return "", errChunks
		}
		return "", io.ErrUnexpectedEOF
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

// sumOfParts is the CRC-32C of an object that is made of parts.
func sumOfParts(parts []*part) checksum.Sum {
	var s checksum.Sum
	for _, p := range parts {
		s = s.Append(checksum.Sum{Len: p.size, CRC32C: p.crc32c})
	}
	return s
}
