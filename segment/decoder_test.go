package segment_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"pgregory.net/rapid"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/segment"
)

func allCodecs() []segment.Codec {
	return []segment.Codec{segment.CodecNone, segment.CodecGzip, segment.CodecSnappy, segment.CodecLZ4, segment.CodecZstd}
}

// drawBytes draws null, empty or some bytes.
func drawBytes(t *rapid.T, most int, label string) []byte {
	switch rapid.IntRange(0, 4).Draw(t, label+" kind") {
	case 0:
		return nil
	case 1:
		return []byte{}
	default:
		return bytes.Repeat(rapid.SliceOfN(rapid.Byte(), 1, 60).Draw(t, label), 1+rapid.IntRange(0, most).Draw(t, label+" times"))
	}
}

// Whatever records go into a batch, of any codec and layout, come out again.
func TestDecoderRoundTrip(t *testing.T) {
	var d segment.Decoder
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Int64Range(0, math.MaxInt64-1000).Draw(t, "base")
		b := testseg.Batch{
			BaseOffset: base, Codec: rapid.SampledFrom(allCodecs()).Draw(t, "codec"),
			LogAppendTime: rapid.Bool().Draw(t, "append time"), MaxTimestamp: t0,
		}
		if rapid.Bool().Draw(t, "horizon") {
			b.DeleteHorizon = t0 + 77
		}
		offset := base
		for range rapid.IntRange(0, 20).Draw(t, "records") {
			offset += rapid.Int64Range(0, 3).Draw(t, "gap")
			r := segment.Record{
				Offset: offset, Timestamp: rapid.Int64Range(-1, math.MaxInt64/2).Draw(t, "time"),
				Key: drawBytes(t, 3, "key"), Value: drawBytes(t, 3000, "value"),
			}
			for range rapid.IntRange(0, 3).Draw(t, "headers") {
				r.Headers = append(r.Headers, segment.RecordHeader{
					Key: rapid.StringN(0, 20, -1).Draw(t, "header"), Value: drawBytes(t, 3, "header value"),
				})
			}
			b.Records = append(b.Records, r)
			offset++
		}
		b.LastOffset = offset + rapid.Int64Range(0, 3).Draw(t, "removed")
		want := slices.Clone(b.Records)
		for i := range want {
			if b.LogAppendTime {
				want[i].Timestamp = t0
			}
		}
		checkRecordsRapid(t, &d, b.Append(nil), want)
	})
}

