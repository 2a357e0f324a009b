package audit_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/segtier/segtier/audit"
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

// sound checks what no collection may ever harm: everything readable is whole, and
// what is not ours is there.
func (a *attic) sound(t *testing.T, what string) {
	t.Helper()
	if report, all := found(t, a.meta, a.ep, audit.Options{}); report.Segments != atticSegments-2 || report.Damaged != 0 {
		t.Errorf("%s: %+v, %v", what, report, all)
	}
	have := listing(t, a.store)
	for k, r := range a.want {
		if (r == audit.ForeignObject || r == audit.OrphanMisplaced) && !have[k] {
			t.Errorf("%s: %s is gone", what, k)
		}
	}
}

// converged checks that nothing is left for a collection to do.
func (a *attic) converged(t *testing.T, what string) {
	t.Helper()
	o := a.options()
	o.Apply, o.Unknown = true, true
	if _, err := audit.Orphans(t.Context(), a.meta, a.ep, o); err != nil {
		t.Errorf("%s: gone on with: %v", what, err)
	}
	report, err := audit.Orphans(t.Context(), a.meta, a.ep, o)
	if err != nil || report.Orphans+report.Uploads+report.Records != 0 {
		t.Errorf("%s: once more: %+v, %v", what, report, err)
	}
	a.sound(t, what)
}

// TestOrphansCrashAfterEveryEffect: wherever the process ends, nothing that is
// needed is gone, and the next run ends what this one began.
func TestOrphansCrashAfterEveryEffect(t *testing.T) {
	for k := 0; ; k++ {
		a := furnish(t)
		faulty := storetest.Inject(aged{a.store, later}, nil)
		meta := metadatatest.Inject(a.meta, faulty.Effects(), nil)
		faulty.Effects().StopAfter(k)
		ep := newEndpoint(t, faulty)
		o := a.options()
		o.Apply, o.Unknown, o.End = true, true, ender(meta, ep)
		_, err := audit.Orphans(t.Context(), meta, ep, o)
		what := fmt.Sprintf("stopped after effect %d, %v", k, faulty.Effects().Names())
		if err != nil && !errors.Is(err, storetest.ErrStopped) {
			t.Errorf("%s: %v", what, err)
		}
		a.sound(t, what)
		a.converged(t, what)
		if effects := faulty.Effects().Count(); effects < k {
			if effects < 14 { // 3 objects, 5 uploads, 2 records of 2 events, one event less, and their objects
				t.Errorf("only %d effects", effects)
			}
			return
		}
	}
}

// TestOrphansEveryCallFailing: each call on the store fails, before its effect and
// after; nothing needed is gone, and a run without faults ends it.
func TestOrphansEveryCallFailing(t *testing.T) {
	for _, kind := range []storetest.Kind{storetest.FailBefore, storetest.FailAfter} {
		for n := 1; ; n++ {
			a := furnish(t)
			hit := false
			faulty := storetest.Inject(aged{a.store, later}, func(c storetest.Call) storetest.Fault {
				if c.Seq == n {
					hit = true
					return storetest.Fault{Kind: kind}
				}
				return storetest.Fault{}
			})
			ep := newEndpoint(t, faulty)
			o := a.options()
			o.Apply, o.Unknown, o.End = true, true, ender(a.meta, ep)
			_, err := audit.Orphans(t.Context(), a.meta, ep, o)
			if !hit {
				break
			}
			// An answer that is an error anyhow cannot be lost.
			if kind == storetest.FailBefore && !errors.Is(err, storetest.ErrInjected) {
				t.Errorf("call %d, %v: %v", n, kind, err)
			}
			a.sound(t, fmt.Sprint("call ", n, " ", kind))
			a.converged(t, fmt.Sprint("call ", n, " ", kind))
		}
	}
}

// between is a store on which something happens between two calls.
type between struct {
	aged
	mu     sync.Mutex
	n      int // calls so far
	at     int // before which call
	happen func()
}

