package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Record is one record of a batch.
type Record struct {
	Offset    int64
	Timestamp int64 // ms since 1970, -1 for none
	Key       []byte
	Value     []byte // nil is Kafka's null, a tombstone; empty is empty
	Headers   []RecordHeader
}

// RecordHeader is one header of a record. Keys may repeat.
type RecordHeader struct {
	Key   string
	Value []byte // nil is Kafka's null
}

// DefaultMaxBytes is Decoder.MaxBytes where that is 0.
const DefaultMaxBytes = 512 << 20

// Decoder decodes the records of batches of every magic and codec. It
// decompresses as far as its caller reads, and its memory follows what has been
// decompressed, not what lengths in the batch claim. The zero Decoder is ready;
// it keeps its buffers and decompressors from batch to batch. It is not safe for
// concurrent use.
type Decoder struct {
	// MaxBytes bounds what one batch may decompress to, in bytes; 0 is
	// DefaultMaxBytes. A batch beyond it is an error once reading gets there.
	MaxBytes int64

	in      input
	headers []RecordHeader
}

// Records calls yield for each record of the one whole batch in raw, in offset
// order, until yield returns false. The record's slices are valid, and must not
// be changed, until yield returns.
//
// A batch that does not decode to exactly the records its header promises is a
// *BatchError at position 0; records before the damage have been yielded by
// then. The batch's CRC is not looked at: see VerifyBatch.
func (d *Decoder) Records(raw []byte, yield func(Record) bool) error {
	return d.decode(raw, yield, false)
}

// Times calls yield for each record with its offset and timestamp alone, until
// yield returns false. Keys, values and headers of a magic 2 batch are passed
// over without being held, so that memory does not follow the size of a record,
// and they are not checked. Otherwise it is as Records.
func (d *Decoder) Times(raw []byte, yield func(offset, timestamp int64) bool) error {
	return d.decode(raw, func(r Record) bool { return yield(r.Offset, r.Timestamp) }, true)
}

// decode is Records, or Times if the rest of the records is of no interest.
func (d *Decoder) decode(raw []byte, yield func(Record) bool, times bool) error {
	h, err := ParseHeader(raw)
	if err = whole(raw, &h, err); err != nil {
		return err
	}
	d.in.max = d.MaxBytes
	if d.in.max <= 0 {
		d.in.max = DefaultMaxBytes
	}
	if h.Magic < 2 {
		err = d.legacy(h, raw, yield)
	} else {
		err = d.records(h, raw[HeaderSize:], yield, times)
	}
	d.in.release()
	clear(d.headers[:cap(d.headers)])
	if err == nil || errors.Is(err, errStop) {
		return nil
	}
	be, ok := errors.AsType[*BatchError](err)
	if !ok {
		be = &BatchError{Reason: "its records do not decode", Err: err}
	}
	be.Offset = h.BaseOffset
	return be
}

// errStop says that yield wants no more.
var errStop = errors.New("stop")

// records decodes the records of a magic 2 batch.
func (d *Decoder) records(h Header, b []byte, yield func(Record) bool, times bool) error {
	if h.Count == 0 && len(b) == 0 {
		return nil // emptied by compaction
	}
	if err := d.in.open(h.Codec(), b); err != nil {
		return err
	}
	next := h.BaseOffset
	for i := range h.Count {
		size, err := d.in.varint()
		if err != nil {
			return fmt.Errorf("record %d of %d: %w", i, h.Count, noEOF(err))
		}
		if size < minRecordSize-1 {
			return h.corrupt("record %d of %d claims %d bytes", i, h.Count, size)
		}
		held := int(size)
		if times {
			held = min(held, maxTimesSize)
		}
		body, err := d.in.peek(held)
		if err != nil {
			return fmt.Errorf("record %d of %d, %d bytes: %w", i, h.Count, size, noEOF(err))
		}
		var r Record
		if times {
			r, err = recordTimes(&h, body)
		} else {
			r, err = d.record(&h, body)
		}
		if err != nil {
			return fmt.Errorf("record %d of %d: %w", i, h.Count, err)
		}
		if r.Offset < next || r.Offset > h.LastOffset {
			return h.corrupt("record %d of %d has offset %d, not one of %d to %d", i, h.Count, r.Offset, next, h.LastOffset)
		}
		next = r.Offset + 1
		if !yield(r) {
			return errStop
		}
		d.in.skip(held)
		if err := d.in.discard(int(size) - held); err != nil {
			return fmt.Errorf("record %d of %d, %d bytes: %w", i, h.Count, size, noEOF(err))
		}
	}
	_, err := d.in.peek(1)
	switch {
	case err == nil:
		return h.corrupt("bytes follow the last of its %d records", h.Count)
	case errors.Is(err, io.EOF):
		return nil
	}
	return err
}

// maxTimesSize is what the fields that Times wants take at most: attributes, a
// varlong and a varint.
const maxTimesSize = 1 + binary.MaxVarintLen64 + binary.MaxVarintLen32

// recordTimes decodes the beginning of a record's body.
func recordTimes(h *Header, body []byte) (Record, error) {
	c := fields{b: body[1:]}
	r := c.times(h)
	return r, c.err
}

// times decodes the fields that every record begins with, behind its attributes,
// which are unused.
func (c *fields) times(h *Header) Record {
	r := Record{Timestamp: h.BaseTimestamp + c.varlong()}
	if h.LogAppendTime() {
		r.Timestamp = h.MaxTimestamp
	}
	r.Offset = h.BaseOffset + int64(c.varint())
	return r
}

