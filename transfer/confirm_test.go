package transfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
)

// copied is a segment and its object.
type copied struct {
	seg  *testseg.Segment
	h    object.Header
	loc  object.Location
	tail []byte
	obj  []byte
}

func copySegment(t fataler, s *testseg.Segment, o ScanOptions) copied {
	t.Helper()
	p := scan(t, s, o)
	tail, loc := sealed(t, p)
	return copied{seg: s, h: record(p), loc: loc, tail: tail, obj: concat(s, tail)}
}

// smallSegment has every kind of file in a few KiB.
func smallSegment() *testseg.Segment {
	producer := testseg.Producer{ID: 4000, Epoch: 1}
	spec := testseg.Spec{Partition: testseg.DefaultPartition, Start: 50, End: 70, Interval: 200}
	for i := range int64(12) {
		offset := 50 + i
		b := testseg.Batch{BaseOffset: offset, Records: []segment.Record{{Offset: offset, Timestamp: 1000 + i, Value: bytes.Repeat([]byte{byte(i)}, 60)}}}
		if i < 4 {
			p := producer
			p.Sequence = int32(i)
			b.Producer, b.Transactional = &p, true
		}
		spec.Batches = append(spec.Batches, b)
		if i == 3 {
			spec.Batches = append(spec.Batches, testseg.Marker(offset+1, 1000+i, 0, producer, false))
		}
		if i >= 4 {
			spec.Batches[len(spec.Batches)-1].BaseOffset++
			spec.Batches[len(spec.Batches)-1].Records[0].Offset++
		}
	}
	return testseg.Build(spec)
}

// confirm reads an object whose bytes are b in full.
func (c copied) confirm(t *testing.T, b []byte, plan storetest.Plan) (found []*DamageError, r Receipt, err error) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		store := storetest.NewMem()
		if b != nil {
			put(t, store, c.h.Key(), b)
		}
		ep := newEndpoint(t, storetest.Inject(store, plan))
		r, err = Confirm(t.Context(), ep, c.h, c.loc, ConfirmOptions{Found: func(d *DamageError) { found = append(found, d) }})
	})
	if (err == nil) == r.IsZero() {
		t.Errorf("receipt %+v, error %v", r.Facts(), err)
	}
	if (len(found) > 0) != errors.Is(err, ErrDamaged) {
		t.Errorf("%d damages found, error %v", len(found), err)
	}
	for _, d := range found {
		if d.Key != c.h.Key() || d.Err == nil || d.What == "" || d.Off < 0 || d.Len < 0 || d.Off+d.Len > c.loc.ObjectSize {
			t.Errorf("damage %+v", d)
		}
	}
	return found, r, err
}

func TestConfirm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, o := drawSegment(t)
		c := copySegment(t, s, o)
		store := storetest.NewMem()
		ep, err := endpoint.New(store, endpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer ep.Close()
		uploaded, err := Upload(context.Background(), ep, s, scan(t, s, o), c.h, UploadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		read, err := Confirm(context.Background(), ep, c.h, c.loc, ConfirmOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want, got := uploaded.Facts(), read.Facts()
		if got.Evidence != "full read" {
			t.Fatalf("evidence %q", got.Evidence)
		}
		want.Evidence = got.Evidence
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Fatalf("receipt %+v, uploaded with %+v", got, want)
		}
	})
}

// Every byte of the object is guarded, and its damage is reported where it is.
func TestConfirmFindsEveryFlip(t *testing.T) {
	c := copySegment(t, smallSegment(), ScanOptions{ChunkSize: 200})
	if len(c.seg.Offset) == 0 || len(c.seg.Time) == 0 || len(c.seg.Txn) == 0 || len(c.seg.Snapshot) == 0 {
		t.Fatal("a file is missing")
	}
	if _, _, err := c.confirm(t, c.obj, nil); err != nil {
		t.Fatal(err)
	}
	for at := range c.obj {
		b := bytes.Clone(c.obj)
		b[at] ^= 1 << (at % 8)
		found, _, _ := c.confirm(t, b, nil)
		if len(found) != 1 {
			t.Fatalf("byte %d flipped: %d damages: %v", at, len(found), found)
		}
		if d := found[0]; d.Reason != Corrupt || int64(at) < d.Off || int64(at) >= d.Off+d.Len {
			t.Fatalf("byte %d flipped: %v", at, d)
		}
	}
}

