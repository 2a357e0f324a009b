package index_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/index"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/segment"
)

// files are the files that a Checker is to compare.
type files struct {
	base, end              int64
	log, offset, time, txn []byte
}

func of(s *testseg.Segment) files {
	return files{
		base: s.Info().StartOffset, end: s.Info().EndOffset,
		log: s.Log, offset: slices.Clone(s.Offset), time: slices.Clone(s.Time), txn: slices.Clone(s.Txn),
	}
}

// check walks the log with a Checker.
func check(f files) error {
	reader := func(b []byte) io.Reader {
		if b == nil {
			return nil
		}
		return bytes.NewReader(b)
	}
	c := index.NewChecker(f.base, f.end, reader(f.offset), reader(f.time), reader(f.txn))
	w := segment.Walker{Batch: c.Batch}
	if _, err := w.Write(f.log); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return c.Close()
}

// soak returns how many seeds to try where n do in daily use.
func soak(n uint64) uint64 {
	if os.Getenv("SEGTIER_SOAK") != "" {
		return 20 * n
	}
	return n
}

// What a broker writes agrees, whatever it writes.
func TestCheckerAcceptsBrokers(t *testing.T) {
	for seed := range soak(20) {
		for i, s := range testseg.Random(seed, testseg.Options{Interval: 1 + int(seed%20)*300}).Segments {
			if err := check(of(s)); err != nil {
				t.Errorf("seed %d, segment %d: %v", seed, i, err)
			}
			tail := of(s)
			tail.offset = append(tail.offset, make([]byte, 8*1000)...)
			tail.time = append(tail.time, make([]byte, 12*1000)...)
			if err := check(tail); err != nil {
				t.Errorf("seed %d, segment %d with preallocated tails: %v", seed, i, err)
			}
			bare := files{base: s.Info().StartOffset, end: s.Info().EndOffset, log: s.Log}
			if err := check(bare); err != nil {
				t.Errorf("seed %d, segment %d without indexes: %v", seed, i, err)
			}
		}
	}
}

// Indexes of the other segments and of other logs are refused, one by one.
func TestCheckerRefusesOtherLogs(t *testing.T) {
	log := testseg.Random(1, testseg.Options{Segments: 6})
	other := testseg.Random(2, testseg.Options{Segments: 6})
	var txns, n int
	for i, s := range log.Segments {
		for _, o := range append(slices.Delete(slices.Clone(log.Segments), i, i+1), other.Segments...) {
			for _, kind := range []segment.FileKind{segment.OffsetIndex, segment.TimeIndex, segment.TxnIndex} {
				f := of(s)
				switch kind {
				case segment.OffsetIndex:
					f.offset = o.Offset
				case segment.TimeIndex:
					f.time = o.Time
				default:
					if o.Txn == nil || bytes.Equal(o.Txn, s.Txn) {
						continue
					}
					f.txn = o.Txn
					txns++
				}
				n++
				err := check(f)
				if e, ok := errors.AsType[*index.Error](err); !ok || e.Kind != kind {
					t.Errorf("%v of another segment: %v", kind, err)
				}
			}
		}
	}
	if txns == 0 || n < 100 {
		t.Errorf("only %d cases, %d of transactions", n, txns)
	}
}

