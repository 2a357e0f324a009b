package object

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/segment"
)

// checkRefused wants an error of this package that holds want, and no result.
func checkRefused[T any](t *testing.T, got *T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Fatal("accepted")
	}
	if got != nil {
		t.Error("an error and a result")
	}
	var fe *FormatError
	if !errors.As(err, &fe) || errors.Is(err, ErrCorrupt) == errors.Is(err, ErrVersion) {
		t.Errorf("%T wraps not exactly one of ErrCorrupt and ErrVersion: %v", err, err)
	}
	if !strings.Contains(err.Error(), want) {
		t.Errorf("error %q, want %q in it", err, want)
	}
}

// drawInput makes a random tail's input, and the log behind it.
func drawInput(t *rapid.T) TailInput {
	log := rapid.SliceOfN(rapid.Byte(), 1, 600).Draw(t, "log")
	size := rapid.Int64Range(1, 700).Draw(t, "chunk size")
	start := rapid.Int64Range(0, 1<<40).Draw(t, "start")
	in := TailInput{Table: Table{ChunkSize: size}}
	base, ts := start, int64(-1)
	for pos := int64(0); pos < int64(len(log)); pos += size {
		n := min(size, int64(len(log))-pos)
		c := Chunk{Len: int32(n), CRC32C: checksum.CRC32C(log[pos : pos+n]), FirstBatch: -1, BaseOffset: -1}
		if pos == 0 || rapid.Bool().Draw(t, "batch starts") {
			c.FirstBatch, c.BaseOffset = pos, base
			if pos > 0 {
				c.FirstBatch += rapid.Int64Range(0, n-1).Draw(t, "at")
			}
			base += rapid.Int64Range(1, 1000).Draw(t, "offsets")
			ts = max(ts, rapid.Int64Range(-1, 1<<41).Draw(t, "time"))
		}
		c.MaxTimestamp = ts
		in.Table.Chunks = append(in.Table.Chunks, c)
	}
	end := base + rapid.Int64Range(0, 1000).Draw(t, "gap at the end")
	for i := range in.Head {
		b := log
		if i > 0 {
			b = rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "file")
		}
		in.Head[i] = checksum.Sum{Len: int64(len(b)), CRC32C: checksum.CRC32C(b)}
	}
	epoch, at := int32(0), int64(0)
	for at <= end {
		in.Epochs = append(in.Epochs, segment.EpochStart{Epoch: epoch, Start: at})
		epoch += rapid.Int32Range(1, 9).Draw(t, "epoch")
		at += rapid.Int64Range(0, end/2+1000).Draw(t, "epoch length")
	}
	if ts < 0 {
		ts = rapid.Int64Range(-1, 1<<41).Draw(t, "mtime")
	}
	in.Header = Header{
		Partition: segment.Partition{
			Topic:   rapid.StringMatching(`[a-zA-Z0-9_-]{1,249}`).Draw(t, "topic"),
			TopicID: drawUUID(t, "topic id"), Number: rapid.Int32Min(0).Draw(t, "partition"),
		},
		SegmentID: drawUUID(t, "segment id"), StartOffset: start, EndOffset: end, MaxTimestamp: ts,
		EventTimestamp: rapid.Int64().Draw(t, "event time"), BrokerID: rapid.Int32().Draw(t, "broker"),
		SizeBytes: int64(len(log)), Epochs: in.Epochs.Range(start, end), TxnIndexEmpty: rapid.Bool().Draw(t, "no aborts"),
	}
	return in
}

func drawUUID(t *rapid.T, label string) (u segment.UUID) {
	copy(u[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, label))
	u[0] |= 1
	return u
}

func TestTailRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		prefix := []byte("prefix")
		b, err := AppendTail(prefix, in)
		if err != nil {
			t.Fatal(err)
		}
		tail := b[len(prefix):]
		again, err := AppendTail(nil, in)
		if err != nil || !bytes.Equal(tail, again) {
			t.Fatalf("not deterministic (%v)", err)
		}
		loc, err := LocationOf(tail)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseTail(tail, loc)
		if err != nil {
			t.Fatal(err)
		}
		if !got.Header.Equal(in.Header) || got.Table.ChunkSize != in.Table.ChunkSize ||
			!slices.Equal(got.Table.Chunks, in.Table.Chunks) || !slices.Equal(got.Epochs, in.Epochs) {
			t.Fatalf("got %+v of %+v", got, in)
		}
		at, err := TailOffset(tail[len(tail)-TrailerSize:], loc.ObjectSize)
		if err != nil || at != loc.TailOffset {
			t.Fatalf("trailer points to %d (%v), location to %d", at, err, loc.TailOffset)
		}
		// Nothing of the input is kept.
		clear(tail)
		if !got.Header.Equal(in.Header) {
			t.Fatal("the tail aliases its bytes")
		}
	})
}