func (b *between) step() {
	b.mu.Lock()
	b.n++
	now := b.n == b.at
	b.mu.Unlock()
	if now {
		b.happen()
	}
}

func (b *between) Stat(ctx context.Context, key string) (objstore.Info, error) {
	b.step()
	return b.aged.Stat(ctx, key)
}

func (b *between) Delete(ctx context.Context, keys ...string) error {
	b.step()
	return b.aged.Delete(ctx, keys...)
}

func (b *between) Abort(ctx context.Context, p objstore.Pending) error {
	b.step()
	return b.aged.Abort(ctx, p)
}

func (b *between) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		for info, err := range b.aged.List(ctx, prefix, after) {
			b.step()
			if !yield(info, err) {
				return
			}
		}
		b.step()
	}
}

func (b *between) Uploads(ctx context.Context, prefix string) iter.Seq2[objstore.Pending, error] {
	return func(yield func(objstore.Pending, error) bool) {
		for u, err := range b.aged.Uploads(ctx, prefix) {
			b.step()
			if !yield(u, err) {
				return
			}
		}
		b.step()
	}
}

// TestOrphansBesideACopy: a copy that happens between any two calls of a
// collection that takes everything, of any age, stays readable: its STARTED was
// durable before its first byte.
func TestOrphansBesideACopy(t *testing.T) {
	more := testseg.Random(501, testseg.Options{Segments: 2, Batches: 3})
	for at := 1; ; at++ {
		a := furnish(t)
		copier, err := lifecycle.NewCopier(a.meta, newEndpoint(t, a.store), small)
		if err != nil {
			t.Fatal(err)
		}
		copyOne := func(s segment.Source) {
			if _, err := copier.Copy(context.Background(), numbered{s, 99}, metadata.Writer{LeaderEpoch: 1 << 20}); err != nil {
				t.Error(err)
			}
		}
		copyOne(more.Segments[0]) // so that the partition is known
		happened := false
		store := &between{aged: aged{a.store, later}, at: at}
		store.happen = func() {
			happened = true
			copyOne(more.Segments[1])
		}
		ep := newEndpoint(t, store)
		o := a.options()
		o.Apply, o.Unknown, o.OlderThan, o.End = true, true, -1, ender(a.meta, ep)
		report, err := audit.Orphans(t.Context(), a.meta, ep, o)
		if err != nil || report.Deleted != 3 {
			t.Errorf("a copy before call %d: %+v, %v", at, report, err)
		}
		if !happened {
			return
		}
		if report, all := found(t, a.meta, a.ep, audit.Options{}); report.Segments != atticSegments || report.Damaged != 0 {
			t.Fatalf("a copy before call %d: %+v, %v", at, report, all)
		}
	}
}

// TestOrphansBesideADeletion: the same with segments that are deleted meanwhile.
func TestOrphansBesideADeletion(t *testing.T) {
	for at := 1; ; at++ {
		a := furnish(t)
		happened := false
		store := &between{aged: aged{a.store, later}, at: at}
		store.happen = func() {
			happened = true
			if err := ender(a.meta, a.ep)(context.Background(), a.segs[atticSegments-1]); err != nil {
				t.Error(err)
			}
		}
		ep := newEndpoint(t, store)
		o := a.options()
		o.Apply, o.Unknown, o.OlderThan, o.End = true, true, -1, ender(a.meta, ep)
		_, err := audit.Orphans(t.Context(), a.meta, ep, o)
		if err != nil {
			t.Errorf("a deletion before call %d: %v", at, err)
		}
		if !happened {
			return
		}
		if report, all := found(t, a.meta, a.ep, audit.Options{}); report.Segments != atticSegments-3 || report.Damaged != 0 {
			t.Fatalf("a deletion before call %d: %+v, %v", at, report, all)
		}
	}
}

