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
	"github.com/segtier/segtier/transfer"
)

const (
	copyStarted   = metadata.CopySegmentStarted
	finished      = metadata.CopySegmentFinished
	deleteStarted = metadata.DeleteSegmentStarted
)

// asked is a request of a partition on paper that keeps everything.
func asked(change func(*lifecycle.ExpireRequest)) lifecycle.ExpireRequest {
	req := lifecycle.ExpireRequest{
		Partition: paperPartition, Writer: writer, Lineage: segment.Lineage{{Epoch: 0, Start: 0}}, LogEnd: math.MaxInt64,
		LocalBytes: func(int64) (int64, error) { return 0, nil },
	}
	if change != nil {
		change(&req)
	}
	return req
}

// three are segments of 10 bytes and 10 offsets each, with timestamps 100, 200
// and 300.
func three() []*metadata.Segment {
	return []*metadata.Segment{rec(1, finished, 0, 9, 10, 100), rec(2, finished, 10, 19, 10, 200), rec(3, finished, 20, 29, 10, 300)}
}

// TestKafkasRetention is Kafka's scenarios of RemoteLogManagerTest, and those of
// its bugs, under their names: what expires (by start offset and cause), and where
// the log starts then.
func TestKafkasRetention(t *testing.T) {
	const now = 1000
	time100 := func(r *lifecycle.ExpireRequest) { r.RetentionMs = now - 100 }
	for name, c := range map[string]struct {
		segs     []*metadata.Segment
		logStart int64 // in metadata
		ask      func(*lifecycle.ExpireRequest)
		copying  []int64
		want     string
	}{
		"nothing to do": {segs: three(), want: "0:"},
		"DeletionOnRetentionBreachedSegments by time": {segs: three(), ask: time100, want: "10: 0 RETENTION_MS"},
		"DeletionOnRetentionBreachedSegments by size": {segs: three(), ask: func(r *lifecycle.ExpireRequest) { r.RetentionBytes = 10 }, want: "20: 0 RETENTION_BYTES, 10 RETENTION_BYTES"},
		"never below retention.bytes":                 {segs: three(), ask: func(r *lifecycle.ExpireRequest) { r.RetentionBytes = 11 }, want: "10: 0 RETENTION_BYTES"},
		"both":                                        {segs: three(), ask: func(r *lifecycle.ExpireRequest) { time100(r); r.RetentionBytes = 15 }, want: "10: 0 RETENTION_MS"},
		"DeletionOnOverlappingRetentionBreachedSegments; KAFKA-16890: the greatest log start": {
			segs: []*metadata.Segment{rec(1, finished, 0, 29, 10, 50), rec(2, finished, 5, 9, 10, 50), rec(3, finished, 30, 39, 10, 500)},
			ask:  time100, want: "30: 0 RETENTION_MS, 5 RETENTION_MS",
		},
		"DeletionSkippedForSegmentsBeingCopied": {
			segs: []*metadata.Segment{rec(1, copyStarted, 0, 9, 10, 50), rec(2, finished, 10, 19, 10, 50)},
			ask:  time100, copying: []int64{0}, want: "0:",
		},
		"a copy that dangles expires with the others, and moves no log start": {
			segs: []*metadata.Segment{rec(1, copyStarted, 0, 9, 10, 50), rec(2, finished, 0, 9, 10, 50), rec(3, copyStarted, 10, 19, 10, 50)},
			ask:  time100, want: "10: 0 RETENTION_MS, 0 RETENTION_MS, 10 RETENTION_MS",
		},
		"KAFKA-17062, SizeRetentionShouldFilterOutCopySegmentStartState": {
			segs: []*metadata.Segment{rec(1, copyStarted, 0, 9, 1000, 50), rec(2, finished, 0, 9, 10, 50), rec(3, finished, 10, 19, 10, 50)},
			ask:  func(r *lifecycle.ExpireRequest) { r.RetentionBytes = 20 }, want: "0:",
		},
		"a copy that dangles does not end retention by size": {
			segs: []*metadata.Segment{rec(1, copyStarted, 0, 9, 10, 50), rec(2, finished, 0, 9, 10, 50), rec(3, finished, 10, 19, 10, 50)},
			ask:  func(r *lifecycle.ExpireRequest) { r.RetentionBytes = 10 }, want: "10: 0 RETENTION_BYTES",
		},
		"DeleteRetentionMsBiggerThanTimeMs, KAFKA-17995": {segs: three(), ask: func(r *lifecycle.ExpireRequest) { r.RetentionMs = math.MaxInt64 }, want: "0:"},
		"retention that reaches back to 1970":            {segs: three(), ask: func(r *lifecycle.ExpireRequest) { r.RetentionMs = now + 1 }, want: "0:"},
		"DeleteSegmentsDueToLogStartOffsetBreach": {
			segs: three(), ask: func(r *lifecycle.ExpireRequest) { r.LogStart = 13 }, want: "13: 0 LOG_START_OFFSET",
		},
		"the log start in metadata counts where it is greater": {segs: three(), logStart: 20, want: "20: 0 LOG_START_OFFSET, 10 LOG_START_OFFSET"},
		"KAFKA-15479: a segment of several epochs counts once": {
			segs: []*metadata.Segment{
				rec(1, finished, 0, 9, 10, 50, segment.EpochStart{Epoch: 0, Start: 0}, segment.EpochStart{Epoch: 1, Start: 3}, segment.EpochStart{Epoch: 2, Start: 6}),
				rec(2, finished, 10, 19, 10, 50, segment.EpochStart{Epoch: 2, Start: 10}),
			},
			ask: func(r *lifecycle.ExpireRequest) {
				r.Lineage = segment.Lineage{{Epoch: 0, Start: 0}, {Epoch: 1, Start: 3}, {Epoch: 2, Start: 6}}
				r.RetentionBytes = 20
			},
			want: "0:",
		},
		"KAFKA-16511: what lies below the log start in an older leader's epoch goes": {
			segs: []*metadata.Segment{
				rec(1, finished, 0, 9, 10, 50, segment.EpochStart{Epoch: 2, Start: 0}, segment.EpochStart{Epoch: 3, Start: 5}),
				rec(2, finished, 5, 12, 10, 50, segment.EpochStart{Epoch: 4, Start: 5}),
				rec(3, finished, 13, 19, 10, 50, segment.EpochStart{Epoch: 5, Start: 13}),
			},
			ask: func(r *lifecycle.ExpireRequest) {
				r.Lineage = segment.Lineage{{Epoch: 4, Start: 10}, {Epoch: 5, Start: 13}}
				r.LogStart = 13
			},
			want: "13: 0 LOG_START_OFFSET, 5 LOG_START_OFFSET",
		},
		"what an older leader left above the log start is of dead epochs": {
			segs: []*metadata.Segment{
				rec(1, finished, 5, 19, 10, 50, segment.EpochStart{Epoch: 2, Start: 5}),
				rec(2, finished, 13, 19, 10, 50, segment.EpochStart{Epoch: 5, Start: 13}),
			},
			ask: func(r *lifecycle.ExpireRequest) {
				r.Lineage = segment.Lineage{{Epoch: 5, Start: 13}}
				r.LogStart = 13
			},
			want: "13: 5 DEAD_EPOCHS",
		},
		"segments of another history are left alone": {
			segs: []*metadata.Segment{rec(1, finished, 0, 9, 10, 50, segment.EpochStart{Epoch: 7, Start: 0}), rec(2, finished, 0, 9, 10, 50)},
			ask:  time100, want: "10: 0 RETENTION_MS",
		},
		"the segment that ends where the log does is left alone": {
			segs: three(), ask: func(r *lifecycle.ExpireRequest) { time100(r); r.LogEnd = 10 }, want: "10: 0 RETENTION_MS",
		},
		"and one that ends behind it": {
			segs: three(), ask: func(r *lifecycle.ExpireRequest) { time100(r); r.LogEnd = 9 }, want: "0:",
		},
		"KAFKA-17428: a deletion that was begun goes on, also above what stays": {
			segs: []*metadata.Segment{rec(1, finished, 0, 9, 10, 50), rec(2, deleteStarted, 10, 19, 10, 50)}, want: "0: 10 DELETE_STARTED",
		},
		"KAFKA-20609: timestamps in the future keep what follows": {
			segs: []*metadata.Segment{rec(1, finished, 0, 9, 10, math.MaxInt64), rec(2, finished, 10, 19, 10, 50)}, ask: time100, want: "0:",
		},
		"a timestamp that is not known is not old": {
			segs: []*metadata.Segment{rec(1, finished, 0, 9, 10, -1), rec(2, finished, 10, 19, 10, 50)}, ask: time100, want: "0:",
		},
		"what is being deleted does not count": {
			segs: append(three(), rec(4, deleteStarted, 30, 39, 1000, 50)),
			ask:  func(r *lifecycle.ExpireRequest) { r.RetentionBytes = 30 }, want: "0: 30 DELETE_STARTED",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, m := expirer(t, now, lifecycle.ExpirerOptions{Copying: func(_ segment.Partition, start int64) bool { return slices.Contains(c.copying, start) }}, c.segs...)
			m.view = m.view.WithInfo(metadata.PartitionInfo{LogStart: c.logStart})
			x, err := e.Expire(t.Context(), asked(c.ask))
			if err != nil {
				t.Fatal(err)
			}
			got := []string{}
			for _, x := range x.Expired {
				got = append(got, fmt.Sprintf("%d %s", x.Segment.StartOffset, x.Cause))
			}
			slices.Sort(got)
			if s := strings.TrimSpace(fmt.Sprintf("%d: %s", x.LogStart, strings.Join(got, ", "))); s != c.want {
				t.Errorf("got  %q\nwant %q", s, c.want)
			}
		})
	}
}

