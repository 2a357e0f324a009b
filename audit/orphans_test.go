package audit_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segtier/segtier/audit"
	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// TestOrphans: everything is found and told by its reason; without Apply nothing is
// changed; with it what is proven goes, and with Unknown what is not known; what is
// left is what somebody needs or nobody of ours has made.
func TestOrphans(t *testing.T) {
	a := furnish(t)
	before := listing(t, a.store)
	look := func(o audit.OrphanOptions) (map[string]audit.Orphan, audit.OrphanReport) {
		t.Helper()
		got := map[string]audit.Orphan{}
		o.Found = func(o audit.Orphan) {
			if _, twice := got[name(o)]; twice {
				t.Errorf("%s is told twice", name(o))
			}
			got[name(o)] = o
		}
		report, err := audit.Orphans(t.Context(), a.meta, a.ep, o)
		if err != nil {
			t.Fatal(err)
		}
		return got, report
	}
	got, report := look(a.options())
	for k, want := range a.want {
		if got[k].Reason != want {
			t.Errorf("%s: %s, want %s", k, got[k].Reason, want)
		}
	}
	for k, o := range got {
		if a.want[k] == "" {
			t.Errorf("%s was found: %+v", k, o)
		}
		if want := o.Reason != audit.OrphanEnded && o.Reason != audit.UploadEnded && o.Reason != audit.RecordAbandoned && o.Reason != audit.RecordDeleting; (o.Kept != "") != want || o.Kept == "" && o.Proof == "" {
			t.Errorf("%s, %s: kept %q, proof %q", k, o.Reason, o.Kept, o.Proof)
		}
	}
	if report.Orphans != 1 || report.Uploads != 4 || report.Records != 2 || report.Foreign != 6 || report.Live != atticSegments-1 || report.Objects != atticSegments+4 || report.Kept != 5 || report.Deleted != 0 {
		t.Errorf("%+v", report)
	}
	same(t, "without Apply", listing(t, a.store), before)

	o := a.options()
	o.Apply = true
	if _, report = look(o); report.Deleted != 1 || report.Aborted != 4 || report.Ended != 2 || report.Failed != 0 {
		t.Errorf("%+v", report)
	}
	want := map[string]bool{}
	for k := range before {
		want[k] = true
	}
	for k, r := range a.want {
		if r == audit.OrphanEnded || r == audit.UploadEnded {
			delete(want, k)
		}
		if key, ok := strings.CutSuffix(k, " record"); ok {
			delete(want, key)
			delete(want, key+" upload")
		}
	}
	same(t, "with Apply", listing(t, a.store), want)

	o.Unknown = true
	if _, report = look(o); report.Deleted != 2 || report.Aborted != 1 || report.Ended != 0 {
		t.Errorf("%+v", report)
	}
	for k, r := range a.want {
		if r == audit.OrphanUnknown || r == audit.UploadUnknown {
			delete(want, k)
		}
	}
	same(t, "with Unknown", listing(t, a.store), want)
	if got, report = look(o); report.Orphans+report.Uploads+report.Records+report.Deleted != 0 || len(got) != 8 {
		t.Errorf("once more: %+v, %v", report, got)
	}
	view, err := a.meta.View(a.log.Partition)
	if err != nil {
		t.Fatal(err)
	}
	for seg := range view.All() {
		if seg.State != metadata.CopySegmentFinished {
			t.Errorf("segment %s is in %s", seg.ID, seg.State)
		}
	}
	if report, found := found(t, a.meta, a.ep, audit.Options{}); report.Segments != atticSegments-2 || report.Damaged != 0 {
		t.Errorf("%+v, %v", report, found)
	}
}

