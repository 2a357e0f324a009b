package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/audit"
	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
)

// found is Verify with its findings.
func found(t *testing.T, meta metadata.Store, ep *endpoint.Endpoint, o audit.Options) (audit.Report, []audit.Finding) {
	t.Helper()
	var all []audit.Finding
	o.Found = func(f audit.Finding) { all = append(all, f) }
	report, err := audit.Verify(t.Context(), meta, ep, o)
	if err != nil {
		t.Fatal(err)
	}
	return report, all
}

func reasons(all []audit.Finding) (rs []audit.Reason) {
	for _, f := range all {
		rs = append(rs, f.Reason)
	}
	return rs
}

// TestLevels: what each level finds, and what it reads for it.
func TestLevels(t *testing.T) {
	flip := func(at func(n int) int) func(t *testing.T, w *tier, k string) {
		return func(t *testing.T, w *tier, k string) {
			b := w.content(t, k)
			b[at(len(b))] ^= 1
			w.replace(t, k, b)
		}
	}
	for _, test := range []struct {
		name                       string
		damage                     func(t *testing.T, w *tier, k string)
		full, sample, head, record audit.Reason
	}{
		{"none", func(*testing.T, *tier, string) {}, "", "", "", ""},
		{"missing", func(t *testing.T, w *tier, k string) {
			if err := w.store.Delete(t.Context(), k); err != nil {
				t.Fatal(err)
			}
		}, audit.ObjectMissing, audit.ObjectMissing, audit.ObjectMissing, ""},
		{"cut", func(t *testing.T, w *tier, k string) { b := w.content(t, k); w.replace(t, k, b[:len(b)-9]) }, audit.ObjectSize, audit.ObjectSize, audit.ObjectSize, ""},
		{"a byte of the log", flip(func(int) int { return 70 }), audit.ObjectCorrupt, audit.ObjectCorrupt, audit.ObjectCorrupt, ""},
		{"a byte of the tail", flip(func(n int) int { return n - 200 }), audit.ObjectCorrupt, audit.ObjectCorrupt, audit.ObjectCorrupt, ""},
	} {
		w := copied(t, 11)
		test.damage(t, w, key(w.segs[1]))
		for level, want := range map[audit.Level]audit.Reason{
			audit.LevelFull: test.full, audit.LevelSample: test.sample, audit.LevelHead: test.head, audit.LevelMetadata: test.record,
		} {
			before := w.ep.Stats()
			report, all := found(t, w.meta, w.ep, audit.Options{Level: level, SampleFraction: 1})
			reads := w.ep.Stats().Gets - before.Gets
			if want == "" && (len(all) != 0 || report.Damaged != 0) || want != "" && (len(all) == 0 || all[0].Reason != want || report.Damaged != 1) {
				t.Errorf("%s, level %s: %v, want %s; %+v", test.name, level, reasons(all), want, report)
			}
			if report.Segments != 3 {
				t.Errorf("%s, level %s: %+v", test.name, level, report)
			}
			// The owner's marker is two GETs.
			if level == audit.LevelHead && reads > 2+2 || level == audit.LevelMetadata && w.ep.Stats() != before {
				t.Errorf("%s, level %s: %d GETs", test.name, level, reads)
			}
		}
	}
}

// TestSampleIsSeeded: a seed reads the same chunks each time, another seed others,
// at least one of each object, and all together with fraction 1.
func TestSampleIsSeeded(t *testing.T) {
	w := copied(t, 12)
	chunks := func(o audit.Options) []string {
		t.Helper()
		var mu sync.Mutex
		var gets []string
		store := storetest.Inject(w.store, func(c storetest.Call) storetest.Fault {
			if c.Op == "get" && c.Key != object.OwnerKey {
				mu.Lock()
				defer mu.Unlock()
				gets = append(gets, fmt.Sprint(c.Key, c.Off))
			}
			return storetest.Fault{}
		})
		o.Level = audit.LevelSample
		found(t, w.meta, newEndpoint(t, store), o)
		slices.Sort(gets)
		return gets
	}
	one := chunks(audit.Options{SampleFraction: 1e-9, SampleSeed: 1})
	if len(one) != 6 { // a tail and a chunk of each
		t.Errorf("%d GETs for three objects: %v", len(one), one)
	}
	if again := chunks(audit.Options{SampleFraction: 1e-9, SampleSeed: 1}); !slices.Equal(one, again) {
		t.Errorf("seed 1 read %v and then %v", one, again)
	}
	differ := false
	for seed := range uint64(8) {
		differ = differ || !slices.Equal(one, chunks(audit.Options{SampleFraction: 1e-9, SampleSeed: seed + 2}))
	}
	if !differ {
		t.Error("every seed reads the same chunks")
	}
	all, half := chunks(audit.Options{SampleFraction: 1}), chunks(audit.Options{SampleFraction: 0.5})
	if len(half) >= len(all) || len(half) <= len(one) {
		t.Errorf("%d GETs of one chunk, %d of half, %d of all", len(one), len(half), len(all))
	}
}

