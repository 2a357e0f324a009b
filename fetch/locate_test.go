package fetch_test

import (
	"errors"
	"testing"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/segment"
)

// viewOnly is a metadata store with one View.
type viewOnly struct {
	metadata.Store
	view *metadata.View
	err  error
}

func (s *viewOnly) View(segment.Partition) (*metadata.View, error) { return s.view, s.err }

// seg is a record in metadata without an object.
func seg(state metadata.State, start, end int64, epochs ...segment.EpochStart) *metadata.Segment {
	if epochs == nil {
		epochs = []segment.EpochStart{{Epoch: 0, Start: start}}
	}
	s := &metadata.Segment{Partition: testseg.DefaultPartition, ID: segment.NewUUID(), StartOffset: start, EndOffset: end, SizeBytes: 1, Epochs: epochs, State: state}
	if state != metadata.CopySegmentStarted {
		s.Custom = object.Location{}.Append(nil)
	}
	return s
}

// givenUp is the record of a copy that was being deleted before it was readable.
func givenUp(start, end int64) *metadata.Segment {
	s := seg(metadata.DeleteSegmentStarted, start, end)
	s.Custom = []byte("P is how the fingerprint of a plan begins")
	return s
}

// endedUnread is the record of such a copy once it has ended.
func endedUnread(start, end int64) *metadata.Segment {
	s := givenUp(start, end)
	s.State = metadata.DeleteSegmentFinished
	return s
}

