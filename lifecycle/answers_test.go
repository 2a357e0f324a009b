package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
)

// TestLostAnswersAreReadBack: an event whose answer is lost has happened, and the
// same call goes on.
func TestLostAnswersAreReadBack(t *testing.T) {
	log := testseg.Random(40, testseg.Options{Segments: 2, Batches: 2})
	for way, run := range ways {
		w := copied(t, newWorld(), log)
		p := w.deleter(t, nil, metadatatest.Script(metadatatest.Rule{Op: "publish", Fault: metadatatest.Fault{Kind: metadatatest.FailAfter}}), atOnce(nil))
		if err := run(t.Context(), t, w, p, log.Partition); err != nil {
			t.Errorf("%s: %v", way, err)
		}
		w.empty(t, log.Partition)
	}
	w := copied(t, newWorld(), log)
	p := w.deleter(t, nil, metadatatest.Script(
		metadatatest.Rule{Op: "publish", Fault: metadatatest.Fault{Kind: metadatatest.FailAfter}},
		metadatatest.Rule{Op: "logStart", Fault: metadatatest.Fault{Kind: metadatatest.FailAfter}},
	), today(nil))
	if _, err := expireAll(t.Context(), p, log, nil); err != nil {
		t.Error(err)
	}
	w.empty(t, log.Partition)
}

// TestDecidedOnWhatIsThere: a segment that has become another since it was looked
// at is not deleted; one that somebody else deletes or has deleted is fine, and
// costs no request if that was while readers had their time.
func TestDecidedOnWhatIsThere(t *testing.T) {
	log := testseg.Random(41, testseg.Options{Segments: 2, Batches: 2})
	w := newWorld()
	p := w.deleter(t, nil, metadatatest.Script(metadatatest.Rule{
		Op: "publish", Match: func(c metadatatest.Call) bool { return c.Event.To() == finished }, Fault: metadatatest.Fault{Kind: metadatatest.FailBefore},
	}), atOnce(nil))
	if _, err := p.copier.Copy(t.Context(), log.Segments[0], writer); err == nil {
		t.Fatal("copied")
	}
	before := w.all(t, log.Partition)
	copied(t, w, log) // which finishes it
	if err := p.d.Delete(t.Context(), writer, before...); !errors.Is(err, metadata.ErrTransition) {
		t.Errorf("got %v", err)
	}
	w.sound(t, log.Partition)
	if n := len(w.keys(t)); n != 2 {
		t.Errorf("%d objects", n)
	}

	segs := w.all(t, log.Partition)
	var calls []storetest.Call
	p = w.deleter(t, func(c storetest.Call) storetest.Fault {
		if strings.HasSuffix(c.Key, ".seg") {
			calls = append(calls, c)
		}
		return storetest.Fault{}
	}, nil, atOnce(func(time.Duration) {
		if err := w.deleter(t, nil, nil, atOnce(nil)).d.Delete(t.Context(), writer, segs...); err != nil {
			t.Error(err)
		}
	}))
	if err := p.d.Delete(t.Context(), writer, segs...); err != nil || len(calls) > 0 {
		t.Errorf("%v, %v", err, calls)
	}
	if s := p.d.Stats(); s.Finished != 0 || s.Started != 2 {
		t.Errorf("%+v", s)
	}
	w.empty(t, log.Partition)
}

// TestStateIsReadAgainAfterTheDelay: a metadata store that went back to an older
// copy meanwhile says FINISHED; then nothing of it is deleted.
func TestStateIsReadAgainAfterTheDelay(t *testing.T) {
	log := testseg.Random(42, testseg.Options{Segments: 1, Batches: 2})
	w := copied(t, newWorld(), log)
	var p deleting
	if err := w.startStale(t, log, &p); err != nil {
		t.Fatal(err)
	}
	if err := p.d.Delete(t.Context(), writer, w.all(t, log.Partition)...); !errors.Is(err, metadata.ErrTransition) {
		t.Errorf("got %v", err)
	}
	if len(w.keys(t)) != 1 {
		t.Error("the object is gone")
	}
}

