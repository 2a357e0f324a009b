package segment_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/segment"
)

// expectation is a line of expected.jsonl: what a real broker and Kafka's own
// classes say about the partitions in the repository's testdata.
type expectation struct {
	Kind, Partition string

	TopicID string // partition

	Epochs json.RawMessage // epochs: [[epoch, start]], segment: [epoch]

	// segment
	Base, Next             int64
	Active                 bool
	Size                   int64
	CRC32C                 uint32
	Batches, Records       int
	FirstRecord            int64
	LastRecord, LastBatch  int64
	MaxTimestamp           int64
	MaxTimestampOffset     int64
	Codecs                 []string
	Offset, Timestamp      int64 // record
	Epoch                  int32
	KeyLen, ValueLen       int
	ValueCRC32C            uint32
	Headers                int
	OffsetIndex, TimeIndex [][2]int64
}

// expected calls fn for every line of the given kind.
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

func partitionPath(name string) string { return filepath.Join("../testdata/partitions", name) }

func TestBrokerPartitions(t *testing.T) {
	expected(t, "partition", func(e expectation) {
		p, err := segment.Dir{Path: partitionPath(e.Partition)}.Partition()
		if err != nil || p.TopicID.String() != e.TopicID || p.Validate() != nil {
			t.Errorf("%s: %v, %v", e.Partition, p, err)
		}
	})
	expected(t, "epochs", func(e expectation) {
		var want [][2]int64
		if err := json.Unmarshal(e.Epochs, &want); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(partitionPath(e.Partition), "leader-epoch-checkpoint"))
		if err != nil {
			t.Fatal(err)
		}
		l, err := segment.ParseLineage(text)
		if err != nil || !slices.EqualFunc(l, want, func(s segment.EpochStart, w [2]int64) bool {
			return int64(s.Epoch) == w[0] && s.Start == w[1]
		}) {
			t.Errorf("%s: %v, %v, want %v", e.Partition, l, err, want)
		}
		if again, _ := l.AppendText(nil); string(again) != string(text) {
			t.Errorf("%s: written again it is %q, was %q", e.Partition, again, text)
		}
	})
}

// Every segment is opened, walked and decoded, and compared with what Kafka says
// is in it.
func TestBrokerSegments(t *testing.T) {
	var d segment.Decoder
	seen := map[string][]int64{}
	expected(t, "segment", func(e expectation) {
		seen[e.Partition] = append(seen[e.Partition], e.Base)
		s, err := segment.OpenDir(partitionPath(e.Partition), e.Base)
		if e.Size == 0 {
			if err == nil {
				t.Errorf("%s, segment %d: opened, but it is empty", e.Partition, e.Base)
			}
			return
		}
		if err != nil {
			t.Error(err)
			return
		}
		defer s.Close()
		got := expectation{
			Kind: "segment", Partition: e.Partition, Base: e.Base, Active: e.Active, Next: s.Info().EndOffset + 1,
			FirstRecord: -1, LastRecord: -1, MaxTimestamp: -1, MaxTimestampOffset: -1, Epochs: e.Epochs, OffsetIndex: e.OffsetIndex, TimeIndex: e.TimeIndex,
		}
		log, size := s.File(segment.Log)
		got.Size = size
		raw, err := io.ReadAll(io.NewSectionReader(log, 0, size))
		if err != nil {
			t.Fatal(err)
		}
		got.CRC32C = checksum.CRC32C(raw)
		codecs := map[string]bool{}
		w := segment.Walker{Batch: func(pos int64, h segment.Header) error {
			got.Batches++
			got.LastBatch = h.BaseOffset
			if h.MaxTimestamp > got.MaxTimestamp {
				got.MaxTimestamp, got.MaxTimestampOffset = h.MaxTimestamp, h.LastOffset
			}
			codecs[h.Codec().String()] = true
			if epoch, ok := s.Info().Epochs.EpochFor(h.BaseOffset); !ok || epoch != h.LeaderEpoch {
				t.Errorf("%s: offset %d has epoch %d, the history says %d", e.Partition, h.BaseOffset, h.LeaderEpoch, epoch)
			}
			return d.Records(raw[pos:pos+int64(h.Size)], func(r segment.Record) bool {
				if got.FirstRecord < 0 {
					got.FirstRecord = r.Offset
				}
				got.LastRecord = r.Offset
				if !h.Control() {
					got.Records++
				}
				return true
			})
		}}
		if _, err := w.Write(raw); err != nil {
			t.Errorf("%s, segment %d: %v", e.Partition, e.Base, err)
		}
		if err := w.Close(); err != nil {
			t.Errorf("%s, segment %d: %v", e.Partition, e.Base, err)
		}
		for c := range codecs {
			got.Codecs = append(got.Codecs, c)
		}
		slices.Sort(got.Codecs)
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(e)
		if string(a) != string(b) {
			t.Errorf("%s\ngot  %s\nwant %s", e.Partition, a, b)
		}
		var epochs []int32
		if err := json.Unmarshal(e.Epochs, &epochs); err != nil {
			t.Fatal(err)
		}
		if l := s.Info().Epochs.Range(e.Base, s.Info().EndOffset); !slices.EqualFunc(l, epochs, func(s segment.EpochStart, e int32) bool { return s.Epoch == e }) {
			t.Errorf("%s, segment %d: epochs %v, want %v", e.Partition, e.Base, l, epochs)
		}
	})
	for partition, want := range seen {
		if got, err := (segment.Dir{Path: partitionPath(partition)}).Segments(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: segments %v, %v, want %v", partition, got, err, want)
		}
	}
}

