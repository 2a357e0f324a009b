package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/klauspost/compress/zstd"
)

// A zstd frame says how far back it may refer, its window, and a decoder needs
// memory for that. The claim is free: a frame of 20 bytes can ask for 128 MiB,
// and honest ones at Kafka's default level ask for 2 MiB to hold 1 KiB. But
// nothing can refer further back than to the first byte. So the window that the
// decoder is told begins at minWindow and grows, by starting over, when as much
// has been decompressed. The factor keeps what is decompressed twice below a
// tenth.
const (
	minWindow    = 256 << 10
	windowFactor = 16
	maxWindow    = 128 << 20 // what zstd itself accepts unless told otherwise
)

// The zstd frame format.
const (
	zstdMagic         = 0xFD2FB528
	zstdSkippable     = 0x184D2A50 // to 0x184D2A5F
	zstdSingleSegment = 1 << 5     // the content is its own window
	zstdChecksum      = 1 << 2
)

var errZstdFrame = errors.New("not a whole zstd frame")

// zstdReader reads zstd frames one after another.
type zstdReader struct {
	dec    *zstd.Decoder
	frame  zstdFrame
	rest   []byte // frames not yet begun
	window int64  // that dec was told
	done   int64  // bytes of the frame handed out
	head   []byte // the frame's header as dec is told
	parts  [2]bytes.Reader
	src    io.Reader
}

func (r *zstdReader) open(b []byte) error {
	if r.dec == nil {
		// Concurrency 1 runs in the caller: no goroutines, nothing to close.
		dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return err
		}
		r.dec = dec
	}
	r.rest = b
	return r.nextFrame()
}

func (r *zstdReader) release() {
	r.rest, r.frame = nil, zstdFrame{}
	r.parts = [2]bytes.Reader{}
	if r.dec != nil {
		_ = r.dec.Reset(nil)
		if r.window > keepBuffer {
			r.dec.Close()
			r.dec = nil
		}
	}
	r.window = 0
}

// nextFrame begins the next frame. It returns io.EOF if there is none.
func (r *zstdReader) nextFrame() error {
	for {
		if len(r.rest) == 0 {
			return io.EOF
		}
		f, n, err := parseZstdFrame(r.rest)
		if err != nil {
			return err
		}
		r.rest = r.rest[n:]
		if f.raw == nil {
			continue // skippable
		}
		r.frame, r.done = f, 0
		return r.restart(minWindow)
	}
}

// restart begins the frame again with at most the given window, and moves to
// where it was.
func (r *zstdReader) restart(window int64) error {
	r.window = min(window, r.frame.window)
	r.head = r.frame.appendHeader(r.head[:0], r.window)
	r.parts[0].Reset(r.head)
	r.parts[1].Reset(r.frame.raw[r.frame.header:])
	r.src = io.MultiReader(&r.parts[0], &r.parts[1])
	if err := r.dec.Reset(r.src); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, r.dec, r.done)
	return err
}

// Read implements io.Reader.
func (r *zstdReader) Read(p []byte) (int, error) {
	for {
		if r.window < r.frame.window {
			if r.done == r.window {
				if err := r.restart(r.window * windowFactor); err != nil {
					return 0, noEOF(err)
				}
				continue
			}
			p = p[:min(int64(len(p)), r.window-r.done)]
		}
		n, err := r.dec.Read(p)
		r.done += int64(n)
		if n > 0 {
			return n, nil // an error comes again with the next read
		}
		if !errors.Is(err, io.EOF) {
			return 0, err
		}
		if err := r.nextFrame(); err != nil {
			return 0, err
		}
	}
}

// zstdFrame is a zstd frame that has been delimited, but not decompressed.
type zstdFrame struct {
	raw    []byte
	header int   // length of the header in raw, magic included
	window int64 // as declared
}

// parseZstdFrame finds the end of the frame at the start of b. A skippable one
// has no raw.
func parseZstdFrame(b []byte) (f zstdFrame, size int, err error) {
	if len(b) < 8 {
		return f, 0, errZstdFrame
	}
	magic := binary.LittleEndian.Uint32(b)
	if magic&^0xF == zstdSkippable {
		n := int64(binary.LittleEndian.Uint32(b[4:])) + 8
		if n > int64(len(b)) {
			return f, 0, errZstdFrame
		}
		return f, int(n), nil
	}
	if magic != zstdMagic {
		return f, 0, errors.New("not zstd")
	}
	if err := f.parseHeader(b); err != nil {
		return f, 0, err
	}
	at := int64(f.header)
	for last := false; !last; {
		if at+3 > int64(len(b)) {
			return f, 0, errZstdFrame
		}
		v := uint32(b[at]) | uint32(b[at+1])<<8 | uint32(b[at+2])<<16
		last = v&1 != 0
		at += 3
		if v>>1&3 == 1 {
			at++ // one byte, repeated
		} else {
			at += int64(v >> 3)
		}
	}
	if b[4]&zstdChecksum != 0 {
		at += 4
	}
	if at > int64(len(b)) {
		return f, 0, errZstdFrame
	}
	f.raw = b[:at]
	return f, int(at), nil
}

// parseHeader finds the length of the header at the start of b and the window.
func (f *zstdFrame) parseHeader(b []byte) error {
	flags := b[4]
	single := flags&zstdSingleSegment != 0
	at := 5
	if !single {
		log := 10 + uint(b[at]>>3)
		f.window = 1<<log + int64(b[at]&7)<<(log-3)
		at++
	}
	at += []int{0, 1, 2, 4}[flags&3] // dictionary id
	content := []int{0, 2, 4, 8}[flags>>6]
	if single && content == 0 {
		content = 1
	}
	if at+content > len(b) {
		return errZstdFrame
	}
	if single {
		var field [8]byte
		copy(field[:], b[at:at+content])
		v := binary.LittleEndian.Uint64(field[:])
		if v > maxWindow {
			return fmt.Errorf("a zstd frame of %d bytes in one segment, the limit is %d", v, maxWindow)
		}
		f.window = int64(v)
	}
	f.header = at + content
	if f.window > maxWindow {
		return fmt.Errorf("a zstd frame with a window of %d bytes, the limit is %d", f.window, maxWindow)
	}
	return nil
}

// appendHeader appends the frame's header with its window cut to window, which
// then is a power of two.
func (f *zstdFrame) appendHeader(dst []byte, window int64) []byte {
	if window == f.window {
		return append(dst, f.raw[:f.header]...)
	}
	from := 5
	if f.raw[4]&zstdSingleSegment == 0 {
		from++
	}
	dst = append(dst, f.raw[:5]...)
	dst[len(dst)-1] &^= zstdSingleSegment
	dst = append(dst, byte(bits.TrailingZeros64(uint64(window))-10)<<3)
	return append(dst, f.raw[from:f.header]...)
}
