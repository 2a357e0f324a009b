package audit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segtier/segtier/audit"
	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// rebuilt is Rebuild with what it found.
func rebuilt(t *testing.T, meta metadata.Store, w *tier, o audit.RebuildOptions) (audit.RebuildReport, []audit.Restored) {
	t.Helper()
	var all []audit.Restored
	o.Found = func(f audit.Restored) { all = append(all, f) }
	report, err := audit.Rebuild(t.Context(), meta, w.ep, o)
	if err != nil {
		t.Fatal(err)
	}
	return report, all
}

// sameRecords compares the readable segments of two metadata stores, all but when
// FINISHED was written and under which leader epoch: objects do not say.
func sameRecords(t *testing.T, what string, got, want metadata.Store) {
	t.Helper()
	partitions, err := want.Partitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range partitions {
		records := func(m metadata.Store) (lines []string) {
			view, err := m.View(p)
			if err != nil {
				t.Fatal(err)
			}
			for seg := range view.All() {
				if seg.State == metadata.CopySegmentFinished {
					seg.EventTimestamp, seg.LeaderEpoch = 0, 0
					lines = append(lines, fmt.Sprintf("%+v", *seg))
				}
			}
			return append(lines, fmt.Sprint(view.Lineage(), view.CopiedUpTo(nil)))
		}
		if g, w := records(got), records(want); !slices.Equal(g, w) {
			t.Errorf("%s: %s has\n%s\nwant\n%s", what, p, strings.Join(g, "\n"), strings.Join(w, "\n"))
		}
	}
}

func (w *tier) clean(t *testing.T, meta metadata.Store, segments int) {
	t.Helper()
	if report, all := found(t, meta, w.ep, audit.Options{}); report.Segments != segments || report.Damaged != 0 || report.Findings != 0 {
		t.Errorf("%+v, %v", report, all)
	}
}

// TestRebuild: records from objects are what the records were, the prefix is taken
// over, and without Apply nothing is changed.
func TestRebuild(t *testing.T) {
	w := many(t, 4)
	put(t, w.store, "README", []byte("not ours"))
	before := listing(t, w.store)
	meta := metadatatest.NewMem()
	report, all := rebuilt(t, meta, w, audit.RebuildOptions{})
	if report.Rebuilt != 12 || report.Partitions != 4 || report.Objects != 12 || report.Foreign != 1 || report.Owner != w.meta.ID() || len(all) != 12 {
		t.Errorf("without Apply: %+v", report)
	}
	same(t, "without Apply", listing(t, w.store), before)
	if ps, err := meta.Partitions(); err != nil || len(ps) != 0 {
		t.Errorf("without Apply: %v, %v", ps, err)
	}
	if err := transfer.CheckOwner(t.Context(), w.ep, w.meta.ID()); err != nil {
		t.Errorf("without Apply: %v", err)
	}

	report, all = rebuilt(t, meta, w, audit.RebuildOptions{Apply: true})
	if report.Rebuilt != 12 || report.Damaged+report.Conflicts+report.Duplicates+report.Refused+report.BelowGap+report.Deleted != 0 {
		t.Errorf("%+v", report)
	}
	candidates := 0
	for _, f := range all {
		if f.Reason != audit.Rebuilt || f.Segment == nil || f.Segment.State != metadata.CopySegmentFinished {
			t.Errorf("%+v", f)
		}
		if f.Candidate {
			candidates++
		}
	}
	if candidates != report.Candidates || candidates < 4 {
		t.Errorf("%d candidates, %+v", candidates, report)
	}
	sameRecords(t, "rebuilt", meta, w.meta)
	same(t, "rebuilt", listing(t, w.store), before)
	w.clean(t, meta, 12)
	if err := transfer.CheckOwner(t.Context(), w.ep, meta.ID()); err != nil {
		t.Error(err)
	}
	if _, err := audit.Verify(t.Context(), w.meta, w.ep, audit.Options{}); err != nil {
		t.Errorf("the metadata of before can still be read by: %v", err)
	}
	if _, err := audit.Orphans(t.Context(), meta, w.ep, audit.OrphanOptions{}); err != nil {
		t.Errorf("a collection with the new metadata: %v", err)
	}
	if _, err := audit.Rebuild(t.Context(), meta, w.ep, audit.RebuildOptions{Apply: true}); !errors.Is(err, audit.ErrNotEmpty) {
		t.Errorf("once more: %v", err)
	}
	// And the next copy finds what is there.
	copier, err := lifecycle.NewCopier(meta, w.ep, lifecycle.CopierOptions{})
	if err != nil {
		t.Fatal(err)
	}
	log := testseg.Random(100, testseg.Options{Segments: 3, Batches: 10})
	if seg, err := copier.Copy(t.Context(), numbered{log.Segments[1], 0}, metadata.Writer{LeaderEpoch: 1 << 20}); err != nil || seg.ID != w.segs[1].ID {
		t.Errorf("%v, %v", seg, err)
	}
}