// startStale makes p a process whose view of the partition goes back to how it is
// now during the delay.
func (w world) startStale(t *testing.T, log *testseg.Log, p *deleting) error {
	t.Helper()
	old, err := w.meta.View(log.Partition)
	if err != nil {
		return err
	}
	m := &rewound{Store: w.meta}
	*p = w.deleter(t, nil, nil, atOnce(nil))
	d, err := lifecycle.NewDeleter(m, p.ep, atOnce(func(time.Duration) { m.old = old }))
	p.d = d
	return err
}

type rewound struct {
	metadata.Store

	old *metadata.View
}

func (m *rewound) View(p segment.Partition) (*metadata.View, error) {
	if m.old != nil {
		return m.old, nil
	}
	return m.Store.View(p)
}

// TestDamagedObjectsAreDeleted: what was readable had a receipt. What is left of
// its object is its object.
func TestDamagedObjectsAreDeleted(t *testing.T) {
	log := testseg.Random(43, testseg.Options{Segments: 2, Batches: 2})
	w := copied(t, newWorld(), log)
	keys := w.keys(t)
	if err := w.store.Delete(t.Context(), keys...); err != nil {
		t.Fatal(err)
	}
	w.put(t, keys[1], "what a fire has left")
	p := w.deleter(t, nil, nil, atOnce(nil))
	if err := p.d.DeletePartition(t.Context(), log.Partition, writer); err != nil {
		t.Error(err)
	}
	w.empty(t, log.Partition)
}

