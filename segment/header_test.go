package segment_test

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/segment"
)

// patch returns b with the big-endian number v of the given size at off.
func patch(b []byte, off, size int, v int64) []byte {
	out := append([]byte(nil), b...)
	for i := range size {
		out[off+i] = byte(v >> (8 * (size - 1 - i)))
	}
	return out
}

func TestParseHeaderRefusesNonsense(t *testing.T) {
	good := testseg.Batch{BaseOffset: 10, LeaderEpoch: 5, Records: three()}.Append(nil)
	v0 := testseg.AppendLegacy(nil, 0, segment.CodecNone, three()[0])
	v1 := testseg.AppendLegacy(nil, 1, segment.CodecNone, three()[0])
	for _, c := range []struct {
		name string
		b    []byte
		want string // in the error; empty: accepted
	}{
		{"good", good, ""},
		{"v0", v0, ""},
		{"v1", v1, ""},
		{"magic 3", patch(good, 16, 1, 3), "magic 3"},
		{"magic -1", patch(good, 16, 1, -1), "magic -1"},
		{"size below header", patch(good, 8, 4, segment.HeaderSize-12-1), "size 60"},
		{"size of a header", patch(patch(good, 8, 4, segment.HeaderSize-12), 57, 4, 0), ""},
		{"negative size", patch(good, 8, 4, -1), "size 11"},
		{"least size", patch(good, 8, 4, math.MinInt32), "size -2147483636"},
		{"greatest size", patch(good, 8, 4, math.MaxInt32-12), ""},
		{"size above 31 bits", patch(good, 8, 4, math.MaxInt32-11), "the most is 2147483647"},
		{"v0 size", patch(v0, 8, 4, 13), "the least for magic 0 is 26"},
		{"v0 least size", patch(v0, 8, 4, 14), ""},
		{"v1 size", patch(v1, 8, 4, 21), "the least for magic 1 is 34"},
		{"v1 least size", patch(v1, 8, 4, 22), ""},
		{"negative offset", patch(good, 0, 8, -1), "negative offset"},
		{"v0 negative offset", patch(v0, 0, 8, -1), "negative offset"},
		{"codec 5", patch(good, 21, 2, 5), "codec(5)"},
		{"codec 7", patch(good, 21, 2, 7), "codec(7)"},
		{"v1 zstd", patch(v1, 17, 1, 4), "zstd"},
		{"v0 codec 5", patch(v0, 17, 1, 5), "codec(5)"},
		{"unused attributes", patch(good, 21, 2, 0x7F80), ""},
		{"negative delta", patch(good, 23, 4, -1), "delta -1"},
		{"last offset overflows", patch(good, 0, 8, math.MaxInt64-1), "overflows"},
		{"greatest last offset", patch(good, 0, 8, math.MaxInt64-2), ""},
		{"negative count", patch(good, 57, 4, -1), "-1 records"},
		{"more records than offsets", patch(good, 57, 4, 4), "4 records for 3 offsets"},
		{"fewer records", patch(good, 57, 4, 2), ""},
		{"more records than bytes", patch(patch(good, 57, 4, 1_000_000), 23, 4, 1_000_000), "do not fit"},
		{"as many records as fit", patch(patch(good, 57, 4, 6), 23, 4, 100), ""},
		{"one record too many", patch(patch(good, 57, 4, 7), 23, 4, 100), "do not fit"},
		{"compressed they may fit", patch(patch(patch(good, 21, 2, 1), 57, 4, 1_000_000), 23, 4, 1_000_000), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := segment.ParseHeader(c.b)
			if c.want == "" {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			be, ok := errors.AsType[*segment.BatchError](err)
			if !ok || !errors.Is(err, segment.ErrCorruptBatch) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("err = %v, want a *BatchError with %q", err, c.want)
			}
			if want := int64(binary.BigEndian.Uint64(c.b)); be.Pos != 0 || be.Offset != max(want, -1) {
				t.Errorf("Pos %d, Offset %d, want 0, %d", be.Pos, be.Offset, want)
			}
		})
	}
}

// Too few bytes are no corruption, and nonsense is found as early as its bytes
// are there.
func TestParseHeaderShort(t *testing.T) {
	for _, c := range []struct {
		magic int8
		need  int
	}{{0, 26}, {1, 26}, {2, segment.HeaderSize}} {
		b := testseg.Batch{BaseOffset: 10, Records: three()}.Append(nil)
		if c.magic < 2 {
			b = testseg.AppendLegacy(nil, c.magic, segment.CodecNone, three()...)
		}
		for n := range b {
			_, err := segment.ParseHeader(b[:n])
			if got, want := errors.Is(err, segment.ErrShort), n < c.need; got != want || err != nil && !want {
				t.Errorf("magic %d, %d bytes: %v", c.magic, n, err)
			}
		}
		bad := patch(b, 8, 4, -5)
		if _, err := segment.ParseHeader(bad[:segment.MinHeaderSize]); !errors.Is(err, segment.ErrCorruptBatch) {
			t.Errorf("magic %d: a bad size in %d bytes: %v", c.magic, segment.MinHeaderSize, err)
		}
	}
}

