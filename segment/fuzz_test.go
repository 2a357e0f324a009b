package segment_test

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/segment"
)

// seedBatches adds batches of all kinds.
func seedBatches(f *testing.F, add func(b []byte)) {
	f.Helper()
	for _, g := range goldenBatches() {
		add(unhex(f, g.hex))
	}
	for _, codec := range allCodecs() {
		for magic := range int8(2) {
			if codec != segment.CodecZstd {
				add(testseg.AppendLegacy(nil, magic, codec, segment.Record{Offset: 3, Value: []byte("v")}, segment.Record{Offset: 5}))
			}
		}
		add(testseg.Batch{BaseOffset: 10, Records: three(), Codec: codec}.Append(nil))
	}
}

func FuzzParseHeader(f *testing.F) {
	seedBatches(f, func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := segment.ParseHeader(b)
		switch {
		case errors.Is(err, segment.ErrShort):
			if len(b) >= segment.HeaderSize {
				t.Fatalf("%d bytes are too few", len(b))
			}
			return
		case err != nil:
			if _, ok := errors.AsType[*segment.BatchError](err); !ok {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		if h.Size < 26 || h.Magic < 0 || h.Magic > 2 || h.BaseOffset < 0 || h.LastOffset < h.BaseOffset || h.Count < 0 || h.Codec() > segment.CodecZstd {
			t.Fatalf("accepted %+v", h)
		}
		// What follows the header does not matter, and what a longer prefix says
		// a shorter one does not contradict.
		if again, err := segment.ParseHeader(b[:min(len(b), segment.HeaderSize)]); err != nil || again != h {
			t.Fatalf("the header alone: %+v, %v", again, err)
		}
		if v, err := segment.VerifyBatch(b); err == nil && (v != h || int(h.Size) != len(b)) {
			t.Fatalf("verified as %+v", v)
		}
	})
}

// A walk in pieces is one in whole, and both are what VerifyBatch makes of the
// batches one by one.
func FuzzWalker(f *testing.F) {
	log := mixed(1)[:4000]
	f.Add(log, uint16(100), uint16(0), byte(0))
	f.Add(log, uint16(1), uint16(16), byte(3))
	f.Add(log[:1000], uint16(61), uint16(500), byte(0x80))
	seedBatches(f, func(b []byte) { f.Add(b, uint16(17), uint16(0), byte(0)) })
	f.Fuzz(func(t *testing.T, b []byte, piece, at uint16, flip byte) {
		b = bytes.Clone(b)
		if len(b) > 0 {
			b[int(at)%len(b)] ^= flip
		}
		want, wantPos, wantErr := simple(b)
		for _, size := range []int{int(piece) + 1, len(b) + 1} {
			got, pos, err := walk(b, size)
			if !slices.Equal(got, want) || pos != wantPos || (err == nil) != (wantErr == nil) {
				t.Fatalf("in pieces of %d: %d batches to %d, %v; want %d to %d, %v", size, len(got), pos, err, len(want), wantPos, wantErr)
			}
			if be, ok := errors.AsType[*segment.BatchError](err); err != nil && (!ok || be.Pos != pos) {
				t.Fatalf("in pieces of %d: %v", size, err)
			}
		}
	})
}

// Bytes behind the header of a batch of any magic and codec either decode to
// records that ascend, as many as promised, or are an error.
func FuzzDecoder(f *testing.F) {
	seedBatches(f, func(b []byte) { f.Add(b) })
	for _, name := range []string{"batch-200rec-zstd.bin", "batch-200rec-lz4.bin", "set-v0-100rec-snappy.bin"} {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// The size is made right, so that mutations reach the records.
		if len(b) >= segment.MinHeaderSize {
			b = patch(b, 8, 4, int64(len(b)-12))
		}
		h, headErr := segment.ParseHeader(b)
		d := segment.Decoder{MaxBytes: 1 << 20}
		n, last := 0, int64(-1)
		err := d.Records(b, func(r segment.Record) bool {
			if r.Offset <= last || r.Offset > h.LastOffset || h.Magic == 2 && r.Offset < h.BaseOffset {
				t.Fatalf("offset %d after %d in %+v", r.Offset, last, h)
			}
			last = r.Offset
			n++
			return true
		})
		switch _, isBatch := errors.AsType[*segment.BatchError](err); {
		case err != nil && !isBatch:
			t.Fatalf("%T: %v", err, err)
		case err == nil && headErr != nil:
			t.Fatal("decoded behind a bad header")
		case err == nil && h.Magic == 2 && n != int(h.Count), err == nil && h.Magic < 2 && n == 0:
			t.Fatalf("%d records of %+v", n, h)
		}
	})
}

func FuzzParseLineage(f *testing.F) {
	f.Add([]byte("0\n3\n0 0\n2 100\n5 180\n"))
	f.Add([]byte("0\n0\n"))
	f.Add([]byte("0\r\n1\r\n7 9"))
	f.Add([]byte("0\n2000000000\n1 1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := segment.ParseLineage(b)
		if err != nil {
			return
		}
		if err := l.Validate(); err != nil {
			t.Fatalf("accepted %v: %v", l, err)
		}
		text, err := l.AppendText(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := segment.ParseLineage(text)
		if err != nil || !slices.Equal(again, l) {
			t.Fatalf("%v became %v, %v", l, again, err)
		}
	})
}

func FuzzParseUUID(f *testing.F) {
	f.Add("Bp9TDduJRGa9Q5rlvCJOxg")
	f.Add("AAAAAAAAAAAAAAAAAAAAAA")
	f.Add("Bp9TDduJRGa9Q5rlvCJ\r\ng")
	f.Fuzz(func(t *testing.T, s string) {
		u, err := segment.ParseUUID(s)
		var v segment.UUID
		if err2 := v.UnmarshalText([]byte(s)); (err == nil) != (err2 == nil) || u != v {
			t.Fatalf("ParseUUID %v, %v, UnmarshalText %v, %v", u, err, v, err2)
		}
		if err == nil && u.String() != s {
			t.Fatalf("%q is printed as %q", s, u)
		}
	})
}