// Where nothing can be read, the answer says why, and is out of range only if
// the host itself put the log start above the offset.
func TestNowhere(t *testing.T) {
	const (
		started  = metadata.CopySegmentStarted
		finished = metadata.CopySegmentFinished
		deleting = metadata.DeleteSegmentStarted
		deleted  = metadata.DeleteSegmentFinished
	)
	p := testseg.DefaultPartition
	x := newTier(t, testseg.Random(1, testseg.Options{Segments: 1}), tierOptions{})
	defer x.close()
	old := segment.Lineage{{Epoch: 0, Start: 0}}
	for name, c := range map[string]struct {
		segs             []*metadata.Segment
		lineage          segment.Lineage
		logStart, offset int64
		local            int64
		info             metadata.PartitionInfo
		want             error
		next             int64 // of EndOfTier and Skipped
	}{
		"nothing tiered":                   {offset: 7, want: fetch.ErrEndOfTier, next: 7},
		"below the log start":              {segs: []*metadata.Segment{seg(finished, 0, 99)}, logStart: 50, offset: 49, want: fetch.ErrOutOfRange},
		"below the log start, no tier":     {logStart: 50, offset: 49, want: fetch.ErrOutOfRange},
		"negative":                         {segs: []*metadata.Segment{seg(finished, 0, 99)}, offset: -1, want: fetch.ErrOutOfRange},
		"behind the last":                  {segs: []*metadata.Segment{seg(finished, 0, 99)}, offset: 100, want: fetch.ErrEndOfTier, next: 100},
		"far behind":                       {segs: []*metadata.Segment{seg(finished, 0, 99)}, offset: 1 << 62, want: fetch.ErrEndOfTier, next: 1 << 62},
		"being copied":                     {segs: []*metadata.Segment{seg(finished, 0, 99), seg(started, 100, 199)}, offset: 150, want: fetch.ErrEndOfTier, next: 150},
		"hole behind the contiguous tier":  {segs: []*metadata.Segment{seg(finished, 0, 99), seg(finished, 200, 299)}, offset: 150, want: fetch.ErrEndOfTier, next: 150},
		"before the earliest":              {segs: []*metadata.Segment{seg(finished, 100, 199)}, offset: 50, want: fetch.ErrUnavailable},
		"before the earliest, gone":        {segs: []*metadata.Segment{seg(deleted, 0, 99), seg(finished, 100, 199)}, offset: 50, want: fetch.ErrUnavailable},
		"being deleted":                    {segs: []*metadata.Segment{seg(deleting, 0, 99), seg(finished, 100, 199)}, offset: 50, want: fetch.ErrSkipped, next: 100},
		"two being deleted":                {segs: []*metadata.Segment{seg(deleting, 0, 99), seg(deleting, 100, 199), seg(finished, 200, 299)}, offset: 50, want: fetch.ErrSkipped, next: 200},
		"the last being deleted":           {segs: []*metadata.Segment{seg(deleting, 0, 99)}, offset: 50, want: fetch.ErrSkipped, next: 100},
		"a copy that was given up":         {segs: []*metadata.Segment{seg(finished, 0, 99), givenUp(100, 199)}, offset: 150, want: fetch.ErrEndOfTier, next: 150},
		"one of two given up":              {segs: []*metadata.Segment{givenUp(0, 99), seg(deleting, 0, 99), givenUp(0, 99)}, offset: 50, want: fetch.ErrSkipped, next: 100},
		"below the log start in metadata":  {segs: []*metadata.Segment{seg(finished, 0, 99)}, info: metadata.PartitionInfo{LogStart: 50}, offset: 49, want: fetch.ErrOutOfRange},
		"below the host's log start":       {segs: []*metadata.Segment{seg(finished, 0, 99)}, info: metadata.PartitionInfo{LogStart: 50}, logStart: 60, offset: 55, want: fetch.ErrOutOfRange},
		"below both and being deleted":     {segs: []*metadata.Segment{seg(deleting, 0, 99)}, info: metadata.PartitionInfo{LogStart: 100}, offset: 50, want: fetch.ErrOutOfRange},
		"behind the last, incomplete":      {segs: []*metadata.Segment{seg(finished, 0, 99)}, info: metadata.PartitionInfo{Incomplete: 1}, offset: 100, want: metadata.ErrIncomplete},
		"nothing tiered, incomplete":       {info: metadata.PartitionInfo{Incomplete: 1}, offset: 0, want: metadata.ErrIncomplete},
		"below the log start, incomplete":  {info: metadata.PartitionInfo{Incomplete: 1}, logStart: 50, offset: 49, want: fetch.ErrOutOfRange},
		"a hole, in the local log":         {segs: []*metadata.Segment{seg(finished, 0, 99), seg(deleted, 100, 199), seg(finished, 200, 299)}, local: 150, offset: 150, want: fetch.ErrEndOfTier, next: 150},
		"a hole, nowhere any more":         {segs: []*metadata.Segment{seg(finished, 0, 99), seg(deleted, 100, 199), seg(finished, 200, 299)}, local: 300, offset: 150, want: fetch.ErrSkipped, next: 200},
		"a hole, the local log unknown":    {segs: []*metadata.Segment{seg(finished, 0, 99), seg(deleted, 100, 199), seg(finished, 200, 299)}, offset: 150, want: fetch.ErrEndOfTier, next: 150},
		"a hole, the rest is local":        {segs: []*metadata.Segment{seg(finished, 0, 99), seg(deleted, 100, 199), seg(finished, 200, 299)}, local: 180, offset: 150, want: fetch.ErrSkipped, next: 180},
		"a hole, forgotten":                {segs: []*metadata.Segment{seg(finished, 0, 99), seg(finished, 200, 299)}, local: 300, offset: 150, want: fetch.ErrUnavailable},
		"a hole, given up":                 {segs: []*metadata.Segment{seg(finished, 0, 99), endedUnread(100, 199), seg(finished, 200, 299)}, local: 300, offset: 150, want: fetch.ErrUnavailable},
		"a hole of another lineage":        {segs: []*metadata.Segment{seg(finished, 0, 99), seg(deleted, 100, 199, segment.EpochStart{Epoch: 5, Start: 0}), seg(finished, 200, 299)}, lineage: old, local: 300, offset: 150, want: fetch.ErrUnavailable},
		"a hole, incomplete":               {segs: []*metadata.Segment{seg(finished, 0, 99), seg(deleted, 100, 199), seg(finished, 200, 299)}, info: metadata.PartitionInfo{Incomplete: 1}, local: 300, offset: 150, want: metadata.ErrIncomplete},
		"two deleted, one being":           {segs: []*metadata.Segment{seg(deleted, 0, 99), seg(deleting, 100, 199), seg(deleted, 200, 299), seg(finished, 300, 399)}, local: 400, offset: 50, want: fetch.ErrSkipped, next: 300},
		"a hole before what is missed":     {segs: []*metadata.Segment{seg(deleted, 0, 99), seg(finished, 200, 299)}, local: 400, offset: 50, want: fetch.ErrSkipped, next: 100},
		"being deleted before what is":     {segs: []*metadata.Segment{seg(deleting, 0, 99), seg(finished, 200, 299)}, offset: 50, want: fetch.ErrSkipped, next: 100},
		"being deleted, in the local log":  {segs: []*metadata.Segment{seg(deleting, 0, 99), seg(finished, 100, 199)}, local: 50, offset: 50, want: fetch.ErrEndOfTier, next: 50},
		"being deleted, the rest is local": {segs: []*metadata.Segment{seg(deleting, 0, 99)}, local: 70, offset: 50, want: fetch.ErrSkipped, next: 70},
		"being deleted, local log of -1":   {segs: []*metadata.Segment{seg(deleting, 0, 99), seg(finished, 100, 199)}, local: -1, offset: 50, want: fetch.ErrSkipped, next: 100},
		"before the earliest, local":       {segs: []*metadata.Segment{seg(finished, 100, 199)}, local: 10, offset: 50, want: fetch.ErrEndOfTier, next: 50},
		"behind the last, not local":       {segs: []*metadata.Segment{seg(finished, 0, 99)}, local: 200, offset: 100, want: fetch.ErrUnavailable},
		"deleted and copied again":         {segs: []*metadata.Segment{seg(deleted, 0, 99), seg(deleting, 100, 199), seg(finished, 50, 149)}, local: 400, offset: 20, want: fetch.ErrSkipped, next: 50},
		"another lineage's":                {segs: []*metadata.Segment{seg(finished, 0, 99, segment.EpochStart{Epoch: 5, Start: 0})}, lineage: old, offset: 50, want: fetch.ErrEndOfTier, next: 50},
		"another lineage's being deleted":  {segs: []*metadata.Segment{seg(deleting, 0, 99, segment.EpochStart{Epoch: 5, Start: 0})}, lineage: old, offset: 50, want: fetch.ErrEndOfTier, next: 50},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := fetch.New(&viewOnly{view: metadata.NewView(p, c.segs...).WithInfo(c.info)}, x.ep, x.cache, fetch.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			req := fetch.Request{Partition: p, Lineage: c.lineage, LogStart: c.logStart, LocalLogStart: c.local, Offset: c.offset, MaxBytes: 1}
			var res fetch.Result
			err = r.Fetch(t.Context(), req, &res)
			if !errors.Is(err, c.want) || res.Size() != 0 {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			var end *fetch.EndOfTierError
			var skipped *fetch.SkippedError
			switch {
			case errors.As(err, &end) && end.Next != c.next:
				t.Fatalf("go on at %d, want %d", end.Next, c.next)
			case errors.As(err, &skipped) && (skipped.Next != c.next || skipped.Offset != c.offset):
				t.Fatalf("%+v, want %d", skipped, c.next)
			}
			for _, other := range []error{fetch.ErrEndOfTier, fetch.ErrOutOfRange, fetch.ErrSkipped, fetch.ErrUnavailable, fetch.ErrCorruption, metadata.ErrIncomplete} {
				if other != c.want && errors.Is(err, other) {
					t.Fatalf("%v is %v too", err, other)
				}
			}
			if c.want == metadata.ErrIncomplete {
				at := fetch.TimeRequest{Partition: p, Lineage: c.lineage, LogStart: c.logStart, Time: 1 << 60}
				if _, err := r.OffsetForTime(t.Context(), at); !errors.Is(err, c.want) {
					t.Fatalf("OffsetForTime: %v, want %v", err, c.want)
				}
			}
			if _, err := r.Explain(t.Context(), req); !errors.Is(err, c.want) {
				t.Fatalf("Explain: %v, want %v", err, c.want)
			}
		})
	}
}