// TestRebuildCrashAfterEveryEffect: wherever it ends, doing it again ends it.
func TestRebuildCrashAfterEveryEffect(t *testing.T) {
	for k := 0; ; k++ {
		w := many(t, 2)
		put(t, w.store, object.Key(w.segs[0].Partition, 0, segment.NewUUID()), []byte("garbage"))
		fresh := metadatatest.NewMem()
		faulty := storetest.Inject(w.store, nil)
		meta := metadatatest.Inject(fresh, faulty.Effects(), nil)
		faulty.Effects().StopAfter(k)
		_, err := audit.Rebuild(t.Context(), meta, newEndpoint(t, faulty), audit.RebuildOptions{Apply: true})
		what := fmt.Sprintf("stopped after %d, %v", k, faulty.Effects().Names())
		if err != nil && !errors.Is(err, storetest.ErrStopped) {
			t.Errorf("%s: %v", what, err)
		}
		// Nobody collects in between.
		if _, err := audit.Orphans(t.Context(), fresh, w.ep, audit.OrphanOptions{Apply: true, Unknown: true, OlderThan: -1, MaxFraction: 1}); err == nil && listing(t, w.store)[object.RebuildKey] {
			t.Errorf("%s: it was collected", what)
		}
		if faulty.Effects().Count() < k {
			sameRecords(t, what, fresh, w.meta)
			if n := faulty.Effects().Count(); n < 4+2*6 {
				t.Errorf("only %d effects", n)
			}
			return
		}
		if err := w.finishRebuild(t, fresh); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		sameRecords(t, what, fresh, w.meta)
		w.clean(t, fresh, 6)
	}
}

// finishRebuild does it again, unless it had come to its end.
func (w *tier) finishRebuild(t *testing.T, meta metadata.Store) error {
	report, err := audit.Rebuild(t.Context(), meta, w.ep, audit.RebuildOptions{Apply: true})
	if errors.Is(err, audit.ErrNotEmpty) {
		err = transfer.CheckOwner(t.Context(), w.ep, meta.ID())
	} else if err == nil && (report.Rebuilt != 6 || report.Damaged != 1) {
		err = fmt.Errorf("%+v", report)
	}
	return err
}

// stride is 1 in long runs: every call fails once. In short ones every third does.
func stride() int {
	if os.Getenv("SEGTIER_SOAK") == "1" {
		return 1
	}
	return 3
}

// TestRebuildEveryCallFailing: an error of the store or of metadata stops it and
// harms nothing.
func TestRebuildEveryCallFailing(t *testing.T) {
	for _, kind := range []storetest.Kind{storetest.FailBefore, storetest.FailAfter} {
		for n := 1; ; n += stride() {
			w := many(t, 2)
			put(t, w.store, object.Key(w.segs[0].Partition, 0, segment.NewUUID()), []byte("garbage"))
			fresh := metadatatest.NewMem()
			hit := false
			faulty := storetest.Inject(w.store, func(c storetest.Call) storetest.Fault {
				if c.Seq == n {
					hit = true
					return storetest.Fault{Kind: kind}
				}
				return storetest.Fault{}
			})
			_, err := audit.Rebuild(t.Context(), fresh, newEndpoint(t, faulty), audit.RebuildOptions{Apply: true, Parallel: 1})
			if !hit {
				break
			}
			if kind == storetest.FailBefore && !errors.Is(err, storetest.ErrInjected) {
				t.Errorf("call %d: %v", n, err)
			}
			if err := w.finishRebuild(t, fresh); err != nil {
				t.Errorf("call %d, %v, done again: %v", n, kind, err)
			}
			sameRecords(t, fmt.Sprint("call ", n), fresh, w.meta)
		}
	}
	for n := 1; n <= 12; n += stride() {
		for _, kind := range []metadatatest.Kind{metadatatest.FailBefore, metadatatest.FailAfter} {
			w := many(t, 2)
			put(t, w.store, object.Key(w.segs[0].Partition, 0, segment.NewUUID()), []byte("garbage"))
			fresh := metadatatest.NewMem()
			meta := metadatatest.Inject(fresh, nil, metadatatest.Script(metadatatest.Rule{Op: "publish", First: n, Last: n, Fault: metadatatest.Fault{Kind: kind}}))
			if _, err := audit.Rebuild(t.Context(), meta, w.ep, audit.RebuildOptions{Apply: true}); !errors.Is(err, metadata.ErrUnavailable) {
				t.Errorf("publish %d: %v", n, err)
			}
			if err := w.finishRebuild(t, fresh); err != nil {
				t.Errorf("publish %d, done again: %v", n, err)
			}
			sameRecords(t, fmt.Sprint("publish ", n), fresh, w.meta)
		}
	}
}