// rewritten is an object whose tail was made anew around files that somebody
// edited: every sum is right, and what it says is not.
func rewritten(t *testing.T, w *tier, seg *metadata.Segment, edit func(in *object.TailInput, head []byte, sections [4]object.Extent)) *metadata.Segment {
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
	var sections [4]object.Extent
	head := b[:loc.TailOffset]
	for s := object.Log; s < object.TxnIndex; s++ {
		sections[s] = tail.Section(s)
	}
	edit(&in, head, sections)
	for i, e := range sections {
		in.Head[i] = checksum.Sum{Len: e.Len, CRC32C: checksum.CRC32C(head[e.Off : e.Off+e.Len])}
	}
	anew, err := object.AppendTail(nil, in)
	if err != nil {
		t.Fatal(err)
	}
	w.replace(t, key(seg), append(head, anew...))
	if loc, err = object.LocationOf(anew); err != nil {
		t.Fatal(err)
	}
	seg = seg.Clone()
	seg.Custom = loc.Append(nil)
	return seg
}

// TestIndexThatDisagrees: an index that is as it was copied, with right sums, and
// leads elsewhere.
func TestIndexThatDisagrees(t *testing.T) {
	for name, edit := range map[string]func(in *object.TailInput, head []byte, s [4]object.Extent){
		"offset index": func(_ *object.TailInput, head []byte, s [4]object.Extent) { head[s[object.OffsetIndex].Off+7]++ },
		"time index":   func(_ *object.TailInput, head []byte, s [4]object.Extent) { head[s[object.TimeIndex].Off+7]++ },
		"chunk table": func(in *object.TailInput, _ []byte, _ [4]object.Extent) {
			in.Table.Chunks = slices.Clone(in.Table.Chunks)
			for i := range in.Table.Chunks {
				if c := &in.Table.Chunks[i]; i > 0 && c.FirstBatch >= 0 {
					c.BaseOffset-- // that of no batch, but one that a lookup believes
					break
				}
			}
		},
	} {
		w := copied(t, 13)
		seg := rewritten(t, w, w.segs[1], edit)
		meta := viewStore{w.meta, func() (*metadata.View, error) {
			return metadata.NewView(seg.Partition, w.segs[0], seg, w.segs[2]), nil
		}}
		report, all := found(t, meta, w.ep, audit.Options{})
		if len(all) != 1 || all[0].Reason != audit.IndexMismatch || all[0].Len == 0 || all[0].Key != key(seg) || report.Damaged != 1 || !strings.Contains(all[0].Err.Error(), name) {
			t.Errorf("%s: %+v, %v", name, report, all)
		}
	}
}

// record is a segment of 10 offsets a unit, in epoch 0 unless told otherwise.
func record(p segment.Partition, from, to int64, epochs ...segment.EpochStart) *metadata.Segment {
	if epochs == nil {
		epochs = segment.Lineage{{Epoch: 0, Start: from}}
	}
	loc := object.Location{ObjectSize: 2000, TailOffset: 1000}
	return &metadata.Segment{
		Partition: p, ID: segment.NewUUID(), StartOffset: from, EndOffset: to, SizeBytes: 1000, Epochs: epochs,
		State: metadata.CopySegmentFinished, Custom: loc.Append(nil),
	}
}

