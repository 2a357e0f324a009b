package audit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/segtier/segtier/audit"
	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tier is a partition that was copied.
type tier struct {
	store objstore.Store
	meta  *metadatatest.Mem
	ep    *endpoint.Endpoint
	log   *testseg.Log
	segs  []*metadata.Segment
}

var writer = metadata.Writer{BrokerID: 1, LeaderEpoch: 1 << 20}

// small has copies of several chunks and parts.
var small = lifecycle.CopierOptions{Scan: transfer.ScanOptions{ChunkSize: 4096, PartSize: 8192}}

func copied(t *testing.T, seed uint64) *tier {
	t.Helper()
	w := newTier(t, 0)
	w.log = testseg.Random(seed, testseg.Options{Segments: 3, Batches: 30})
	w.copy(t, small, w.log.Segments...)
	return w
}

// newTier is an empty one whose store's clock is ahead of what lies there.
func newTier(t *testing.T, ahead time.Duration) *tier {
	t.Helper()
	w := &tier{store: storetest.NewMem(), meta: metadatatest.NewMem()}
	w.ep = newEndpoint(t, aged{w.store, ahead})
	return w
}

// copy has segments copied, by one copier.
func (w *tier) copy(t *testing.T, o lifecycle.CopierOptions, sources ...*testseg.Segment) {
	t.Helper()
	all := make([]segment.Source, len(sources))
	for i, s := range sources {
		all[i] = s
	}
	w.copySources(t, o, all...)
}

func (w *tier) copySources(t *testing.T, o lifecycle.CopierOptions, sources ...segment.Source) {
	t.Helper()
	copier, err := lifecycle.NewCopier(w.meta, w.ep, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sources {
		seg, err := copier.Copy(t.Context(), s, writer)
		if err != nil {
			t.Fatal(err)
		}
		w.segs = append(w.segs, seg)
	}
}

func newEndpoint(t *testing.T, store objstore.Store) *endpoint.Endpoint {
	t.Helper()
	ep, err := endpoint.New(store, endpoint.Options{Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ep.Close(); err != nil {
			t.Error(err)
		}
	})
	return ep
}

func key(seg *metadata.Segment) string { return object.Key(seg.Partition, seg.StartOffset, seg.ID) }

func (w *tier) content(t *testing.T, key string) []byte {
	t.Helper()
	info, err := w.store.Stat(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, info.Size)
	if _, err := w.ep.Read(t.Context(), endpoint.ReadRequest{Key: key, Pieces: []endpoint.Piece{{Buf: b, NoVerify: true}}}); err != nil {
		t.Fatal(err)
	}
	return b
}

// replace puts other bytes under a key, as no store that keeps the law would.
func (w *tier) replace(t *testing.T, key string, b []byte) {
	t.Helper()
	if err := w.store.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	sum := checksum.Sum{Len: int64(len(b)), CRC32C: checksum.CRC32C(b)}
	_, err := w.store.Upload(t.Context(), objstore.UploadRequest{Key: key, Body: bytes.NewReader(b), Size: sum.Len, PartSize: sum.Len, PartSums: []checksum.Sum{sum}})
	if err != nil {
		t.Fatal(err)
	}
}

func (w *tier) verify(t *testing.T) (audit.Report, []audit.Finding) {
	t.Helper()
	var found []audit.Finding
	report, err := audit.Verify(t.Context(), w.meta, w.ep, audit.Options{Found: func(f audit.Finding) { found = append(found, f) }})
	if err != nil {
		t.Fatal(err)
	}
	if report.Findings != len(found) {
		t.Errorf("report counts %d findings of %d", report.Findings, len(found))
	}
	return report, found
}

func TestSoundTierHasNoFindings(t *testing.T) {
	for seed := range uint64(20) {
		w := copied(t, seed)
		report, found := w.verify(t)
		if len(found) != 0 || report.Segments != 3 || report.Damaged != 0 || report.Bytes == 0 {
			t.Errorf("seed %d: %+v, %v", seed, report, found)
		}
	}
}

// TestEveryFlippedByteIsFound flips single bits all over an object.
func TestEveryFlippedByteIsFound(t *testing.T) {
	w := copied(t, 1)
	k := key(w.segs[1])
	sound := w.content(t, k)
	step := max(len(sound)/300, 1)
	for i := 0; i < len(sound); i += step {
		b := bytes.Clone(sound)
		b[i] ^= 1 << (i % 8)
		w.replace(t, k, b)
		report, found := w.verify(t)
		if len(found) == 0 || report.Damaged != 1 {
			t.Fatalf("bit flipped in byte %d of %d: %+v", i, len(sound), report)
		}
		for _, f := range found {
			if f.Reason != audit.ObjectCorrupt || f.Key != k || f.Off > int64(i) || f.Len > 0 && f.Off+f.Len <= int64(i) {
				t.Fatalf("bit flipped in byte %d: found %s in %s [%d,%d): %v", i, f.Reason, f.Key, f.Off, f.Off+f.Len, f.Err)
			}
		}
	}
}

func TestDamageHasItsReason(t *testing.T) {
	for _, test := range []struct {
		name   string
		damage func(t *testing.T, w *tier, k string)
		reason audit.Reason
	}{
		{"deleted", func(t *testing.T, w *tier, k string) {
			if err := w.store.Delete(t.Context(), k); err != nil {
				t.Fatal(err)
			}
		}, audit.ObjectMissing},
		{"cut short", func(t *testing.T, w *tier, k string) { b := w.content(t, k); w.replace(t, k, b[:len(b)-1]) }, audit.ObjectSize},
		{"grown", func(t *testing.T, w *tier, k string) { w.replace(t, k, append(w.content(t, k), 0)) }, audit.ObjectSize},
		{"another segment's object", func(t *testing.T, w *tier, k string) {
			b := w.content(t, k)
			other := w.content(t, key(w.segs[2]))
			w.replace(t, k, append(other, make([]byte, len(b))...)[:len(b)])
		}, audit.ObjectCorrupt},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := copied(t, 2)
			k := key(w.segs[0])
			test.damage(t, w, k)
			report, found := w.verify(t)
			if len(found) == 0 || report.Damaged != 1 || report.Segments != 3 {
				t.Fatalf("%+v", report)
			}
			for _, f := range found {
				if f.Reason != test.reason || f.Key != k || f.Segment.ID != w.segs[0].ID {
					t.Errorf("found %s in %s: %v; want %s in %s", f.Reason, f.Key, f.Err, test.reason, k)
				}
			}
		})
	}
}

