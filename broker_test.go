package segtier_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/segment"
)

// brokerLine is a line of testdata/expected.jsonl: what the broker and its Java
// client said. See testdata/README.md.
type brokerLine struct {
	Kind      string
	Partition string

	LogStartOffset   int64 // partition
	LastStableOffset int64

	Offset      int64 // record, time
	Timestamp   int64
	Epoch       int32
	KeyLen      int
	ValueLen    int
	ValueCrc32c uint32
	Headers     int
	Committed   *bool

	Time int64 // time
}

func brokerSaid(t *testing.T) map[string][]brokerLine {
	t.Helper()
	f, err := os.Open("testdata/expected.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	said := map[string][]brokerLine{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l brokerLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		said[l.Partition] = append(said[l.Partition], l)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return said
}

// TestAsTheBrokerSaid compares what a consumer of the tier sees with what the
// consumers of a real broker saw: records, read_committed, and offsets for times.
func TestAsTheBrokerSaid(t *testing.T) {
	for name, lines := range brokerSaid(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOracle(t, filepath.Join("testdata/partitions", name))
			if len(o.closed) == 0 {
				return // only an active segment: nothing to tier
			}
			tier := openTier(t, t.TempDir(), segtier.Options{ChunkSize: 16 << 10})
			copyClosed(t, tier, o)
			checkAsTheBrokerSaid(t, tier, o, lines)
		})
	}
}

func checkAsTheBrokerSaid(t *testing.T, tier *segtier.Tier, o *oracle, lines []brokerLine) {
	t.Helper()
	var head brokerLine
	want := map[int64]brokerLine{}
	for _, l := range lines {
		switch l.Kind {
		case "partition":
			head = l
		case "record":
			if l.Offset <= o.end {
				want[l.Offset] = l
			}
		}
	}
	records, times := len(want), 0
	compareRecords(t, tier, o, head, want)
	for _, l := range lines {
		if l.Kind != "time" {
			continue
		}
		times++
		pos, err := tier.OffsetForTime(t.Context(), fetch.TimeRequest{Partition: o.partition, LogStart: head.LogStartOffset, Time: l.Time})
		if err != nil {
			t.Fatalf("time %d: %v", l.Time, err)
		}
		if l.Offset > o.end {
			l.Offset = -1 // the broker found it in the active segment
		}
		if pos.Offset != l.Offset || l.Offset >= 0 && (pos.Timestamp != l.Timestamp || pos.LeaderEpoch != l.Epoch) {
			t.Errorf("time %d: %+v, the broker said offset %d, timestamp %d, epoch %d", l.Time, pos, l.Offset, l.Timestamp, l.Epoch)
		}
	}
	if times == 0 || records == 0 {
		t.Errorf("compared %d records and %d times", records, times)
	}
}

// compareRecords consumes the tier from the log start on as a client would.
func compareRecords(t *testing.T, tier *segtier.Tier, o *oracle, head brokerLine, want map[int64]brokerLine) {
	t.Helper()
	var res fetch.Result
	defer res.Release()
	var decoder segment.Decoder
	for offset := head.LogStartOffset; ; offset = res.NextOffset() {
		err := tier.Fetch(t.Context(), fetch.Request{
			Partition: o.partition, LogStart: head.LogStartOffset, Offset: offset, MaxBytes: 64 << 10, Isolation: fetch.ReadCommitted,
		}, &res)
		if errors.Is(err, fetch.ErrEndOfTier) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		aborted, _, _ := res.AbortedTransactions()
		for h, raw := range res.Batches() {
			if h.Control() {
				continue
			}
			committed := h.LastOffset < head.LastStableOffset
			for _, a := range aborted {
				if h.Transactional() && a.ProducerID == h.ProducerID && a.FirstOffset <= h.BaseOffset && h.LastOffset <= a.LastOffset {
					committed = false
				}
			}
			err := decoder.Records(raw, func(r segment.Record) bool {
				if r.Offset < offset {
					return true // a client skips what it did not ask for
				}
				w, ok := want[r.Offset]
				if !ok {
					t.Errorf("record at %d: the broker's consumer did not get it", r.Offset)
					return true
				}
				delete(want, r.Offset)
				same := r.Timestamp == w.Timestamp && h.LeaderEpoch == w.Epoch && length(r.Key) == w.KeyLen &&
					length(r.Value) == w.ValueLen && len(r.Headers) == w.Headers
				if w.ValueLen >= 0 {
					same = same && checksum.CRC32C(r.Value) == w.ValueCrc32c
				}
				if wantCommitted := w.Committed == nil || *w.Committed; !same || committed != wantCommitted {
					t.Errorf("record at %d: %+v of batch %+v (committed: %v), the broker said %+v", r.Offset, r, h, committed, w)
				}
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for offset := range want {
		t.Errorf("record at %d: the broker's consumer got it, ours did not", offset)
	}
}

func length(b []byte) int {
	if b == nil {
		return -1
	}
	return len(b)
}