// Every record that a consumer got is decoded as the consumer did.
func TestBrokerRecords(t *testing.T) {
	want := map[string][]expectation{}
	expected(t, "record", func(e expectation) { want[e.Partition] = append(want[e.Partition], e) })
	var d segment.Decoder
	for partition, records := range want {
		dir := segment.Dir{Path: partitionPath(partition)}
		bases, err := dir.Segments()
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range bases {
			raw, err := os.ReadFile(filepath.Join(dir.Path, base(b)+".log"))
			if err != nil {
				t.Fatal(err)
			}
			w := segment.Walker{Batch: func(pos int64, h segment.Header) error {
				return d.Records(raw[pos:pos+int64(h.Size)], func(r segment.Record) bool {
					if h.Control() || r.Offset < records[0].Offset {
						return true // consumers get no markers, and nothing below the log's start
					}
					records = checkConsumed(t, partition, h, r, records)
					return len(records) > 0
				})
			}}
			if _, err := w.Write(raw); err != nil {
				t.Fatalf("%s: %v", partition, err)
			}
			if len(records) == 0 {
				break
			}
		}
		if len(records) > 0 {
			t.Errorf("%s: %d records are missing, from offset %d on", partition, len(records), records[0].Offset)
		}
	}
}

// checkConsumed compares r with the first of records and returns the rest.
func checkConsumed(t *testing.T, partition string, h segment.Header, r segment.Record, records []expectation) []expectation {
	t.Helper()
	length := func(b []byte) int {
		if b == nil {
			return -1
		}
		return len(b)
	}
	e := records[0]
	if r.Offset != e.Offset || r.Timestamp != e.Timestamp || h.LeaderEpoch != e.Epoch || length(r.Key) != e.KeyLen ||
		length(r.Value) != e.ValueLen || len(r.Headers) != e.Headers || e.ValueLen >= 0 && checksum.CRC32C(r.Value) != e.ValueCRC32C {
		t.Errorf("%s: offset %d: %d ms, epoch %d, key of %d, value of %d bytes, %d headers; want %+v",
			partition, r.Offset, r.Timestamp, h.LeaderEpoch, length(r.Key), length(r.Value), len(r.Headers), e)
	}
	return records[1:]
}