func checkRecordsRapid(t *rapid.T, d *segment.Decoder, raw []byte, want []segment.Record) {
	var got []segment.Record
	err := d.Records(raw, func(r segment.Record) bool {
		got = append(got, clone(r))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if g, w := fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", want); g != w {
		t.Fatalf("got  %.300s\nwant %.300s", g, w)
	}
}

// The same for message sets, wrapped and plain.
func TestDecoderLegacyRoundTrip(t *testing.T) {
	var d segment.Decoder
	rapid.Check(t, func(t *rapid.T) {
		magic := int8(rapid.IntRange(0, 1).Draw(t, "magic"))
		codec := rapid.SampledFrom(allCodecs()[:4]).Draw(t, "codec")
		var want []segment.Record
		offset := rapid.Int64Range(0, 1<<40).Draw(t, "base")
		for range rapid.IntRange(1, 20).Draw(t, "records") {
			r := segment.Record{Offset: offset, Timestamp: -1, Key: drawBytes(t, 3, "key"), Value: drawBytes(t, 3000, "value")}
			if magic == 1 {
				r.Timestamp = rapid.Int64Range(-1, math.MaxInt64).Draw(t, "time")
			}
			want = append(want, r)
			offset += rapid.Int64Range(1, 4).Draw(t, "gap")
		}
		if codec == segment.CodecNone {
			want = want[:1]
		}
		checkRecordsRapid(t, &d, testseg.AppendLegacy(nil, magic, codec, want...), want)
	})
}

// A broker that stamps old messages stamps the wrapper; what is inside keeps the
// producer's time, which no longer counts.
func TestDecoderLegacyLogAppendTime(t *testing.T) {
	raw := testseg.AppendLegacy(nil, 1, segment.CodecGzip, three()[0], segment.Record{Offset: 11, Timestamp: 1})
	raw[17] |= 8
	binary.BigEndian.PutUint64(raw[18:], t0+99)
	var d segment.Decoder
	checkRecords(t, &d, raw, []segment.Record{
		{Offset: 10, Timestamp: t0 + 99, Key: []byte("k1"), Value: []byte("v1")},
		{Offset: 11, Timestamp: t0 + 99},
	})
}

// rebatch puts body, which may be nonsense, behind the header of a batch with
// count records.
func rebatch(codec segment.Codec, count int32, body []byte) []byte {
	raw := testseg.Batch{BaseOffset: 10, LastOffset: 1000, Codec: codec}.Append(nil)
	binary.BigEndian.PutUint32(raw[57:], uint32(count))
	return slices.Clip(testseg.Seal(append(raw, body...), 0)) // nothing behind it to read by mistake
}

func varints(v ...int64) (b []byte) {
	for _, n := range v {
		b = binary.AppendVarint(b, n)
	}
	return b
}

// record puts its length before the body of a record.
func record(body ...byte) []byte { return append(varints(int64(len(body))), body...) }

func TestDecoderRefusesNonsense(t *testing.T) {
	one := record(0, 0, 0, 1, 1, 0) // null key, null value
	for _, c := range []struct {
		name  string
		count int32
		body  []byte
		want  string // empty: accepted
	}{
		{"one", 1, one, ""},
		{"none of one", 1, nil, "do not fit"},
		{"two of one", 1, append(one, record(0, 0, 2, 1, 1, 0)...), "bytes follow the last of its 1 records"},
		{"one of two", 2, append(one, make([]byte, 8)...), "claims 0 bytes"},
		{"none, but bytes", 0, one, "bytes follow"},
		{"length beyond the end", 1, append(varints(50), make([]byte, 10)...), "unexpected EOF"},
		{"length cut", 1, bytes.Repeat([]byte{0x80}, 4), "do not fit"},
		{"length too long", 1, bytes.Repeat([]byte{0x80}, 10), "no 32-bit number"},
		{"length of 33 bits", 1, append(varints(1<<32), make([]byte, 10)...), "no 32-bit number"},
		{"negative length", 1, append(varints(-1), make([]byte, 10)...), "claims -1 bytes"},
		{"length of almost nothing", 1, append(varints(5), make([]byte, 10)...), "claims 5 bytes"},
		{"bytes behind headers", 1, record(0, 0, 0, 1, 1, 0, 7), "1 bytes follow"},
		{"key beyond the record", 1, record(0, 0, 0, 20, 1, 0), "claims 10 of 2 bytes"},
		{"negative key", 1, record(0, 0, 0, 3, 1, 0), "claims -2 of 2"},
		{"negative headers", 1, record(0, 0, 0, 1, 1, 1), "-1 headers"},
		{"headers beyond the record", 1, record(0, 0, 0, 1, 1, 4, 0), "2 headers in 1 bytes"},
		{"header without a key", 1, record(0, 0, 0, 1, 1, 2, 1, 0), "without a key"},
		{"record ends early", 1, record(0, 0, 0, 1, 1, 0x80), "cut short"},
		{"time of 11 bytes", 1, append(varints(16), append([]byte{0}, append(bytes.Repeat([]byte{0x80}, 10), 0, 0, 1, 1, 0)...)...), "too long"},
		{"offset of 33 bits", 1, append(varints(10), append([]byte{0, 0}, append(varints(1<<32), 1, 1, 0)...)...), "no 32-bit number"},
		{"offset below base", 1, record(0, 0, 1, 1, 1, 0), "offset 9"},
		{"offset above last", 1, append(varints(7), append([]byte{0, 0}, append(varints(991), 1, 1, 0)...)...), "offset 1001"},
		{"offset repeated", 2, append(one, one...), "offset 10, not one of 11"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, codec := range allCodecs() {
				body := c.body
				if codec != segment.CodecNone {
					body = testseg.Compress(nil, codec, c.body)
				}
				var d segment.Decoder
				err := d.Records(rebatch(codec, c.count, body), func(segment.Record) bool { return true })
				if c.want == "" && err == nil {
					continue
				}
				want := c.want
				if want == "do not fit" && codec != segment.CodecNone {
					want = "unexpected EOF" // known only once it is decompressed
				}
				be, ok := errors.AsType[*segment.BatchError](err)
				if !ok || be.Pos != 0 || be.Offset != 10 || !strings.Contains(err.Error(), want) {
					t.Errorf("%v: err = %v, want a *BatchError with %q", codec, err, want)
				}
			}
		})
	}
}

