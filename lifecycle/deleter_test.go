package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/dir"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// atOnce has no delays: what it would have waited for is told.
func atOnce(told func(time.Duration)) lifecycle.DeleterOptions {
	return lifecycle.DeleterOptions{
		PerSecond: -1, Concurrency: 1,
		Now: func() time.Time { return time.UnixMilli(1700000000000) },
		Wait: func(ctx context.Context, d time.Duration) error {
			if told != nil {
				told(d)
			}
			return ctx.Err()
		},
	}
}

// deleting is a process with a Deleter.
type deleting struct {
	*process

	d *lifecycle.Deleter
}

func (w world) deleter(t *testing.T, store storetest.Plan, meta metadatatest.Plan, o lifecycle.DeleterOptions) deleting {
	t.Helper()
	p := w.start(t, store, meta, lifecycle.Events{})
	d, err := lifecycle.NewDeleter(p.meta, p.ep, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return deleting{p, d}
}

// copied is a world with a log in it.
func copied(t *testing.T, w world, log *testseg.Log) world {
	t.Helper()
	if err := w.start(t, nil, nil, lifecycle.Events{}).copyAll(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	return w
}

// all returns the records of the partition that have not ended.
func (w world) all(t *testing.T, p segment.Partition) (segs []*metadata.Segment) {
	t.Helper()
	v, err := w.meta.View(p)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(v.All())
}

func (w world) keys(t *testing.T) (keys []string) {
	t.Helper()
	for info, err := range w.store.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if info.Key != object.OwnerKey {
			keys = append(keys, info.Key)
		}
	}
	return keys
}

// sound checks what holds at every moment: what is readable has its object, and
// what has ended has none.
func (w world) sound(t *testing.T, p segment.Partition) {
	t.Helper()
	keys := w.keys(t)
	v, err := w.meta.View(p)
	if err != nil {
		t.Fatal(err)
	}
	for seg := range v.All() {
		if seg.State == metadata.CopySegmentFinished && !slices.Contains(keys, object.Key(p, seg.StartOffset, seg.ID)) {
			t.Errorf("the segment at %d is readable and its object is gone", seg.StartOffset)
		}
	}
	for seg := range v.Ended() {
		if slices.Contains(keys, object.Key(p, seg.StartOffset, seg.ID)) {
			t.Errorf("the segment at %d has ended and its object is there", seg.StartOffset)
		}
	}
}

// empty checks that everything has ended.
func (w world) empty(t *testing.T, p segment.Partition) {
	t.Helper()
	w.sound(t, p)
	for _, seg := range w.all(t, p) {
		t.Errorf("the segment at %d is in %s", seg.StartOffset, seg.State)
	}
	if keys := w.keys(t); len(keys) > 0 {
		t.Errorf("objects left: %v", keys)
	}
	if l, ok := w.store.(objstore.UploadLister); ok {
		for up, err := range l.Uploads(t.Context(), "") {
			t.Errorf("upload left: %v, %v", up.Key, err)
		}
	}
}

// debris is a log in the tier and what dead writers have left of it besides: an
// announced copy without an object, one with its object, one with half of an
// upload.
func debris(t *testing.T, w world, log *testseg.Log) world {
	t.Helper()
	by := metadata.Writer{BrokerID: 1, LeaderEpoch: writer.LeaderEpoch - 1}
	for _, kind := range []storetest.Kind{storetest.FailBefore, storetest.FailAfter, storetest.None} {
		ctx, die := context.WithCancel(t.Context())
		p := w.start(t, storetest.Rules(storetest.Rule{Op: "upload", Key: "*/*/*/*.seg", Fault: storetest.Fault{Kind: kind}}), nil, lifecycle.Events{
			PartConfirmed: func(*metadata.Segment, objstore.PartEvidence) {
				if kind == storetest.None {
					die()
				}
			},
		})
		if _, err := p.copier.Copy(ctx, log.Segments[0], by); err == nil {
			t.Fatal("the copy succeeded")
		}
		die()
		by.BrokerID++
	}
	if w.root != "" { // there a process has to be killed for one to be left
		seg := w.all(t, log.Partition)[0]
		name := object.Key(seg.Partition, seg.StartOffset, seg.ID) + " 0123456789abcdef.upload"
		if err := os.WriteFile(filepath.Join(w.root, name), []byte("half"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	uploads := 0
	for _, err := range w.store.(objstore.UploadLister).Uploads(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		uploads++
	}
	if uploads != 1 {
		t.Fatalf("%d unfinished uploads", uploads)
	}
	return copied(t, w, log)
}

// TestDeleteOrder: DELETE_STARTED of all, the delay, each object, and each
// DELETE_FINISHED behind its object.
func TestDeleteOrder(t *testing.T) {
	log := testseg.Random(1, testseg.Options{Segments: 2})
	w := copied(t, newWorld(), log)
	var p deleting
	var waits []string
	p = w.deleter(t, nil, nil, atOnce(func(d time.Duration) {
		waits = append(waits, fmt.Sprintf("%v after %d effects", d, p.store.Effects().Count()))
	}))
	segs := w.all(t, log.Partition)
	if err := p.d.Delete(t.Context(), writer, segs...); err != nil {
		t.Fatal(err)
	}
	w.empty(t, log.Partition)
	want := []string{
		fmt.Sprintf("DELETE_SEGMENT_STARTED %d", segs[0].StartOffset), fmt.Sprintf("DELETE_SEGMENT_STARTED %d", segs[1].StartOffset),
		"delete " + object.Key(segs[0].Partition, segs[0].StartOffset, segs[0].ID), fmt.Sprintf("DELETE_SEGMENT_FINISHED %d", segs[0].StartOffset),
		"delete " + object.Key(segs[1].Partition, segs[1].StartOffset, segs[1].ID), fmt.Sprintf("DELETE_SEGMENT_FINISHED %d", segs[1].StartOffset),
	}
	if got := p.store.Effects().Names(); !slices.Equal(got, want) {
		t.Errorf("effects\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !slices.Equal(waits, []string{"1m0s after 2 effects"}) {
		t.Errorf("waits: %v", waits)
	}
	if s := p.d.Stats(); s.Started != 2 || s.Finished != 2 || s.Bytes != segs[0].SizeBytes+segs[1].SizeBytes || s.Failed != 0 {
		t.Errorf("%+v", s)
	}
	if err := p.d.Delete(t.Context(), writer, segs...); err != nil || p.store.Effects().Count() != len(want) {
		t.Errorf("again: %v, %v", err, p.store.Effects().Names()[len(want):])
	}
}

// ways are the ways in which a partition's segments are deleted.
var ways = map[string]func(ctx context.Context, t *testing.T, w world, p deleting, part segment.Partition) error{
	"segments": func(ctx context.Context, t *testing.T, w world, p deleting, part segment.Partition) error {
		return p.d.Delete(ctx, writer, w.all(t, part)...)
	},
	"partition": func(ctx context.Context, _ *testing.T, _ world, p deleting, part segment.Partition) error {
		return p.d.DeletePartition(ctx, part, writer)
	},
}

// stores are where it is tried.
func stores(t *testing.T) map[string]func() world {
	t.Helper()
	return map[string]func() world{
		"in memory": newWorld,
		"in a directory": func() world {
			root := t.TempDir()
			s, err := dir.Open(root, dir.Options{Create: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return world{store: s, meta: metadatatest.NewMem(), root: root}
		},
	}
}

// TestDeleteCrashAfterEveryEffect stops a deletion after each of its effects,
// and lets another process go on, by Resume first.
func TestDeleteCrashAfterEveryEffect(t *testing.T) {
	log := testseg.Random(2, testseg.Options{Segments: 2, Batches: 40})
	for place, open := range stores(t) {
		for way, run := range ways {
			for k := 0; ; k++ {
				w := debris(t, open(), log)
				p := w.deleter(t, nil, nil, atOnce(nil))
				p.store.Effects().StopAfter(k)
				err := run(t.Context(), t, w, p, log.Partition)
				if err == nil {
					if k < 10 {
						t.Errorf("%s, %s: only %d effects: %v", place, way, k, p.store.Effects().Names())
					}
					break
				}
				if !errors.Is(err, storetest.ErrStopped) {
					t.Fatalf("%s, %s, after %d effects: %v", place, way, k, err)
				}
				w.sound(t, log.Partition)
				p = w.deleter(t, nil, nil, atOnce(nil))
				if err := p.d.Resume(t.Context(), log.Partition, writer); err != nil {
					t.Fatalf("%s, %s, after %d effects: resume: %v", place, way, k, err)
				}
				for _, seg := range w.all(t, log.Partition) {
					if seg.State == metadata.DeleteSegmentStarted {
						t.Errorf("%s, %s, after %d effects: %s was not resumed", place, way, k, seg.ID)
					}
				}
				if err := run(t.Context(), t, w, p, log.Partition); err != nil {
					t.Fatalf("%s, %s, after %d effects: %v", place, way, k, err)
				}
				w.empty(t, log.Partition)
				if t.Failed() {
					t.Fatalf("%s, %s, after %d effects", place, way, k)
				}
			}
		}
	}
}

// TestDeleteEveryCallFailing fails each call once, before and after its effect.
func TestDeleteEveryCallFailing(t *testing.T) {
	log := testseg.Random(3, testseg.Options{Segments: 2, Batches: 40})
	for way, run := range ways {
		for _, after := range []bool{false, true} {
			for _, at := range []string{"store", "metadata"} {
				for n := 1; ; n++ {
					w := debris(t, newWorld(), log)
					hit := false
					var sp storetest.Plan
					var mp metadatatest.Plan
					if at == "store" {
						sp = func(c storetest.Call) (f storetest.Fault) {
							if c.Seq == n {
								hit, f.Kind = true, storetest.FailBefore
								if after {
									f.Kind = storetest.FailAfter
								}
							}
							return f
						}
					} else {
						mp = func(c metadatatest.Call) (f metadatatest.Fault) {
							if c.Seq == n {
								hit, f.Kind = true, metadatatest.FailBefore
								if after {
									f.Kind = metadatatest.FailAfter
								}
							}
							return f
						}
					}
					p := w.deleter(t, sp, mp, atOnce(nil))
					err := run(t.Context(), t, w, p, log.Partition)
					if !hit {
						break
					}
					w.sound(t, log.Partition)
					if err == nil {
						w.empty(t, log.Partition)
					}
					if err := run(t.Context(), t, w, w.deleter(t, nil, nil, atOnce(nil)), log.Partition); err != nil {
						t.Fatalf("%s: again after call %d on %s failed (after: %v): %v", way, n, at, after, err)
					}
					w.empty(t, log.Partition)
					if t.Failed() {
						t.Fatalf("%s: call %d on %s (after: %v)", way, n, at, after)
					}
				}
			}
		}
	}
}

// TestTwoDeleters: two processes delete the same segments at once, and both are
// told that it was done.
func TestTwoDeleters(t *testing.T) {
	log := testseg.Random(4, testseg.Options{Segments: 6, Batches: 10})
	for way, run := range ways {
		w := debris(t, newWorld(), log)
		o := atOnce(nil)
		o.Concurrency = 3
		var both sync.WaitGroup
		for range 2 {
			p := w.deleter(t, nil, nil, o)
			both.Go(func() {
				if err := run(t.Context(), t, w, p, log.Partition); err != nil {
					t.Errorf("%s: %v", way, err)
				}
			})
		}
		both.Wait()
		w.empty(t, log.Partition)
	}
}

// TestDeletedPartition goes through Kafka's states, and takes no copy any more.
func TestDeletedPartition(t *testing.T) {
	log := testseg.Random(5, testseg.Options{Segments: 2, Batches: 10})
	w := copied(t, newWorld(), log)
	p := w.deleter(t, nil, nil, atOnce(nil))
	for range 2 {
		if err := p.d.DeletePartition(t.Context(), log.Partition, writer); err != nil {
			t.Fatal(err)
		}
	}
	names := p.store.Effects().Names()
	if len(names) != 3+3*2 || names[0] != "DELETE_PARTITION_MARKED" || names[1] != "DELETE_PARTITION_STARTED" || names[len(names)-1] != "DELETE_PARTITION_FINISHED" {
		t.Errorf("effects: %v", names)
	}
	if err := p.copyAll(t.Context(), log); !errors.Is(err, metadata.ErrTransition) {
		t.Errorf("a copy to it: %v", err)
	}
	w.empty(t, log.Partition)
}

// TestNothingIsDeletedWithoutKnowing: metadata that is loading or incomplete, a
// store that is another's or nobody's, a deposed writer: no effect at all.
func TestNothingIsDeletedWithoutKnowing(t *testing.T) {
	log := testseg.Random(6, testseg.Options{Segments: 2, Batches: 10})
	part := log.Partition
	for name, c := range map[string]struct {
		spoil func(p deleting, w world)
		by    metadata.Writer
		want  error
	}{
		"loading":    {spoil: func(p deleting, _ world) { p.meta.SetLoading(part, true) }, want: metadata.ErrNotReady},
		"incomplete": {spoil: func(p deleting, _ world) { p.meta.SetIncomplete(part, 1) }, want: metadata.ErrIncomplete},
		"no marker": {spoil: func(_ deleting, w world) {
			if err := w.store.Delete(t.Context(), object.OwnerKey); err != nil {
				t.Error(err)
			}
		}, want: new(transfer.OwnerError)},
		"another's": {spoil: func(_ deleting, w world) {
			if err := w.store.Delete(t.Context(), object.OwnerKey); err != nil {
				t.Error(err)
			}
			marker, err := object.Owner{MetadataID: "another"}.Marshal()
			if err != nil {
				t.Error(err)
			}
			w.put(t, object.OwnerKey, string(marker))
		}, want: new(transfer.OwnerError)},
		"deposed": {by: metadata.Writer{BrokerID: 1, LeaderEpoch: 1}, want: metadata.ErrFenced},
	} {
		for way, run := range ways {
			w := copied(t, newWorld(), log)
			if name != "deposed" && way == "segments" { // that one is decided on what it is given
				ev, err := metadata.DeleteStarted(w.all(t, part)[0], writer, 1)
				if err == nil {
					err = w.meta.Publish(t.Context(), ev)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			p := w.deleter(t, nil, nil, atOnce(nil))
			if c.spoil != nil {
				c.spoil(p, w)
			}
			for range 2 {
				var err error
				if c.by == (metadata.Writer{}) {
					err = errors.Join(run(t.Context(), t, w, p, part))
					if r := p.d.Resume(t.Context(), part, writer); way == "segments" && r == nil {
						t.Errorf("%s: Resume went on", name)
					}
				} else if way == "segments" {
					err = p.d.Delete(t.Context(), c.by, w.all(t, part)...)
				} else {
					err = p.d.DeletePartition(t.Context(), part, c.by)
				}
				var owner *transfer.OwnerError
				if !errors.Is(err, c.want) && !(errors.As(c.want, &owner) && errors.As(err, &owner)) {
					t.Errorf("%s, %s: %v", name, way, err)
				}
			}
			if n := p.store.Effects().Names(); len(n) > 0 {
				t.Errorf("%s, %s: effects %v", name, way, n)
			}
		}
	}
}

// TestTakenOverDuringTheDelay: the prefix becomes another's while readers have
// their time. Nothing of it is deleted any more.
func TestTakenOverDuringTheDelay(t *testing.T) {
	log := testseg.Random(7, testseg.Options{Segments: 1, Batches: 10})
	w := copied(t, newWorld(), log)
	p := w.deleter(t, nil, nil, atOnce(func(time.Duration) {
		if err := w.store.Delete(t.Context(), object.OwnerKey); err != nil {
			t.Error(err)
		}
	}))
	var owner *transfer.OwnerError
	if err := p.d.Delete(t.Context(), writer, w.all(t, log.Partition)...); !errors.As(err, &owner) {
		t.Error(err)
	}
	if keys := w.keys(t); len(keys) != 1 {
		t.Errorf("objects %v", keys)
	}
}

// TestOneFailureHoldsBackNoOther: others of the same call are deleted.
func TestOneFailureHoldsBackNoOther(t *testing.T) {
	log := testseg.Random(9, testseg.Options{Segments: 5, Batches: 10})
	for _, concurrency := range []int{1, 3} {
		w := copied(t, newWorld(), log)
		segs := w.all(t, log.Partition)
		bad := object.Key(log.Partition, segs[1].StartOffset, segs[1].ID)
		o := atOnce(nil)
		o.Concurrency = concurrency
		p := w.deleter(t, storetest.Rules(storetest.Rule{Op: "delete", Key: bad, Times: 2, Fault: storetest.Fault{Kind: storetest.FailBefore}}), nil, o)
		for range 2 {
			if err := p.d.Delete(t.Context(), writer, segs...); !errors.Is(err, storetest.ErrInjected) || !strings.Contains(err.Error(), segs[1].ID.String()) {
				t.Errorf("got %v", err)
			}
			if left := w.all(t, log.Partition); len(left) != 1 || left[0].ID != segs[1].ID || left[0].State != metadata.DeleteSegmentStarted {
				t.Errorf("left are %v", left)
			}
		}
		if err := p.d.Delete(t.Context(), writer, segs...); err != nil {
			t.Error(err)
		}
		w.empty(t, log.Partition)
	}
}

// TestGivesUp: when everything fails, a call does not try a million segments.
func TestGivesUp(t *testing.T) {
	log := testseg.Random(10, testseg.Options{Segments: 40, Batches: 1})
	w := copied(t, newWorld(), log)
	p := w.deleter(t, storetest.Rules(storetest.Rule{Op: "delete", Times: -1, Fault: storetest.Fault{Kind: storetest.FailBefore}}), nil, atOnce(nil))
	err := p.d.DeletePartition(t.Context(), log.Partition, writer)
	if !errors.Is(err, storetest.ErrInjected) {
		t.Fatal(err)
	}
	if n := p.d.Stats().Failed; n != 16 {
		t.Errorf("%d were tried", n)
	}
	if n := strings.Count(err.Error(), "\n"); n > 10 {
		t.Errorf("an error of %d lines", n)
	}
}