// TestUnknownAndNeeded: an object that no record knows, with offsets that are in no
// readable segment, says that metadata has lost something. Nothing goes, whatever
// was asked for, and so it is with everything else that looks like an older copy.
func TestUnknownAndNeeded(t *testing.T) {
	for _, test := range []struct {
		name  string
		meta  func(t *testing.T, a *attic) metadata.Store
		by    time.Duration
		known time.Duration // for which metadata remembers
		says  string
		trust int // objects that go once somebody has said that metadata is right
	}{
		{"an older copy", func(t *testing.T, a *attic) metadata.Store {
			// It ends before the tier does.
			return withSegments(a.meta, func(v *metadata.View) *metadata.View { return viewUpTo(v, a.segs[5].EndOffset) })
		}, later, 0, "in no readable segment", 1},
		{"metadata that knows of no segment", func(t *testing.T, a *attic) metadata.Store {
			return withSegments(a.meta, func(v *metadata.View) *metadata.View { return metadata.NewView(v.Partition()) })
		}, later, 0, "", 1},
		{"an older copy, and copied again since", func(t *testing.T, a *attic) metadata.Store {
			again(t, a)
			return a.meta
		}, 20 * days, 0, "although metadata remembers", 0},
		{"copied again, and forgotten sooner", func(t *testing.T, a *attic) metadata.Store {
			again(t, a)
			return withSegments(a.meta, func(v *metadata.View) *metadata.View { return eventsBefore(v, time.Hour) })
		}, 20 * days, days, "newer than the newest event", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := furnish(t)
			meta := test.meta(t, a)
			ep := newEndpoint(t, aged{a.store, test.by})
			before := listing(t, a.store)
			o := a.options()
			o.Apply, o.Unknown, o.Remembered = true, true, test.known
			o.Removed = func(o audit.Orphan) { t.Errorf("removed %s", name(o)) }
			_, err := audit.Orphans(t.Context(), meta, ep, o)
			var suspect *audit.SuspectError
			if !errors.Is(err, audit.ErrSuspect) || !errors.As(err, &suspect) || !strings.Contains(suspect.Reason, test.says) {
				t.Fatalf("error %v", err)
			}
			same(t, "suspicious", listing(t, a.store), before)
			o.Removed, o.TrustMetadata, o.OlderThan = nil, true, -1
			report, err := audit.Orphans(t.Context(), meta, ep, o)
			if err != nil || report.Deleted < test.trust {
				t.Errorf("trusted: %+v, %v", report, err)
			}
		})
	}
}

// again makes the id of a readable segment unknown, and the range readable under
// another: what a restored copy looks like after the hosts have gone on.
func again(t *testing.T, a *attic) {
	t.Helper()
	lost := a.segs[5]
	b := a.content(t, key(lost))
	loc, err := object.ParseLocation(lost.Custom)
	if err != nil {
		t.Fatal(err)
	}
	tail, err := object.ParseTail(b[loc.TailOffset:], loc)
	if err != nil {
		t.Fatal(err)
	}
	// The same content under a new id, with a header that says so.
	h := tail.Header
	h.SegmentID = segment.NewUUID()
	txn := tail.Section(object.TxnIndex)
	in := object.TailInput{Header: h, Table: tail.Table, TxnIndex: b[txn.Off : txn.Off+txn.Len], Epochs: tail.Epochs}
	for s := object.Log; s < object.TxnIndex; s++ {
		e := tail.Section(s)
		in.Head[s] = checksum.Sum{Len: e.Len, CRC32C: e.CRC32C}
	}
	anew, err := object.AppendTail(nil, in)
	if err != nil {
		t.Fatal(err)
	}
	put(t, a.store, h.Key(), slices.Concat(b[:loc.TailOffset], anew))
}

func viewUpTo(v *metadata.View, end int64) *metadata.View {
	var segs []*metadata.Segment
	for s := range v.All() {
		if s.EndOffset <= end {
			segs = append(segs, s)
		}
	}
	for s := range v.Ended() {
		segs = append(segs, s)
	}
	return metadata.NewView(v.Partition(), segs...)
}