// TestLocalBytesAreThoseBehindTheTier: KAFKA-20732, where what is local counted twice as long as
// nothing was known of the tier. The offset from which on local bytes count is the
// tier's, whatever the log start.
func TestLocalBytesAreThoseBehindTheTier(t *testing.T) {
	for _, c := range []struct {
		segs     []*metadata.Segment
		logStart int64
		want     int64
	}{
		{nil, 0, 0},
		{nil, 7, 7},
		{three(), 0, 30},
		{three(), 50, 50},
		{[]*metadata.Segment{rec(1, copyStarted, 0, 9, 10, 1)}, 0, 0},
		{[]*metadata.Segment{rec(1, finished, 0, 9, 10, 1), rec(2, finished, 20, 29, 10, 1)}, 0, 30}, // rather too few than too many
		{[]*metadata.Segment{rec(1, finished, 0, 9, 10, 1, segment.EpochStart{Epoch: 3, Start: 0})}, 0, 0},
	} {
		e, _ := expirer(t, 1000, lifecycle.ExpirerOptions{}, c.segs...)
		at := int64(-1)
		_, err := e.Expire(t.Context(), asked(func(r *lifecycle.ExpireRequest) {
			r.RetentionBytes, r.LogStart, r.ReportOnly = 1<<40, c.logStart, true
			r.LocalBytes = func(from int64) (int64, error) { at = from; return 5, nil }
		}))
		if err != nil || at != c.want {
			t.Errorf("asked from %d on (%v), want %d", at, err, c.want)
		}
	}
}

