package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/audit"
	"github.com/segtier/segtier/internal/bubble"
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

// TestCompleteButNotFinished: a copy that died between its last byte and FINISHED
// keeps its object, dead or not: nothing else has these offsets, and in an older
// copy of the metadata that is how a readable segment looks.
func TestCompleteButNotFinished(t *testing.T) {
	w := &tier{store: storetest.NewMem(), meta: metadatatest.NewMem(), log: testseg.Random(78, testseg.Options{Segments: 2, Batches: 3})}
	w.ep = newEndpoint(t, aged{w.store, later})
	dying := metadatatest.Inject(w.meta, nil, func(c metadatatest.Call) metadatatest.Fault {
		if c.Op == "publish" && c.Event.To() == metadata.CopySegmentFinished && c.Nth > 2 {
			return metadatatest.Fault{Kind: metadatatest.FailBefore}
		}
		return metadatatest.Fault{}
	})
	copier, err := lifecycle.NewCopier(dying, w.ep, lifecycle.CopierOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := copier.Copy(t.Context(), w.log.Segments[0], writer); err != nil {
		t.Fatal(err)
	}
	if _, err := copier.Copy(t.Context(), w.log.Segments[1], writer); !errors.Is(err, metadata.ErrUnavailable) {
		t.Fatal(err)
	}
	before := listing(t, w.store)
	var told []audit.Orphan
	o := audit.OrphanOptions{Apply: true, Unknown: true, Exclusive: true, MaxFraction: 1, End: ender(w.meta, w.ep), Found: func(o audit.Orphan) { told = append(told, o) }}
	report, err := audit.Orphans(t.Context(), w.meta, w.ep, o)
	if err != nil || report.Ended != 0 || len(told) != 1 || told[0].Reason != audit.RecordComplete || told[0].Kept == "" {
		t.Errorf("%+v, %v, %+v", report, err, told)
	}
	same(t, "complete", listing(t, w.store), before)
	// And the next copy finishes it.
	if copier, err = lifecycle.NewCopier(w.meta, w.ep, lifecycle.CopierOptions{}); err != nil {
		t.Fatal(err)
	}
	if seg, err := copier.Copy(t.Context(), w.log.Segments[1], writer); err != nil || seg.ID != told[0].SegmentID {
		t.Errorf("%v, %v", seg, err)
	}
}

// TestWhoIsDead: a record in STARTED goes only if a newer leader has written or
// nobody else can, and never one that has been FINISHED meanwhile.
func TestWhoIsDead(t *testing.T) {
	for _, test := range []struct {
		name             string
		exclusive, newer bool
		ends             bool
	}{{"alive", false, false, false}, {"alone", true, false, true}, {"fenced", false, true, true}} {
		a := furnish(t)
		if test.newer {
			drive(t, a.meta, started(t, a.meta, a.segs[4], metadata.Writer{BrokerID: 2, LeaderEpoch: writer.LeaderEpoch + 1}), metadata.CopySegmentStarted)
		}
		o := a.options()
		o.Apply, o.Exclusive = true, test.exclusive
		var ended []*metadata.Segment
		o.End = func(_ context.Context, seg *metadata.Segment) error { ended = append(ended, seg); return nil }
		if _, err := audit.Orphans(t.Context(), a.meta, a.ep, o); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, seg := range ended {
			if seg.State == metadata.CopySegmentStarted {
				n++
				if seg.LeaderEpoch != writer.LeaderEpoch {
					t.Errorf("%s: that of leader epoch %d was ended", test.name, seg.LeaderEpoch)
				}
			}
		}
		if (n == 1) != test.ends || n > 1 {
			t.Errorf("%s: %d records in STARTED were ended", test.name, n)
		}
	}
	// Refused by metadata, since it has become another meanwhile.
	a := furnish(t)
	o := a.options()
	o.Apply = true
	o.End = func(context.Context, *metadata.Segment) error { return &metadata.TransitionError{} }
	if report, err := audit.Orphans(t.Context(), a.meta, a.ep, o); err != nil || report.Ended != 0 || report.Spared != 2 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestAnotherPluginsRecord is told and stays, whoever is dead.
func TestAnotherPluginsRecord(t *testing.T) {
	a := furnish(t)
	seg := a.segs[3].Clone()
	seg.ID, seg.Custom = segment.NewUUID(), nil // as Kafka's brokers announce it
	seg.EndOffset += 7
	ev, err := metadata.Started(seg, writer, 0)
	if err == nil {
		err = a.meta.Publish(t.Context(), ev)
	}
	if err != nil {
		t.Fatal(err)
	}
	o := a.options()
	o.Apply = true
	told := false
	o.Found = func(f audit.Orphan) {
		told = told || f.SegmentID == seg.ID && f.Reason == audit.ForeignSegment && f.Kept != ""
	}
	end := o.End
	o.End = func(ctx context.Context, s *metadata.Segment) error {
		if s.ID == seg.ID {
			t.Error("it was ended")
		}
		return end(ctx, s)
	}
	if report, err := audit.Orphans(t.Context(), a.meta, a.ep, o); err != nil || report.Ended != 2 || !told {
		t.Errorf("%+v, %v, told %v", report, err, told)
	}
}

// TestPlan: what was planned is the most that goes, and all of it is judged again.
func TestPlan(t *testing.T) {
	a := furnish(t)
	plan := audit.Plan{MetadataID: a.meta.ID()}
	o := a.options()
	o.Unknown = true
	o.Found = func(f audit.Orphan) {
		if f.Kept == "" && f.Key != a.keys["copy"] {
			plan.Items = append(plan.Items, f.Item())
		}
	}
	if _, err := audit.Orphans(t.Context(), a.meta, a.ep, o); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	o.Plan = new(audit.Plan)
	if err := json.Unmarshal(b, o.Plan); err != nil {
		t.Fatal(err)
	}
	put(t, a.store, object.Key(a.log.Partition, 3, segment.NewUUID()), []byte("came after"))
	a.replace(t, a.keys["garbage"], []byte("another"))
	o.Apply, o.Found = true, nil
	report, err := audit.Orphans(t.Context(), a.meta, a.ep, o)
	if err != nil || report.Deleted != 1 || report.Ended != 2 || report.Aborted != 5 {
		t.Errorf("%+v, %v", report, err)
	}
	if have := listing(t, a.store); !have[a.keys["copy"]] || !have[a.keys["garbage"]] || have[a.keys["ended"]] {
		t.Error("other things went than were planned")
	}
	o.Plan.MetadataID = "another"
	if _, err := audit.Orphans(t.Context(), a.meta, a.ep, o); !errors.Is(err, audit.ErrOtherPlan) {
		t.Errorf("a plan of other metadata: %v", err)
	}
}

// TestOrphansPerSecond: what goes keeps to a rate, so that a mass of it starves no
// reader; who gives up waiting has deleted no more.
func TestOrphansPerSecond(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := furnish(t)
		o := a.options()
		o.Apply, o.Unknown, o.PerSecond = true, true, 2
		ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
		defer cancel()
		report, err := audit.Orphans(ctx, a.meta, a.ep, o)
		if !errors.Is(err, context.DeadlineExceeded) || report.Deleted+report.Aborted != 2 {
			t.Errorf("cut short: %+v, %v", report, err)
		}
		begun := time.Now()
		report, err = audit.Orphans(t.Context(), a.meta, a.ep, o)
		if n := report.Deleted + report.Aborted; err != nil || n != 6 || time.Since(begun) != 2500*time.Millisecond {
			t.Errorf("%d went in %v: %v", n, time.Since(begun), err)
		}
	})
}