func TestDecoderRefusesBadStreams(t *testing.T) {
	plain := bytes.Repeat(record(0, 0, 0, 1, 1, 0), 1)
	frame := func(b ...byte) []byte { return append([]byte{4, 0x22, 0x4d, 0x18}, b...) }
	for _, c := range []struct {
		name  string
		codec segment.Codec
		body  []byte
	}{
		{"gzip of nothing", segment.CodecGzip, nil},
		{"gzip, another magic", segment.CodecGzip, []byte("not gzip at all")},
		{"snappy of nothing", segment.CodecSnappy, nil},
		{"snappy header cut", segment.CodecSnappy, []byte("\x82SNAPPY\x00\x00\x00")},
		{"snappy of the future", segment.CodecSnappy, []byte("\x82SNAPPY\x00\x00\x00\x00\x02\x00\x00\x00\x02")},
		{"snappy block of -1", segment.CodecSnappy, []byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\xff\xff\xff\xff")},
		{"snappy block beyond the end", segment.CodecSnappy, []byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x09abc")},
		{"snappy length cut", segment.CodecSnappy, []byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00")},
		{"snappy block claims 4 GiB", segment.CodecSnappy, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0}},
		{"snappy block claims 1 MiB", segment.CodecSnappy, append(binary.AppendUvarint(nil, 1<<20), 0)},
		{"lz4 of nothing", segment.CodecLZ4, nil},
		{"lz4, another magic", segment.CodecLZ4, []byte("not lz4 at all")},
		{"lz4 of version 0", segment.CodecLZ4, frame(0x20, 0x40, 0)},
		{"lz4 with linked blocks", segment.CodecLZ4, frame(0x40, 0x40, 0)},
		{"lz4 with a dictionary", segment.CodecLZ4, frame(0x61, 0x40, 0)},
		{"lz4 with block size 3", segment.CodecLZ4, frame(0x60, 0x30, 0)},
		{"lz4 header cut", segment.CodecLZ4, frame(0x68, 0x40, 0)},
		{"lz4 block above its size", segment.CodecLZ4, frame(append([]byte{0x60, 0x40, 0x82, 1, 0, 1, 0x80}, make([]byte, 65537)...)...)},
		{"lz4 block beyond the end", segment.CodecLZ4, frame(0x60, 0x40, 0x82, 9, 0, 0, 0, 1)},
		{"lz4 block damaged", segment.CodecLZ4, frame(0x60, 0x40, 0x82, 2, 0, 0, 0, 0xff, 0xff)},
		{"lz4 without an end", segment.CodecLZ4, frame(0x60, 0x40, 0x82)},
		{"zstd of nothing", segment.CodecZstd, nil},
		{"zstd, another magic", segment.CodecZstd, []byte("not zstd at all")},
		{"zstd of 3 bytes", segment.CodecZstd, []byte{0x28, 0xb5, 0x2f}},
		{"zstd of a magic", segment.CodecZstd, []byte{0x28, 0xb5, 0x2f, 0xfd}},
		{"zstd skips beyond the end", segment.CodecZstd, []byte{0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9}},
		{"zstd block header cut", segment.CodecZstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0, 1, 0}},
		{"zstd block beyond the end", segment.CodecZstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0x81, 0, 0, 1}},
		{"zstd without its sum", segment.CodecZstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 4, 0, 1, 0, 0}},
		{"zstd without a last block", segment.CodecZstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0, 0, 0}},
		{"zstd cut", segment.CodecZstd, testseg.Compress(nil, segment.CodecZstd, plain)[:9]},
		{"zstd header cut", segment.CodecZstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0}},
		{"zstd frame claims 1 GiB", segment.CodecZstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0x40, 1, 0, 0}},
		{"zstd window of 2 GiB", segment.CodecZstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 21 << 3, 1, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d segment.Decoder
			err := d.Records(rebatch(c.codec, 1, c.body), func(segment.Record) bool { return true })
			if !errors.Is(err, segment.ErrCorruptBatch) {
				t.Fatalf("err = %v", err)
			}
			// It is ready for the next batch.
			good := testseg.Batch{BaseOffset: 10, Records: three(), Codec: c.codec}.Append(nil)
			checkRecords(t, &d, good, three())
		})
	}
}

// resum makes the CRC of an old message right.
func resum(b []byte) []byte {
	binary.BigEndian.PutUint32(b[12:], crc32.ChecksumIEEE(b[16:]))
	return b
}