// TestExpiresNothingWithoutKnowing: whatever is missing, nothing happens at all.
func TestExpiresNothingWithoutKnowing(t *testing.T) {
	everything := func(r *lifecycle.ExpireRequest) { r.RetentionMs, r.RetentionBytes, r.LogStart = 1, 1, 5 }
	for name, c := range map[string]struct {
		ask   func(*lifecycle.ExpireRequest)
		clock int64
	}{
		"no lineage": {ask: func(r *lifecycle.ExpireRequest) { r.Lineage = nil }},
		"a lineage that is none": {ask: func(r *lifecycle.ExpireRequest) {
			r.Lineage = segment.Lineage{{Epoch: 3, Start: 0}, {Epoch: 2, Start: 3}}
		}},
		"a lineage that begins later": {ask: func(r *lifecycle.ExpireRequest) { r.Lineage = segment.Lineage{{Epoch: 3, Start: 6}} }},
		"no log start":                {ask: func(r *lifecycle.ExpireRequest) { r.LogStart = -1 }},
		"no log end":                  {ask: func(r *lifecycle.ExpireRequest) { r.LogEnd = 0 }},
		"a log that ends first":       {ask: func(r *lifecycle.ExpireRequest) { r.LogEnd = 4 }},
		"no local size":               {ask: func(r *lifecycle.ExpireRequest) { r.LocalBytes = nil }},
		"an unknown local size":       {ask: func(r *lifecycle.ExpireRequest) { r.LocalBytes = func(int64) (int64, error) { return -1, nil } }},
		"a local size that fails": {ask: func(r *lifecycle.ExpireRequest) {
			r.LocalBytes = func(int64) (int64, error) { return 9, errors.New("no") }
		}},
		"no clock": {clock: -5},
	} {
		if c.clock == 0 {
			c.clock = 1000
		}
		e, m := expirer(t, c.clock, lifecycle.ExpirerOptions{}, three()...)
		x, err := e.Expire(t.Context(), asked(func(r *lifecycle.ExpireRequest) {
			everything(r)
			if c.ask != nil {
				c.ask(r)
			}
		}))
		if !errors.Is(err, lifecycle.ErrUnknown) || len(x.Expired) > 0 || len(m.events) > 0 {
			t.Errorf("%s: %v, %v, %v", name, err, x, m.events)
		}
	}
	// A clock that is far ahead, or behind, of the store's.
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		w, log := copied(t, newWorld(), testseg.Random(20, testseg.Options{Segments: 2, Batches: 2})), testseg.Random(20, testseg.Options{Segments: 2, Batches: 2})
		o := atOnce(nil)
		o.Now = func() time.Time { return time.Now().Add(off) }
		p := w.deleter(t, nil, nil, o)
		if _, err := expireAll(t.Context(), p, log, nil); !errors.Is(err, lifecycle.ErrUnknown) || p.store.Effects().Count() > 0 {
			t.Errorf("%v off: %v, %v", off, err, p.store.Effects().Names())
		}
	}
	for name, c := range map[string]struct {
		spoil func(p deleting, part segment.Partition, w world)
		want  error
	}{
		"loading":    {func(p deleting, part segment.Partition, _ world) { p.meta.SetLoading(part, true) }, metadata.ErrNotReady},
		"incomplete": {func(p deleting, part segment.Partition, _ world) { p.meta.SetIncomplete(part, 1) }, metadata.ErrIncomplete},
		"no marker": {func(_ deleting, _ segment.Partition, w world) {
			if err := w.store.Delete(t.Context(), object.OwnerKey); err != nil {
				t.Error(err)
			}
		}, &transfer.OwnerError{}},
		"another's": {func(_ deleting, _ segment.Partition, w world) {
			if err := w.store.Delete(t.Context(), object.OwnerKey); err != nil {
				t.Error(err)
			}
			marker, err := object.Owner{MetadataID: "another"}.Marshal()
			if err != nil {
				t.Error(err)
			}
			w.put(t, object.OwnerKey, string(marker))
		}, &transfer.OwnerError{}},
	} {
		log := testseg.Random(20, testseg.Options{Segments: 2, Batches: 2})
		w := copied(t, newWorld(), log)
		p := w.deleter(t, nil, nil, today(nil))
		c.spoil(p, log.Partition, w)
		var owner *transfer.OwnerError
		if _, err := expireAll(t.Context(), p, log, nil); !errors.Is(err, c.want) && !errors.As(err, &owner) || p.store.Effects().Count() > 0 {
			t.Errorf("%s: %v, %v", name, err, p.store.Effects().Names())
		}
	}
}