// A number changed anywhere in an index is found, unless it makes an entry that
// is right too.
func TestCheckerFindsChangedNumbers(t *testing.T) {
	log := testseg.Random(5, testseg.Options{Segments: 8, Interval: 400})
	rapid.Check(t, func(t *rapid.T) {
		s := log.Segments[rapid.IntRange(0, len(log.Segments)-1).Draw(t, "segment")]
		f := of(s)
		kind := rapid.SampledFrom([]segment.FileKind{segment.OffsetIndex, segment.TimeIndex, segment.TxnIndex}).Draw(t, "kind")
		b := map[segment.FileKind][]byte{segment.OffsetIndex: f.offset, segment.TimeIndex: f.time, segment.TxnIndex: f.txn}[kind]
		if len(b) == 0 {
			return
		}
		at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		b[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
		err := check(f)
		if right := harmless(s, kind, f); (err == nil) != right {
			t.Fatalf("%v, byte %d changed: %v, harmless %v", kind, at, err, right)
		}
		if e, ok := errors.AsType[*index.Error](err); err != nil && (!ok || e.Kind != kind) {
			t.Fatalf("%v, byte %d changed: %v", kind, at, err)
		}
	})
}

// harmless tells by the rules in the package comment, applied to each entry by
// brute force, whether an index may belong to segment s.
func harmless(s *testseg.Segment, kind segment.FileKind, f files) bool {
	switch kind {
	case segment.OffsetIndex:
		x, err := index.ParseOffset(f.offset, f.base)
		if err != nil {
			return false
		}
		ends := int64(-1) // where the entry before ends
		for _, e := range offsetEntries(x) {
			start := slices.IndexFunc(s.Batches, func(b testseg.Placed) bool { return b.Pos == e[1] })
			holds := slices.IndexFunc(s.Batches, func(b testseg.Placed) bool {
				h := b.Header
				gaps := int64(h.Count) <= h.LastOffset-h.BaseOffset
				return e[0] == h.LastOffset || b.Pos == e[1] && e[0] == h.BaseOffset || gaps && h.BaseOffset <= e[0] && e[0] <= h.LastOffset
			})
			if start < 0 || holds < start || e[1] <= ends {
				return false
			}
			ends = s.Batches[holds].Pos
		}
	case segment.TimeIndex:
		x, err := index.ParseTime(f.time, f.base)
		if err != nil {
			return false
		}
		for _, e := range timeEntries(x) {
			greatest := int64(-1)
			for _, b := range s.Batches {
				if b.Header.BaseOffset <= e[1] {
					greatest = max(greatest, b.Header.MaxTimestamp)
				}
			}
			if greatest != e[0] || e[1] > s.Batches[len(s.Batches)-1].Header.LastOffset {
				return false
			}
		}
	default:
		x, err := index.ParseTxn(f.txn, f.base)
		if err != nil {
			return false
		}
		for _, a := range txnEntries(x) {
			if !slices.ContainsFunc(s.Batches, func(b testseg.Placed) bool {
				return b.Header.Control() && b.Header.LastOffset == a.LastOffset && b.Header.ProducerID == a.ProducerID
			}) {
				return false
			}
		}
	}
	return true
}

// simple is a segment of batches with 10 offsets each from base 100, with the
// greatest timestamp in the second.
func simple() (s *testseg.Segment, size int64) {
	var batches []testseg.Batch
	for i := range int64(4) {
		b := testseg.Batch{BaseOffset: 100 + 10*i, Codec: segment.CodecNone}
		for k := range int64(10) {
			b.Records = append(b.Records, segment.Record{Offset: b.BaseOffset + k, Timestamp: 1000 + []int64{0, 500, 200, 900}[i]})
		}
		batches = append(batches, b)
	}
	s = testseg.Build(testseg.Spec{Partition: testseg.DefaultPartition, Start: 100, Batches: batches})
	return s, int64(s.Batches[0].Header.Size)
}

func TestCheckerOffsetEntries(t *testing.T) {
	s, z := simple()
	for _, c := range []struct {
		name    string
		entries []pair
		entry   int64
		want    string // empty: accepted
	}{
		{"each batch", []pair{{109, 0}, {119, z}, {129, 2 * z}, {139, 3 * z}}, 0, ""},
		{"none", nil, 0, ""},
		{"two batches at once", []pair{{119, 0}, {139, 2 * z}}, 0, ""},
		{"all at once", []pair{{139, 0}}, 0, ""},
		{"first offsets, as before 1.0", []pair{{100, 0}, {120, 2 * z}}, 0, ""},
		{"position within a batch", []pair{{109, 0}, {119, z + 1}}, 1, fmt.Sprintf("begins at its position %d", z+1)},
		{"position before its batch", []pair{{109, 0}, {119, z - 1}}, 1, fmt.Sprintf("begins at its position %d", z-1)},
		{"position behind the log", []pair{{139, 4 * z}}, 0, "beyond the end of the log"},
		{"offset within a batch", []pair{{115, z}}, 0, "no batch of the log ends with its offset 115"},
		{"first offset of a later batch", []pair{{120, z}}, 0, "ends with its offset 120"},
		{"offset of the batch before", []pair{{109, z}}, 0, "ends with offset 109"},
		{"offset behind the log", []pair{{140, 3 * z}}, 0, "beyond the end"},
		{"offsets overlap", []pair{{119, 0}, {129, z}}, 1, "before the end of offset 119"},
		{"offsets overlap at the end", []pair{{139, 0}, {149, 3 * z}}, 1, "before the end of offset 139"},
	} {
		f := of(s)
		f.end = 200
		f.offset = offsetFile(100, c.entries...)
		err := check(f)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		refused(t, c.name, err, segment.OffsetIndex, c.entry, c.want)
	}
}

func TestCheckerTimeEntries(t *testing.T) {
	s, _ := simple()
	for _, c := range []struct {
		name    string
		entries []pair
		entry   int64
		want    string
	}{
		{"all", []pair{{1000, 109}, {1500, 119}, {1900, 139}}, 0, ""},
		{"none", nil, 0, ""},
		{"the last", []pair{{1900, 139}}, 0, ""},
		{"offset of the record, as in older brokers", []pair{{1500, 113}, {1900, 131}}, 0, ""},
		{"offset of a later batch", []pair{{1500, 129}}, 0, ""},
		{"too low", []pair{{1400, 119}}, 0, "offsets up to 119 have timestamps up to 1400, but the log has 1500"},
		{"never reached", []pair{{1600, 129}}, 0, "up to 1600, but the log has 1500"},
		{"before it is reached", []pair{{1500, 109}}, 0, "but the log has 1000"},
		{"hidden", []pair{{1200, 129}}, 0, "but the log has 1500"},
		{"the same offset twice", []pair{{1000, 119}, {1500, 119}}, 0, "but the log has 1500"},
		{"offset behind the log", []pair{{1500, 119}, {1900, 140}}, 1, "beyond the end of the log"},
	} {
		f := of(s)
		f.time = timeFile(100, c.entries...)
		err := check(f)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		refused(t, c.name, err, segment.TimeIndex, c.entry, c.want)
	}
}

// An offset in a gap between batches names all before it.
func TestCheckerTimeEntryInGap(t *testing.T) {
	r := func(offset, ts int64) testseg.Batch {
		return testseg.Batch{BaseOffset: offset, Records: []segment.Record{{Offset: offset, Timestamp: ts}}}
	}
	s := testseg.Build(testseg.Spec{Partition: testseg.DefaultPartition, Start: 100, Batches: []testseg.Batch{r(100, 10), r(110, 20)}})
	for e, ok := range map[pair]bool{{10, 100}: true, {10, 105}: true, {20, 105}: false, {20, 110}: true, {10, 110}: false} {
		f := of(s)
		f.time = timeFile(100, e)
		if err := check(f); (err == nil) != ok {
			t.Errorf("%v: %v", e, err)
		}
	}
}

func TestCheckerTxnEntries(t *testing.T) {
	p := testseg.Producer{ID: 7}
	batches := []testseg.Batch{
		{BaseOffset: 100, Producer: &p, Transactional: true, Records: []segment.Record{{Offset: 100, Timestamp: 1}}},
		testseg.Marker(101, 2, 0, p, false),
		{BaseOffset: 102, Producer: &p, Transactional: true, Records: []segment.Record{{Offset: 102, Timestamp: 3}, {Offset: 105, Timestamp: 3}}},
		testseg.Marker(108, 4, 0, p, true),
	}
	s := testseg.Build(testseg.Spec{Partition: testseg.DefaultPartition, Start: 100, End: 110, Batches: batches})
	for _, c := range []struct {
		name string
		txn  index.AbortedTxn
		want string
	}{
		{"its own", aborted(7, 100, 101, 102), ""},
		{"began earlier", aborted(7, 3, 101, 102), ""},
		{"another producer", aborted(8, 100, 101, 102), "no marker of producer 8 at offset 101"},
		{"data", aborted(7, 100, 105, 106), "no marker of producer 7 at offset 105"},
		{"within a batch", aborted(7, 100, 103, 104), "at offset 103"},
		{"in the gap before a marker", aborted(7, 100, 107, 108), "at offset 107"},
		{"behind the log", aborted(7, 100, 109, 110), "beyond the end of the log"},
		{"before the segment", aborted(7, 3, 99, 100), "lies before the segment"},
	} {
		f := of(s)
		f.txn = txnFile(c.txn)
		err := check(f)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		refused(t, c.name, err, segment.TxnIndex, 0, c.want)
	}
}

// What compaction leaves in an offset index: the offset of a record that was
// kept, where those behind it in its batch are gone.
func TestCheckerCompacted(t *testing.T) {
	r := func(o int64) segment.Record { return segment.Record{Offset: o, Timestamp: 1} }
	compacted := testseg.Batch{BaseOffset: 100, LastOffset: 109, Records: []segment.Record{r(102), r(104)}}
	next := testseg.Batch{BaseOffset: 110, Records: []segment.Record{r(110), r(111), r(112)}}
	s := testseg.Build(testseg.Spec{Partition: testseg.DefaultPartition, Start: 100, Batches: []testseg.Batch{compacted, next}})
	for e, ok := range map[pair]bool{
		{104, 0}: true, {109, 0}: true, {100, 0}: true, {112, 0}: true,
		{111, 0}:                                   false,
		{111, int64(s.Batches[0].Header.Size)}:     false,
		{112, int64(s.Batches[0].Header.Size)}:     true,
		{110, int64(s.Batches[0].Header.Size)}:     true,
		{109, int64(s.Batches[0].Header.Size)}:     false,
		{104, int64(s.Batches[0].Header.Size)}:     false,
		{112, int64(s.Batches[0].Header.Size) * 2}: false,
	} {
		f := of(s)
		f.offset = offsetFile(100, e)
		if err := check(f); (err == nil) != ok {
			t.Errorf("%v: %v", e, err)
		}
	}
}

// Old message sets: a wrapper's first offset is unknown.
func TestCheckerOldFormats(t *testing.T) {
	r := func(o, ts int64) segment.Record { return segment.Record{Offset: o, Timestamp: ts} }
	log := testseg.AppendLegacy(nil, 1, segment.CodecGzip, r(100, 10), r(104, 20))
	z := int64(len(log))
	log = testseg.AppendLegacy(log, 1, segment.CodecGzip, r(105, 15), r(109, 30))
	log = testseg.AppendLegacy(log, 1, segment.CodecNone, r(112, 25))
	for _, c := range []struct {
		entry pair
		ok    bool
	}{
		{pair{104, 0}, true},
		{pair{100, 0}, true},
		{pair{105, z}, true},
		{pair{109, z}, true},
		{pair{112, z}, true},
		{pair{104, z}, false},
		{pair{107, 0}, false},
		{pair{110, z}, false},
	} {
		f := files{base: 100, end: 120, log: log, offset: offsetFile(100, c.entry)}
		if err := check(f); (err == nil) != c.ok {
			t.Errorf("%v: %v", c.entry, err)
		}
	}
	for e, ok := range map[pair]bool{{20, 104}: true, {20, 102}: true, {30, 109}: true, {30, 107}: true, {30, 112}: true, {25, 112}: false} {
		f := files{base: 100, end: 120, log: log, time: timeFile(100, e)}
		if err := check(f); (err == nil) != ok {
			t.Errorf("%v: %v", e, err)
		}
	}
}

// Batches outside the segment's offsets do not belong into it.
func TestCheckerPlace(t *testing.T) {
	s, _ := simple() // offsets 100 to 139
	for _, c := range []struct {
		base, end int64
		ok        bool
	}{{100, 139, true}, {90, 200, true}, {101, 139, false}, {100, 138, false}} {
		err := check(files{base: c.base, end: c.end, log: s.Log})
		if (err == nil) != c.ok {
			t.Errorf("[%d, %d]: %v", c.base, c.end, err)
		}
		if err != nil {
			refused(t, "place", err, segment.Log, -1, "the segment")
		}
	}
}

// A log without batches has no entries.
func TestCheckerEmptyLog(t *testing.T) {
	if err := check(files{end: 10}); err != nil {
		t.Error(err)
	}
	for _, f := range []files{
		{end: 10, offset: offsetFile(0, pair{5, 0})},
		{end: 10, time: timeFile(0, pair{5, 0})},
		{end: 10, txn: txnFile(aborted(1, 1, 2, 3))},
	} {
		if err := check(f); !errors.Is(err, index.ErrCorrupt) || !strings.Contains(err.Error(), "beyond the end") {
			t.Errorf("%v", err)
		}
	}
}

// A Checker's readers fail, dribble and are read to their ends.
func TestCheckerReaders(t *testing.T) {
	log := testseg.Random(3, testseg.Options{Segments: 1, Batches: 2000, Interval: 100})
	s := log.Segments[0]
	if len(s.Time) < 5000 || len(s.Offset) < 5000 || len(s.Txn) < 5000 {
		t.Fatalf("indexes of %d, %d, %d bytes do not fill a buffer", len(s.Offset), len(s.Time), len(s.Txn))
	}
	walk := func(c *index.Checker) error {
		w := segment.Walker{Batch: c.Batch}
		if _, err := w.Write(s.Log); err != nil {
			return err
		}
		return c.Close()
	}
	for name, slow := range map[string]func(io.Reader) io.Reader{
		"one byte": iotest.OneByteReader, "half": iotest.HalfReader, "error with data": iotest.DataErrReader,
	} {
		readers := []*bytes.Reader{bytes.NewReader(s.Offset), bytes.NewReader(s.Time), bytes.NewReader(s.Txn)}
		c := index.NewChecker(0, s.Info().EndOffset, slow(readers[0]), slow(readers[1]), slow(readers[2]))
		if err := walk(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i, r := range readers {
			if r.Len() > 0 {
				t.Errorf("%s: %d bytes of index %d were not read", name, r.Len(), i)
			}
		}
	}
	broken := errors.New("disk on fire")
	for i, kind := range []string{"offset index", "time index", "transaction index"} {
		for _, at := range []int{0, 3000, 4500} {
			readers := []io.Reader{bytes.NewReader(s.Offset), bytes.NewReader(s.Time), bytes.NewReader(s.Txn)}
			readers[i] = io.MultiReader(io.LimitReader(readers[i], int64(at)), iotest.ErrReader(broken))
			c := index.NewChecker(0, s.Info().EndOffset, readers[0], readers[1], readers[2])
			err := walk(c)
			if !errors.Is(err, broken) || errors.Is(err, index.ErrCorrupt) || !strings.Contains(err.Error(), kind) {
				t.Errorf("%s fails at %d: %v", kind, at, err)
			}
			if again := c.Close(); !errors.Is(again, broken) {
				t.Errorf("the error does not stay: %v", again)
			}
			if again := c.Batch(0, segment.Header{}); !errors.Is(again, broken) {
				t.Errorf("the error does not stay: %v", again)
			}
		}
	}
}

// Errors in a tail of zeros are no tail, and an end in the middle of an entry
// is one only of a transaction index.
func TestCheckerTails(t *testing.T) {
	broken := errors.New("disk on fire")
	s, _ := simple()
	for _, entries := range [][]byte{nil, s.Time} {
		r := io.MultiReader(bytes.NewReader(entries), bytes.NewReader(make([]byte, 12_000)), iotest.ErrReader(broken))
		c := index.NewChecker(100, 139, nil, r, nil)
		w := segment.Walker{Batch: c.Batch}
		_, err := w.Write(s.Log)
		if err == nil {
			err = c.Close()
		}
		if !errors.Is(err, broken) || errors.Is(err, index.ErrCorrupt) {
			t.Errorf("behind %d bytes: %v", len(entries), err)
		}
	}
	log := testseg.Random(5, testseg.Options{Segments: 8})
	i := slices.IndexFunc(log.Segments, func(s *testseg.Segment) bool { return s.Txn != nil })
	for _, behind := range []int{1, 33, 34, 35, 5000} {
		f := of(log.Segments[i])
		f.txn = append(f.txn, make([]byte, behind)...)
		if err := check(f); err != nil {
			t.Errorf("%d zeros behind the transaction index: %v", behind, err)
		}
	}
	f := of(log.Segments[i])
	f.txn = append(f.txn, 9, 9, 9)
	if err := check(f); err != nil {
		t.Errorf("3 bytes behind the transaction index: %v", err)
	}
	f.txn = append(f.txn, f.txn[:31]...)
	if err := check(f); err == nil {
		t.Error("an entry of nonsense behind the transaction index is accepted")
	}
}

func TestErrorText(t *testing.T) {
	whole := &index.Error{Kind: segment.ProducerSnapshot, Entry: -1, Reason: "version 2 is not 1"}
	if got, want := whole.Error(), "corrupt producer snapshot: version 2 is not 1"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	entry := &index.Error{Kind: segment.TimeIndex, Entry: 3, Reason: "its timestamp is negative"}
	if got, want := entry.Error(), "corrupt time index, entry 3: its timestamp is negative"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A Checker reads what the views accept, and refuses what they refuse.
func TestCheckerReadsAsViewsDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := offsetFile(0, drawOffsets(t, 0)...)
		b = append(b, make([]byte, rapid.SampledFrom([]int{0, 0, 3, 8, 16, 17, 8000, 8003}).Draw(t, "tail"))...)
		b = append(b, rapid.SampledFrom([][]byte{nil, nil, {1}, {0, 0, 0, 1, 0, 0, 0, 1}}).Draw(t, "behind")...)
		if len(b) > 0 && rapid.Bool().Draw(t, "damage") {
			b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
		}
		compareWithView(t, b)
	})
}

