package segtier_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/audit"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/gateway"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/s3"
	"github.com/segtier/segtier/objstore/storetest"
)

// Tests of the whole library on a real S3 server; see package internal/gateway.

// s3Part is the least that S3 accepts for a part that is not the last.
const s3Part = 5 << 20

// openS3 opens a store under prefix whose requests go to endpoint: the server
// or a proxy before it. The caller, or who gets it, closes it.
func openS3(t testing.TB, s *gateway.Server, endpoint, prefix string) *s3.Store {
	t.Helper()
	store, err := s3.Open(t.Context(), s3.Options{
		Bucket: gateway.Bucket, Prefix: prefix, Region: gateway.Region, Endpoint: endpoint, PathStyle: true,
		AccessKeyID: s.AccessKey, SecretAccessKey: s.SecretKey, RootCAFile: s.CAFile(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestGatewayAcceptance(t *testing.T) {
	s := gateway.Start(t, gateway.Options{})
	var n atomic.Int64
	storetest.Acceptance(t, func(t *testing.T) objstore.Store {
		return openS3(t, s, s.URL(), fmt.Sprintf("acceptance-%d", n.Add(1)))
	})
}

// TestGatewayPartitions holds the library on S3 to everything that
// TestRealPartitions and TestAsTheBrokerSaid hold it to on a directory, over both
// schemes, with objects of one part and of several.
func TestGatewayPartitions(t *testing.T) {
	paths := []string{
		"testdata/partitions/events.wide-segment_1-0",
		"testdata/partitions/blobs.large-record_1-0",
		"testdata/partitions/payments.tx_commit-abort-0",
	}
	if gateway.Required() {
		var err error
		if paths, err = filepath.Glob("testdata/partitions/*"); err != nil || len(paths) < 10 {
			t.Fatalf("%d partitions in testdata: %v", len(paths), err)
		}
	}
	big, err := testseg.Big(1, 12<<20, testseg.Options{Segments: 3}).WriteDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%v", secure), func(t *testing.T) {
			checkPartitions(t, gateway.Start(t, gateway.Options{TLS: secure}), append(paths, big))
		})
	}
}

// checkPartitions copies partition directories to a server and compares all that
// can be asked of them.
func checkPartitions(t *testing.T, s *gateway.Server, paths []string) {
	t.Helper()
	said := brokerSaid(t)
	for _, path := range paths {
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			o := newOracle(t, path)
			if len(o.closed) == 0 {
				return // only an active segment: nothing to tier
			}
			tier := openTierOn(t, openS3(t, s, s.URL(), name), t.TempDir(), segtier.Options{PartSize: s3Part})
			copyClosed(t, tier, o)
			checkWalks(t, tier, o)
			checkOffsets(t, tier, o)
			checkTimes(t, tier, o)
			checkFrontier(t, tier, o)
			if lines := said[name]; lines != nil {
				checkAsTheBrokerSaid(t, tier, o, lines)
			}
		})
	}
}

// TestGatewayEvidence asks for every level of evidence and gets at least that for
// every part, of objects of one part and of several.
func TestGatewayEvidence(t *testing.T) {
	s := gateway.Start(t, gateway.Options{})
	segments := map[string]*testseg.Segment{
		"one part":      testseg.Random(3, testseg.Options{Segments: 1}).Segments[0],
		"several parts": testseg.Big(3, 11<<20, testseg.Options{}).Segments[0],
	}
	for _, level := range []objstore.Level{objstore.Echoed, objstore.Listed, objstore.Attributed, objstore.ReadBack} {
		for name, seg := range segments {
			store, err := s3.Open(t.Context(), s3.Options{
				Bucket: gateway.Bucket, Prefix: fmt.Sprintf("evidence-%d-%d", level, len(seg.Log)), Region: gateway.Region, Endpoint: s.URL(), PathStyle: true,
				AccessKeyID: s.AccessKey, SecretAccessKey: s.SecretKey, Evidence: level,
			})
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var got []objstore.Level
			tier := openTierOn(t, store, t.TempDir(), segtier.Options{PartSize: s3Part, Events: lifecycle.Events{
				PartConfirmed: func(_ *metadata.Segment, part objstore.PartEvidence) {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, part.Level)
				},
			}})
			if _, err := tier.Copy(t.Context(), seg, metadata.Writer{BrokerID: 1, LeaderEpoch: 9}); err != nil {
				t.Errorf("%s, %v: %v", level, name, err)
			}
			if len(got) == 0 || slices.Min(got) < level {
				t.Errorf("%s, %v: parts are confirmed as %v", level, name, got)
			}
			a, ok := store.Abilities()
			if want := (s3.Abilities{
				PutChecksum: true, PartChecksum: true, PutEcho: true, PartEcho: true, ConditionalPut: true, ConditionalComplete: true, Token: true,
			}); !ok || a != want {
				t.Errorf("abilities of versitygw: %v", a)
			}
		}
	}
}

// kills is how often the server dies: all hundred where the server is required,
// fewer where a person waits, and more in a soak.
func kills() int {
	switch {
	case os.Getenv("SEGTIER_SOAK") != "":
		return 1000
	case gateway.Required():
		return 100
	}
	return 12
}