// today is atOnce with a clock that the stores agree with.
func today(told func(time.Duration)) lifecycle.DeleterOptions {
	o := atOnce(told)
	o.Now = time.Now
	return o
}

// expireAll has everything expire that is in the tier of a log.
func expireAll(ctx context.Context, p deleting, log *testseg.Log, moved func(context.Context, segment.Partition, int64) error) (lifecycle.Expiry, error) {
	e, err := lifecycle.NewExpirer(p.d, lifecycle.ExpirerOptions{Copying: p.copier.Copying, LogStartMoved: moved})
	if err != nil {
		return lifecycle.Expiry{}, err
	}
	return e.Expire(ctx, lifecycle.ExpireRequest{
		Partition: log.Partition, Writer: writer, Lineage: log.Epochs, LogEnd: math.MaxInt64, RetentionMs: 1,
	})
}

// TestLogStartMovesFirst: in metadata, then in the host, then DELETE_STARTED. An
// error on the way ends it there: KAFKA-15352.
func TestLogStartMovesFirst(t *testing.T) {
	log := testseg.Random(21, testseg.Options{Segments: 2, Batches: 2})
	w := copied(t, newWorld(), log)
	end := log.Segments[1].Info().EndOffset + 1
	p := w.deleter(t, nil, metadatatest.Script(
		metadatatest.Rule{Op: "logStart", First: 1, Last: 1, Fault: metadatatest.Fault{Kind: metadatatest.FailBefore}},
		metadatatest.Rule{Op: "logStart", First: 2, Last: 2, Fault: metadatatest.Fault{Kind: metadatatest.FailAfter}},
	), today(nil))
	if _, err := expireAll(t.Context(), p, log, nil); !errors.Is(err, metadata.ErrUnavailable) || p.store.Effects().Count() != 0 {
		t.Errorf("%v, %v", err, p.store.Effects().Names())
	}
	no := errors.New("no")
	_, err := expireAll(t.Context(), p, log, func(_ context.Context, part segment.Partition, offset int64) error {
		if part != log.Partition || offset != end || p.store.Effects().Count() != 1 {
			t.Errorf("%s, %d after %v", part, offset, p.store.Effects().Names())
		}
		return no
	})
	if !errors.Is(err, no) || p.store.Effects().Count() != 1 {
		t.Errorf("%v, %v", err, p.store.Effects().Names())
	}
	x, err := expireAll(t.Context(), p, log, func(context.Context, segment.Partition, int64) error { return nil })
	if err != nil || x.LogStart != end || len(x.Expired) != 2 {
		t.Errorf("%v, %+v", err, x)
	}
	if names := p.store.Effects().Names(); len(names) != 7 || names[0] != fmt.Sprintf("log start %d", end) {
		t.Errorf("%v", names)
	}
	w.empty(t, log.Partition)
}

