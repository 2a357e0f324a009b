package segment_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/segment"
)

// visit is one call of Walker.Batch.
type visit struct {
	pos int64
	h   segment.Header
}

// walk hands b to a Walker in pieces of the given sizes, the last one repeated,
// and returns what it saw and said at the end.
func walk(b []byte, sizes ...int) (seen []visit, pos int64, err error) {
	w := segment.Walker{Batch: func(pos int64, h segment.Header) error {
		seen = append(seen, visit{pos, h})
		return nil
	}}
	for i := 0; len(b) > 0 && err == nil; i++ {
		n := min(len(b), sizes[min(i, len(sizes)-1)])
		_, err = w.Write(b[:n])
		b = b[n:]
	}
	if closed := w.Close(); err == nil {
		err = closed
	}
	return seen, w.Pos(), err
}

// simple walks whole batches with VerifyBatch: what a Walker is to be compared
// with.
func simple(b []byte) (seen []visit, pos int64, err error) {
	last := int64(-1)
	for len(b) > 0 {
		h, err := segment.ParseHeader(b)
		if err == nil && h.LastOffset <= last {
			return seen, pos, segment.ErrCorruptBatch
		}
		if err != nil || int(h.Size) > len(b) {
			return seen, pos, segment.ErrCorruptBatch
		}
		if _, err := segment.VerifyBatch(b[:h.Size]); err != nil {
			return seen, pos, err
		}
		seen = append(seen, visit{pos, h})
		last = h.LastOffset
		pos += int64(h.Size)
		b = b[h.Size:]
	}
	return seen, pos, nil
}

// mixed is a log with batches of every magic.
func mixed(seed uint64) []byte {
	log := testseg.AppendLegacy(nil, 0, segment.CodecNone, three()...)
	log = testseg.AppendLegacy(log, 0, segment.CodecGzip, segment.Record{Offset: 13, Key: []byte("a")}, segment.Record{Offset: 14})
	log = testseg.AppendLegacy(log, 1, segment.CodecNone, segment.Record{Offset: 15, Timestamp: 5, Value: []byte("x")})
	log = testseg.AppendLegacy(log, 1, segment.CodecSnappy, segment.Record{Offset: 16}, segment.Record{Offset: 18})
	for _, s := range testseg.Random(seed, testseg.Options{Start: 20, Segments: 2, Batches: 10}).Segments {
		log = append(log, s.Log...)
	}
	return log
}