// Who is to leave out what was aborted must know all segments behind: one that
// metadata does not understand may hold the marker.
func TestAbortedTransactionsOfIncompleteMetadata(t *testing.T) {
	x := newTier(t, testseg.Random(1, testseg.Options{Segments: 1, Plain: true}), tierOptions{})
	defer x.close()
	view, err := x.meta.View(x.log.Partition)
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range []error{nil, metadata.ErrIncomplete} {
		r, err := fetch.New(&viewOnly{view: view.WithInfo(metadata.PartitionInfo{Incomplete: n})}, x.ep, x.cache, fetch.Options{})
		if err != nil {
			t.Fatal(err)
		}
		req := x.request(x.start(), 1)
		var res fetch.Result
		if err := r.Fetch(t.Context(), req, &res); err != nil {
			t.Errorf("%d records unknown, uncommitted: %v", n, err)
		}
		req.Isolation = fetch.ReadCommitted
		if err := r.Fetch(t.Context(), req, &res); !errors.Is(err, want) {
			t.Errorf("%d records unknown, committed: %v", n, err)
		}
		res.Release()
		_ = r.Close()
	}
}

// Metadata that is not there yet is retriable and says so.
func TestMetadataNotReady(t *testing.T) {
	x := newTier(t, testseg.Random(1, testseg.Options{Segments: 1}), tierOptions{})
	defer x.close()
	faulty := metadatatest.Inject(x.meta, nil, nil)
	faulty.SetLoading(x.log.Partition, true)
	r, err := fetch.New(faulty, x.ep, x.cache, fetch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var res fetch.Result
	if err := r.Fetch(t.Context(), x.request(x.start(), 1), &res); !errors.Is(err, metadata.ErrNotReady) {
		t.Fatalf("Fetch: %v", err)
	}
	if _, err := r.OffsetForTime(t.Context(), fetch.TimeRequest{Partition: x.log.Partition}); !errors.Is(err, metadata.ErrNotReady) {
		t.Fatalf("OffsetForTime: %v", err)
	}
	faulty.SetLoading(x.log.Partition, false)
	if err := r.Fetch(t.Context(), x.request(x.start(), 1), &res); err != nil {
		t.Fatal(err)
	}
	res.Release()
}

// Segments of two leaders that parted at offset 50: each lineage sees its own
// history and no byte of the other's, by offset, by time, and in transactions.
func TestLineageDecides(t *testing.T) {
	p := testseg.DefaultPartition
	unclean := segment.Lineage{{Epoch: 0, Start: 0}, {Epoch: 1, Start: 60}}
	elected := segment.Lineage{{Epoch: 0, Start: 0}, {Epoch: 2, Start: 50}}
	loser, winner := testseg.Producer{ID: 1, Epoch: 1}, testseg.Producer{ID: 2, Epoch: 1}
	txn := func(b testseg.Batch, p testseg.Producer) testseg.Batch {
		b.Producer, b.Transactional = &p, true
		return b
	}
	a := testseg.Build(testseg.Spec{Partition: p, Epochs: unclean, Start: 0, End: 99, Batches: []testseg.Batch{
		record(0, 100, 0, 10), txn(record(20, 200, 0, 10), winner), txn(record(40, 300, 0, 3000), loser),
		record(50, 9000, 0, 2000), testseg.Marker(60, 9001, 1, loser, false), record(99, 9002, 1, 10),
	}})
	common := testseg.NewProducers()
	testseg.Build(testseg.Spec{Partition: p, Start: 0, Producers: common, Batches: []testseg.Batch{txn(record(20, 200, 0, 10), winner)}})
	b := testseg.Build(testseg.Spec{Partition: p, Producers: common, Epochs: elected, Start: 50, End: 149, Batches: []testseg.Batch{
		record(50, 400, 2, 10), testseg.Marker(70, 401, 2, winner, false), record(149, 500, 2, 10),
	}})
	for _, chunk := range []int64{100, 4096, 1 << 20} {
		x := newTier(t, &testseg.Log{Partition: p, Epochs: elected, Segments: []*testseg.Segment{a, b}}, tierOptions{chunk: chunk})
		for _, c := range []struct {
			name    string
			lineage segment.Lineage
			want    []int64 // base offsets in order
			end     int64
			times   map[int64]int64
			aborted []int64 // producers, seen from offset 0 on
		}{
			{"unclean", unclean, []int64{0, 20, 40, 50, 60, 99}, 100, map[int64]int64{0: 0, 300: 40, 301: 50, 9001: 60, 9002: 99, 9003: -1}, []int64{1}},
			{"elected", elected, []int64{0, 20, 40, 50, 70, 149}, 150, map[int64]int64{0: 0, 300: 40, 301: 50, 401: 70, 500: 149, 501: -1}, []int64{2}},
			{"newest in metadata", nil, []int64{0, 20, 40, 50, 70, 149}, 150, map[int64]int64{301: 50}, []int64{2}},
		} {
			for _, maxBytes := range []int{1, 4000, 1 << 20} {
				var got []int64
				var res fetch.Result
				offset := int64(0)
				for {
					req := fetch.Request{Partition: p, Lineage: c.lineage, Offset: offset, MaxBytes: maxBytes, Isolation: fetch.ReadCommitted}
					err := x.reader.Fetch(t.Context(), req, &res)
					var end *fetch.EndOfTierError
					if errors.As(err, &end) {
						if end.Next != c.end {
							t.Errorf("%s: end at %d, want %d", c.name, end.Next, c.end)
						}
						break
					}
					if err != nil {
						t.Fatalf("%s, offset %d: %v", c.name, offset, err)
					}
					for h := range res.Batches() {
						got = append(got, h.BaseOffset)
					}
					if offset == 0 && maxBytes > 1 {
						list, _, _ := res.AbortedTransactions()
						var producers []int64
						for _, a := range list {
							producers = append(producers, a.ProducerID)
						}
						if !equal(producers, c.aborted) {
							t.Errorf("%s: aborted of producers %v, want %v", c.name, producers, c.aborted)
						}
					}
					offset = res.NextOffset()
				}
				res.Release()
				if !equal(got, c.want) {
					t.Errorf("%s, chunk %d, max bytes %d: batches %v, want %v", c.name, chunk, maxBytes, got, c.want)
				}
			}
			for ts, want := range c.times {
				got, err := x.reader.OffsetForTime(t.Context(), fetch.TimeRequest{Partition: p, Lineage: c.lineage, Time: ts})
				if err != nil || got.Offset != want {
					t.Errorf("%s, time %d: %+v, %v, want %d", c.name, ts, got, err, want)
				}
			}
		}
		x.close()
	}
}

func equal(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// A tier with a hole is searched by time up to the hole, where a fetch ends too.
func TestTimeStopsAtHole(t *testing.T) {
	p := testseg.DefaultPartition
	epochs := segment.Lineage{{Epoch: 0, Start: 0}}
	build := func(start, end, ts int64) *testseg.Segment {
		return testseg.Build(testseg.Spec{Partition: p, Epochs: epochs, Start: start, End: end, Batches: []testseg.Batch{record(start, ts, 0, 10)}})
	}
	x := newTier(t, &testseg.Log{Partition: p, Epochs: epochs, Segments: []*testseg.Segment{build(0, 99, 10), build(200, 299, 30)}}, tierOptions{})
	defer x.close()
	for ts, want := range map[int64]int64{10: 0, 11: -1, 30: -1} {
		got, err := x.reader.OffsetForTime(t.Context(), fetch.TimeRequest{Partition: p, Lineage: epochs, Time: ts})
		if err != nil || got.Offset != want {
			t.Errorf("time %d: %+v, %v, want %d", ts, got, err, want)
		}
	}
	// Data below the earliest segment is gone; the answer is what is left.
	got, err := x.reader.OffsetForTime(t.Context(), fetch.TimeRequest{Partition: p, Lineage: epochs, LogStart: 150, Time: 11})
	if err != nil || got.Offset != 200 {
		t.Errorf("from behind the hole: %+v, %v", got, err)
	}
}

// A record that leads to the object of another segment, or to its own with other
// facts, is damage and not data.
func TestHeaderMustBeTheRecords(t *testing.T) {
	x := newTier(t, testseg.Random(1, testseg.Options{Segments: 1}), tierOptions{})
	defer x.close()
	for name, change := range map[string]func(*metadata.Segment){
		"end":     func(s *metadata.Segment) { s.EndOffset++ },
		"size":    func(s *metadata.Segment) { s.SizeBytes++ },
		"time":    func(s *metadata.Segment) { s.MaxTimestamp++ },
		"epochs":  func(s *metadata.Segment) { s.Epochs[0].Epoch += 7 },
		"aborted": func(s *metadata.Segment) { s.TxnIndexEmpty = !s.TxnIndexEmpty },
		"foreign": func(s *metadata.Segment) { s.Custom = []byte("of another plugin") },
		"unknown": func(s *metadata.Segment) { s.Custom = nil },
		"damaged": func(s *metadata.Segment) { s.Custom[5] ^= 1 },
	} {
		t.Run(name, func(t *testing.T) {
			s := x.segs[0].Clone()
			change(s)
			r, err := fetch.New(&viewOnly{view: metadata.NewView(s.Partition, s)}, x.ep, x.cache, fetch.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			var res fetch.Result
			err = r.Fetch(t.Context(), fetch.Request{Partition: s.Partition, Offset: s.StartOffset, MaxBytes: 1}, &res)
			want := fetch.ErrCorruption
			if name == "foreign" || name == "unknown" { // by whom, another plugin knows
				want = metadata.ErrForeignSegment
			}
			if !errors.Is(err, want) || errors.Is(err, fetch.ErrCorruption) != (want == fetch.ErrCorruption) || errors.Is(err, fetch.ErrUnavailable) {
				t.Fatalf("got %v", err)
			}
		})
	}
}
