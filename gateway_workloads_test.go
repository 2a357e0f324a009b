package segtier_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/bench/replay"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/gateway"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/embedded"
	"github.com/segtier/segtier/segment"
)

// What the workloads read. Everything fits into the memory of one of them.
const (
	workPartitions = 8
	workSegments   = 2
	workSegment    = 12 << 20
	workLonger     = 4 // times as long are those of the first partition
	workMemory     = 512 << 20
)

// copied is one partition that was copied: its whole log, and where batches begin in it.
type copied struct {
	partition segment.Partition
	log       []byte
	bases     []int64 // of its batches
	starts    []int   // of them in log
	end       int64   // offset behind the last
}

// made makes a partition, and the segments to copy.
func made(t *testing.T, seed uint64, number int) (*copied, *testseg.Log) {
	p := testseg.DefaultPartition
	p.Number = int32(number)
	size := int64(workSegment)
	if number == 0 {
		size *= workLonger
	}
	log := testseg.Big(seed+uint64(number), size, testseg.Options{Partition: p, Segments: workSegments})
	c := &copied{partition: p}
	for _, s := range log.Segments {
		for pos := 0; pos < len(s.Log); {
			h, err := segment.ParseHeader(s.Log[pos:])
			if err != nil {
				t.Fatal(err)
			}
			c.bases, c.starts = append(c.bases, h.BaseOffset), append(c.starts, len(c.log)+pos)
			pos += int(h.Size)
		}
		c.log = append(c.log, s.Log...)
		c.end = s.Info().EndOffset + 1
	}
	return c, log
}

// at returns where the batch begins that holds an offset.
func (c *copied) at(offset int64) int {
	i, found := slices.BinarySearch(c.bases, offset)
	if !found {
		i--
	}
	return c.starts[i]
}

// compared is a tier whose every answer is compared with what was copied.
type compared struct {
	*segtier.Tier
	t    *testing.T
	logs []*copied

	mu     sync.Mutex
	served []map[int64]bool // MiB of each log that were served; guarded by mu
}

// Fetch implements replay.Target.
func (c *compared) Fetch(ctx context.Context, req fetch.Request, res *fetch.Result) error {
	if err := c.Tier.Fetch(ctx, req, res); err != nil {
		c.t.Errorf("%v from offset %d: %v", req.Partition, req.Offset, err)
		return err
	}
	log := c.logs[req.Partition.Number]
	pos := log.at(req.Offset)
	if res.FirstOffset() > req.Offset || res.NextOffset() <= req.Offset {
		c.t.Errorf("%v: offset %d was asked for, [%d,%d) came", req.Partition, req.Offset, res.FirstOffset(), res.NextOffset())
	}
	for _, b := range res.AppendTo(nil) {
		if end := pos + len(b); end > len(log.log) || !bytes.Equal(b, log.log[pos:end]) {
			c.t.Errorf("%v from offset %d: wrong bytes at %d", req.Partition, req.Offset, pos)
			return nil
		}
		c.mu.Lock()
		for at := pos; at < pos+len(b); at += 1 << 20 {
			c.served[req.Partition.Number][int64(at)>>20] = true
		}
		c.served[req.Partition.Number][int64(pos+len(b)-1)>>20] = true
		c.mu.Unlock()
		pos += len(b)
	}
	return nil
}

// world are the copied partitions as workloads see them.
func (c *compared) world() (w replay.World) {
	for _, log := range c.logs {
		w = append(w, replay.Extent{Partition: log.partition, End: log.end, Bytes: int64(len(log.log))})
	}
	return w
}

