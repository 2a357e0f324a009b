package weather

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/segment"
)

func mustTier(t testing.TB, s Spec) *Tier {
	t.Helper()
	tier, err := s.Tier()
	if err != nil {
		t.Fatal(err)
	}
	return tier
}

func whole(t testing.TB, o *Object) []byte {
	t.Helper()
	b, err := io.ReadAll(io.NewSectionReader(o, 0, o.Size()))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// checkObject holds an object to the format, by what others make of its bytes.
func checkObject(o *Object, b []byte) error {
	if int64(len(b)) != o.Size() {
		return fmt.Errorf("%d bytes, Size says %d", len(b), o.Size())
	}
	loc := o.Location()
	if got := checksum.CRC32C(b); got != loc.ObjectCRC32C {
		return fmt.Errorf("object sums to %08x, the location says %08x", got, loc.ObjectCRC32C)
	}
	tail, err := object.ParseTail(b[loc.TailOffset:], loc)
	if err != nil {
		return err
	}
	log := b[:tail.Section(object.Log).Len]
	for i := range tail.Table.Chunks {
		from := tail.Table.Start(i)
		if got := checksum.CRC32C(log[from : from+tail.Table.Len(i)]); got != tail.Table.Chunks[i].CRC32C {
			return fmt.Errorf("chunk %d sums to %08x, the table says %08x", i, got, tail.Table.Chunks[i].CRC32C)
		}
	}
	next, maxTime := tail.Header.StartOffset, int64(-1)
	seen := make(map[int]bool)
	w := segment.Walker{Batch: func(pos int64, h segment.Header) error {
		if h.BaseOffset != next {
			return fmt.Errorf("batch at %d begins at offset %d, want %d", pos, h.BaseOffset, next)
		}
		next, maxTime = h.LastOffset+1, max(maxTime, h.MaxTimestamp)
		i := int(pos / tail.Table.ChunkSize)
		c := tail.Table.Chunks[i]
		if !seen[i] && (c.FirstBatch != pos || c.BaseOffset != h.BaseOffset) {
			return fmt.Errorf("chunk %d: first batch at %d with offset %d, the table says %d and %d", i, pos, h.BaseOffset, c.FirstBatch, c.BaseOffset)
		}
		seen[i] = true
		if c.MaxTimestamp < h.MaxTimestamp {
			return fmt.Errorf("chunk %d has a batch of %d, the table says %d", i, h.MaxTimestamp, c.MaxTimestamp)
		}
		n := int32(0)
		var d segment.Decoder
		err := d.Records(log[pos:pos+int64(h.Size)], func(r segment.Record) bool {
			n++
			return true
		})
		if err != nil || n != h.Count {
			return fmt.Errorf("batch at %d: %d records of %d: %w", pos, n, h.Count, err)
		}
		return nil
	}}
	if _, err := w.Write(log); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if next != tail.Header.EndOffset+1 || maxTime != tail.Header.MaxTimestamp {
		return fmt.Errorf("ends at offset %d, time %d; the header says %+v", next, maxTime, tail.Header)
	}
	return nil
}

func TestObjectsAreValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := Spec{
			BatchBytes: rapid.OneOf(rapid.IntRange(72, 300), rapid.IntRange(300, 9000)).Draw(t, "batch"),
			ChunkBytes: 1 << rapid.IntRange(10, 13).Draw(t, "chunk"),
			Seed:       rapid.Uint32().Draw(t, "seed"),
			Partitions: 1 << 20, Segments: 1 << 20,
		}
		spec.Records = rapid.IntRange(1, min(255, max(1, (spec.BatchBytes-61)/20))).Draw(t, "records")
		spec.SegmentBytes = int64(spec.BatchBytes) * int64(rapid.IntRange(1, 40).Draw(t, "batches"))
		tier, err := spec.Tier()
		if room := spec.BatchBytes - segment.HeaderSize; spec.Records == 1 && (room == 65 || room == 8194) {
			if err == nil {
				t.Fatal("no record has that many bytes")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		o, err := tier.Object(rapid.IntRange(0, 1<<20-1).Draw(t, "partition"), rapid.IntRange(0, 1<<20-1).Draw(t, "index"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(io.NewSectionReader(o, 0, o.Size()))
		if err != nil {
			t.Fatal(err)
		}
		if err := checkObject(o, b); err != nil {
			t.Fatal(err)
		}
		// Any range, made alone, is that range of the whole; and the name alone
		// gives the same object.
		again, err := NewObject(o.Key())
		if err != nil {
			t.Fatal(err)
		}
		from := rapid.Int64Range(0, o.Size()-1).Draw(t, "from")
		part := make([]byte, rapid.Int64Range(1, o.Size()-from).Draw(t, "len"))
		if _, err := again.ReadAt(part, from); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(part, b[from:from+int64(len(part))]) {
			t.Fatalf("range of %d bytes from %d differs from the whole", len(part), from)
		}
	})
}

func TestNamesThatAreNoObjects(t *testing.T) {
	tier := mustTier(t, Spec{Segments: 3})
	o, err := tier.Object(0, 2)
	if err != nil {
		t.Fatal(err)
	}
	h := o.Header()
	other := h.Partition
	other.TopicID[0]++
	later := h.Partition
	later.TopicID[1]++
	long := h.Partition
	long.TopicID[6] = 0xff // batches: a log beyond 2 GiB
	for _, key := range []string{
		"", "segtier.json", o.Key() + "x",
		object.Key(other, h.StartOffset, h.SegmentID),
		object.Key(later, h.StartOffset, h.SegmentID),
		object.Key(long, h.StartOffset, h.SegmentID),
		object.Key(h.Partition, h.StartOffset+1, h.SegmentID),
		object.Key(h.Partition, 0, h.SegmentID),
		object.Key(h.Partition, h.StartOffset, segment.UUID{1}),
	} {
		if _, err := NewObject(key); err == nil {
			t.Errorf("%q is an object", key)
		}
	}
	if _, err := NewObject(virtualKey("some/prefix/" + o.Key())); err != nil {
		t.Error(err)
	}
}

func TestVerifierFindsEveryByte(t *testing.T) {
	tier := mustTier(t, Spec{Segments: 3, SegmentBytes: 4000, BatchBytes: 400, Records: 3})
	var log []byte
	for i := range 3 {
		o, err := tier.Object(5, i)
		if err != nil {
			t.Fatal(err)
		}
		log = append(log, whole(t, o)[:o.Header().SizeBytes]...)
	}
	for from := int64(0); from < tier.EndOffset(); from += 7 {
		v := tier.Verifier(5, from)
		rest := log[tier.PositionOf(from):]
		if _, err := io.CopyBuffer(struct{ io.Writer }{v}, bytes.NewReader(rest), make([]byte, 33)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range log {
		log[i] ^= 4
		if _, err := tier.Verifier(5, 0).Write(log); err == nil {
			t.Fatalf("byte %d is wrong, and nobody notices", i)
		}
		log[i] ^= 4
	}
	if _, err := tier.Verifier(6, 0).Write(log[:400]); err == nil {
		t.Error("another partition's bytes pass")
	}
}

func BenchmarkContent(b *testing.B) {
	for _, size := range []int{100, 4 << 10, 16 << 10, 64 << 10} {
		tier := mustTier(b, Spec{BatchBytes: size, SegmentBytes: 64 << 20})
		o, err := tier.Object(0, 0)
		if err != nil {
			b.Fatal(err)
		}
		buf, scratch := make([]byte, writeSize), make([]byte, size)
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			b.SetBytes(int64(len(buf)))
			at := int64(0)
			for b.Loop() {
				o.read(buf, at, scratch)
				at = (at + 12345) % (32 << 20)
			}
		})
		b.Run(fmt.Sprintf("tail/batch=%d", size), func(b *testing.B) {
			b.SetBytes(64 << 20)
			for b.Loop() {
				if _, err := tier.Object(0, 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
