package testseg

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/segtier/segtier/segment"
)

// Compress appends plain compressed as Kafka's Java client does it: gzip, zstd,
// an LZ4 frame of independent 64 KiB blocks, or snappy in xerial's framing with
// blocks of 32 KiB.
func Compress(dst []byte, codec segment.Codec, plain []byte) []byte {
	var buf bytes.Buffer
	switch codec {
	case segment.CodecNone:
		return append(dst, plain...)
	case segment.CodecGzip:
		w := gzip.NewWriter(&buf)
		must(w.Write(plain))
		must(0, w.Close())
	case segment.CodecSnappy:
		buf.WriteString("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
		for len(plain) > 0 {
			n := min(len(plain), 32<<10)
			block := snappy.Encode(nil, plain[:n])
			must(buf.Write(binary.BigEndian.AppendUint32(nil, uint32(len(block)))))
			must(buf.Write(block))
			plain = plain[n:]
		}
	case segment.CodecLZ4:
		w := lz4.NewWriter(&buf)
		must(0, w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.SizeOption(0)))
		must(w.Write(plain))
		must(0, w.Close())
	case segment.CodecZstd:
		w, err := zstd.NewWriter(&buf, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<17))
		must(0, err)
		must(w.Write(plain))
		must(0, w.Close())
	default:
		panic(fmt.Sprintf("testseg: no %v", codec))
	}
	return append(dst, buf.Bytes()...)
}

func must(_ int, err error) {
	if err != nil {
		panic(err) // writing to memory does not fail
	}
}