// plainMeta keeps no log start.
type plainMeta struct{ metadata.Store }

// TestNobodyKeepsTheLogStart: then retention by time and size does nothing.
func TestNobodyKeepsTheLogStart(t *testing.T) {
	log := testseg.Random(22, testseg.Options{Segments: 2, Batches: 2})
	w := copied(t, newWorld(), log)
	p := w.deleter(t, nil, nil, today(nil))
	d, err := lifecycle.NewDeleter(plainMeta{p.meta}, p.ep, today(nil))
	if err != nil {
		t.Fatal(err)
	}
	p.d = d
	if _, err := expireAll(t.Context(), p, log, nil); !errors.Is(err, lifecycle.ErrUnknown) || p.store.Effects().Count() > 0 {
		t.Errorf("%v, %v", err, p.store.Effects().Names())
	}
	moved := int64(0)
	if _, err := expireAll(t.Context(), p, log, func(_ context.Context, _ segment.Partition, to int64) error { moved = to; return nil }); err != nil {
		t.Error(err)
	}
	if moved != log.Segments[1].Info().EndOffset+1 {
		t.Errorf("moved to %d", moved)
	}
	w.empty(t, log.Partition)
}

// TestExpireCrashAfterEveryEffect, and with every call failing: the next one
// comes to the same end, and at no moment is there a readable segment below the
// log start whose log start did not move first.
func TestExpireCrashAfterEveryEffect(t *testing.T) {
	log := testseg.Random(23, testseg.Options{Segments: 2, Batches: 40})
	again := func(t *testing.T, w world) {
		t.Helper()
		w.sound(t, log.Partition)
		v, err := w.meta.View(log.Partition)
		if err != nil {
			t.Fatal(err)
		}
		for seg := range v.All() {
			if seg.State == deleteStarted && object.IsLocation(seg.Custom) && seg.EndOffset >= v.LogStart() {
				t.Errorf("the segment at %d is being deleted, the log starts at %d", seg.StartOffset, v.LogStart())
			}
		}
		p := w.deleter(t, nil, nil, today(nil))
		if _, err := expireAll(t.Context(), p, log, nil); err != nil {
			t.Fatal(err)
		}
		w.empty(t, log.Partition)
	}
	for place, open := range stores(t) {
		for k := 0; ; k++ {
			w := debris(t, open(), log)
			p := w.deleter(t, nil, nil, today(nil))
			p.store.Effects().StopAfter(k)
			_, err := expireAll(t.Context(), p, log, nil)
			if err == nil {
				if k < 10 {
					t.Errorf("%s: only %d effects", place, k)
				}
				break
			}
			again(t, w)
			if t.Failed() {
				t.Fatalf("%s: after %d effects", place, k)
			}
		}
	}
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			hit := 0
			w := debris(t, newWorld(), log)
			p := w.deleter(t, func(c storetest.Call) (f storetest.Fault) {
				if c.Seq == n {
					hit++
					f.Kind = storetest.FailBefore
					if after {
						f.Kind = storetest.FailAfter
					}
				}
				return f
			}, nil, today(nil))
			_, _ = expireAll(t.Context(), p, log, nil) // it may have been worth nothing
			again(t, w)
			w = debris(t, newWorld(), log)
			p = w.deleter(t, nil, func(c metadatatest.Call) (f metadatatest.Fault) {
				if c.Seq == n {
					hit++
					f.Kind = metadatatest.FailBefore
					if after {
						f.Kind = metadatatest.FailAfter
					}
				}
				return f
			}, today(nil))
			_, _ = expireAll(t.Context(), p, log, nil)
			again(t, w)
			if t.Failed() {
				t.Fatalf("call %d (after: %v)", n, after)
			}
			if hit == 0 {
				break
			}
		}
	}
}