// eventsBefore is a view whose events were that much earlier.
func eventsBefore(v *metadata.View, by time.Duration) *metadata.View {
	var segs []*metadata.Segment
	for _, all := range []iter.Seq[*metadata.Segment]{v.All(), v.Ended()} {
		for s := range all {
			s.EventTimestamp -= by.Milliseconds()
			segs = append(segs, s)
		}
	}
	return metadata.NewView(v.Partition(), segs...)
}

// withSegments is a metadata store with other segments than it has.
func withSegments(meta metadata.Store, change func(*metadata.View) *metadata.View) metadata.Store {
	return changed{meta, change}
}

type changed struct {
	metadata.Store
	change func(*metadata.View) *metadata.View
}

func (c changed) View(p segment.Partition) (*metadata.View, error) {
	v, err := c.Store.View(p)
	if err != nil {
		return nil, err
	}
	return c.change(v), nil
}

// TestNothingWithoutKnowing: whatever is not known of metadata or of the prefix,
// nothing at all is deleted.
func TestNothingWithoutKnowing(t *testing.T) {
	for _, test := range []struct {
		name string
		make func(t *testing.T, a *attic) (metadata.Store, *endpoint.Endpoint)
		want error
	}{
		{"loading", func(_ *testing.T, a *attic) (metadata.Store, *endpoint.Endpoint) {
			m := metadatatest.Inject(a.meta, nil, nil)
			m.SetLoading(a.log.Partition, true)
			return m, a.ep
		}, metadata.ErrNotReady},
		{"incomplete", func(_ *testing.T, a *attic) (metadata.Store, *endpoint.Endpoint) {
			m := metadatatest.Inject(a.meta, nil, nil)
			m.SetIncomplete(a.log.Partition, 1)
			return m, a.ep
		}, metadata.ErrIncomplete},
		{"unavailable", func(_ *testing.T, a *attic) (metadata.Store, *endpoint.Endpoint) {
			return metadatatest.Inject(a.meta, nil, metadatatest.Script(metadatatest.Rule{Op: "partitions", Fault: metadatatest.Fault{Kind: metadatatest.FailBefore}})), a.ep
		}, metadata.ErrUnavailable},
		{"a partition that is not held", func(_ *testing.T, a *attic) (metadata.Store, *endpoint.Endpoint) {
			return viewStore{a.meta, func() (*metadata.View, error) { return nil, metadata.ErrUnknownPartition }}, a.ep
		}, metadata.ErrUnknownPartition},
		{"another owner", func(t *testing.T, a *attic) (metadata.Store, *endpoint.Endpoint) {
			other := metadatatest.NewMem()
			drive(t, other, started(t, other, a.segs[3], writer), metadata.DeleteSegmentFinished)
			return other, a.ep
		}, &transfer.OwnerError{}},
		{"no owner", func(t *testing.T, a *attic) (metadata.Store, *endpoint.Endpoint) {
			if err := a.store.Delete(t.Context(), object.OwnerKey); err != nil {
				t.Fatal(err)
			}
			return a.meta, a.ep
		}, &transfer.OwnerError{}},
		{"being rebuilt", func(t *testing.T, a *attic) (metadata.Store, *endpoint.Endpoint) {
			put(t, a.store, object.RebuildKey, []byte("x"))
			return a.meta, a.ep
		}, audit.ErrRebuilding},
		{"empty metadata", func(t *testing.T, a *attic) (metadata.Store, *endpoint.Endpoint) {
			empty := metadatatest.NewMem()
			if err := a.store.Delete(t.Context(), object.OwnerKey); err != nil {
				t.Fatal(err)
			}
			if err := transfer.ClaimOwner(t.Context(), a.ep, empty.ID()); err != nil {
				t.Fatal(err)
			}
			return empty, a.ep
		}, audit.ErrSuspect},
		{"metadata without segments, and objects that say nothing", func(t *testing.T, a *attic) (metadata.Store, *endpoint.Endpoint) {
			for k := range listing(t, a.store) {
				if strings.HasSuffix(k, ".seg") {
					a.replace(t, k, []byte("nothing that can be understood"))
				}
			}
			return withSegments(a.meta, func(v *metadata.View) *metadata.View { return metadata.NewView(v.Partition()) }), a.ep
		}, audit.ErrSuspect},
		{"too many", func(_ *testing.T, a *attic) (metadata.Store, *endpoint.Endpoint) { return a.meta, a.ep }, audit.ErrTooMany},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := furnish(t)
			o := a.options()
			o.Apply, o.Unknown = true, true
			if test.want == audit.ErrTooMany {
				o.MaxFraction = 0.05
			}
			meta, ep := test.make(t, a)
			before := listing(t, a.store)
			o.End = func(context.Context, *metadata.Segment) error { t.Error("a record was ended"); return nil }
			_, err := audit.Orphans(t.Context(), meta, ep, o)
			var owner, want *transfer.OwnerError
			if errors.As(test.want, &want) {
				if !errors.As(err, &owner) {
					t.Errorf("error %v", err)
				}
			} else if !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
			same(t, test.name, listing(t, a.store), before)
		})
	}
}