// forge puts an object like seg's under another id, with a header and a log that
// edit has changed, and every sum right.
func (w *tier) forge(t *testing.T, seg *metadata.Segment, edit func(in *object.TailInput, log []byte)) *metadata.Segment {
	t.Helper()
	b := w.content(t, key(seg))
	loc, err := object.ParseLocation(seg.Custom)
	if err != nil {
		t.Fatal(err)
	}
	tail, err := object.ParseTail(b[loc.TailOffset:], loc)
	if err != nil {
		t.Fatal(err)
	}
	txn := tail.Section(object.TxnIndex)
	in := object.TailInput{Header: tail.Header, Table: tail.Table, TxnIndex: b[txn.Off : txn.Off+txn.Len], Epochs: tail.Epochs}
	in.Header.SegmentID = segment.NewUUID()
	head := slices.Clone(b[:loc.TailOffset])
	edit(&in, head[:tail.Section(object.Log).Len])
	in.Table.Chunks = slices.Clone(in.Table.Chunks)
	for i := range in.Table.Chunks {
		at := in.Table.Start(i)
		in.Table.Chunks[i].CRC32C = checksum.CRC32C(head[at : at+in.Table.Len(i)])
	}
	for s := object.Log; s < object.TxnIndex; s++ {
		e := tail.Section(s)
		in.Head[s] = checksum.Sum{Len: e.Len, CRC32C: checksum.CRC32C(head[e.Off : e.Off+e.Len])}
	}
	anew, err := object.AppendTail(nil, in)
	if err != nil {
		t.Fatal(err)
	}
	put(t, w.store, in.Header.Key(), append(head, anew...))
	forged := seg.Clone()
	forged.ID = in.Header.SegmentID
	return forged
}

func byKey(all []audit.Restored) map[string]audit.Restored {
	m := map[string]audit.Restored{}
	for _, f := range all {
		m[f.Key] = f
	}
	return m
}

