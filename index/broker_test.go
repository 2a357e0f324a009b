package index_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/segtier/segtier/index"
	"github.com/segtier/segtier/segment"
)

// expectation is a line of expected.jsonl: what Kafka's own classes say about
// files that a real broker wrote.
type expectation struct {
	Partition string

	// segment
	Base, Next             int64
	Size                   int64
	OffsetIndex, TimeIndex []pair
	TxnIndex               []int64

	// snapshot
	Offset    int64
	Producers []struct {
		ProducerID            int64
		ProducerEpoch         int16
		LastSequence          int32
		LastOffset            int64
		OffsetDelta           int32
		Timestamp             int64
		CoordinatorEpoch      int32
		CurrentTxnFirstOffset int64
	}

	// aborted
	Aborted []struct{ Segment, ProducerID, FirstOffset, LastOffset, LastStableOffset int64 }
}

func expected(t *testing.T, kind string, fn func(e expectation)) {
	t.Helper()
	f, err := os.Open("../testdata/expected.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	n := 0
	for lines.Scan() {
		if !strings.Contains(lines.Text(), `"kind":"`+kind+`"`) {
			continue
		}
		var e expectation
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		n++
		fn(e)
	}
	if lines.Err() != nil || n == 0 {
		t.Fatalf("%d lines, %v", n, lines.Err())
	}
}

// brokerFiles reads a segment of a broker's partition directory; no file is nil.
func brokerFiles(t *testing.T, partition string, base, next int64) files {
	t.Helper()
	read := func(suffix string) []byte {
		b, err := os.ReadFile(filepath.Join("../testdata/partitions", partition, fmt.Sprintf("%020d%s", base, suffix)))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return b
	}
	return files{base: base, end: next - 1, log: read(".log"), offset: read(".index"), time: read(".timeindex"), txn: read(".txnindex")}
}

// Every index of every segment holds what Kafka reads from it and agrees with its
// log, compacted ones included.
func TestBrokerIndexes(t *testing.T) {
	expected(t, "segment", func(e expectation) {
		f := brokerFiles(t, e.Partition, e.Base, e.Next)
		name := fmt.Sprintf("%s, segment %d", e.Partition, e.Base)
		offsets, err := index.ParseOffset(f.offset, e.Base)
		if err != nil || !slices.Equal(offsetEntries(offsets), e.OffsetIndex) {
			t.Errorf("%s: offset index %v, %v, want %v", name, offsetEntries(offsets), err, e.OffsetIndex)
		}
		times, err := index.ParseTime(f.time, e.Base)
		if err != nil || !slices.Equal(timeEntries(times), e.TimeIndex) {
			t.Errorf("%s: time index %v, %v, want %v", name, timeEntries(times), err, e.TimeIndex)
		}
		txns, err := index.ParseTxn(f.txn, e.Base)
		var markers []int64
		for _, a := range txnEntries(txns) {
			markers = append(markers, a.LastOffset)
		}
		if err != nil || !slices.Equal(markers, e.TxnIndex) {
			t.Errorf("%s: transaction index %v, %v, want %v", name, markers, err, e.TxnIndex)
		}
		if err := check(f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		checkLookups(t, name, f, offsets, times)
	})
}

// checkLookups compares what the indexes lead to with a scan of the whole log.
func checkLookups(t *testing.T, name string, f files, offsets index.Offset, times index.Time) {
	t.Helper()
	type placed struct {
		pos int64
		h   segment.Header
	}
	var batches []placed
	w := segment.Walker{Batch: func(pos int64, h segment.Header) error {
		batches = append(batches, placed{pos, h})
		return nil
	}}
	if _, err := w.Write(f.log); err != nil {
		t.Fatal(err)
	}
	for target := f.base - 1; target <= f.end+1; target++ {
		_, from := offsets.Lookup(target)
		for _, b := range batches {
			if b.h.LastOffset >= target {
				if from > b.pos {
					t.Errorf("%s: Lookup(%d) is position %d, behind the batch at %d", name, target, from, b.pos)
				}
				break
			}
		}
	}
	for _, b := range batches {
		for _, ts := range []int64{b.h.MaxTimestamp - 1, b.h.MaxTimestamp, b.h.MaxTimestamp + 1} {
			_, offset := times.Lookup(ts)
			for _, c := range batches {
				if c.h.MaxTimestamp >= ts {
					if offset > c.h.LastOffset {
						t.Errorf("%s: Lookup(time %d) is offset %d, behind the batch %d-%d", name, ts, offset, c.h.BaseOffset, c.h.LastOffset)
					}
					break
				}
			}
		}
	}
}

func TestBrokerAborted(t *testing.T) {
	expected(t, "aborted", func(e expectation) {
		bySegment := map[int64][]index.AbortedTxn{}
		for _, a := range e.Aborted {
			bySegment[a.Segment] = append(bySegment[a.Segment], aborted(a.ProducerID, a.FirstOffset, a.LastOffset, a.LastStableOffset))
		}
		for base, want := range bySegment {
			f := brokerFiles(t, e.Partition, base, math.MaxInt64)
			x, err := index.ParseTxn(f.txn, base)
			if err != nil || !slices.Equal(txnEntries(x), want) {
				t.Errorf("%s, segment %d: %v, %v, want %v", e.Partition, base, txnEntries(x), err, want)
			}
		}
	})
}

func TestBrokerSnapshots(t *testing.T) {
	expected(t, "snapshot", func(e expectation) {
		name := filepath.Join("../testdata/partitions", e.Partition, fmt.Sprintf("%020d.snapshot", e.Offset))
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := index.ParseSnapshot(b)
		if err != nil {
			t.Fatal(err)
		}
		var want []index.Producer
		for _, p := range e.Producers {
			want = append(want, index.Producer{
				ProducerID: p.ProducerID, Epoch: p.ProducerEpoch, LastSequence: p.LastSequence, LastOffset: p.LastOffset,
				OffsetDelta: p.OffsetDelta, Timestamp: p.Timestamp, CoordinatorEpoch: p.CoordinatorEpoch, TxnFirstOffset: p.CurrentTxnFirstOffset,
			})
		}
		slices.SortFunc(got, func(a, b index.Producer) int { return cmp.Compare(a.ProducerID, b.ProducerID) })
		if !slices.Equal(got, want) {
			t.Errorf("%s\ngot  %+v\nwant %+v", name, got, want)
		}
	})
}

// No index of any segment of a real broker passes for that of another one.
func TestBrokerIndexesAreNotInterchangeable(t *testing.T) {
	var all []files
	expected(t, "segment", func(e expectation) {
		if e.Size > 0 {
			all = append(all, brokerFiles(t, e.Partition, e.Base, e.Next))
		}
	})
	// Each pair would take long, and large logs longer.
	all = slices.DeleteFunc(all, func(f files) bool { return len(f.log) > 100_000 })
	for i, f := range all {
		for k := 1; k <= 12; k++ {
			o := all[(i+k*5)%len(all)]
			for _, kind := range []segment.FileKind{segment.OffsetIndex, segment.TimeIndex, segment.TxnIndex} {
				g := f
				var same, none bool
				switch kind {
				case segment.OffsetIndex:
					same, none = string(o.offset) == string(f.offset), len(o.offset) == 0
					g.offset = o.offset
				case segment.TimeIndex:
					same, none = string(o.time) == string(f.time), len(o.time) == 0
					g.time = o.time
				default:
					same, none = string(o.txn) == string(f.txn), len(o.txn) == 0
					g.txn = o.txn
				}
				if err := check(g); err == nil && !same && !none {
					t.Errorf("the %v of [%d, %d] passes for that of [%d, %d]", kind, o.base, o.end, f.base, f.end)
				}
			}
		}
	}
}
