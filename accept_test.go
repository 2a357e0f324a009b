package segtier_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"testing"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/audit"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/index"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/embedded"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/dir"
	"github.com/segtier/segtier/segment"
)

// oracle answers by brute force what a tier of the closed segments of one
// partition directory must answer.
type oracle struct {
	dir       segment.Dir
	partition segment.Partition
	closed    []int64 // base offsets
	log       []byte  // all closed logs, one after another
	batches   []oracleBatch
	records   []oracleRecord
	aborted   []index.AbortedTxn
	end       int64 // last offset of the last closed segment
}

type oracleBatch struct {
	header segment.Header
	raw    []byte
}

type oracleRecord struct{ offset, timestamp int64 }

func newOracle(t testing.TB, path string) *oracle {
	t.Helper()
	o := &oracle{dir: segment.Dir{Path: path}}
	var err error
	if o.partition, err = o.dir.Partition(); err != nil {
		t.Fatal(err)
	}
	bases, err := o.dir.Segments()
	if err != nil {
		t.Fatal(err)
	}
	o.closed = bases[:len(bases)-1]
	o.end = bases[len(bases)-1] - 1
	var decoder segment.Decoder
	for _, base := range o.closed {
		name := filepath.Join(path, fmt.Sprintf("%020d", base))
		log, err := os.ReadFile(name + ".log")
		if err != nil {
			t.Fatal(err)
		}
		o.log = append(o.log, log...)
		for len(log) > 0 {
			h, err := segment.ParseHeader(log)
			if err != nil {
				t.Fatal(err)
			}
			raw := log[:h.Size]
			log = log[h.Size:]
			o.batches = append(o.batches, oracleBatch{h, raw})
			err = decoder.Records(raw, func(r segment.Record) bool {
				o.records = append(o.records, oracleRecord{r.Offset, r.Timestamp})
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		txn, err := os.ReadFile(name + ".txnindex")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		for ; len(txn) >= 34; txn = txn[34:] {
			v := func(i int) (n int64) {
				for _, b := range txn[2+8*i : 10+8*i] {
					n = n<<8 | int64(b)
				}
				return n
			}
			o.aborted = append(o.aborted, index.AbortedTxn{ProducerID: v(0), FirstOffset: v(1), LastOffset: v(2), LastStableOffset: v(3)})
		}
	}
	return o
}

// batchFor returns the first batch that reaches offset, nil beyond the last.
func (o *oracle) batchFor(offset int64) *oracleBatch {
	i := sort.Search(len(o.batches), func(i int) bool { return o.batches[i].header.LastOffset >= offset })
	if i == len(o.batches) {
		return nil
	}
	return &o.batches[i]
}

// abortedIn returns the aborted transactions that overlap [first, upper).
func (o *oracle) abortedIn(first, upper int64) []index.AbortedTxn {
	var out []index.AbortedTxn
	for _, a := range o.aborted {
		if a.LastOffset >= first && a.FirstOffset < upper {
			out = append(out, a)
		}
	}
	return out
}

// forTime returns the first record in offset order at or after ts, for every
// time that a record has and the ones beside it.
func (o *oracle) times() (times []int64, want map[int64]int64) {
	want = map[int64]int64{}
	greatest := make([]int64, len(o.records)) // of records up to i
	high := int64(math.MinInt64)
	for i, r := range o.records {
		high = max(high, r.timestamp)
		greatest[i] = high
		times = append(times, r.timestamp-1, r.timestamp, r.timestamp+1)
	}
	slices.Sort(times)
	times = slices.Compact(times)
	for _, ts := range times {
		i := sort.Search(len(greatest), func(i int) bool { return greatest[i] >= ts })
		want[ts] = -1
		if i < len(greatest) {
			want[ts] = o.records[i].offset
		}
	}
	return times, want
}

func openTier(t testing.TB, path string, o segtier.Options) *segtier.Tier {
	t.Helper()
	store, err := dir.Open(filepath.Join(path, "store"), dir.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	return openTierOn(t, store, path, o)
}

// openTierOn opens a tier over store, with metadata in the directory path. All
// three are closed when the test ends.
func openTierOn(t testing.TB, store objstore.Store, path string, o segtier.Options) *segtier.Tier {
	t.Helper()
	meta, err := embedded.Open(filepath.Join(path, "metadata.db"), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o.Store, o.Metadata = store, meta
	tier, err := segtier.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range []interface{ Close() error }{tier, meta, store} {
			if err := c.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	})
	return tier
}

func copyClosed(t testing.TB, tier *segtier.Tier, o *oracle) {
	t.Helper()
	for _, base := range o.closed {
		src, err := o.dir.Open(base)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tier.Copy(t.Context(), src, metadata.Writer{BrokerID: 1, LeaderEpoch: 1 << 20}); err != nil {
			t.Fatal(err)
		}
		if err := src.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRealPartitions holds the whole library to the segments a real broker
// wrote: for every partition in testdata, every byte, every offset, every record
// time and every aborted transaction.
func TestRealPartitions(t *testing.T) {
	paths, err := filepath.Glob("testdata/partitions/*")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no partitions in testdata: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			o := newOracle(t, path)
			if len(o.closed) == 0 {
				return // only an active segment: nothing to tier
			}
			for _, chunk := range []int64{0, 4096} { // 4 KiB puts a border into nearly every batch
				t.Run(fmt.Sprintf("chunk=%d", chunk), func(t *testing.T) {
					tier := openTier(t, t.TempDir(), segtier.Options{ChunkSize: chunk, PartSize: max(chunk, 64<<10)})
					copyClosed(t, tier, o)
					checkWalks(t, tier, o)
					checkOffsets(t, tier, o)
					checkTimes(t, tier, o)
					checkFrontier(t, tier, o)
				})
			}
		})
	}
}

func checkWalks(t *testing.T, tier *segtier.Tier, o *oracle) {
	var res fetch.Result
	defer res.Release()
	for _, maxBytes := range []int{1, 1000, 1 << 20, 64 << 20} {
		var got []byte
		offset := o.closed[0]
		for {
			err := tier.Fetch(t.Context(), fetch.Request{Partition: o.partition, LogStart: o.closed[0], Offset: offset, MaxBytes: maxBytes}, &res)
			var end *fetch.EndOfTierError
			if errors.As(err, &end) {
				if end.Next != o.end+1 {
					t.Errorf("max bytes %d: tier ends at %d, want %d", maxBytes, end.Next, o.end+1)
				}
				break
			}
			if err != nil {
				t.Fatalf("max bytes %d, offset %d: %v", maxBytes, offset, err)
			}
			if res.NextOffset() <= offset {
				t.Fatalf("max bytes %d, offset %d: next offset %d", maxBytes, offset, res.NextOffset())
			}
			for _, b := range res.AppendTo(net.Buffers(nil)) {
				got = append(got, b...)
			}
			offset = res.NextOffset()
		}
		if !bytes.Equal(got, o.log) {
			t.Errorf("max bytes %d: %d bytes came back, differing from the %d of the logs", maxBytes, len(got), len(o.log))
		}
	}
}

func checkOffsets(t *testing.T, tier *segtier.Tier, o *oracle) {
	var res fetch.Result
	defer res.Release()
	for offset := o.closed[0]; offset <= o.end+1; offset++ {
		for _, maxBytes := range []int{1, 20_000} {
			err := tier.Fetch(t.Context(), fetch.Request{
				Partition: o.partition, LogStart: o.closed[0], Offset: offset, MaxBytes: maxBytes, Isolation: fetch.ReadCommitted,
			}, &res)
			want := o.batchFor(offset)
			if want == nil {
				if !errors.Is(err, fetch.ErrEndOfTier) {
					t.Fatalf("offset %d: error %v, want the end of the tier", offset, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("offset %d: %v", offset, err)
			}
			for h, raw := range res.Batches() {
				if h.BaseOffset != want.header.BaseOffset || !bytes.Equal(raw, want.raw) {
					t.Fatalf("offset %d: first batch at %d, want %d", offset, h.BaseOffset, want.header.BaseOffset)
				}
				break
			}
			checkAborted(t, o, &res)
		}
	}
}

func checkAborted(t *testing.T, o *oracle, res *fetch.Result) {
	t.Helper()
	got, complete, upTo := res.AbortedTransactions()
	want := o.abortedIn(res.FirstOffset(), res.NextOffset())
	if !slices.Equal(got, want) {
		t.Fatalf("offsets %d to %d: aborted transactions %v, want %v", res.FirstOffset(), res.NextOffset(), got, want)
	}
	if !complete && upTo != o.end+1 {
		t.Fatalf("offsets %d to %d: aborted transactions searched up to %d, the tier ends at %d", res.FirstOffset(), res.NextOffset(), upTo, o.end+1)
	}
}

func checkTimes(t *testing.T, tier *segtier.Tier, o *oracle) {
	times, want := o.times()
	for _, ts := range times {
		if ts < 0 {
			continue
		}
		pos, err := tier.OffsetForTime(t.Context(), fetch.TimeRequest{Partition: o.partition, LogStart: o.closed[0], Time: ts})
		if err != nil {
			t.Fatalf("time %d: %v", ts, err)
		}
		if pos.Offset != want[ts] {
			t.Fatalf("time %d: offset %d, want %d", ts, pos.Offset, want[ts])
		}
	}
}

func checkFrontier(t *testing.T, tier *segtier.Tier, o *oracle) {
	upTo, err := tier.CopiedUpTo(o.partition, nil, o.closed[0])
	if err != nil || upTo != o.end {
		t.Errorf("copied up to %d (%v), want %d", upTo, err, o.end)
	}
	report, err := tier.Verify(t.Context(), audit.Options{Found: func(f audit.Finding) { t.Errorf("finding: %+v", f) }})
	if err != nil || report.Segments != len(o.closed) {
		t.Errorf("verified %d segments of %d: %v", report.Segments, len(o.closed), err)
	}
	var res fetch.Result
	if o.closed[0] > 0 {
		err := tier.Fetch(t.Context(), fetch.Request{Partition: o.partition, LogStart: o.closed[0], Offset: o.closed[0] - 1, MaxBytes: 1}, &res)
		if !errors.Is(err, fetch.ErrOutOfRange) {
			t.Errorf("below the log start: %v, want out of range", err)
		}
	}
}