// TestGatewayKilled kills the server again and again while segments are copied
// to it, before, inside and after requests of every kind, and lets it come back.
// Every copy ends FINISHED, sooner or later; nothing that is FINISHED differs from
// its source, and nothing else is readable.
func TestGatewayKilled(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := gateway.Start(t, gateway.Options{})
	proxy := gateway.Front(t, s)
	store := openS3(t, s, proxy.URL(), "killed")
	tier := openTierOn(t, store, t.TempDir(), segtier.Options{PartSize: s3Part})

	k := &killer{t: t, server: s, r: rand.New(rand.NewPCG(seed, 1)), left: kills(), struck: map[string]int{}}
	proxy.Hook(k.decide)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	var segments []*testseg.Segment
	failures := 0
	for number := int32(0); k.running(); number++ {
		p := testseg.DefaultPartition
		p.Number = number
		seg := testseg.Big(seed, 11<<20, testseg.Options{Partition: p}).Segments[0]
		segments = append(segments, seg)
		failures += copyUntilFinished(ctx, t, tier, seg)
	}
	proxy.Hook(nil)
	t.Logf("%d kills; %d segments; %d copies failed and were repeated; struck: %v", k.killed, len(segments), failures, k.struck)
	for _, seg := range segments {
		checkSegment(t, tier, seg)
	}
	report, err := tier.Verify(t.Context(), audit.Options{Found: func(f audit.Finding) { t.Errorf("finding: %+v", f) }})
	if err != nil || report.Segments != len(segments) {
		t.Errorf("verified %d segments of %d: %v", report.Segments, len(segments), err)
	}
	checkObjects(t, store, len(segments))
}

// killer kills the server at some requests, and starts it again.
type killer struct {
	t      *testing.T
	server *gateway.Server

	mu     sync.Mutex
	r      *rand.Rand     // guarded by mu
	left   int            // kills to come; guarded by mu
	killed int            // guarded by mu
	struck map[string]int // kills by kind of request; guarded by mu
	busy   bool           // a kill is going on; guarded by mu
}

func (k *killer) running() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.left > 0 && !k.t.Failed()
}

// decide lets one request in four be struck: enough that most copies die more
// than once, and that some come through.
func (k *killer) decide(r gateway.Request) gateway.Action {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.busy || k.left == 0 || k.r.IntN(4) != 0 {
		return gateway.Action{}
	}
	k.busy = true
	when := []gateway.Moment{gateway.Before, gateway.Inside, gateway.After}[k.r.IntN(3)]
	return gateway.Action{
		When: when,
		Do: func() {
			if err := k.server.Restart(); err != nil { // kills it first
				k.t.Error(err)
			}
		},
		End: func(struck bool) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.busy = false
			if struck {
				k.left--
				k.killed++
				k.struck[r.Op]++
			}
		},
	}
}

// copyUntilFinished copies a segment as a host does, again and again, and
// returns how often that failed.
func copyUntilFinished(ctx context.Context, t *testing.T, tier *segtier.Tier, seg *testseg.Segment) (failures int) {
	t.Helper()
	for {
		got, err := tier.Copy(ctx, seg, metadata.Writer{BrokerID: 1, LeaderEpoch: 3})
		if err == nil {
			if got.State != metadata.CopySegmentFinished {
				t.Errorf("copied: %v", got.State)
			}
			return failures
		}
		if ctx.Err() != nil || t.Failed() {
			t.Fatalf("copy %d of %v: %v", failures+1, seg.Info().Partition, err)
		}
		if errors.Is(err, objstore.ErrConflict) || errors.Is(err, objstore.ErrCorrupt) || errors.Is(err, objstore.ErrRefused) {
			t.Errorf("copy %d of %v blames something else: %v", failures+1, seg.Info().Partition, err)
		}
		failures++
	}
}

// checkSegment fetches a segment and compares every byte.
func checkSegment(t *testing.T, tier *segtier.Tier, seg *testseg.Segment) {
	t.Helper()
	info := seg.Info()
	var res fetch.Result
	defer res.Release()
	var got []byte
	for offset := info.StartOffset; offset <= info.EndOffset; offset = res.NextOffset() {
		err := tier.Fetch(t.Context(), fetch.Request{Partition: info.Partition, LogStart: info.StartOffset, Offset: offset, MaxBytes: 4 << 20}, &res)
		if err != nil {
			t.Fatalf("%v from offset %d: %v", info.Partition, offset, err)
		}
		for _, b := range res.AppendTo(net.Buffers(nil)) {
			got = append(got, b...)
		}
	}
	if !bytes.Equal(got, seg.Log) {
		t.Errorf("%v: %d bytes came back, differing from the %d of the source", info.Partition, len(got), len(seg.Log))
	}
}

// checkObjects compares how many segment objects there are with how many there
// should be: an id that was given up leaves none.
func checkObjects(t *testing.T, store *s3.Store, want int) {
	t.Helper()
	objects, pending := 0, 0
	for info, err := range store.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(info.Key, ".seg") {
			objects++
		}
	}
	for _, err := range store.Uploads(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		pending++
	}
	t.Logf("%d objects, %d unfinished uploads", objects, pending)
	if objects != want {
		t.Errorf("%d objects, want %d", objects, want)
	}
}