func TestVerifyBatch(t *testing.T) {
	raw := testseg.Batch{BaseOffset: 10, Records: three()}.Append(nil)
	if _, err := segment.VerifyBatch(raw); err != nil {
		t.Fatal(err)
	}
	for n := range raw {
		_, err := segment.VerifyBatch(raw[:n])
		if !errors.Is(err, segment.ErrCorruptBatch) || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if _, err := segment.VerifyBatch(append(raw, 0)); !errors.Is(err, segment.ErrCorruptBatch) {
		t.Errorf("a byte more: %v", err)
	}
	_, err := segment.VerifyBatch(patch(raw, len(raw)-1, 1, 1))
	if me, ok := errors.AsType[*checksum.MismatchError](err); !ok || me.Off != 21 || me.Len != int64(len(raw)-21) {
		t.Errorf("flipped: %v", err)
	}
}

// Every byte of a batch but its base offset and leader epoch, which brokers
// rewrite, is covered by size or CRC; of the older formats, all but offset and
// the unused high attribute bits.
func TestEveryFlippedBitIsFound(t *testing.T) {
	for magic := range int8(3) {
		raw := testseg.Batch{BaseOffset: 10, LeaderEpoch: 5, Records: three()}.Append(nil)
		if magic < 2 {
			raw = testseg.AppendLegacy(nil, magic, segment.CodecNone, three()[0])
		}
		for bit := range 8 * len(raw) {
			if off := bit / 8; off < 8 || magic == 2 && off >= 12 && off < 16 {
				continue
			}
			b := append([]byte(nil), raw...)
			b[bit/8] ^= 1 << (bit % 8)
			if _, err := segment.VerifyBatch(b); !errors.Is(err, segment.ErrCorruptBatch) {
				t.Errorf("magic %d, bit %d of byte %d: %v", magic, bit%8, bit/8, err)
			}
		}
	}
}

// Whatever goes into a batch comes out of its header.
func TestParseHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Int64Range(0, math.MaxInt64-1000).Draw(t, "base")
		b := testseg.Batch{
			BaseOffset: base, LastOffset: base + rapid.Int64Range(0, 900).Draw(t, "delta"),
			LeaderEpoch: rapid.Int32().Draw(t, "epoch"), MaxTimestamp: rapid.Int64().Draw(t, "max"),
			Producer: &testseg.Producer{
				ID: rapid.Int64().Draw(t, "pid"), Epoch: rapid.Int16().Draw(t, "pepoch"), Sequence: rapid.Int32().Draw(t, "sequence"),
			},
			Transactional: rapid.Bool().Draw(t, "txn"), Control: rapid.Bool().Draw(t, "control"), LogAppendTime: rapid.Bool().Draw(t, "append"),
		}
		raw := b.Append(nil)
		h, err := segment.VerifyBatch(raw)
		if err != nil {
			t.Fatal(err)
		}
		want := segment.Header{
			BaseOffset: base, LastOffset: b.LastOffset, Size: int32(len(raw)), LeaderEpoch: b.LeaderEpoch, Magic: 2,
			CRC: h.CRC, Attributes: h.Attributes, BaseTimestamp: -1, MaxTimestamp: b.MaxTimestamp,
			ProducerID: b.Producer.ID, ProducerEpoch: b.Producer.Epoch, BaseSequence: b.Producer.Sequence,
		}
		if h != want || h.Transactional() != b.Transactional || h.Control() != b.Control || h.LogAppendTime() != b.LogAppendTime {
			t.Fatalf("got  %+v\nwant %+v", h, want)
		}
	})
}

func TestHeadersDoNotAllocate(t *testing.T) {
	raw := testseg.Batch{BaseOffset: 10, Records: three()}.Append(nil)
	old := testseg.AppendLegacy(nil, 1, segment.CodecNone, three()[0])
	n := testing.AllocsPerRun(100, func() {
		for _, b := range [][]byte{raw, old, raw[:20]} {
			_, _ = segment.ParseHeader(b)
		}
		_, _ = segment.VerifyBatch(raw)
		_, _ = segment.VerifyBatch(old)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestCodecNames(t *testing.T) {
	want := []string{"none", "gzip", "snappy", "lz4", "zstd", "codec(5)"}
	for i, name := range want {
		if got := segment.Codec(i).String(); got != name {
			t.Errorf("Codec(%d) = %s, want %s", i, got, name)
		}
	}
}

func TestBatchErrorText(t *testing.T) {
	err := &segment.BatchError{Pos: 4096, Offset: 17, Reason: "truncated: 5 of its 100 bytes are there", Err: io.ErrUnexpectedEOF}
	const want = "corrupt record batch at position 4096 (offset 17): truncated: 5 of its 100 bytes are there: unexpected EOF"
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	err = &segment.BatchError{Offset: -1, Reason: "r"}
	if err.Error() != "corrupt record batch at position 0: r" || errors.Unwrap(err) != nil || !errors.Is(err, segment.ErrCorruptBatch) {
		t.Errorf("%v", err)
	}
}