// TestProbesThatWereLeft: what a killed process has left of a probe goes by its age,
// never what may be one under way, or is only called like one.
func TestProbesThatWereLeft(t *testing.T) {
	id := objstore.ProbePrefix + strings.Repeat("a7", 13)
	foreign := []string{objstore.ProbePrefix + "x/right", id + "/else", id + "x/right", "a/" + id + "/right", objstore.ProbePrefix + strings.Repeat("A7", 13) + "/right"}
	for _, test := range []struct {
		ahead, older time.Duration // of the store's clock; OlderThan
		told, goes   bool
	}{
		{59 * time.Minute, -1, false, false},
		{61 * time.Minute, -1, true, true},
		{61 * time.Minute, 2 * time.Hour, true, false},
		{3 * time.Hour, 2 * time.Hour, true, true},
	} {
		bubble.Test(t, func(t *testing.T) {
			w := newTier(t, test.ahead)
			if err := transfer.ClaimOwner(t.Context(), w.ep, w.meta.ID()); err != nil {
				t.Fatal(err)
			}
			for _, key := range append(foreign, id+"/right", id+"/wrong") {
				put(t, w.store, key, []byte("a probe, or not"))
			}
			interrupted(t, w.store, id+"/right")
			before := listing(t, w.store)
			var told int
			o := audit.OrphanOptions{OlderThan: test.older, Found: func(o audit.Orphan) {
				if o.Reason == audit.ProbeLeft {
					told++
				}
			}}
			report, err := audit.Orphans(t.Context(), w.meta, w.ep, o)
			if err != nil || report.Foreign != len(foreign) || (report.Probes == 3) != test.goes || (told == 3) != test.told {
				t.Errorf("%+v: %+v, %d told, %v", test, report, told, err)
			}
			same(t, "without Apply", listing(t, w.store), before)
			o.Apply = true
			report, err = audit.Orphans(t.Context(), w.meta, w.ep, o)
			if err != nil || (report.Deleted == 2 && report.Aborted == 1) != test.goes {
				t.Errorf("%+v: %+v, %v", test, report, err)
			}
			if test.goes {
				delete(before, id+"/right")
				delete(before, id+"/wrong")
				delete(before, id+"/right upload")
			}
			same(t, "with Apply", listing(t, w.store), before)
		})
	}
}