// A log handed over in any pieces is walked as in one, batch by batch.
func TestWalkerPieces(t *testing.T) {
	var logs [][]byte
	for seed := range uint64(8) {
		logs = append(logs, mixed(seed))
	}
	rapid.Check(t, func(t *rapid.T) {
		log := slices.Clone(logs[rapid.IntRange(0, len(logs)-1).Draw(t, "log")])
		if rapid.Bool().Draw(t, "damaged") {
			at := rapid.IntRange(0, len(log)-1).Draw(t, "at")
			log[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
		}
		if rapid.Bool().Draw(t, "cut") {
			log = log[:rapid.IntRange(0, len(log)).Draw(t, "to")]
		}
		want, wantPos, wantErr := simple(log)
		sizes := rapid.SliceOfN(rapid.IntRange(1, 5000), 1, 30).Draw(t, "pieces")
		got, pos, err := walk(log, sizes...)
		if !slices.Equal(got, want) || pos != wantPos {
			t.Fatalf("%d batches to %d, want %d to %d", len(got), pos, len(want), wantPos)
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("err = %v, want %v", err, wantErr)
		}
		if be, ok := errors.AsType[*segment.BatchError](err); err != nil && (!ok || be.Pos != pos) {
			t.Fatalf("err = %v, want a *BatchError at %d", err, pos)
		}
	})
}

func TestWalkerByteByByte(t *testing.T) {
	log := mixed(1)
	want, _, err := simple(log)
	if err != nil || len(want) < 25 {
		t.Fatalf("%d batches, %v", len(want), err)
	}
	for _, size := range []int{1, 16, 17, 18, 25, 26, 27, 60, 61, 62, 100, len(log)} {
		if got, pos, err := walk(log, size); err != nil || pos != int64(len(log)) || !slices.Equal(got, want) {
			t.Errorf("pieces of %d: %d batches to %d, %v", size, len(got), pos, err)
		}
	}
}

// Cut anywhere but between batches, a log is truncated; Close says where.
func TestWalkerTruncated(t *testing.T) {
	log := mixed(2)[:3000]
	whole, _, _ := simple(log)
	borders := map[int64]bool{0: true}
	for _, v := range whole {
		borders[v.pos+int64(v.h.Size)] = true
	}
	for n := range log {
		_, pos, err := walk(log[:n], 700)
		if borders[int64(n)] {
			if err != nil {
				t.Fatalf("%d bytes: %v", n, err)
			}
			continue
		}
		be, ok := errors.AsType[*segment.BatchError](err)
		if !ok || !errors.Is(err, io.ErrUnexpectedEOF) || be.Pos != pos || !borders[be.Pos] || !strings.Contains(err.Error(), "truncated") {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
}

func TestWalkerOffsetsAscend(t *testing.T) {
	batch := func(base, last int64) []byte { return testseg.Batch{BaseOffset: base, LastOffset: last}.Append(nil) }
	for _, c := range []struct {
		name string
		log  []byte
		ok   bool
	}{
		{"next", append(batch(0, 4), batch(5, 5)...), true},
		{"gap", append(batch(3, 4), batch(100, 101)...), true},
		{"again", append(batch(3, 4), batch(3, 4)...), false},
		{"back", append(batch(3, 4), batch(0, 0)...), false},
		{"same last offset", append(batch(3, 4), batch(4, 4)...), false},
		{"first at 0", batch(0, 0), true},
	} {
		_, pos, err := walk(c.log, len(c.log))
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if be, isBatch := errors.AsType[*segment.BatchError](err); !c.ok && (!isBatch || be.Pos != pos || pos == 0) {
			t.Errorf("%s: %v at %d", c.name, err, pos)
		}
	}
}

func TestWalkerErrorsStay(t *testing.T) {
	good := testseg.Batch{BaseOffset: 10, Records: three()}.Append(nil)
	bad := patch(good, len(good)-1, 1, 1)
	w := segment.Walker{}
	n, err := w.Write(bad)
	me, ok := errors.AsType[*checksum.MismatchError](err)
	if !ok || n > len(bad) || me.Off != 21 {
		t.Fatalf("Write = %d, %v", n, err)
	}
	if n, again := w.Write(good); n != 0 || !errors.Is(again, err) {
		t.Errorf("Write after an error = %d, %v", n, again)
	}
	if again := w.Close(); !errors.Is(again, err) {
		t.Errorf("Close after an error = %v", again)
	}
	w.Reset()
	if n, err := w.Write(good); n != len(good) || err != nil || w.Close() != nil || w.Pos() != int64(len(good)) {
		t.Errorf("after Reset: %d, %v", n, err)
	}
}

// What Batch returns stops the walk, as it is.
func TestWalkerBatchStops(t *testing.T) {
	stop := errors.New("enough")
	log := append(testseg.Batch{BaseOffset: 1}.Append(nil), testseg.Batch{BaseOffset: 2}.Append(nil)...)
	calls := 0
	w := segment.Walker{Batch: func(int64, segment.Header) error { calls++; return stop }}
	n, err := w.Write(log)
	if !errors.Is(err, stop) || err.Error() != "enough" || calls != 1 || n != len(log)/2 {
		t.Errorf("Write = %d, %v after %d calls", n, err, calls)
	}
	if err := w.Close(); !errors.Is(err, stop) || calls != 1 {
		t.Errorf("Close = %v after %d calls", err, calls)
	}
}

// Batch is called only for what has been verified.
func TestWalkerVerifiesFirst(t *testing.T) {
	good := testseg.Batch{BaseOffset: 10, Records: three()}.Append(nil)
	for _, magic := range []int8{0, 1, 2} {
		b := good
		if magic < 2 {
			b = testseg.AppendLegacy(nil, magic, segment.CodecNone, three()[0])
		}
		b = patch(b, len(b)-1, 1, int64(b[len(b)-1])^0x55)
		for _, size := range []int{1, 30, len(b)} {
			if seen, _, err := walk(b, size); len(seen) > 0 || !errors.Is(err, segment.ErrCorruptBatch) || !strings.Contains(err.Error(), "wrong CRC") {
				t.Errorf("magic %d in pieces of %d: %d batches, %v", magic, size, len(seen), err)
			}
		}
	}
}

func TestWalkerDoesNotAllocate(t *testing.T) {
	log := mixed(3)
	count := 0
	w := segment.Walker{Batch: func(int64, segment.Header) error { count++; return nil }}
	for _, size := range []int{1, 50, 4096} {
		n := testing.AllocsPerRun(50, func() { // what the runtime allocates meanwhile is rounded down
			w.Reset()
			for piece := range slices.Chunk(log, size) {
				if _, err := w.Write(piece); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%v allocations in pieces of %d", n, size)
		}
	}
	if count == 0 {
		t.Error("no batch")
	}
}

// A walk over 1 MiB of batches of one size, in pieces of 64 KiB.
func BenchmarkWalker(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 16 << 10} {
		var log []byte
		for i := int64(0); len(log) < 1<<20; i++ {
			value := make([]byte, size-75)
			log = testseg.Batch{BaseOffset: i, Records: []segment.Record{{Offset: i, Value: value}}}.Append(log)
		}
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			w := segment.Walker{Batch: func(int64, segment.Header) error { return nil }}
			b.SetBytes(int64(len(log)))
			b.ReportAllocs()
			for b.Loop() {
				w.Reset()
				for p := log; len(p) > 0; {
					n := min(len(p), 64<<10)
					if _, err := w.Write(p[:n]); err != nil {
						b.Fatal(err)
					}
					p = p[n:]
				}
			}
		})
	}
}
