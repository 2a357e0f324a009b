package index_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/segtier/segtier/index"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/segment"
)

// The segment 00000000000000000100 in testdata was made by Kafka's own classes:
// 12 batches of all codecs, an aborted and a committed transaction, a gap, an
// empty batch, two epochs; an index entry every 2000 bytes. The next offset is
// 137.
func goldenSegment(t testing.TB) files {
	t.Helper()
	read := func(suffix string) []byte {
		b, err := os.ReadFile("testdata/00000000000000000100" + suffix)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	return files{base: 100, end: 136, log: read(".log"), offset: read(".index"), time: read(".timeindex"), txn: read(".txnindex")}
}

func TestGoldenSegment(t *testing.T) {
	f := goldenSegment(t)
	if err := check(f); err != nil {
		t.Fatal(err)
	}
	x, err := index.ParseOffset(f.offset, f.base)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := offsetEntries(x), []pair{{108, 2431}, {114, 5083}, {124, 7588}, {128, 10034}}; !slices.Equal(got, want) {
		t.Errorf("offset index %v, want %v", got, want)
	}
	txns, err := index.ParseTxn(f.txn, f.base)
	if err != nil || !slices.Equal(txnEntries(txns), []index.AbortedTxn{aborted(4000, 109, 118, 119)}) {
		t.Errorf("transaction index %v, %v", txnEntries(txns), err)
	}
	times, err := index.ParseTime(f.time, f.base)
	if err != nil || times.Len() != 5 {
		t.Errorf("time index %v, %v", timeEntries(times), err)
	}

	// The list of batches that Kafka's classes printed.
	want, err := os.ReadFile("testdata/00000000000000000100.txt")
	if err != nil {
		t.Fatal(err)
	}
	var batches []segment.Header
	var positions []int64
	w := segment.Walker{Batch: func(pos int64, h segment.Header) error {
		batches, positions = append(batches, h), append(positions, pos)
		return nil
	}}
	if _, err := w.Write(f.log); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(want))
	for i := 0; lines.Scan(); i++ {
		h := batches[i]
		line := fmt.Sprintf("%2d pos=%d size=%d offsets=%d-%d epoch=%d maxTs=%d", i, positions[i], h.Size, h.BaseOffset, h.LastOffset, h.LeaderEpoch, h.MaxTimestamp)
		switch {
		case strings.Contains(lines.Text(), "EMPTY"):
			line += " EMPTY pid4002"
		case h.Control():
			line += strings.TrimPrefix(lines.Text(), line) // the header does not tell which marker it is
		default:
			line += " " + h.Codec().String()
			if h.Transactional() {
				line += fmt.Sprintf(" txn pid%d", h.ProducerID)
			}
		}
		if strings.TrimRight(lines.Text(), " ") != line {
			t.Errorf("batch %d\ngot  %s\nwant %s", i, line, lines.Text())
		}
	}
	if len(batches) != 12 {
		t.Errorf("%d batches", len(batches))
	}

	// Where a fetch begins: the index leads to or before it.
	first := func(target int64) int64 {
		_, from := x.Lookup(target)
		for i, h := range batches {
			if positions[i] >= from && h.LastOffset >= target {
				return positions[i]
			}
		}
		return -1
	}
	for offset, pos := range map[int64]int64{
		100: 0, 101: 0, 102: 0, 103: 1306, 106: 2431, 107: 2431, 108: 2431, 114: 5083, 115: 6204, 116: 6204, 117: 6204, 118: 6204,
		121: 6282, 122: 7588, 129: 10112, 130: 10112, 131: 10112, 132: 10112, 133: 10112, 134: 10173, 135: 10173, 136: 10173, 137: -1,
	} {
		if got := first(offset); got != pos {
			t.Errorf("a fetch at %d begins at position %d, want %d", offset, got, pos)
		}
	}
}

// The tests' own writer writes the indexes that Kafka's classes wrote.
func TestGoldenIndexWriter(t *testing.T) {
	f := goldenSegment(t)
	spec := testseg.Spec{Partition: testseg.DefaultPartition, Start: 100, Interval: 2000}
	var d segment.Decoder
	w := segment.Walker{Batch: func(pos int64, h segment.Header) error {
		b := testseg.Batch{
			BaseOffset: h.BaseOffset, LastOffset: h.LastOffset, Codec: h.Codec(), LeaderEpoch: h.LeaderEpoch,
			Transactional: h.Transactional(), Control: h.Control(), MaxTimestamp: h.MaxTimestamp,
		}
		if h.ProducerID >= 0 {
			b.Producer = &testseg.Producer{ID: h.ProducerID, Epoch: h.ProducerEpoch, Sequence: h.BaseSequence}
		}
		err := d.Records(f.log[pos:pos+int64(h.Size)], func(r segment.Record) bool {
			r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
			r.Headers = nil
			b.Records = append(b.Records, r)
			return true
		})
		spec.Batches = append(spec.Batches, b)
		return err
	}}
	if _, err := w.Write(f.log); err != nil {
		t.Fatal(err)
	}
	s := testseg.Build(spec)
	if s.Info().EndOffset != 136 || !bytes.Equal(s.Txn, f.txn) {
		t.Errorf("end %d, transaction index %x, want %x", s.Info().EndOffset, s.Txn, f.txn)
	}
	// Compressors differ, and so do sizes; the offsets that are indexed do not.
	got, err := index.ParseTime(s.Time, 100)
	if err != nil {
		t.Fatal(err)
	}
	want, err := index.ParseTime(f.time, 100)
	if err != nil || !slices.Equal(timeEntries(got), timeEntries(want)) {
		t.Errorf("time index %v, want %v (%v)", timeEntries(got), timeEntries(want), err)
	}
}