// TestRecordThatIsNotTheObjects: the object is sound, the record speaks of
// something else.
func TestRecordThatIsNotTheObjects(t *testing.T) {
	w := copied(t, 3)
	record := w.segs[0].Clone()
	record.MaxTimestamp++
	view := metadata.NewView(record.Partition, record)
	var found []audit.Finding
	_, err := audit.Verify(t.Context(), viewStore{w.meta, func() (*metadata.View, error) { return view, nil }}, w.ep,
		audit.Options{Partitions: []segment.Partition{record.Partition}, Found: func(f audit.Finding) { found = append(found, f) }})
	if err != nil || len(found) != 1 || found[0].Reason != audit.RecordMismatch {
		t.Errorf("found %+v, %v", found, err)
	}
	record = w.segs[0].Clone()
	record.Custom = append([]byte("L"), "ocation that is none"...)
	view = metadata.NewView(record.Partition, record)
	found = nil
	_, err = audit.Verify(t.Context(), viewStore{w.meta, func() (*metadata.View, error) { return view, nil }}, w.ep,
		audit.Options{Partitions: []segment.Partition{record.Partition}, Found: func(f audit.Finding) { found = append(found, f) }})
	if err != nil || len(found) != 1 || found[0].Reason != audit.LocationInvalid {
		t.Errorf("found %+v, %v", found, err)
	}
}

// viewStore is a metadata store with a view of one's own.
type viewStore struct {
	metadata.Store
	view func() (*metadata.View, error)
}

func (s viewStore) View(segment.Partition) (*metadata.View, error) { return s.view() }