func TestDecoderLegacyRefusesNonsense(t *testing.T) {
	message := func(magic int8, rs ...segment.Record) []byte {
		return testseg.AppendLegacy(nil, magic, segment.CodecNone, rs...)
	}
	wrap := func(magic int8, inner []byte) []byte {
		raw := message(magic, segment.Record{Offset: 20, Value: testseg.Compress(nil, segment.CodecGzip, inner)})
		raw[17] = 1
		return raw
	}
	r := func(offset int64) segment.Record { return segment.Record{Offset: offset, Value: []byte("v")} }
	flipped := message(0, r(20))
	flipped[len(flipped)-1] ^= 1
	for _, c := range []struct {
		name string
		raw  []byte
		want string // empty: accepted
	}{
		{"plain", message(0, r(20)), ""},
		{"wrapped", wrap(0, message(0, r(19), r(20))), ""},
		{"wrapped v1", wrap(1, message(1, r(0), r(1))), ""},
		{"null wrapper", func() []byte { b := message(0, segment.Record{Offset: 20}); b[17] = 1; return b }(), "EOF"},
		{"nothing inside", wrap(0, nil), "without messages"},
		{"nothing inside v1", wrap(1, nil), "without messages"},
		{"another magic inside", wrap(1, message(0, r(0))), "magic 0 message inside a magic 1"},
		{"a v2 batch inside", wrap(1, testseg.Batch{}.Append(nil)), "magic 2 batch inside"},
		{"a wrapper inside", wrap(0, wrap(0, message(0, r(20)))), "inside a compressed message"},
		{"cut inside", wrap(0, message(0, r(19), r(20))[:40]), "unexpected EOF"},
		{"header cut inside", wrap(0, message(0, r(20))[:20]), "unexpected EOF"},
		{"wrong CRC inside", wrap(0, flipped), "wrong CRC"},
		{"offsets descend", wrap(0, message(0, r(20), r(19))), "offset 19"},
		{"offset behind the wrapper's", wrap(0, message(0, r(21))), "offset 21"},
		{"offset repeated", wrap(1, message(1, r(0), r(0))), "offset 20"},
		{"offset below 0", wrap(1, message(1, r(0), r(30))), "offset -10"},
		{"key beyond the end", patch(message(0, r(20)), 18, 4, 100), "claims 100"},
		{"negative key", patch(message(0, r(20)), 18, 4, -2), "claims -2"},
		{"value beyond the end", patch(message(0, r(20)), 22, 4, 2), "claims 2 of 1"},
		{"key beyond the end inside", wrap(0, resum(patch(message(0, r(20)), 18, 4, 100))), "claims 100"},
		{"no value", patch(message(0, r(20)), 18, 4, 5), "no room"},
		{"bytes behind the value", patch(message(0, r(20)), 22, 4, 0), "1 bytes follow"},
	} {
		var d segment.Decoder
		err := d.Records(c.raw, func(segment.Record) bool { return true })
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		be, ok := errors.AsType[*segment.BatchError](err)
		if !ok || be.Offset != 20 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: err = %v, want a *BatchError with %q", c.name, err, c.want)
		}
	}
}

func TestDecoderWholeBatchOnly(t *testing.T) {
	raw := testseg.Batch{BaseOffset: 10, Records: three()}.Append(nil)
	var d segment.Decoder
	for _, b := range [][]byte{nil, raw[:20], raw[:len(raw)-1], append(raw, 0)} {
		if err := d.Records(b, func(segment.Record) bool { return true }); !errors.Is(err, segment.ErrCorruptBatch) {
			t.Errorf("%d of %d bytes: %v", len(b), len(raw), err)
		}
	}
}