// TestJudgedAgain: what has changed between the listing and the deletion stays.
func TestJudgedAgain(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(t *testing.T, a *attic) // before the first deletion
		stays  string                       // a name of the attic's
	}{
		{"another object under the key", func(t *testing.T, a *attic) { a.replace(t, a.keys["garbage"], []byte("something")) }, "garbage"},
		{"ended, and replaced", func(t *testing.T, a *attic) { a.replace(t, a.keys["ended"], []byte("other")) }, "ended"},
		{"a record appears", func(t *testing.T, a *attic) {
			_, start, id, err := object.ParseKey(a.keys["copy"])
			if err != nil {
				t.Fatal(err)
			}
			seg := a.segs[3].Clone()
			seg.ID, seg.StartOffset, seg.EndOffset, seg.Custom = id, start, seg.EndOffset+1, nil
			ev, err := metadata.Started(seg, writer, 0)
			if err == nil {
				err = a.meta.Publish(t.Context(), ev)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, "copy"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := furnish(t)
			store := &between{aged: aged{a.store, later}}
			ep := newEndpoint(t, store)
			// The listing of uploads is the last that is looked at before deleting.
			first := true
			o := a.options()
			o.Apply, o.Unknown = true, true
			o.End = ender(a.meta, a.ep)
			o.Found = func(f audit.Orphan) {
				if f.Reason == audit.RecordAbandoned && first {
					first = false
					test.change(t, a)
				}
			}
			report, err := audit.Orphans(t.Context(), a.meta, ep, o)
			if err != nil || report.Spared != 1 || first {
				t.Errorf("%+v, %v", report, err)
			}
			if !listing(t, a.store)[a.keys[test.stays]] {
				t.Errorf("%s was deleted", a.keys[test.stays])
			}
		})
	}
}

// TestAgeIsAskedAgain: an object that turns out to be younger than it was listed
// stays.
func TestAgeIsAskedAgain(t *testing.T) {
	a := furnish(t)
	var infos []objstore.Info
	for info, err := range a.ep.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, info)
	}
	o := a.options()
	o.Apply, o.Unknown = true, true
	report, err := audit.Orphans(t.Context(), a.meta, newEndpoint(t, stale{aged{a.store, 0}, infos}), o)
	if err != nil || report.Deleted != 0 || report.Spared != 3 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestFinishedMeanwhile: a record that was STARTED when it was found and is FINISHED