// TestPartitionThatEnded: an object of a partition whose deletion is finished is
// proven ended, whatever its id.
func TestPartitionThatEnded(t *testing.T) {
	a := furnish(t)
	p := a.log.Partition
	p.Number = 50
	seg := a.segs[3].Clone()
	seg.Partition = p
	drive(t, a.meta, started(t, a.meta, seg, writer), metadata.DeleteSegmentFinished)
	k := object.Key(p, 0, segment.NewUUID())
	put(t, a.store, k, []byte("forgotten long ago"))
	for from := metadata.PartitionKept; from < metadata.DeletePartitionFinished; from++ {
		o := a.options()
		o.Apply = true
		if _, err := audit.Orphans(t.Context(), a.meta, a.ep, o); err != nil {
			t.Fatal(err)
		}
		if !listing(t, a.store)[k] {
			t.Fatalf("it was deleted in state %s", from)
		}
		ev, err := metadata.DeletePartition(p, from, from+1, writer, 0)
		if err == nil {
			err = a.meta.Publish(t.Context(), ev)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	o := a.options()
	o.Apply = true
	if report, err := audit.Orphans(t.Context(), a.meta, a.ep, o); err != nil || report.Deleted != 1 || listing(t, a.store)[k] {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestRandomAttics: whatever lies about, and whatever is asked for, nothing goes
// that a brute-force look at the records says is needed.
func TestRandomAttics(t *testing.T) {
	base := copied(t, 80)
	content := make([][]byte, len(base.segs))
	for i, seg := range base.segs {
		content[i] = base.content(t, key(seg))
	}
	rapid.Check(t, func(rt *rapid.T) {
		meta, store := metadatatest.NewMem(), storetest.NewMem()
		by := time.Duration(rapid.SampledFrom([]int{0, 1, 20, 40}).Draw(rt, "days")) * days
		ep, err := endpoint.New(aged{store, by}, endpoint.Options{Attempts: 1})
		if err != nil {
			rt.Fatal(err)
		}
		defer ep.Close()
		copier, err := lifecycle.NewCopier(meta, ep, small)
		if err != nil {
			rt.Fatal(err)
		}
		states := map[string]metadata.State{}
		readable := map[string]bool{}
		for i, s := range base.log.Segments {
			seg, err := copier.Copy(context.Background(), s, writer)
			if err != nil {
				rt.Fatal(err)
			}
			to := rapid.SampledFrom([]metadata.State{metadata.CopySegmentFinished, metadata.CopySegmentFinished, metadata.DeleteSegmentStarted, metadata.DeleteSegmentFinished}).Draw(rt, fmt.Sprint("state ", i))
			seg = drive(t, meta, seg, to)
			states[key(seg)] = to
			readable[fmt.Sprint(i)] = to == metadata.CopySegmentFinished
		}
		unknown := map[string]bool{}
		for range rapid.IntRange(0, 3).Draw(rt, "unknown") {
			k := object.Key(base.log.Partition, base.segs[0].StartOffset, segment.NewUUID())
			put(t, store, k, content[0]) // whose header has another id: of no worth
			unknown[k] = true
		}
		foreign := rapid.SampledFrom([]string{"x", "a/b", "orders/x.seg"}).Draw(rt, "foreign")
		put(t, store, foreign, []byte("x"))
		o := audit.OrphanOptions{
			Apply: rapid.Bool().Draw(rt, "apply"), Unknown: rapid.Bool().Draw(rt, "unknown too"), Exclusive: true,
			OlderThan:   time.Duration(rapid.SampledFrom([]int{-1, 0, 1, 30}).Draw(rt, "older")) * days,
			MaxFraction: rapid.SampledFrom([]float64{0, 0.2, 1}).Draw(rt, "fraction"),
			End:         ender(meta, ep),
		}
		report, err := audit.Orphans(context.Background(), meta, ep, o)
		if err != nil && !errors.Is(err, audit.ErrTooMany) {
			rt.Fatal(err)
		}
		old := o.OlderThan < 0 || by >= max(o.OlderThan, days)
		if o.OlderThan == 0 {
			old = by >= days
		}
		have := listing(t, store)
		for k, state := range states {
			gone := o.Apply && err == nil && old && state >= metadata.DeleteSegmentStarted
			if state == metadata.DeleteSegmentStarted && by == 0 {
				gone = false // readers have a moment, whatever was asked for
			}
			if have[k] == gone {
				rt.Fatalf("%s, which is in %s, is there: %v; %+v, %v", k, state, have[k], report, err)
			}
		}
		for k := range unknown {
			if gone := o.Apply && err == nil && old && o.Unknown; have[k] == gone {
				rt.Fatalf("%s, which nobody knows, is there: %v; %+v, %v", k, have[k], report, err)
			}
		}
		if !have[foreign] || !have[object.OwnerKey] {
			rt.Fatal("what is not ours is gone, or the marker")
		}
	})
}