// TestGatewayWorkloads has every workload of package replay read a real server
// through a Tier. Every byte is compared with what was copied. While memory holds all, none is
// fetched twice but to save a GET, and with 16 MiB the bytes are as right.
func TestGatewayWorkloads(t *testing.T) {
	s := gateway.Start(t, gateway.Options{})
	store := openS3(t, s, s.URL(), "workloads")
	meta, err := embedded.Open(filepath.Join(t.TempDir(), "metadata.db"), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(meta.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	}()
	seed := rand.Uint64() >> 1
	if s := os.Getenv("SEGTIER_SEED"); s != "" {
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SEGTIER_SEED=%d", seed)
	open := func(t *testing.T, memory int64) *segtier.Tier {
		tier, err := segtier.Open(t.Context(), segtier.Options{Store: store, Metadata: meta, PartSize: s3Part, MemoryBytes: memory})
		if err != nil {
			t.Fatal(err)
		}
		return tier
	}
	var logs []*copied
	tier := open(t, workMemory)
	var all errgroup.Group
	for number := range workPartitions {
		c, log := made(t, seed, number)
		logs = append(logs, c)
		all.Go(func() error {
			for _, seg := range log.Segments {
				if _, err := tier.Copy(t.Context(), seg, metadata.Writer{BrokerID: 1, LeaderEpoch: 9}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := errors.Join(all.Wait(), tier.Close()); err != nil {
		t.Fatal(err)
	}
	events, soak := 150, os.Getenv("SEGTIER_SOAK") != ""
	if soak {
		events = 20_000
	}
	for _, w := range replay.Workloads() {
		for _, memory := range []int64{workMemory, 16 << 20} {
			if memory < workMemory && !soak && strings.HasPrefix(w.Name, "trace-") {
				continue
			}
			t.Run(fmt.Sprintf("%s, %d MiB", w.Name, memory>>20), func(t *testing.T) {
				c := &compared{Tier: open(t, memory), t: t, logs: logs}
				for range logs {
					c.served = append(c.served, make(map[int64]bool))
				}
				run(t, c, w, events, seed, memory)
			})
		}
	}
	t.Run("1,000 streams, 256 MiB", func(t *testing.T) {
		streams, err := replay.FindWorkload("streams")
		if err != nil {
			t.Fatal(err)
		}
		c := &compared{Tier: open(t, 256<<20), t: t, logs: logs}
		for range logs {
			c.served = append(c.served, make(map[int64]bool))
		}
		run(t, c, streams, max(events, 3000), seed, 256<<20)
	})
}

// run replays a workload as fast as it goes, and looks at what that cost.
func run(t *testing.T, c *compared, w replay.Workload, events int, seed uint64, memory int64) {
	all, err := w.Events(c.world(), events, seed)
	if err != nil {
		t.Fatal(err)
	}
	report, err := replay.Run(t.Context(), c, all, replay.Options{
		Full: true, Interval: 50 * time.Millisecond,
		Request: func(e replay.Event) (fetch.Request, error) {
			req := fetch.Request{Partition: c.logs[e.Partition].partition, Offset: e.Offset, MaxBytes: e.MaxBytes}
			if w.Name == "catchup" {
				req.Hint = fetch.Scan // its events begin about where the last read ended, and not there
			}
			return req, nil
		},
		Live: func(replay.Live) {
			if used := c.Stats().Cache.Used; used > memory {
				t.Errorf("%d bytes in use of %d", used, memory)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	st := c.Stats()
	if report.Errors > 0 || report.Fetches != int64(len(all)) {
		t.Errorf("%d errors, %d fetches of %d", report.Errors, report.Fetches, len(all))
	}
	if st.Cache.Used != 0 || st.Endpoint.RequestsInFlight != 0 || st.Endpoint.BytesInFlight != 0 {
		t.Errorf("left behind: %d bytes, %+v", st.Cache.Used, st.Endpoint)
	}
	var once, whole int64
	for i, mibs := range c.served {
		once += int64(len(mibs)) << 20
		whole += int64(len(c.logs[i].log))
	}
	f := st.Fetch
	t.Logf("%d fetches, %d MiB served once, %d MiB fetched with %d GETs, %d for tails, ahead %d MiB, %d in vain, %d for gaps",
		report.Fetches, once>>20, f.DataBytes>>20, f.DataGets, f.TailGets, f.Ahead>>20, f.Wasted, f.GapBytes)
	if memory < workMemory {
		return
	}
	const tails = workPartitions * workSegments
	if f.TailGets > tails {
		t.Errorf("%d GETs for the tails of %d segments", f.TailGets, tails)
	}
	if f.DataBytes > whole+f.GapBytes {
		t.Errorf("%d bytes fetched, and %d for gaps, of %d that there are", f.DataBytes-f.GapBytes, f.GapBytes, whole)
	}
	// How long runs are follows how fast the server answers, and that is the machine's
	// matter: at best one GET for 7.5 MiB. A MiB each is what nobody who fetches ahead makes.
	if w.Name == "catchup" && f.DataGets > int64(len(c.logs[0].log))/(2<<20) {
		t.Errorf("%d GETs for %d bytes", f.DataGets, len(c.logs[0].log))
	}
}