// All damages are found, in order, and nothing else.
func TestConfirmFindsAll(t *testing.T) {
	c := copySegment(t, someSegment(t), layout)
	chunks := (len(c.seg.Log) + 4095) / 4096
	b := bytes.Clone(c.obj)
	var want []string
	for _, i := range []int{0, 1, 5, chunks - 1} {
		b[i*4096+17] ^= 1
		want = append(want, fmt.Sprintf("chunk %d", i))
	}
	b[len(c.seg.Log)] ^= 1
	b[c.loc.TailOffset-1] ^= 1
	want = append(want, "offset index", "producer snapshot")
	found, _, err := c.confirm(t, b, nil)
	var got []string
	for _, d := range found {
		got = append(got, d.What)
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	var d *DamageError
	if !errors.As(err, &d) || d != found[0] {
		t.Errorf("error %v, want the first", err)
	}
	var mismatch *checksum.MismatchError
	if !errors.As(err, &mismatch) {
		t.Errorf("no evidence in %v", err)
	}
}

func TestConfirmOfAnotherObject(t *testing.T) {
	c := copySegment(t, smallSegment(), ScanOptions{ChunkSize: 200})
	for name, v := range map[string]struct {
		obj  []byte
		want Damage
	}{
		"deleted":         {nil, Missing},
		"one byte short":  {c.obj[:len(c.obj)-1], WrongSize},
		"log alone":       {c.seg.Log, WrongSize},
		"one byte longer": {append(bytes.Clone(c.obj), 0), WrongSize},
		"zeros":           {make([]byte, len(c.obj)), Corrupt},
	} {
		t.Run(name, func(t *testing.T) {
			found, _, _ := c.confirm(t, v.obj, nil)
			if len(found) != 1 || found[0].Reason != v.want {
				t.Errorf("found %v", found)
			}
		})
	}
	for name, change := range map[string]func(*object.Header){
		"end offset": func(h *object.Header) { h.EndOffset++ },
		"aborts":     func(h *object.Header) { h.TxnIndexEmpty = true },
		"epochs":     func(h *object.Header) { h.Epochs = segment.Lineage{{Epoch: 1, Start: h.StartOffset}} },
	} {
		t.Run("record with another "+name, func(t *testing.T) {
			other := c
			change(&other.h)
			found, _, _ := other.confirm(t, c.obj, nil)
			if len(found) != 1 || found[0].Reason != Mismatch || found[0].What != "header" {
				t.Errorf("found %v", found)
			}
		})
	}
	// FINISHED has replaced who wrote the record, and when.
	later := c
	later.h.BrokerID++
	later.h.EventTimestamp++
	if _, _, err := later.confirm(t, c.obj, nil); err != nil {
		t.Error(err)
	}
}

// An object that was made with a bad batch has right sums everywhere; every
// batch's own CRC is looked at.
func TestConfirmChecksBatches(t *testing.T) {
	s := smallSegment()
	c := copySegment(t, s, ScanOptions{ChunkSize: 200})
	parsed, err := object.ParseTail(c.tail, c.loc)
	if err != nil {
		t.Fatal(err)
	}
	// again makes the object of a log that was never scanned.
	again := func(log []byte, change func(*object.TailInput)) copied {
		t.Helper()
		in := object.TailInput{Header: c.h, Table: parsed.Table, TxnIndex: s.Txn, Epochs: parsed.Epochs}
		in.Table.Chunks = slices.Clone(in.Table.Chunks)
		for i := range in.Table.Chunks {
			start := in.Table.Start(i)
			in.Table.Chunks[i].CRC32C = checksum.CRC32C(log[start : start+in.Table.Len(i)])
		}
		for i, b := range [][]byte{log, s.Offset, s.Time, s.Snapshot} {
			in.Head[i] = checksum.Sum{Len: int64(len(b)), CRC32C: checksum.CRC32C(b)}
		}
		change(&in)
		tail, err := object.AppendTail(nil, in)
		if err != nil {
			t.Fatal(err)
		}
		loc, err := object.LocationOf(tail)
		if err != nil {
			t.Fatal(err)
		}
		return copied{seg: s, h: c.h, loc: loc, tail: tail, obj: bytes.Join([][]byte{log, s.Offset, s.Time, s.Snapshot, tail}, nil)}
	}
	same := func(*object.TailInput) {}
	if _, _, err := again(s.Log, same).confirm(t, again(s.Log, same).obj, nil); err != nil {
		t.Fatal(err)
	}
	last := s.Batches[len(s.Batches)-1]
	for _, i := range []int{0, 4, len(s.Batches) - 1} {
		b := s.Batches[i]
		for name, change := range map[string]func(log []byte){
			"flipped":     func(log []byte) { log[b.Pos+int64(b.Header.Size)-1] ^= 1 },
			"not a batch": func(log []byte) { log[b.Pos+16] = 77 },
			"too long":    func(log []byte) { log[b.Pos+8] = 0x7f },
			"elsewhere":   func(log []byte) { binary.BigEndian.PutUint64(log[b.Pos:], 1000) },
		} {
			t.Run(fmt.Sprintf("%s %d", name, i), func(t *testing.T) {
				log := bytes.Clone(s.Log)
				change(log)
				bad := again(log, same)
				found, _, _ := bad.confirm(t, bad.obj, nil)
				if len(found) == 0 || found[0].Reason != Corrupt || found[0].Off != b.Pos || found[0].Len <= 0 || !errors.Is(found[0].Err, segment.ErrCorruptBatch) {
					t.Errorf("batch at %d: found %v", b.Pos, found)
				}
				// The batches behind it are read again, up to the end.
				if len(found) != 1 {
					t.Errorf("found %d damages: %v", len(found), found)
				}
			})
		}
	}
	// Two bad batches: the way is found again after the first.
	log := bytes.Clone(s.Log)
	log[s.Batches[1].Pos+80] ^= 1
	log[last.Pos+80] ^= 1
	bad := again(log, same)
	found, _, _ := bad.confirm(t, bad.obj, nil)
	if len(found) != 2 || found[0].Off != s.Batches[1].Pos || found[1].Off != last.Pos {
		t.Errorf("found %v", found)
	}
	for _, d := range found {
		var be *segment.BatchError
		if !errors.As(d.Err, &be) || be.Pos != d.Off {
			t.Errorf("damage at %d: %v", d.Off, d.Err)
		}
	}
	// A table that would lead readers astray.
	bad = again(s.Log, func(in *object.TailInput) {
		for i := range in.Table.Chunks {
			if c := &in.Table.Chunks[i]; i > 0 && c.FirstBatch >= 0 {
				c.BaseOffset++
			}
		}
	})
	if found, _, _ := bad.confirm(t, bad.obj, nil); len(found) != 1 || found[0].What != "chunk table" || found[0].Reason != Mismatch {
		t.Errorf("found %v", found)
	}
}

// A store that does not answer says nothing about the object.
func TestConfirmStoreFailures(t *testing.T) {
	c := copySegment(t, someSegment(t), layout)
	for _, op := range []string{"stat", "get"} {
		plan := storetest.Rules(storetest.Rule{Op: op, Times: -1, Fault: storetest.Fault{Kind: storetest.FailBefore}})
		if found, _, err := c.confirm(t, c.obj, plan); !errors.Is(err, storetest.ErrInjected) || len(found) > 0 {
			t.Errorf("%s: %v, %v", op, found, err)
		}
	}
	// The object goes away between two reads.
	for nth := 1; nth <= 3; nth++ {
		for err, want := range map[error]Damage{objstore.ErrNotExist: Missing, objstore.ErrChanged: Mismatch} {
			plan := storetest.Rules(storetest.Rule{Op: "get", Nth: nth, Times: -1, Fault: storetest.Fault{Kind: storetest.FailBefore, Err: err}})
			if found, _, _ := c.confirm(t, c.obj, plan); len(found) != 1 || found[0].Reason != want {
				t.Errorf("get %d with %v: found %v", nth, err, found)
			}
		}
	}
	// What passes is overcome, at any byte of any body.
	for nth := 1; nth <= 3; nth++ {
		for _, fault := range []storetest.Fault{{Kind: storetest.Cut, At: 100}, {Kind: storetest.Flip, At: 100}, {Kind: storetest.FailBefore}} {
			plan := storetest.Rules(storetest.Rule{Op: "get", Nth: nth, Fault: fault})
			if _, _, err := c.confirm(t, c.obj, plan); err != nil {
				t.Errorf("get %d with %v: %v", nth, fault.Kind, err)
			}
		}
	}
}

func TestConfirmCancel(t *testing.T) {
	c := copySegment(t, someSegment(t), layout)
	for _, op := range []string{"stat", "get"} {
		for nth := range 4 {
			store := storetest.NewMem()
			put(t, store, c.h.Key(), c.obj)
			ctx, cancel := context.WithCancel(context.Background())
			ep := newEndpoint(t, storetest.Inject(store, func(call storetest.Call) storetest.Fault {
				if call.Op == op && call.Nth == nth {
					cancel()
					return storetest.Fault{Kind: storetest.Hang}
				}
				return storetest.Fault{}
			}))
			_, err := Confirm(ctx, ep, c.h, c.loc, ConfirmOptions{})
			if asked := ctx.Err() != nil; asked != errors.Is(err, context.Canceled) || errors.Is(err, ErrDamaged) {
				t.Errorf("%s %d: %v", op, nth, err)
			}
			cancel()
		}
	}
}

// A location that was made by hand is not believed.
func TestConfirmOfABadLocation(t *testing.T) {
	c := copySegment(t, smallSegment(), layout)
	for name, change := range map[string]func(*object.Location){
		"tail beyond the end": func(l *object.Location) { l.TailOffset = l.ObjectSize },
		"huge tail":           func(l *object.Location) { l.TailOffset = -1 << 60 },
		"tail too early":      func(l *object.Location) { l.TailOffset-- },
		"codec":               func(l *object.Location) { l.Codec = 1 },
		"object sum":          func(l *object.Location) { l.ObjectCRC32C++ },
	} {
		bad := c
		change(&bad.loc)
		store := storetest.NewMem()
		put(t, store, c.h.Key(), c.obj)
		if r, err := Confirm(context.Background(), newEndpoint(t, store), bad.h, bad.loc, ConfirmOptions{}); err == nil || !r.IsZero() {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A full read holds a bounded number of bytes and asks for runs, not chunks.
func TestConfirmRuns(t *testing.T) {
	c := copySegment(t, largeSegment(20<<20), ScanOptions{})
	store := storetest.NewMem()
	put(t, store, c.h.Key(), c.obj)
	ep := newEndpoint(t, store)
	if _, err := Confirm(context.Background(), ep, c.h, c.loc, ConfirmOptions{}); err != nil {
		t.Fatal(err)
	}
	// Tail, three runs, two index files and a snapshot.
	if gets := ep.Stats().Gets; gets > 7 {
		t.Errorf("%d GETs", gets)
	}
}