// TestRebuildConflicts: of two objects with one range, history and content the one
// whose copy was begun last is taken, the other if that one is damaged; of two with
// other content a person decides. All ids are accounted for.
func TestRebuildConflicts(t *testing.T) {
	w := copied(t, 31)
	older := w.forge(t, w.segs[0], func(in *object.TailInput, _ []byte) { in.Header.EventTimestamp -= 1000 })
	newer := w.forge(t, w.segs[1], func(in *object.TailInput, _ []byte) { in.Header.EventTimestamp += 1000 })
	// Its first chunk is not what its table says.
	k := key(newer)
	b := w.content(t, k)
	b[100] ^= 1
	w.replace(t, k, b)
	other := w.forge(t, w.segs[2], func(_ *object.TailInput, log []byte) { log[len(log)-1] ^= 1 })

	meta := metadatatest.NewMem()
	report, all := rebuilt(t, meta, w, audit.RebuildOptions{Apply: true, Doubtful: true})
	got := byKey(all)
	for _, want := range []struct {
		seg    *metadata.Segment
		reason audit.Reason
		state  metadata.State
	}{
		{w.segs[0], audit.Rebuilt, metadata.CopySegmentFinished},
		{older, audit.LeftDuplicate, metadata.CopySegmentStarted},
		{w.segs[1], audit.Rebuilt, metadata.CopySegmentFinished},
		{newer, audit.LeftDamaged, metadata.CopySegmentStarted},
		{w.segs[2], audit.LeftConflict, metadata.CopySegmentStarted},
		{other, audit.LeftConflict, metadata.CopySegmentStarted},
	} {
		f := got[key(want.seg)]
		if f.Reason != want.reason || (f.Note == "") != (f.Reason == audit.Rebuilt || f.Reason == audit.LeftDamaged) {
			t.Errorf("%s: %s, %q, %v; want %s", key(want.seg), f.Reason, f.Note, f.Err, want.reason)
		}
		view, err := meta.View(want.seg.Partition)
		if err != nil {
			t.Fatal(err)
		}
		if seg, ok := view.Get(want.seg.ID); !ok || seg.State != want.state {
			t.Errorf("%s is in %v", key(want.seg), seg)
		}
	}
	if report.Rebuilt != 2 || report.Duplicates != 1 || report.Damaged != 1 || report.Conflicts != 2 || len(all) != 6 {
		t.Errorf("%+v, %d told", report, len(all))
	}
	// A collection takes what is readable otherwise, and nothing else.
	ep := newEndpoint(t, aged{w.store, later})
	gc, err := audit.Orphans(t.Context(), meta, ep, audit.OrphanOptions{Apply: true, Unknown: true, Exclusive: true, MaxFraction: 1, End: ender(meta, ep)})
	if err != nil || gc.Ended != 2 {
		t.Errorf("%+v, %v", gc, err)
	}
	have := listing(t, w.store)
	if have[key(older)] || have[key(newer)] || !have[key(w.segs[2])] || !have[key(other)] || !have[key(w.segs[0])] {
		t.Errorf("%v", have)
	}
}

// TestRebuildRestoresNothingDeleted: what retention had deleted and a slow deletion
// left is not made readable: below the host's log start, below where the newest
// history begins, below a hole.
func TestRebuildRestoresNothingDeleted(t *testing.T) {
	for _, test := range []struct {
		name     string
		change   func(t *testing.T, w *tier)
		logStart func(w *tier) int64
		reason   audit.Reason
		left     int // of the lowest segments
		doubtful int // of those, left with Doubtful too
	}{
		{"nothing", func(*testing.T, *tier) {}, nil, "", 0, 0},
		{"log start", func(*testing.T, *tier) {}, func(w *tier) int64 { return w.segs[2].StartOffset }, audit.LeftDeleted, 2, 2},
		{"log start within a segment", func(*testing.T, *tier) {}, func(w *tier) int64 { return w.segs[1].EndOffset }, audit.LeftDeleted, 1, 1},
		{"history", func(t *testing.T, w *tier) {
			last := w.segs[4]
			w.forge(t, last, func(in *object.TailInput, _ []byte) {
				in.Header.EventTimestamp += 1000
				at := w.segs[1].StartOffset
				in.Epochs = in.Epochs.Range(at, last.EndOffset)
			})
			if err := w.store.Delete(t.Context(), key(last)); err != nil {
				t.Fatal(err)
			}
		}, nil, audit.LeftDeleted, 1, 0},
		{"hole", func(t *testing.T, w *tier) {
			if err := w.store.Delete(t.Context(), key(w.segs[2])); err != nil {
				t.Fatal(err)
			}
		}, nil, audit.LeftBelowGap, 2, 0},
	} {
		for _, doubtful := range []bool{false, true} {
			w := newTier(t, 0)
			w.log = testseg.Random(90, testseg.Options{Segments: 5, Batches: 4})
			w.copy(t, small, w.log.Segments...)
			test.change(t, w)
			meta := metadatatest.NewMem()
			o := audit.RebuildOptions{Apply: true, Doubtful: doubtful}
			if test.logStart != nil {
				o.LogStart = func(segment.Partition) (int64, bool) { return test.logStart(w), true }
			}
			_, all := rebuilt(t, meta, w, o)
			want := test.left
			if doubtful {
				want = test.doubtful
			}
			got := byKey(all)
			for i, seg := range w.segs[:2] {
				if left := got[key(seg)].Reason != audit.Rebuilt; left != (i < want) || left && got[key(seg)].Reason != test.reason {
					t.Errorf("%s, doubtful %v: segment %d: %+v", test.name, doubtful, i, got[key(seg)])
				}
			}
			view, err := meta.View(w.log.Partition)
			if err != nil {
				t.Fatal(err)
			}
			if first, ok := view.Earliest(nil); !ok || first.ID != w.segs[want].ID && (test.name != "hole" || doubtful || first.ID != w.segs[3].ID) {
				t.Errorf("%s, doubtful %v: the tier begins at %d", test.name, doubtful, first.StartOffset)
			}
			if test.logStart != nil && view.LogStart() != test.logStart(w) {
				t.Errorf("%s: the log start is %d", test.name, view.LogStart())
			}
			if test.logStart == nil && view.LogStart() != 0 {
				t.Errorf("%s: a log start that nobody named: %d", test.name, view.LogStart())
			}
		}
	}
}