// record decodes one record from its body, what follows its length.
func (d *Decoder) record(h *Header, body []byte) (Record, error) {
	c := fields{b: body[1:]}
	r := c.times(h)
	r.Key = c.nullable()
	r.Value = c.nullable()
	n := c.varint()
	if n < 0 || int(n) > len(c.b)/2 { // a header takes two bytes
		c.fail("%d headers in %d bytes", n, len(c.b))
		n = 0
	}
	d.headers = d.headers[:0]
	for range n {
		key := c.nullable()
		if key == nil {
			c.fail("a header without a key")
		}
		d.headers = append(d.headers, RecordHeader{Key: string(key), Value: c.nullable()})
		if c.err != nil {
			break
		}
	}
	if len(d.headers) > 0 {
		r.Headers = d.headers
	}
	if len(c.b) > 0 {
		c.fail("%d bytes follow its last header", len(c.b))
	}
	return r, c.err
}

// fields decodes the fields of a record one after another. The first error
// stays and makes the rest zero.
type fields struct {
	b   []byte
	err error
}

func (c *fields) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
	c.b = nil
}

func (c *fields) varlong() int64 {
	v, n := binary.Varint(c.b)
	if n <= 0 {
		c.fail("a number is cut short or too long")
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *fields) varint() int32 {
	v := c.varlong()
	if int64(int32(v)) != v {
		c.fail("%d is no 32-bit number", v)
		return 0
	}
	return int32(v)
}

// nullable returns bytes behind their length, nil for null.
func (c *fields) nullable() []byte {
	n := c.varint()
	switch {
	case n == -1:
		return nil
	case n < 0 || int(n) > len(c.b):
		c.fail("a field claims %d of %d bytes", n, len(c.b))
		return nil
	}
	b := c.b[:n:n]
	c.b = c.b[n:]
	return b
}

// noEOF returns err, an end of data where there must be more.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Bounds of the input's buffer. It begins small, doubles only when it is full
// of bytes that are really there, and is not kept for the next batch if large.
const (
	minBuffer  = 16 << 10
	keepBuffer = 1 << 20
)

// input hands out the bytes of a batch's records, decompressing them as they
// are asked for.
type input struct {
	max int64 // bytes that may come out of r

	b      []byte // b[lo:hi] is ready to be handed out
	lo, hi int
	r      io.Reader // where more comes from; nil: b is all there is

	own   []byte // the buffer that is b if r is not nil
	total int64  // bytes that came out of r

	codecs codecs
}

// open begins with compressed, whose bytes it will hand out decompressed.
func (in *input) open(codec Codec, compressed []byte) (err error) {
	in.lo, in.hi, in.total = 0, 0, 0
	if codec == CodecNone {
		in.b, in.hi, in.r = compressed, len(compressed), nil
		return nil
	}
	if in.own == nil {
		in.own = make([]byte, minBuffer)
	}
	in.b = in.own
	in.r, err = in.codecs.open(codec, compressed)
	return err
}

// release lets go of the batch.
func (in *input) release() {
	in.b, in.r = nil, nil
	if len(in.own) > keepBuffer {
		in.own = nil
	}
	in.codecs.release()
}

// peek returns the next n bytes, valid until the next peek or varint. It
// returns io.EOF if there is nothing more, io.ErrUnexpectedEOF if less than n.
func (in *input) peek(n int) ([]byte, error) {
	for in.hi-in.lo < n {
		if err := in.fill(); errors.Is(err, io.EOF) && in.hi > in.lo {
			return nil, io.ErrUnexpectedEOF
		} else if err != nil {
			return nil, err
		}
	}
	return in.b[in.lo : in.lo+n], nil
}

// skip moves past n bytes that peek has returned.
func (in *input) skip(n int) { in.lo += n }

// discard moves past n bytes that need not be held.
func (in *input) discard(n int) error {
	for {
		here := min(n, in.hi-in.lo)
		in.lo += here
		if n -= here; n == 0 {
			return nil
		}
		if in.r != nil {
			in.lo, in.hi = 0, 0 // nothing is left in it
		}
		if err := in.fill(); err != nil {
			return err
		}
	}
}

// varint reads a 32-bit number.
func (in *input) varint() (int32, error) {
	for n := 1; ; n++ {
		b, err := in.peek(n)
		if err != nil {
			return 0, err
		}
		if b[n-1] >= 0x80 && n < binary.MaxVarintLen32 {
			continue
		}
		v, _ := binary.Varint(b)
		if b[n-1] >= 0x80 || int64(int32(v)) != v {
			return 0, errors.New("its length is no 32-bit number")
		}
		in.skip(n)
		return int32(v), nil
	}
}

// fill reads more bytes behind those that are ready.
func (in *input) fill() error {
	if in.r == nil {
		return io.EOF
	}
	if in.hi == len(in.b) {
		if in.lo == 0 {
			in.own = make([]byte, 2*len(in.b))
		}
		in.hi = copy(in.own, in.b[in.lo:in.hi])
		in.lo, in.b = 0, in.own
	}
	// One byte beyond max, to tell a batch of max bytes from a larger one.
	room := in.b[in.hi:]
	room = room[:min(int64(len(room)), in.max-in.total+1)]
	for range 100 {
		n, err := in.r.Read(room)
		in.total += int64(n)
		in.hi += n
		switch {
		case in.total > in.max:
			return fmt.Errorf("decompresses to more than %d bytes", in.max)
		case n > 0:
			return nil // an error comes again with the next read
		case err != nil:
			return err
		}
	}
	return io.ErrNoProgress
}