// Framings that Kafka's Java client does not write but reads.
func TestDecoderOtherFramings(t *testing.T) {
	plain := record(append([]byte{0, 0, 0, 1}, append(append(varints(3000), bytes.Repeat([]byte("abcdefghij"), 300)...), 0)...)...)
	want := []segment.Record{{Offset: 10, Timestamp: -1, Value: bytes.Repeat([]byte("abcdefghij"), 300)}}
	var d segment.Decoder
	t.Run("bare snappy block", func(t *testing.T) {
		checkRecords(t, &d, rebatch(segment.CodecSnappy, 1, snappy.Encode(nil, plain)), want)
	})
	for _, size := range []lz4.BlockSize{lz4.Block64Kb, lz4.Block256Kb, lz4.Block1Mb, lz4.Block4Mb} {
		t.Run(fmt.Sprintf("lz4 with sums and size, blocks of %v", size), func(t *testing.T) {
			var buf bytes.Buffer
			w := lz4.NewWriter(&buf)
			err := w.Apply(lz4.BlockSizeOption(size), lz4.BlockChecksumOption(true), lz4.ChecksumOption(true), lz4.SizeOption(uint64(len(plain))))
			if _, err2 := w.Write(plain); err != nil || err2 != nil || w.Close() != nil {
				t.Fatal(err, err2)
			}
			checkRecords(t, &d, rebatch(segment.CodecLZ4, 1, buf.Bytes()), want)
			buf.Bytes()[buf.Len()-1] ^= 1 // Kafka does not look at the content's sum
			checkRecords(t, &d, rebatch(segment.CodecLZ4, 1, buf.Bytes()), want)
		})
	}
	t.Run("lz4 stored", func(t *testing.T) {
		body := append([]byte{4, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82}, binary.LittleEndian.AppendUint32(nil, uint32(len(plain))|1<<31)...)
		body = append(append(body, plain...), 0, 0, 0, 0)
		checkRecords(t, &d, rebatch(segment.CodecLZ4, 1, body), want)
	})
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("zstd in one segment with a sum", func(t *testing.T) {
		checkRecords(t, &d, rebatch(segment.CodecZstd, 1, enc.EncodeAll(plain, nil)), want)
	})
	t.Run("zstd in two frames", func(t *testing.T) {
		body := enc.EncodeAll(plain[100:], enc.EncodeAll(plain[:100], nil))
		checkRecords(t, &d, rebatch(segment.CodecZstd, 1, body), want)
	})
	t.Run("zstd in small single segments", func(t *testing.T) {
		single, err := zstd.NewWriter(nil, zstd.WithSingleSegment(true), zstd.WithEncoderCRC(false))
		if err != nil {
			t.Fatal(err)
		}
		body := single.EncodeAll(plain[300:], single.EncodeAll(plain[100:300], single.EncodeAll(plain[:100], nil)))
		if body[4] != 1<<5 {
			t.Fatalf("flags %#x: not a single segment with its size in one byte", body[4])
		}
		checkRecords(t, &d, rebatch(segment.CodecZstd, 1, body), want)
	})
	t.Run("zstd behind a skippable frame", func(t *testing.T) {
		body := enc.EncodeAll(plain, []byte{0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9})
		checkRecords(t, &d, rebatch(segment.CodecZstd, 1, body), want)
	})
}

