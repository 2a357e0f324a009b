package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/pierrec/lz4/v4"
)

// codecs holds the decompressors of a Decoder, made when first needed.
type codecs struct {
	src    bytes.Reader
	gzip   *gzip.Reader
	blocks blockReader
	zstd   zstdReader
}

// open returns a reader of what b decompresses to. It is valid until the next.
func (c *codecs) open(codec Codec, b []byte, magic int8) (io.Reader, error) {
	switch codec {
	case CodecGzip:
		c.src.Reset(b)
		if c.gzip == nil {
			c.gzip = new(gzip.Reader)
		}
		return c.gzip, noEOF(c.gzip.Reset(&c.src))
	case CodecSnappy:
		return &c.blocks, c.blocks.openSnappy(b)
	case CodecLZ4:
		return &c.blocks, c.blocks.openLZ4(b)
	case CodecZstd:
		if magic < 2 {
			return nil, errors.New("zstd in an old message")
		}
		return &c.zstd, c.zstd.open(b)
	default: // none is not decompressed, and others do not get past ParseHeader
		return nil, fmt.Errorf("unknown %v", codec)
	}
}

// release lets go of the compressed bytes.
func (c *codecs) release() {
	c.src.Reset(nil)
	c.blocks.b, c.blocks.out = nil, nil
	c.blocks.next = nil
	if cap(c.blocks.buf) > keepBuffer {
		c.blocks.buf = nil
	}
	c.zstd.release()
}

// blockReader reads formats that are blocks behind their lengths: one block is
// decompressed at a time.
type blockReader struct {
	b    []byte // compressed, not yet read
	next func(r *blockReader) error
	buf  []byte // for a block
	out  []byte // decompressed, not yet handed out
	max  int    // LZ4: the greatest size of a block
	sums bool   // LZ4: each block is followed by a checksum
	done bool   // no further block
}

// Read implements io.Reader.
func (r *blockReader) Read(p []byte) (int, error) {
	for len(r.out) == 0 {
		if r.done {
			return 0, io.EOF
		}
		if err := r.next(r); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

// grow returns a buffer of n bytes.
func (r *blockReader) grow(n int) []byte {
	if cap(r.buf) < n {
		r.buf = make([]byte, n)
	}
	return r.buf[:n]
}

// take returns the next n compressed bytes.
func (r *blockReader) take(n int64) ([]byte, error) {
	if n < 0 || n > int64(len(r.b)) {
		return nil, fmt.Errorf("a block claims %d of %d compressed bytes: %w", n, len(r.b), io.ErrUnexpectedEOF)
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b, nil
}

// The header of a snappy stream as xerial's library for Java writes it: magic,
// then two version numbers. Blocks behind their big-endian lengths follow.
const (
	xerialMagic      = "\x82SNAPPY\x00"
	xerialHeaderSize = 16
)

// snappyRatio is more than what a snappy block can expand to: three bytes copy
// at most 64.
const snappyRatio = 22

// openSnappy begins a snappy stream in xerial's framing or, as some clients
// write it, a single block without any.
func (r *blockReader) openSnappy(b []byte) error {
	*r = blockReader{b: b, buf: r.buf, next: (*blockReader).bareSnappy}
	if bytes.HasPrefix(b, []byte(xerialMagic)) {
		if len(b) < xerialHeaderSize {
			return fmt.Errorf("snappy header: %w", io.ErrUnexpectedEOF)
		}
		if v := binary.BigEndian.Uint32(b[12:]); v > 1 {
			return fmt.Errorf("snappy framing needs a reader of version %d", v)
		}
		r.b = b[xerialHeaderSize:]
		r.next = (*blockReader).xerialBlock
	}
	return nil
}

func (r *blockReader) xerialBlock() error {
	if len(r.b) == 0 {
		r.done = true
		return nil
	}
	size, err := r.take(4)
	if err != nil {
		return err
	}
	block, err := r.take(int64(int32(binary.BigEndian.Uint32(size))))
	if err != nil {
		return err
	}
	return r.snappyBlock(block)
}

func (r *blockReader) bareSnappy() error {
	r.done = true
	return r.snappyBlock(r.b)
}

func (r *blockReader) snappyBlock(block []byte) error {
	n, err := snappy.DecodedLen(block)
	if err != nil {
		return err
	}
	if int64(n) > snappyRatio*int64(len(block)) {
		return fmt.Errorf("a snappy block of %d bytes claims to hold %d", len(block), n)
	}
	r.out, err = snappy.Decode(r.grow(n), block)
	return err
}

// The LZ4 frame format: magic, descriptor (flags, block size, perhaps content
// size and dictionary id, a checksum of itself), blocks behind their
// little-endian lengths, an end mark, perhaps a checksum of the content.
const (
	lz4Magic       = 0x184D2204
	lz4FlagVersion = 0xC0 // must be 0x40
	lz4FlagIndep   = 0x20
	lz4FlagSums    = 0x10
	lz4FlagSize    = 0x08
	lz4FlagDict    = 0x01
	lz4Stored      = 1 << 31 // in a block's length: not compressed

	// lz4Ratio is more than what an LZ4 block can expand to: a byte of a match's
	// length stands for 255 bytes.
	lz4Ratio = 255
)

// openLZ4 begins an LZ4 frame. The descriptor's checksum is not looked at:
// Kafka's writers of magic 0 computed it over the wrong bytes, and the batch's
// CRC covers it. Nor are those of blocks and content, for the same reason.
func (r *blockReader) openLZ4(b []byte) error {
	*r = blockReader{b: b, buf: r.buf, next: (*blockReader).lz4Block}
	head, err := r.take(6)
	if err != nil || binary.LittleEndian.Uint32(head) != lz4Magic {
		return errors.New("not an LZ4 frame")
	}
	flags, size := head[4], head[5]>>4&7
	switch {
	case flags&lz4FlagVersion != 0x40:
		return fmt.Errorf("LZ4 frame flags %#02x: unknown version", flags)
	case flags&lz4FlagIndep == 0:
		return errors.New("LZ4 frame with blocks that depend on each other: Kafka does not read such frames either")
	case flags&lz4FlagDict != 0:
		return errors.New("LZ4 frame needs a dictionary")
	case size < 4:
		return fmt.Errorf("LZ4 frame with block size %d: unknown", size)
	}
	r.max = 1 << (8 + 2*size) // 64 KiB to 4 MiB
	r.sums = flags&lz4FlagSums != 0
	more := int64(1) // the descriptor's checksum
	if flags&lz4FlagSize != 0 {
		more += 8
	}
	_, err = r.take(more)
	return err
}

func (r *blockReader) lz4Block() error {
	b, err := r.take(4)
	if err != nil {
		return err
	}
	size := binary.LittleEndian.Uint32(b)
	if size == 0 {
		r.done = true // a checksum of the content may follow
		return nil
	}
	stored := size&lz4Stored != 0
	size &^= lz4Stored
	if int64(size) > int64(r.max) {
		return fmt.Errorf("an LZ4 block of %d bytes in a frame of blocks up to %d", size, r.max)
	}
	block, err := r.take(int64(size))
	if err != nil {
		return err
	}
	if r.sums {
		if _, err := r.take(4); err != nil {
			return err
		}
	}
	if stored {
		r.out = block
		return nil
	}
	dst := r.grow(min(r.max, lz4Ratio*len(block)))
	n, err := lz4.UncompressBlock(block, dst)
	if err != nil {
		return err
	}
	r.out = dst[:n]
	return nil
}
