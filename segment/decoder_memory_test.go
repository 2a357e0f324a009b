package segment_test

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/segment"
)

// Buffers and decompressors are kept from batch to batch.
func TestDecoderReusesMemory(t *testing.T) {
	for _, codec := range allCodecs() {
		raw := testseg.Batch{Records: []segment.Record{{Value: make([]byte, 5000)}, {Offset: 1}}, Codec: codec}.Append(nil)
		var d segment.Decoder
		n := testing.AllocsPerRun(20, func() {
			if err := d.Records(raw, func(segment.Record) bool { return true }); err != nil {
				t.Fatal(err)
			}
		})
		if n > 12 { // of the decompressors' own
			t.Errorf("%v: %v allocations a batch", codec, n)
		}
		if codec <= segment.CodecNone && n > 0 {
			t.Errorf("%v: %v allocations a batch", codec, n)
		}
	}
}

// What one large batch needed is not kept for the small ones that follow.
func TestDecoderLetsGoOfLargeBuffers(t *testing.T) {
	value := make([]byte, 16<<20)
	for i := range value {
		value[i] = byte(i * i >> 8)
	}
	live := func() uint64 {
		runtime.GC()
		runtime.GC() // what pools held
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for _, codec := range allCodecs()[1:] {
		raw := testseg.Batch{Records: []segment.Record{{Value: value}}, Codec: codec}.Append(nil)
		if body := largeFrame(codec, value); body != nil {
			raw = testseg.Batch{Codec: codec, MaxTimestamp: -1}.Append(nil)
			binary.BigEndian.PutUint32(raw[57:], 1)
			raw = testseg.Seal(append(raw, body...), 0)
		}
		var d segment.Decoder
		before := live()
		if err := d.Records(raw, func(segment.Record) bool { return true }); err != nil {
			t.Fatal(err)
		}
		if kept := int64(live()) - int64(before); kept > 3<<20 {
			t.Errorf("%v: %d bytes are kept", codec, kept)
		}
		runtime.KeepAlive(&d)
		runtime.KeepAlive(raw)
	}
}

// largeFrame returns a record with value in a frame that needs much memory: LZ4
// with blocks of 4 MiB, zstd with a window of 8 MiB.
func largeFrame(codec segment.Codec, value []byte) []byte {
	plain := testseg.Batch{Records: []segment.Record{{Value: value, Timestamp: -1}}}.Append(nil)[segment.HeaderSize:]
	var buf bytes.Buffer
	switch codec {
	case segment.CodecLZ4:
		w := lz4.NewWriter(&buf)
		err := w.Apply(lz4.BlockSizeOption(lz4.Block4Mb))
		if _, err2 := w.Write(plain); err != nil || err2 != nil || w.Close() != nil {
			panic("writing to memory does not fail")
		}
	case segment.CodecZstd:
		w, err := zstd.NewWriter(&buf, zstd.WithWindowSize(8<<20), zstd.WithEncoderConcurrency(1))
		if err != nil {
			panic(err)
		}
		if _, err := w.Write(plain); err != nil || w.Close() != nil {
			panic("writing to memory does not fail")
		}
	default:
		return nil
	}
	return buf.Bytes()
}

func BenchmarkDecoder(b *testing.B) {
	for _, codec := range allCodecs() {
		batch := testseg.Batch{Codec: codec}
		total := 0
		for i := range 200 {
			batch.Records = append(batch.Records, segment.Record{Offset: int64(i), Timestamp: t0, Key: []byte("key"), Value: goldenValue(i)})
			total += 600
		}
		raw := batch.Append(nil)
		b.Run("codec="+codec.String(), func(b *testing.B) {
			var d segment.Decoder
			b.SetBytes(int64(total))
			b.ReportAllocs()
			for b.Loop() {
				if err := d.Records(raw, func(segment.Record) bool { return true }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