// TestDeletedMeanwhileIsNoFinding: the object is gone because the segment was
// deleted between reading the view and reading the object.
func TestDeletedMeanwhileIsNoFinding(t *testing.T) {
	w := copied(t, 4)
	before, err := w.meta.View(w.log.Partition)
	if err != nil {
		t.Fatal(err)
	}
	ev, err := metadata.DeleteStarted(w.segs[1], writer, time.Now().UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.meta.Publish(t.Context(), ev); err != nil {
		t.Fatal(err)
	}
	if err := w.store.Delete(t.Context(), key(w.segs[1])); err != nil {
		t.Fatal(err)
	}
	views := []*metadata.View{before}
	report, err := audit.Verify(t.Context(), viewStore{w.meta, func() (*metadata.View, error) {
		if len(views) > 0 {
			v := views[0]
			views = views[1:]
			return v, nil
		}
		return w.meta.View(w.log.Partition)
	}}, w.ep, audit.Options{Found: func(f audit.Finding) { t.Errorf("found %+v", f) }})
	if err != nil || report.Segments != 2 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestPrefixOfAnother: the wrong store is an error, a store that lost its owner
// marker a finding.
func TestPrefixOfAnother(t *testing.T) {
	w, other := copied(t, 6), copied(t, 7)
	_, err := audit.Verify(t.Context(), w.meta, other.ep, audit.Options{Found: func(f audit.Finding) { t.Errorf("found %+v", f) }})
	var owner *transfer.OwnerError
	if !errors.As(err, &owner) || owner.Owner != other.meta.ID() {
		t.Errorf("error %v, want the owner %s named", err, other.meta.ID())
	}
	if err := w.store.Delete(t.Context(), object.OwnerKey); err != nil {
		t.Fatal(err)
	}
	report, found := w.verify(t)
	if len(found) != 1 || found[0].Reason != audit.OwnerMissing || report.Segments != 3 || report.Damaged != 0 {
		t.Errorf("found %+v, report %+v", found, report)
	}
	// An empty store: that is said first, and once.
	for _, seg := range w.segs {
		if err := w.store.Delete(t.Context(), key(seg)); err != nil {
			t.Fatal(err)
		}
	}
	report, found = w.verify(t)
	if len(found) != 4 || found[0].Reason != audit.OwnerMissing || found[1].Reason != audit.ObjectMissing || report.Damaged != 3 {
		t.Errorf("found %+v, report %+v", found, report)
	}
}

// TestOneUnreadableObjectHidesNoOther: the damage behind an object that cannot be
// read is found all the same, and the report is said to be incomplete.
func TestOneUnreadableObjectHidesNoOther(t *testing.T) {
	w := copied(t, 8)
	if err := w.store.Delete(t.Context(), key(w.segs[2])); err != nil {
		t.Fatal(err)
	}
	blind := storetest.Inject(w.store, func(c storetest.Call) storetest.Fault {
		if c.Key == key(w.segs[0]) {
			return storetest.Fault{Kind: storetest.FailBefore}
		}
		return storetest.Fault{}
	})
	var found []audit.Finding
	report, err := audit.Verify(t.Context(), w.meta, newEndpoint(t, blind), audit.Options{Found: func(f audit.Finding) { found = append(found, f) }})
	if !errors.Is(err, storetest.ErrInjected) || report.Unread != 1 || report.Segments != 2 || len(found) != 1 || found[0].Segment.ID != w.segs[2].ID {
		t.Errorf("report %+v, found %+v, %v", report, found, err)
	}
}

// TestUnreachableStoreIsNoFinding: a store that does not answer says nothing
// about its objects.
func TestUnreachableStoreIsNoFinding(t *testing.T) {
	w := copied(t, 5)
	for n := 1; n <= 8; n++ {
		hit := false
		down := storetest.Inject(w.store, func(c storetest.Call) storetest.Fault {
			if c.Seq == n {
				hit = true
				return storetest.Fault{Kind: storetest.FailBefore}
			}
			return storetest.Fault{}
		})
		_, err := audit.Verify(t.Context(), w.meta, newEndpoint(t, down), audit.Options{Found: func(f audit.Finding) { t.Errorf("call %d failed: found %+v", n, f) }})
		if hit && !errors.Is(err, storetest.ErrInjected) {
			t.Errorf("call %d failed: %v", n, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := audit.Verify(ctx, w.meta, w.ep, audit.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func ExampleVerify() {
	meta, store := metadatatest.NewMem(), storetest.NewMem()
	ep, err := endpoint.New(store, endpoint.Options{})
	if err != nil {
		panic(err)
	}
	defer ep.Close()
	report, err := audit.Verify(context.Background(), meta, ep, audit.Options{
		Found: func(f audit.Finding) { fmt.Println(f.Reason, f.Key, f.Off, f.Len, f.Err) },
	})
	fmt.Println(report.Segments, "segments,", report.Damaged, "damaged,", err)
	// Output: 0 segments, 0 damaged, <nil>
}
