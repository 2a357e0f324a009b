package kafkafetch_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/examples/kafkafetch"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/embedded"
	"github.com/segtier/segtier/objstore/dir"
	"github.com/segtier/segtier/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	topic = "payments.tx_commit-abort"
	logs  = "../../testdata"
)

// bases are the closed segments; the one at 381 is the active one.
var bases = []int64{0, 34, 68, 100, 132, 164, 197, 230, 248, 282, 315, 347}

const end = 381

// broker tiers the partition that a real Kafka wrote, in several topics by the
// number of copies, and serves it.
func broker(ctx context.Context, work string, copies int) (addr string, stop func() error, err error) {
	store, err := dir.Open(filepath.Join(work, "tier"), dir.Options{Create: true})
	if err != nil {
		return "", nil, err
	}
	meta, err := embedded.Open(filepath.Join(work, "segtier.db"), embedded.Options{})
	if err != nil {
		return "", nil, err
	}
	tier, err := segtier.Open(ctx, segtier.Options{Store: store, Metadata: meta, MemoryBytes: 16 << 20, ChunkSize: 4 << 10})
	if err != nil {
		return "", nil, err
	}
	for n := range copies {
		for _, base := range bases {
			src, err := segment.OpenDir(filepath.Join(logs, "partitions", topic+"-0"), base)
			if err != nil {
				return "", nil, err
			}
			if _, err := tier.Copy(ctx, numbered{src, int32(n)}, metadata.Writer{BrokerID: 1, LeaderEpoch: 9}); err != nil {
				return "", nil, err
			}
			if err := src.Close(); err != nil {
				return "", nil, err
			}
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	b := &kafkafetch.Broker{Tier: tier}
	served := make(chan error, 1)
	go func() { served <- b.Serve(l) }()
	return l.Addr().String(), func() error {
		l.Close()
		err := <-served
		for _, c := range []interface{ Close() error }{tier, meta, store} {
			if e := c.Close(); err == nil {
				err = e
			}
		}
		return err
	}, nil
}

// numbered is a segment in another partition of the topic.
type numbered struct {
	segment.Source
	number int32
}

func (s numbered) Info() segment.Info {
	info := s.Source.Info()
	info.Partition.Number = s.number
	return info
}

// consume reads everything there is of the first n partitions.
func consume(ctx context.Context, addr string, n int, opts ...kgo.Opt) (map[int32][]*kgo.Record, error) {
	from := map[int32]kgo.Offset{}
	for p := range int32(n) {
		from[p] = kgo.NewOffset().AtStart()
	}
	opts = append(opts, kgo.SeedBrokers(addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.KeepControlRecords())
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records, ends := map[int32][]*kgo.Record{}, 0
	for ends < n {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset == end-1 {
				ends++
			}
			if !r.Attrs.IsControl() {
				records[r.Partition] = append(records[r.Partition], r)
			}
		})
	}
	return records, nil
}

// A franz-go consumer reads a tiered partition with transactions, once whatever
// was written and once what was committed.
func Example() {
	ctx := context.Background()
	work, err := os.MkdirTemp("", "segtier")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(work)
	addr, stop, err := broker(ctx, work, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	everything, err := consume(ctx, addr, 1)
	if err != nil {
		fmt.Println(err)
	}
	committed, err := consume(ctx, addr, 1, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(len(everything[0]), "records,", len(committed[0]), "of them committed")
	if err := stop(); err != nil {
		fmt.Println(err)
	}
	// Output: 369 records, 224 of them committed
}

// What a client gets is what Kafka's own consumer got from Kafka's own broker, in
// whatever pieces it asks for it.
func TestAsFromKafka(t *testing.T) {
	want := map[bool]map[int64]uint32{true: {}, false: {}} // by "committed alone": CRC of values by offset
	f, err := os.Open(filepath.Join(logs, "expected.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r struct {
			Kind, Partition string
			Offset          int64
			ValueCrc32c     uint32
			Committed       *bool // only if not
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.Kind == "record" && r.Partition == topic+"-0" && r.Offset < end {
			want[false][r.Offset] = r.ValueCrc32c
			if r.Committed == nil {
				want[true][r.Offset] = r.ValueCrc32c
			}
		}
	}
	const copies = 3
	addr, stop, err := broker(t.Context(), t.TempDir(), copies)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // where it hangs
	defer cancel()
	for _, size := range []int32{100, 5000, 1 << 20} {
		for committed, level := range map[bool]kgo.IsolationLevel{true: kgo.ReadCommitted(), false: kgo.ReadUncommitted()} {
			got, err := consume(ctx, addr, copies, kgo.FetchIsolationLevel(level), kgo.FetchMaxBytes(size), kgo.FetchMaxPartitionBytes(size/2))
			if err != nil {
				t.Fatal(err)
			}
			for p := range int32(copies) {
				sums := map[int64]uint32{}
				for _, r := range got[p] {
					sums[r.Offset] = checksum.CRC32C(r.Value)
				}
				if !maps.Equal(sums, want[committed]) || len(got[p]) != len(sums) {
					offsets := slices.Sorted(maps.Keys(sums))
					t.Errorf("size %d, committed %v, partition %d: %d records %v, want %d", size, committed, p, len(got[p]), offsets, len(want[committed]))
				}
			}
		}
	}
}