// TestMetadataGoesBlind: metadata that cannot be seen any more in the middle stops
// everything at once.
func TestMetadataGoesBlind(t *testing.T) {
	for n := 1; ; n++ {
		a := furnish(t)
		hit := false
		m := metadatatest.Inject(a.meta, nil, func(c metadatatest.Call) metadatatest.Fault {
			if c.Op == "view" && c.Nth >= n {
				hit = true
				return metadatatest.Fault{Kind: metadatatest.FailBefore, Err: metadata.ErrNotReady}
			}
			return metadatatest.Fault{}
		})
		o := a.options()
		o.Apply, o.Unknown = true, true
		o.End = ender(a.meta, a.ep)
		report, err := audit.Orphans(t.Context(), m, a.ep, o)
		if !hit {
			if err != nil || report.Deleted != 3 {
				t.Errorf("%+v, %v", report, err)
			}
			return
		}
		if !errors.Is(err, metadata.ErrNotReady) {
			t.Errorf("view %d and later fail: %v", n, err)
		}
		if report, _ := found(t, a.meta, a.ep, audit.Options{}); report.Damaged != 0 {
			t.Errorf("view %d and later fail: %+v", n, report)
		}
	}
}

// TestAges: by the store's clock alone, the record's age by the store's clock too,
// and nothing that is too young, or of unknown age, goes.
func TestAges(t *testing.T) {
	for _, test := range []struct {
		by, older time.Duration
		noClock   bool
		goes      bool
	}{
		{by: 23 * time.Hour, goes: false},
		{by: 25 * time.Hour, goes: true},
		{by: 25 * time.Hour, older: 2 * days, goes: false},
		{by: 0, older: -1, goes: true},
		{by: later, noClock: true, goes: false},
	} {
		a := furnish(t)
		var store objstore.Store = aged{a.store, test.by}
		if test.noClock {
			store = clockless{aged{a.store, 0}}
		}
		ep := newEndpoint(t, store)
		o := a.options()
		o.Apply, o.OlderThan, o.End = true, test.older, ender(a.meta, ep)
		report, err := audit.Orphans(t.Context(), a.meta, ep, o)
		if err != nil || (report.Deleted+report.Aborted+report.Ended > 0) != test.goes {
			t.Errorf("%+v: %+v, %v", test, report, err)
		}
	}
}

// clockless is a store that does not say what time it is.
type clockless struct{ aged }

func (c clockless) Stat(ctx context.Context, key string) (objstore.Info, error) {
	info, err := c.aged.Stat(ctx, key)
	info.Now = time.Time{}
	return info, err
}

func (c clockless) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		for info, err := range c.aged.List(ctx, prefix, after) {
			info.Now = time.Time{}
			if !yield(info, err) {
				return
			}
		}
	}
}