// when its turn comes is readable, and stays.
func TestFinishedMeanwhile(t *testing.T) {
	a := furnish(t)
	log := testseg.Random(502, testseg.Options{Segments: 1, Batches: 3})
	src := numbered{log.Segments[0], 98}
	w := metadata.Writer{LeaderEpoch: 1 << 20}
	broken := newEndpoint(t, storetest.Inject(a.store, storetest.Rules(storetest.Rule{Op: "upload", Key: "orders/*/98/*", Times: -1, Fault: storetest.Fault{Kind: storetest.FailBefore}})))
	copying := func(ep *endpoint.Endpoint) error {
		copier, err := lifecycle.NewCopier(a.meta, ep, lifecycle.CopierOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = copier.Copy(t.Context(), src, w)
		return err
	}
	if err := copying(broken); !errors.Is(err, storetest.ErrInjected) {
		t.Fatal(err)
	}
	o := a.options()
	o.Apply = true
	found := false
	o.Found = func(f audit.Orphan) {
		if f.Reason == audit.RecordAbandoned && f.Partition.Number == 98 {
			found = true
			if err := copying(newEndpoint(t, a.store)); err != nil {
				t.Error(err)
			}
		}
	}
	report, err := audit.Orphans(t.Context(), a.meta, a.ep, o)
	if err != nil || !found || report.Spared != 1 || report.Ended != 2 {
		t.Errorf("%+v, %v", report, err)
	}
	if v, err := audit.Verify(t.Context(), a.meta, a.ep, audit.Options{}); err != nil || v.Segments != atticSegments-1 || v.Damaged != 0 {
		t.Errorf("%+v, %v", v, err)
	}
}

// stale is a store whose listing is an old one.
type stale struct {
	aged
	infos []objstore.Info
}

func (s stale) List(context.Context, string, string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		for _, info := range s.infos {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// TestStaleListing: objects that are listed late are found another time; those that
// are listed although they are gone are no error, and what is there now under the
// key of one that was listed is looked at anew.
func TestStaleListing(t *testing.T) {
	a := furnish(t)
	var infos []objstore.Info
	for info, err := range a.ep.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, info)
	}
	if err := a.store.Delete(t.Context(), a.keys["ended"]); err != nil {
		t.Fatal(err)
	}
	o := a.options()
	o.Apply, o.Unknown = true, true
	report, err := audit.Orphans(t.Context(), a.meta, newEndpoint(t, stale{aged{a.store, later}, infos}), o)
	if err != nil || report.Deleted != 2 || report.Spared != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	a = furnish(t)
	late := slices.DeleteFunc(infos, func(i objstore.Info) bool { return strings.HasSuffix(i.Key, ".seg") })
	report, err = audit.Orphans(t.Context(), a.meta, newEndpoint(t, stale{aged{a.store, later}, late}), a.options())
	if err != nil || report.Objects != 0 || report.Deleted != 0 {
		t.Errorf("nothing is listed yet: %+v, %v", report, err)
	}
	a.converged(t, "listed late")
}

// TestTakenOverWhileItDeletes: a collection takes its time, and the prefix may become
// another's meanwhile, or lose its marker, or be rebuilt. What is proven ended is so in
// any metadata; what this one does not know may be what the other has just made
// readable, so not one object of it goes after that moment.
func TestTakenOverWhileItDeletes(t *testing.T) {
	for name, happen := range map[string]func(t *testing.T, a *attic){
		"rebuilt": func(t *testing.T, a *attic) { put(t, a.store, object.RebuildKey, []byte("somebody's")) },
		"another's": func(t *testing.T, a *attic) {
			if err := transfer.TakeOver(t.Context(), newEndpoint(t, a.store), segment.NewUUID().String()); err != nil {
				t.Error(err)
			}
			if err := a.store.Delete(t.Context(), object.RebuildKey); err != nil {
				t.Error(err)
			}
		},
		"nobody's": func(t *testing.T, a *attic) {
			if err := a.store.Delete(t.Context(), object.OwnerKey); err != nil {
				t.Error(err)
			}
		},
	} {
		for _, before := range []bool{false, true} { // before anything is deleted, after the first unknown one
			a := furnish(t)
			o := a.options()
			o.Apply, o.Unknown = true, true
			happened, after := false, 0
			o.Found = func(audit.Orphan) {
				if before && !happened {
					happened = true
					happen(t, a)
				}
			}
			o.Removed = func(f audit.Orphan) {
				switch {
				case happened && f.Proof == "":
					after++
				case f.Reason == audit.OrphanUnknown:
					happened = true
					happen(t, a)
				}
			}
			report, err := audit.Orphans(t.Context(), a.meta, a.ep, o)
			if err == nil || !happened || after > 0 || before && report.Deleted+report.Aborted+report.Ended > 0 {
				t.Errorf("%s (before: %v): %v, %d unknown went afterwards, %+v", name, before, err, after, report)
			}
		}
	}
}

// TestDeletionOfUnknownAge: a store that does not say what time it is cannot say that
// the readers of a segment have had their time, however young what goes may be.
func TestDeletionOfUnknownAge(t *testing.T) {
	a := furnish(t)
	ep := newEndpoint(t, clockless{aged{a.store, later}})
	o := a.options()
	o.Apply, o.OlderThan, o.End = true, -1, ender(a.meta, ep)
	kept := false
	o.Found = func(f audit.Orphan) { kept = kept || f.Reason == audit.RecordDeleting && f.Kept != "" }
	if _, err := audit.Orphans(t.Context(), a.meta, ep, o); err != nil || !kept {
		t.Errorf("kept: %v, %v", kept, err)
	}
	if !listing(t, a.store)[a.keys["deleting"]] {
		t.Error("the object of a deletion that may have just begun is gone")
	}
}