// TestRecordsAgainstEachOther is level metadata, case by case.
func TestRecordsAgainstEachOther(t *testing.T) {
	p := testseg.DefaultPartition
	deleting := record(p, 10, 19)
	deleting.State = metadata.DeleteSegmentStarted
	large := record(p, 10, 19)
	large.SizeBytes = 1001
	foreign := record(p, 10, 19)
	foreign.Custom = []byte("an object key of another plugin")
	type finding struct {
		reason   audit.Reason
		from, to int64
	}
	for _, test := range []struct {
		name string
		view *metadata.View
		want []finding
	}{
		{"in order", metadata.NewView(p, record(p, 0, 9), record(p, 10, 19), record(p, 20, 29)), nil},
		{"gap", metadata.NewView(p, record(p, 0, 9), record(p, 20, 29)), []finding{{audit.OffsetGap, 10, 19}}},
		{"two gaps", metadata.NewView(p, record(p, 5, 9), record(p, 20, 29), record(p, 31, 39)), []finding{{audit.OffsetGap, 10, 19}, {audit.OffsetGap, 30, 30}}},
		{"gap that is being deleted", metadata.NewView(p, record(p, 0, 9), deleting, record(p, 20, 29)), nil},
		{"gap that is being deleted in part", metadata.NewView(p, record(p, 0, 4), deleting, record(p, 25, 29)), []finding{{audit.OffsetGap, 5, 9}, {audit.OffsetGap, 20, 24}}},
		{"gap below the log start", metadata.NewView(p, record(p, 0, 9), record(p, 20, 29)).WithInfo(metadata.PartitionInfo{LogStart: 20}), nil},
		{"gap in a partition that is being deleted", metadata.NewView(p, record(p, 0, 9), record(p, 20, 29)).WithInfo(metadata.PartitionInfo{Deletion: metadata.DeletePartitionMarked}), nil},
		{"gap in incomplete metadata", metadata.NewView(p, record(p, 0, 9), record(p, 20, 29)).WithInfo(metadata.PartitionInfo{Incomplete: 2}), []finding{{audit.Incomplete, -1, -1}}},
		{"overlap", metadata.NewView(p, record(p, 0, 14), record(p, 10, 19)), []finding{{audit.OffsetOverlap, 10, 14}}},
		{
			"superseded history", metadata.NewView(p, record(p, 0, 9), record(p, 10, 19, segment.EpochStart{Epoch: 1, Start: 10}), record(p, 10, 19, segment.EpochStart{Epoch: 2, Start: 10})),
			[]finding{{audit.LineageMismatch, 10, 19}},
		},
		{"larger than its object", metadata.NewView(p, record(p, 0, 9), large), []finding{{audit.RecordSize, 10, 19}}},
		{"another plugin's", metadata.NewView(p, record(p, 0, 9), foreign), []finding{{audit.ForeignSegment, 10, 19}}},
	} {
		meta := viewStore{metadatatest.NewMem(), func() (*metadata.View, error) { return test.view, nil }}
		ep := newEndpoint(t, storetest.NewMem())
		report, all := found(t, meta, ep, audit.Options{Level: audit.LevelMetadata, Partitions: []segment.Partition{p}})
		var got []finding
		damages := 0
		for _, f := range all {
			if got = append(got, finding{f.Reason, f.StartOffset, f.EndOffset}); !f.Reason.Notice() {
				damages++
			}
		}
		if !slices.Equal(got, test.want) || report.Findings != damages || report.Notices != len(all)-damages {
			t.Errorf("%s: %v, want %v; %+v", test.name, got, test.want, report)
		}
		if s := ep.Stats(); s.Gets+s.Stats+s.Lists != 0 {
			t.Errorf("%s: the store was asked: %+v", test.name, s)
		}
	}
}