// TestRebuildCandidates: an object whose copy died before FINISHED is one that
// nothing tells from a finished one, and says so; those before which a later copy
// was begun are none.
func TestRebuildCandidates(t *testing.T) {
	now := time.Now()
	w := newTier(t, 0)
	w.log = testseg.Random(91, testseg.Options{Segments: 3, Batches: 4})
	w.copy(t, lifecycle.CopierOptions{Now: func() time.Time { now = now.Add(time.Hour); return now }}, w.log.Segments...)
	// The writer's clock runs ahead of the store's: all but none were complete
	// before the last was begun.
	_, all := rebuilt(t, metadatatest.NewMem(), w, audit.RebuildOptions{})
	for _, f := range all {
		if f.Candidate {
			t.Errorf("%s is a candidate", f.Key)
		}
	}
	w = copied(t, 92)
	_, all = rebuilt(t, metadatatest.NewMem(), w, audit.RebuildOptions{})
	if f := byKey(all)[key(w.segs[2])]; !f.Candidate {
		t.Errorf("the last is none: %+v", f)
	}
}

// TestRebuildOfAnother: two rebuilds of one prefix, a store that claims it in the
// middle, and metadata that cannot be seen.
func TestRebuildOfAnother(t *testing.T) {
	w := copied(t, 33)
	one, two := metadatatest.NewMem(), metadatatest.NewMem()
	if err := transfer.TakeOver(t.Context(), w.ep, one.ID()); err != nil {
		t.Fatal(err)
	}
	if _, err := audit.Rebuild(t.Context(), two, w.ep, audit.RebuildOptions{Apply: true}); !errors.Is(err, audit.ErrRebuilding) {
		t.Errorf("the second of two: %v", err)
	}
	if report, _ := rebuilt(t, one, w, audit.RebuildOptions{Apply: true}); report.Rebuilt != 3 {
		t.Errorf("%+v", report)
	}

	w = copied(t, 34)
	third := metadatatest.NewMem()
	store := &claiming{aged: aged{w.store, 0}, claim: func() {
		if err := transfer.ClaimOwner(context.Background(), w.ep, third.ID()); err != nil {
			t.Error(err)
		}
	}}
	var owner *transfer.OwnerError
	if _, err := audit.Rebuild(t.Context(), two, newEndpoint(t, store), audit.RebuildOptions{Apply: true}); !errors.As(err, &owner) || owner.Owner != third.ID() {
		t.Errorf("claimed in the middle: %v", err)
	}
	if ps, _ := two.Partitions(); len(ps) != 0 {
		t.Errorf("records were written: %v", ps)
	}

	loading := metadatatest.Inject(w.meta, nil, nil)
	loading.SetLoading(w.log.Partition, true)
	if _, err := audit.Rebuild(t.Context(), loading, w.ep, audit.RebuildOptions{Apply: true}); !errors.Is(err, metadata.ErrNotReady) {
		t.Errorf("metadata that is loading: %v", err)
	}
}

// claiming is a store on which somebody claims the prefix once its marker is gone.
type claiming struct {
	aged
	claim func()
}

func (c *claiming) Delete(ctx context.Context, keys ...string) error {
	if err := c.aged.Delete(ctx, keys...); err != nil {
		return err
	}
	if slices.Contains(keys, object.OwnerKey) {
		c.claim()
	}
	return nil
}