// Every bit of a tail is guarded, and so is its length.
func TestTailDamage(t *testing.T) {
	tail, loc := golden(t)
	for i := range tail {
		for bit := range 8 {
			b := bytes.Clone(tail)
			b[i] ^= 1 << bit
			if _, err := ParseTail(b, loc); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("byte %d, bit %d flipped: %v", i, bit, err)
			}
			// Without the tail's own sum too: sections and trailer have theirs.
			sealed := loc
			sealed.TailCRC32C = checksum.CRC32C(b)
			if _, err := ParseTail(b, sealed); err == nil {
				t.Fatalf("byte %d, bit %d flipped and the tail's sum made anew: accepted", i, bit)
			}
			if _, err := LocationOf(b); i >= len(tail)-TrailerSize && err == nil {
				t.Fatalf("byte %d, bit %d of the trailer flipped: located", i, bit)
			}
		}
		if _, err := ParseTail(tail[:i], loc); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
	}
	if _, err := ParseTail(append(bytes.Clone(tail), 0), loc); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("one byte longer: %v", err)
	}
}

// A location and a tail that fit each other, but not the trailer.
func TestTailShifted(t *testing.T) {
	tail, good := golden(t)
	for shift, b := range map[int64][]byte{1: tail[1:], -1: append([]byte{0}, tail...)} {
		loc := good
		loc.TailOffset += shift
		loc.TailCRC32C = checksum.CRC32C(b)
		got, err := ParseTail(b, loc)
		checkRefused(t, got, err, "points to a tail at 11627")
	}
}

// Sections that are within bounds each, and not together.
func TestTailOffsetBounds(t *testing.T) {
	var d directory
	d[Log].Len = 1
	for s := TxnIndex; s < numSections; s++ {
		d[s] = Extent{Off: d[s-1].Off + d[s-1].Len, Len: MaxTailSize / 2}
	}
	d[TxnIndex].Off = 1
	at, err := TailOffset(d.appendTrailer(nil), 1+4*MaxTailSize/2+TrailerSize)
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "tail of") {
		t.Errorf("tail at %d, %v", at, err)
	}
}

// The writer refuses what the reader would, before anything is sent.
func TestAppendTailRefuses(t *testing.T) {
	for name, change := range map[string]func(*TailInput){
		"no log":            func(in *TailInput) { in.Head[0] = checksum.Sum{}; in.Header.SizeBytes = 0 },
		"log too large":     func(in *TailInput) { in.Head[0].Len = 1 << 31 },
		"index too large":   func(in *TailInput) { in.Head[1].Len = 1 << 31 },
		"negative length":   func(in *TailInput) { in.Head[1].Len = -1 },
		"txn too large":     func(in *TailInput) { in.TxnIndex = make([]byte, MaxTailSize+1) },
		"tail too large":    func(in *TailInput) { in.TxnIndex = make([]byte, MaxTailSize) },
		"broken txn":        func(in *TailInput) { in.TxnIndex = bytes.Repeat([]byte{1}, 34) },
		"topic":             func(in *TailInput) { in.Header.Partition.Topic = strings.Repeat("x", 256) },
		"log size":          func(in *TailInput) { in.Header.SizeBytes++ },
		"chunk wraps":       func(in *TailInput) { in.Table.Chunks[1].FirstBatch += 1 << 32 },
		"chunk size wraps":  func(in *TailInput) { in.Table.ChunkSize += 1 << 32 },
		"other log sum":     func(in *TailInput) { in.Head[0].CRC32C++ },
		"epochs clipped":    func(in *TailInput) { in.Epochs = in.Epochs[2:] },
		"epochs unordered":  func(in *TailInput) { in.Epochs = segment.Lineage{{Epoch: 2, Start: 0}, {Epoch: 2, Start: 119}} },
		"not the history":   func(in *TailInput) { in.Header.Epochs = in.Header.Epochs[:1] },
		"aborts after all":  func(in *TailInput) { in.Header.TxnIndexEmpty = true },
		"max timestamp":     func(in *TailInput) { in.Header.MaxTimestamp-- },
		"no chunk":          func(in *TailInput) { in.Table.Chunks = nil },
		"negative sequence": func(in *TailInput) { in.Table.Chunks[0].Len = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			in := goldenInput(t)
			change(&in)
			prefix := []byte("prefix")
			b, err := AppendTail(prefix, in)
			checkRefused[int](t, nil, err, "")
			if !bytes.Equal(b, prefix) {
				t.Error("something was appended")
			}
		})
	}
}

func TestHeaderEqual(t *testing.T) {
	h := goldenInput(t).Header
	if !h.Equal(goldenInput(t).Header) {
		t.Error("not equal to itself")
	}
	for name, change := range map[string]func(*Header){
		"topic":     func(h *Header) { h.Partition.Topic = "x" },
		"topic id":  func(h *Header) { h.Partition.TopicID[0]++ },
		"partition": func(h *Header) { h.Partition.Number++ },
		"id":        func(h *Header) { h.SegmentID[0]++ },
		"start":     func(h *Header) { h.StartOffset++ },
		"end":       func(h *Header) { h.EndOffset++ },
		"max time":  func(h *Header) { h.MaxTimestamp++ },
		"time":      func(h *Header) { h.EventTimestamp++ },
		"broker":    func(h *Header) { h.BrokerID++ },
		"size":      func(h *Header) { h.SizeBytes++ },
		"epochs":    func(h *Header) { h.Epochs = h.Epochs[1:] },
		"aborts":    func(h *Header) { h.TxnIndexEmpty = !h.TxnIndexEmpty },
	} {
		o := h
		change(&o)
		if h.Equal(o) || o.Equal(h) {
			t.Errorf("equal with another %s", name)
		}
		if writer := name == "time" || name == "broker"; h.Describes(o) != writer {
			t.Errorf("describes one with another %s: %t", name, !writer)
		}
	}
}