// TestGapsAgainstAModel: offsets without a segment between the first and the last,
// found offset by offset.
func TestGapsAgainstAModel(t *testing.T) {
	p := testseg.DefaultPartition
	rapid.Check(t, func(t *rapid.T) {
		var segs []*metadata.Segment
		covered := map[int64]bool{}
		at := int64(0)
		for range rapid.IntRange(1, 6).Draw(t, "segments") {
			at += rapid.Int64Range(0, 3).Draw(t, "before")
			end := at + rapid.Int64Range(0, 4).Draw(t, "length")
			seg := record(p, at, end)
			if rapid.IntRange(0, 3).Draw(t, "deleting") == 0 {
				seg.State = metadata.DeleteSegmentStarted
			}
			segs = append(segs, seg)
			at = end + 1
		}
		first, last := int64(-1), int64(-1)
		for _, s := range segs {
			for o := s.StartOffset; o <= s.EndOffset; o++ {
				covered[o] = true
				if s.State == metadata.CopySegmentFinished {
					if last = o; first < 0 {
						first = o
					}
				}
			}
		}
		meta := viewStore{metadatatest.NewMem(), func() (*metadata.View, error) { return metadata.NewView(p, segs...), nil }}
		ep, err := endpoint.New(storetest.NewMem(), endpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer ep.Close()
		gaps := map[int64]bool{}
		_, err = audit.Verify(context.Background(), meta, ep, audit.Options{Level: audit.LevelMetadata, Partitions: []segment.Partition{p}, Found: func(f audit.Finding) {
			for o := f.StartOffset; o <= f.EndOffset; o++ {
				if gaps[o] || f.Reason != audit.OffsetGap {
					t.Fatalf("offset %d is told twice, or as %s", o, f.Reason)
				}
				gaps[o] = true
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		for o := range at {
			if want := first >= 0 && o > first && o < last && !covered[o]; gaps[o] != want {
				t.Fatalf("offset %d is a gap: %v, want %v", o, gaps[o], want)
			}
		}
	})
}

// many is a tier of several partitions.
func many(t *testing.T, partitions int) *tier {
	t.Helper()
	w := newTier(t, 0)
	var sources []segment.Source
	for i := range partitions {
		log := testseg.Random(uint64(100+i), testseg.Options{Segments: 3, Batches: 10})
		for _, s := range log.Segments {
			sources = append(sources, numbered{s, int32(i)})
		}
	}
	w.copySources(t, small, sources...)
	return w
}

// numbered is a source in another partition of its topic.
type numbered struct {
	segment.Source
	number int32
}

func (n numbered) Info() segment.Info {
	info := n.Source.Info()
	info.Partition.Topic = "orders"
	info.Partition.TopicID = testseg.DefaultPartition.TopicID
	info.Partition.Number = n.number
	return info
}

// TestVerifyResumes: interrupted behind each segment and gone on with from the
// cursor, a verification finds what one in a piece finds, each once.
func TestVerifyResumes(t *testing.T) {
	w := many(t, 4)
	for _, i := range []int{0, 4, 5, 11} {
		if err := w.store.Delete(t.Context(), key(w.segs[i])); err != nil {
			t.Fatal(err)
		}
	}
	line := func(f audit.Finding) string { return fmt.Sprint(f.Reason, f.Key) }
	for _, level := range []audit.Level{audit.LevelFull, audit.LevelHead} {
		if level == audit.LevelHead { // with one damage more, of the whole store
			if err := w.store.Delete(t.Context(), object.OwnerKey); err != nil {
				t.Fatal(err)
			}
		}
		whole, all := found(t, w.meta, w.ep, audit.Options{Level: level})
		var want []string
		for _, f := range all {
			want = append(want, line(f))
		}
		if whole.Segments != 12 || whole.Damaged != 4 {
			t.Fatalf("%+v", whole)
		}
		for stop := range 12 {
			var got []string
			var at []byte
			ctx, cancel := context.WithCancel(t.Context())
			n := 0
			o := audit.Options{Level: level, Found: func(f audit.Finding) { got = append(got, line(f)) }}
			o.Checkpoint = func(c audit.Cursor) {
				if n == stop {
					return // what comes after was not written down: a crash
				}
				n++
				b, err := json.Marshal(c)
				if err != nil {
					t.Fatal(err)
				}
				if at = b; n == stop {
					cancel()
				}
			}
			if stop == 0 {
				cancel()
			}
			if _, err := audit.Verify(ctx, w.meta, w.ep, o); !errors.Is(err, context.Canceled) {
				t.Fatalf("stopped behind %d: %v", stop, err)
			}
			cancel()
			if at != nil {
				o.Resume = new(audit.Cursor)
				if err := json.Unmarshal(at, o.Resume); err != nil {
					t.Fatal(err)
				}
			}
			o.Checkpoint = nil
			report, err := audit.Verify(t.Context(), w.meta, w.ep, o)
			if err != nil || report != whole {
				t.Errorf("stopped behind %d: %+v, %v, want %+v", stop, report, err, whole)
			}
			// What was found between the checkpoint and the stop is found again.
			var once []string
			for _, l := range got {
				if !slices.Contains(once, l) {
					once = append(once, l)
				}
			}
			if !slices.Equal(once, want) {
				t.Errorf("stopped behind %d: found %v, want %v", stop, got, want)
			}
		}
	}
}

// TestCursorOfAnother is refused, whatever differs.
func TestCursorOfAnother(t *testing.T) {
	w := copied(t, 14)
	var c audit.Cursor
	base := audit.Options{Level: audit.LevelSample, SampleSeed: 3, Checkpoint: func(at audit.Cursor) { c = at }}
	if _, err := audit.Verify(t.Context(), w.meta, w.ep, base); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(o *audit.Options){
		"level":      func(o *audit.Options) { o.Level = audit.LevelFull },
		"seed":       func(o *audit.Options) { o.SampleSeed++ },
		"fraction":   func(o *audit.Options) { o.SampleFraction = 0.5 },
		"partitions": func(o *audit.Options) { o.Partitions = []segment.Partition{w.log.Partition} },
		"metadata":   func(o *audit.Options) { o.Resume.MetadataID += "x" },
		"nothing":    func(*audit.Options) {},
	} {
		o := base
		at := c
		o.Resume, o.Checkpoint = &at, nil
		change(&o)
		_, err := audit.Verify(t.Context(), w.meta, w.ep, o)
		if want := name != "nothing"; errors.Is(err, audit.ErrOtherCursor) != want || !want && err != nil {
			t.Errorf("another %s: %v", name, err)
		}
	}
	head := audit.Options{Level: audit.LevelHead, Checkpoint: func(at audit.Cursor) { c = at }}
	if _, err := audit.Verify(t.Context(), w.meta, w.ep, head); err != nil {
		t.Fatal(err)
	}
	if _, err := audit.Verify(t.Context(), w.meta, w.ep, audit.Options{Resume: &c}); !errors.Is(err, audit.ErrOtherCursor) {
		t.Errorf("every byte from where sizes were looked at: %v", err)
	}
}

// busy counts how many objects are read at a time.
type busy struct {
	objstore.Store
	now, most atomic.Int32
	gate      chan struct{}
}

func (b *busy) Stat(ctx context.Context, key string) (objstore.Info, error) {
	n := b.now.Add(1)
	for most := b.most.Load(); n > most && !b.most.CompareAndSwap(most, n); most = b.most.Load() {
	}
	<-b.gate
	b.now.Add(-1)
	return b.Store.Stat(ctx, key)
}

// TestParallel: as many objects are read at a time as were asked for, no more, and
// the order of findings does not depend on it.
func TestParallel(t *testing.T) {
	w := many(t, 3)
	for _, i := range []int{1, 2, 6, 7} {
		if err := w.store.Delete(t.Context(), key(w.segs[i])); err != nil {
			t.Fatal(err)
		}
	}
	_, want := found(t, w.meta, w.ep, audit.Options{Parallel: 1, Level: audit.LevelHead})
	for _, n := range []int{1, 2, 5} {
		bubble.Test(t, func(t *testing.T) {
			store := &busy{Store: w.store, gate: make(chan struct{})}
			ep, err := endpoint.New(store, endpoint.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer ep.Close()
			done := make(chan []audit.Finding)
			go func() {
				_, got := found(t, w.meta, ep, audit.Options{Parallel: n, Level: audit.LevelHead})
				done <- got
			}()
			synctest.Wait()
			close(store.gate)
			got := <-done
			if most := int(store.most.Load()); most != n {
				t.Errorf("%d objects at a time, want %d", most, n)
			}
			if fmt.Sprint(reasons(got)) != fmt.Sprint(reasons(want)) || got[0].Key != want[0].Key || got[3].Key != want[3].Key {
				t.Errorf("found %v, want %v", got, want)
			}
		})
	}
}

// TestBytesPerSecond: reading keeps to the rate.
func TestBytesPerSecond(t *testing.T) {
	w := copied(t, 15)
	var size int64
	for _, s := range w.segs {
		loc, err := object.ParseLocation(s.Custom)
		if err != nil {
			t.Fatal(err)
		}
		size += loc.ObjectSize
	}
	bubble.Test(t, func(t *testing.T) {
		ep, err := endpoint.New(w.store, endpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer ep.Close()
		begin := time.Now()
		found(t, w.meta, ep, audit.Options{BytesPerSecond: 1000})
		took, paid := time.Since(begin).Seconds(), float64(size)/1000
		// The last read is paid for, not waited for.
		if took > paid || took < paid*0.6 {
			t.Errorf("%d bytes at 1000 a second took %.1f s", size, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := audit.Verify(ctx, w.meta, ep, audit.Options{BytesPerSecond: 1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that leaves: %v", err)
		}
	})
}

func TestVerifyOptions(t *testing.T) {
	w := copied(t, 16)
	for _, o := range []audit.Options{{Level: 9}, {SampleFraction: -1}, {SampleFraction: 2}, {BytesPerSecond: -1}, {Parallel: -1}} {
		if _, err := audit.Verify(t.Context(), w.meta, w.ep, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	for level, name := range map[audit.Level]string{audit.LevelFull: "full", audit.LevelMetadata: "metadata", audit.LevelHead: "head", audit.LevelSample: "sample", 9: "unknown"} {
		if level.String() != name {
			t.Errorf("level %d is %q", level, level.String())
		}
	}
}