// compareWithView makes a log that fits the offset index b if that is one, and
// compares ParseOffset with Checker.
func compareWithView(t interface {
	Helper()
	Fatalf(string, ...any)
}, b []byte,
) {
	t.Helper()
	x, want := index.ParseOffset(b, 0)
	c := index.NewChecker(0, 1<<62, bytes.NewReader(b), nil, nil)
	var err error
	for i := range x.Len() {
		offset, pos := x.Entry(i)
		if err = c.Batch(pos, segment.Header{BaseOffset: offset, LastOffset: offset, Magic: 2, Count: 1}); err != nil {
			break
		}
	}
	if err == nil {
		err = c.Close()
	}
	if (err == nil) != (want == nil) {
		t.Fatalf("ParseOffset: %v, Checker: %v", want, err)
	}
}

// The memory of a Checker does not grow with the indexes.
func TestCheckerMemory(t *testing.T) {
	s, _ := simple()
	tail := bytes.Repeat(make([]byte, 24), 100_000)
	offset, ts := append(slices.Clone(s.Offset), tail...), append(slices.Clone(s.Time), tail...)
	headers := s.Batches
	n := testing.AllocsPerRun(5, func() {
		c := index.NewChecker(100, 139, bytes.NewReader(offset), bytes.NewReader(ts), nil)
		for _, b := range headers {
			if err := c.Batch(b.Pos, b.Header); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	})
	if n > 8 {
		t.Errorf("%v allocations for one check", n)
	}
}

func BenchmarkChecker(b *testing.B) {
	s := testseg.Random(1, testseg.Options{Segments: 1, Batches: 3000, Interval: 500}).Segments[0]
	b.ReportAllocs()
	for b.Loop() {
		c := index.NewChecker(0, s.Info().EndOffset, bytes.NewReader(s.Offset), bytes.NewReader(s.Time), bytes.NewReader(s.Txn))
		for _, p := range s.Batches {
			if err := c.Batch(p.Pos, p.Header); err != nil {
				b.Fatal(err)
			}
		}
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(s.Batches)), "ns/batch")
}
