package segment

import (
	"encoding/binary"
	"errors"
	"io"
)

// legacy decodes an entry of a message set of magic 0 or 1: one message, or a
// wrapper around a compressed message set. The CRC of the messages inside a
// wrapper is checked, as Kafka's consumers do.
func (d *Decoder) legacy(h Header, raw []byte, yield func(Record) bool) error {
	r, err := message(&h, raw)
	if err != nil {
		return err
	}
	if h.Codec() == CodecNone {
		yield(r)
		return nil
	}
	// Offsets inside a wrapper are absolute in magic 0. In magic 1 they count
	// from an unknown base; only the last one's offset is known, it is the
	// wrapper's. So the wrapper is read twice.
	var base int64
	if h.Magic == 1 {
		last := int64(-1)
		err := d.inner(&h, r.Value, func(in Header, _ []byte) error {
			last = in.BaseOffset
			return nil
		})
		if err != nil {
			return err
		}
		base = h.LastOffset - last
	}
	next, count := int64(0), 0
	err = d.inner(&h, r.Value, func(in Header, raw []byte) error {
		r, err := message(&in, raw)
		if err != nil {
			return err
		}
		r.Offset += base
		if h.LogAppendTime() {
			r.Timestamp = h.MaxTimestamp
		}
		if r.Offset < next || r.Offset > h.LastOffset {
			return h.corrupt("message %d inside has offset %d, not one of %d to %d", count, r.Offset, next, h.LastOffset)
		}
		next = r.Offset + 1
		count++
		if !yield(r) {
			return errStop
		}
		return nil
	})
	if err == nil && count == 0 {
		return h.corrupt("a compressed message without messages inside")
	}
	return err
}

// inner calls fn for each message of the compressed message set b of wrapper h.
func (d *Decoder) inner(h *Header, b []byte, fn func(in Header, raw []byte) error) error {
	if err := d.in.open(h.Codec(), b); err != nil {
		return err
	}
	for {
		head, err := d.in.peek(legacyHeaderSize)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		in, err := ParseHeader(head)
		switch {
		case errors.Is(err, ErrShort): // magic 2
			return h.corrupt("a magic 2 batch inside a magic %d message", h.Magic)
		case err != nil:
			return err
		case in.Magic != h.Magic:
			return h.corrupt("a magic %d message inside a magic %d message", in.Magic, h.Magic)
		case in.Codec() != CodecNone:
			return h.corrupt("a compressed message inside a compressed message")
		}
		raw, err := d.in.peek(int(in.Size))
		if err != nil {
			return noEOF(err)
		}
		if got := sumBatch(&in, 0, raw, 0); got != in.CRC {
			return mismatch(0, &in, got)
		}
		if err := fn(in, raw); err != nil {
			return err
		}
		d.in.skip(int(in.Size))
	}
}

// message decodes the message in raw.
func message(h *Header, raw []byte) (Record, error) {
	b := raw[minSizeV0-8:]
	if h.Magic == 1 {
		b = raw[minSizeV1-8:]
	}
	r := Record{Offset: h.BaseOffset, Timestamp: h.MaxTimestamp}
	for _, field := range []*[]byte{&r.Key, &r.Value} {
		if len(b) < 4 {
			return r, h.corrupt("no room for the length of key or value")
		}
		n := int64(int32(binary.BigEndian.Uint32(b)))
		b = b[4:]
		switch {
		case n == -1:
		case n < 0 || n > int64(len(b)):
			return r, h.corrupt("key or value claims %d of %d bytes", n, len(b))
		default:
			*field = b[:n:n]
			b = b[n:]
		}
	}
	if len(b) > 0 {
		return r, h.corrupt("%d bytes follow its value", len(b))
	}
	return r, nil
}