// Beyond the first window a frame is decompressed again with a greater one: the
// same bytes come out, whether it has a window or is its own.
func TestDecoderZstdWindows(t *testing.T) {
	// What repeats lies far apart, so that the window is really used.
	noise := make([]byte, 3<<20)
	x := uint64(1)
	for i := range noise {
		x = x*6364136223846793005 + 1442695040888963407
		noise[i] = byte(x >> 56)
	}
	value := slices.Concat(noise, noise[:1<<20], noise[2<<20:], noise)
	want := []segment.Record{{Offset: 10, Timestamp: 5, Value: value}}
	plain := testseg.Batch{BaseOffset: 10, Records: want}.Append(nil)[segment.HeaderSize:]
	var d segment.Decoder
	for _, window := range []int{1 << 18, 1 << 20, 8 << 20} {
		var stream bytes.Buffer
		w, err := zstd.NewWriter(&stream, zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Write(plain)
		if err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		single, err := zstd.NewWriter(nil, zstd.WithWindowSize(window), zstd.WithSingleSegment(true))
		if err != nil {
			t.Fatal(err)
		}
		for name, body := range map[string][]byte{"stream": stream.Bytes(), "single segment": single.EncodeAll(plain, nil)} {
			t.Run(fmt.Sprintf("%s, window %d", name, window), func(t *testing.T) {
				raw := testseg.Batch{BaseOffset: 10, Codec: segment.CodecZstd}.Append(nil)
				binary.BigEndian.PutUint64(raw[27:], 5) // base timestamp
				binary.BigEndian.PutUint32(raw[57:], 1)
				checkRecords(t, &d, testseg.Seal(append(raw, body...), 0), want)
			})
		}
	}
}

// allocated returns the bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A claim costs nothing until its bytes are there.
func TestDecoderClaimsCostNothing(t *testing.T) {
	huge := append(varints(math.MaxInt32), make([]byte, 100)...)
	window := testseg.Compress(nil, segment.CodecZstd, record(0, 0, 0, 1, 1, 0))
	window[5] = 17 << 3 // 128 MiB
	bodies := map[string][]byte{
		"none: a record of 2 GiB": rebatch(segment.CodecNone, 1, huge),
		"lz4: blocks of 4 MiB":    rebatch(segment.CodecLZ4, 1, []byte{4, 0x22, 0x4d, 0x18, 0x60, 0x70, 0, 2, 0, 0, 0, 0x10, 0, 0, 0, 0, 0}),
		"zstd: a window of 128 M": rebatch(segment.CodecZstd, 1, window),
		"zstd: 100 MB at once":    rebatch(segment.CodecZstd, 1, []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0x40, 6, 1, 0, 0}),
		"gzip: 2^31-1 records":    rebatch(segment.CodecGzip, 991, testseg.Compress(nil, segment.CodecGzip, nil)),
		"none: many headers":      rebatch(segment.CodecNone, 1, record(append([]byte{0, 0, 0, 1, 1}, varints(math.MaxInt32)...)...)),
	}
	bad := append([]byte{0, 0, 0, 1, 1}, varints(2<<20)...)
	bodies["none: many headers, the first of them bad"] = rebatch(segment.CodecNone, 1, record(append(bad, bytes.Repeat([]byte{1}, 5<<20)...)...))
	for _, codec := range allCodecs()[1:] {
		bodies[codec.String()+": a record of 2 GiB"] = rebatch(codec, 1, testseg.Compress(nil, codec, huge))
	}
	for name, raw := range bodies {
		n := allocated(func() {
			var d segment.Decoder
			_ = d.Records(raw, func(segment.Record) bool { return true })
		})
		if n > 4<<20 {
			t.Errorf("%s: %d bytes allocated", name, n)
		}
	}
}

// A bomb ends at MaxBytes, and does not take that much memory where its records
// are small. MaxBytes itself is allowed.
func TestDecoderBombs(t *testing.T) {
	var plain []byte
	const count = 30_000
	for i := range int64(count) {
		body := append(append([]byte{0, 0}, varints(i)...), 1)
		body = append(append(body, varints(2000)...), make([]byte, 2000)...)
		plain = append(plain, record(append(body, 0)...)...)
	}
	for _, codec := range allCodecs()[1:] {
		raw := testseg.Batch{BaseOffset: 10, LastOffset: 10 + count, Codec: codec}.Append(nil)
		binary.BigEndian.PutUint32(raw[57:], count)
		raw = testseg.Seal(testseg.Compress(raw, codec, plain), 0)
		read := func(limit int64) (n int, err error) {
			d := segment.Decoder{MaxBytes: limit}
			return n, d.Records(raw, func(segment.Record) bool { n++; return true })
		}
		var n int
		var err error
		memory := allocated(func() { n, err = read(int64(len(plain))) })
		if err != nil || n != count {
			t.Errorf("%v: %d records, %v", codec, n, err)
		}
		if memory > 8<<20 {
			t.Errorf("%v: %d bytes allocated for records of 2 KB", codec, memory)
		}
		n, err = read(int64(len(plain)) - 1)
		if !errors.Is(err, segment.ErrCorruptBatch) || !strings.Contains(err.Error(), "more than") || n >= count {
			t.Errorf("%v: %d records, %v", codec, n, err)
		}
	}
}

// A reader who has seen enough does not pay for the rest, nor see its damage.
func TestDecoderIsLazy(t *testing.T) {
	for _, codec := range allCodecs() {
		var rs []segment.Record
		for i := range int64(2000) {
			rs = append(rs, segment.Record{Offset: i, Value: bytes.Repeat([]byte{byte(i * 7)}, 400)})
		}
		raw := testseg.Batch{Records: rs, Codec: codec}.Append(nil)
		damaged := append([]byte(nil), raw...)
		for i := len(raw) - 200; i < len(raw)-10; i++ {
			damaged[i] = 0xAA
		}
		if codec == segment.CodecZstd {
			damaged = raw // its blocks are large
		}
		seen := 0
		var d segment.Decoder
		err := d.Records(damaged, func(segment.Record) bool { seen++; return seen < 10 })
		if err != nil || seen != 10 {
			t.Errorf("%v: %d records, %v", codec, seen, err)
		}
	}
}