// TestExpiredIsNotCopiedAgain: a directory that still has what has expired is
// copied no more, and what follows it is.
func TestExpiredIsNotCopiedAgain(t *testing.T) {
	log := testseg.Random(24, testseg.Options{Segments: 3, Batches: 2})
	old := *log
	old.Segments = log.Segments[:2]
	w := copied(t, newWorld(), &old)
	p := w.deleter(t, nil, nil, today(nil))
	if _, err := expireAll(t.Context(), p, log, nil); err != nil {
		t.Fatal(err)
	}
	w.empty(t, log.Partition)
	before := p.store.Effects().Count()
	for range 2 {
		for _, s := range old.Segments {
			if _, err := p.copier.Copy(t.Context(), s, writer); !errors.Is(err, lifecycle.ErrBelowLogStart) {
				t.Errorf("got %v", err)
			}
		}
	}
	if p.store.Effects().Count() != before {
		t.Errorf("effects %v", p.store.Effects().Names()[before:])
	}
	if _, err := p.copier.Copy(t.Context(), log.Segments[2], writer); err != nil {
		t.Error(err)
	}
	e, err := lifecycle.NewExpirer(p.d, lifecycle.ExpirerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UnixMilli()
	for _, c := range []struct {
		of        int
		maxTime   int64
		retention int64
		want      bool
	}{{1, now, -1, true}, {2, now, -1, false}, {2, 5, -1, false}, {2, 5, 1000, true}, {2, now, 100_000_000, false}, {2, -1, 1000, false}} {
		if got, err := e.Outlived(log.Segments[c.of].Info(), c.maxTime, c.retention); err != nil || got != c.want {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
}

// TestExpireInPortions: a call takes no more than it may, oldest first.
func TestExpireInPortions(t *testing.T) {
	log := testseg.Random(25, testseg.Options{Segments: 5, Batches: 2})
	w := copied(t, newWorld(), log)
	p := w.deleter(t, nil, nil, today(nil))
	e, err := lifecycle.NewExpirer(p.d, lifecycle.ExpirerOptions{MaxSegments: 2})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		n    int
		more bool
	}{{2, true}, {2, true}, {1, false}, {0, false}} {
		x, err := e.Expire(t.Context(), lifecycle.ExpireRequest{Partition: log.Partition, Writer: writer, Lineage: log.Epochs, LogEnd: math.MaxInt64, RetentionMs: 1})
		if err != nil || len(x.Expired) != want.n || x.More != want.more {
			t.Errorf("call %d: %d segments, more %v, %v", i, len(x.Expired), x.More, err)
		}
		if left := w.all(t, log.Partition); len(left) > 0 && (left[0].State != finished || left[0].StartOffset < x.LogStart) {
			t.Errorf("call %d: the first one left is %d-%d in %s, the log starts at %d", i, left[0].StartOffset, left[0].EndOffset, left[0].State, x.LogStart)
		}
	}
	w.empty(t, log.Partition)
}

// TestDeleteRetentionMsBeingCancelledBeforeSecondDelete: the first segment was
// deleted, the second is found by the next run.
func TestDeleteRetentionMsBeingCancelledBeforeSecondDelete(t *testing.T) {
	log := testseg.Random(26, testseg.Options{Segments: 2, Batches: 2})
	w := copied(t, newWorld(), log)
	ctx, cancel := context.WithCancel(t.Context())
	deletes := 0
	p := w.deleter(t, func(c storetest.Call) storetest.Fault {
		if c.Op == "delete" {
			if deletes++; deletes == 2 {
				cancel()
			}
		}
		return storetest.Fault{}
	}, nil, today(nil))
	if _, err := expireAll(ctx, p, log, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if left := w.all(t, log.Partition); len(left) != 1 || left[0].State != deleteStarted {
		t.Errorf("%v", left)
	}
	if _, err := expireAll(t.Context(), p, log, nil); err != nil {
		t.Error(err)
	}
	w.empty(t, log.Partition)
}

// TestFailedDeleteExpiredSegments: the log start has moved, the others are
// deleted, and the failed one is tried again.
func TestFailedDeleteExpiredSegments(t *testing.T) {
	log := testseg.Random(27, testseg.Options{Segments: 3, Batches: 2})
	w := copied(t, newWorld(), log)
	p := w.deleter(t, storetest.Rules(storetest.Rule{Op: "delete", Fault: storetest.Fault{Kind: storetest.FailBefore}}), nil, today(nil))
	x, err := expireAll(t.Context(), p, log, nil)
	if end := log.Segments[2].Info().EndOffset + 1; !errors.Is(err, storetest.ErrInjected) || x.LogStart != end || len(x.Expired) != 3 {
		t.Errorf("%v, %+v", err, x)
	}
	if left := w.all(t, log.Partition); len(left) != 1 || left[0].State != deleteStarted || left[0].StartOffset != log.Segments[0].Info().StartOffset {
		t.Errorf("%v", left)
	}
	x, err = expireAll(t.Context(), p, log, nil)
	if err != nil || len(x.Expired) != 1 || x.Expired[0].Cause != lifecycle.BeganDeletion {
		t.Errorf("%v, %+v", err, x)
	}
	w.empty(t, log.Partition)
}

// TestOtherPlugins: what another storage plugin wrote is neither expired nor
// passed by the log start, nor deleted with its partition.
func TestOtherPlugins(t *testing.T) {
	theirs := rec(1, finished, 0, 9, 10, 50)
	theirs.Custom = []byte("theirs")
	going := rec(2, deleteStarted, 0, 9, 10, 50)
	going.Custom = nil
	e, m := expirer(t, 1000, lifecycle.ExpirerOptions{}, theirs, going, rec(3, finished, 10, 19, 10, 50))
	x, err := e.Expire(t.Context(), asked(func(r *lifecycle.ExpireRequest) { r.RetentionMs, r.RetentionBytes = 10, 1 }))
	if err != nil || len(x.Expired) != 0 || len(m.events) > 0 {
		t.Errorf("%v, %+v, %v", err, x, m.events)
	}
	ep := owned(t, m.ID())
	d := deleterOn(t, m, ep)
	if err := d.Delete(t.Context(), writer, theirs); !errors.Is(err, metadata.ErrForeignSegment) || len(m.events) > 0 {
		t.Errorf("%v, %v", err, m.events)
	}
	if err := d.Resume(t.Context(), paperPartition, writer); err != nil || len(m.events) > 0 {
		t.Errorf("%v, %v", err, m.events)
	}
}

func deleterOn(t *testing.T, m metadata.Store, s objstore.Store) *lifecycle.Deleter {
	t.Helper()
	d, err := lifecycle.NewDeleter(m, endpointOn(t, s), atOnce(nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}