// TestWritersOfUnknownEpoch: what dead writers have left goes, whatever their
// leader epochs, and whoever retired them.
func TestWritersOfUnknownEpoch(t *testing.T) {
	log := testseg.Random(44, testseg.Options{Segments: 1, Batches: 2})
	for _, kind := range []storetest.Kind{storetest.FailBefore, storetest.FailAfter} {
		w := newWorld()
		for _, epoch := range []int32{-1, 3, 4} { // the last one retires the one before
			p := w.start(t, storetest.Rules(storetest.Rule{Op: "upload", Key: "*/*/*/*.seg", Fault: storetest.Fault{Kind: kind}}), nil, lifecycle.Events{})
			if _, err := p.copier.Copy(t.Context(), log.Segments[0], metadata.Writer{BrokerID: epoch + 5, LeaderEpoch: epoch}); err == nil {
				t.Fatal("copied")
			}
		}
		if n := len(w.all(t, log.Partition)); n != 3 {
			t.Fatalf("%d records", n)
		}
		p := w.deleter(t, nil, nil, today(nil))
		e, err := lifecycle.NewExpirer(p.d, lifecycle.ExpirerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		x, err := e.Expire(t.Context(), lifecycle.ExpireRequest{Partition: log.Partition, Writer: writer, Lineage: log.Epochs, LogEnd: math.MaxInt64, RetentionMs: 1})
		if err != nil || len(x.Expired) != 3 || x.LogStart != 0 {
			t.Errorf("%v, %+v", err, x)
		}
		w.empty(t, log.Partition)
	}
}

// pending leaves an unfinished upload under a key.
func (w world) pending(t *testing.T, key string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req := uploadOf(key, "half")
	req.Confirmed = func(objstore.PartEvidence) { cancel() }
	if _, err := w.store.Upload(ctx, req); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func (w world) uploads(t *testing.T) (keys []string) {
	t.Helper()
	for up, err := range w.store.(objstore.UploadLister).Uploads(t.Context(), "") {
		if err != nil {
			t.Error(err)
		}
		keys = append(keys, up.Key)
	}
	slices.Sort(keys)
	return keys
}

// TestOnlyTheirUploadsAreAborted: those of segments that are being deleted or
// have ended, also one that was begun during the delay. Somebody may be working on
// the others.
func TestOnlyTheirUploadsAreAborted(t *testing.T) {
	log := testseg.Random(45, testseg.Options{Segments: 3, Batches: 2})
	w := copied(t, newWorld(), log)
	segs := w.all(t, log.Partition)
	key := func(i int) string { return object.Key(log.Partition, segs[i].StartOffset, segs[i].ID) }
	others := []string{
		key(2), // readable
		object.Key(log.Partition, 7, segment.UUID{9}),                // nobody knows it
		object.Key(log.Partition, segs[0].StartOffset+1, segs[0].ID), // not that segment's key
		strings.Replace(key(0), "/0/", "/1/", 1),                     // another partition's
		strings.TrimSuffix(key(0), ".seg"),                           // no segment's
	}
	slices.Sort(others)
	for _, k := range others {
		w.pending(t, k)
	}
	w.pending(t, key(0))
	first := true
	p := w.deleter(t, nil, nil, atOnce(func(time.Duration) {
		if !first {
			return
		}
		first = false
		if got := w.uploads(t); !slices.Equal(got, others) {
			t.Errorf("during the delay: %v", got)
		}
		w.pending(t, key(1))
	}))
	if err := p.d.Delete(t.Context(), writer, segs[:2]...); err != nil {
		t.Error(err)
	}
	if got := w.uploads(t); !slices.Equal(got, others) {
		t.Errorf("left are %v, want %v", got, others)
	}
	if n := p.d.Stats().Aborted; n != 2 {
		t.Errorf("%d aborted", n)
	}
	w.pending(t, key(0)) // of a writer that has slept: the next deletion finds it
	if err := p.d.Delete(t.Context(), writer, segs[2]); err != nil {
		t.Error(err)
	}
	if got := w.uploads(t); slices.Contains(got, key(0)) || slices.Contains(got, key(2)) {
		t.Errorf("left are %v", got)
	}
}

// TestUploadsThatCannotBeListed: a store that may not be asked deletes all the
// same; one that fails is asked again before anything goes.
func TestUploadsThatCannotBeListed(t *testing.T) {
	log := testseg.Random(46, testseg.Options{Segments: 1, Batches: 2})
	for _, c := range []struct {
		op   string
		err  error
		gone bool
	}{{"uploads", objstore.ErrRefused, true}, {"uploads", storetest.ErrInjected, false}, {"abort", objstore.ErrRefused, true}, {"abort", storetest.ErrInjected, false}} {
		w := copied(t, newWorld(), log)
		w.pending(t, w.keys(t)[0])
		p := w.deleter(t, storetest.Rules(storetest.Rule{Op: c.op, Times: 2, Fault: storetest.Fault{Kind: storetest.FailBefore, Err: c.err}}), nil, atOnce(nil))
		err := p.d.Delete(t.Context(), writer, w.all(t, log.Partition)...)
		if gone := len(w.keys(t)) == 0; gone != c.gone || gone != (err == nil) {
			t.Errorf("%s, %v: gone: %v, %v", c.op, c.err, gone, err)
		}
	}
}

// TestPartitionOfNothing: a topic that never was tiered is deleted without a store,
// which may not even be ours.
func TestPartitionOfNothing(t *testing.T) {
	log := testseg.Random(48, testseg.Options{Segments: 1, Batches: 2})
	w := newWorld() // without a marker
	p := w.deleter(t, func(c storetest.Call) storetest.Fault {
		t.Errorf("%s", c)
		return storetest.Fault{}
	}, nil, atOnce(nil))
	if err := p.d.DeletePartition(t.Context(), log.Partition, writer); err != nil {
		t.Error(err)
	}
	if names := p.store.Effects().Names(); len(names) != 3 {
		t.Errorf("%v", names)
	}
}

// TestCopyThatIsDeletedMeanwhile: the object of a copy that was ended while it was
// under way goes, although who deleted had looked before it was there.
func TestCopyThatIsDeletedMeanwhile(t *testing.T) {
	log := testseg.Random(49, testseg.Options{Segments: 1, Batches: 2})
	for way, run := range ways {
		w := newWorld()
		p := w.deleter(t, nil, metadatatest.Script(metadatatest.Rule{Op: "publish", Match: func(c metadatatest.Call) bool {
			if c.Event.To() == finished { // which is about to be refused
				key := w.keys(t)[0]
				if err := w.store.Delete(t.Context(), key); err != nil { // it is not there yet
					t.Error(err)
				}
				if err := run(t.Context(), t, w, w.deleter(t, nil, nil, atOnce(nil)), log.Partition); err != nil {
					t.Error(err)
				}
				w.put(t, key, "it is now")
			}
			return false
		}}), atOnce(nil))
		if _, err := p.copier.Copy(t.Context(), log.Segments[0], writer); !errors.Is(err, metadata.ErrTransition) {
			t.Errorf("%s: %v", way, err)
		}
		w.empty(t, log.Partition)
	}
}

// TestPartitionThatIsBeingDeleted is none to expire.
func TestPartitionThatIsBeingDeleted(t *testing.T) {
	log := testseg.Random(47, testseg.Options{Segments: 1, Batches: 2})
	w := copied(t, newWorld(), log)
	p := w.deleter(t, nil, nil, today(nil))
	ev, err := metadata.DeletePartition(log.Partition, metadata.PartitionKept, metadata.DeletePartitionMarked, writer, 1)
	if err == nil {
		err = w.meta.Publish(t.Context(), ev)
	}
	if err != nil {
		t.Fatal(err)
	}
	if x, err := expireAll(t.Context(), p, log, nil); err != nil || len(x.Expired) > 0 || p.store.Effects().Count() > 0 {
		t.Errorf("%v, %+v, %v", err, x, p.store.Effects().Names())
	}
}

// TestManySegments: a partition of more segments than any listing or call holds at
// once, most of them never finished, is deleted in bounded memory.
func TestManySegments(t *testing.T) {
	const n = 2501
	segs := make([]*metadata.Segment, n)
	for i := range segs {
		segs[i] = rec(1, copyStarted, int64(i)*10, int64(i)*10+9, 10, 50)
		segs[i].ID = segment.UUID{byte(i >> 8), byte(i), 1}
	}
	m := &paper{Mem: metadatatest.NewMem(), view: metadata.NewView(paperPartition, segs...)}
	d := deleterOn(t, partitionPaper{m}, owned(t, m.ID()))
	if err := d.DeletePartition(t.Context(), paperPartition, writer); err != nil {
		t.Fatal(err)
	}
	if len(m.events) != 2*n || m.view.Info().Deletion != metadata.DeletePartitionFinished {
		t.Errorf("%d events, %s", len(m.events), m.view.Info().Deletion)
	}
}

// partitionPaper takes events of partitions too.
type partitionPaper struct{ *paper }

func (m partitionPaper) Publish(ctx context.Context, ev metadata.Event) error {
	if ev.Segment() != nil {
		return m.paper.Publish(ctx, ev)
	}
	v, err := m.view.Apply(ev)
	if err == nil {
		m.view = v
	}
	return err
}

// TestExpireOfAStoreThatHoldsNothing does nothing, and says where the log starts.
func TestExpireOfAStoreThatHoldsNothing(t *testing.T) {
	e, m := expirer(t, 1000, lifecycle.ExpirerOptions{})
	x, err := e.Expire(t.Context(), asked(func(r *lifecycle.ExpireRequest) { r.RetentionMs, r.LogStart = 10, 100 }))
	if err != nil || len(x.Expired) > 0 || x.LogStart != 100 || len(m.events) > 0 {
		t.Errorf("%v, %+v, %v", err, x, fmt.Sprint(m.events))
	}
}
