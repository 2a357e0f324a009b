package segtier_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
)

var writer = metadata.Writer{BrokerID: 1, LeaderEpoch: 1 << 20}

// TestFrontier: what may be deleted locally never covers what was not copied,
// whatever was copied first, and never goes back.
func TestFrontier(t *testing.T) {
	log := testseg.Random(1, testseg.Options{Segments: 3})
	tier := openTier(t, t.TempDir(), segtier.Options{})
	p := log.Partition
	var base []int64
	for _, s := range log.Segments {
		base = append(base, s.Info().StartOffset)
	}
	want := func(logStart, frontier int64) {
		t.Helper()
		got, err := tier.CopiedUpTo(p, log.Epochs, logStart)
		if err != nil || got != frontier {
			t.Errorf("frontier from %d is %d (%v), want %d", logStart, got, err, frontier)
		}
	}
	want(base[0], base[0]-1)
	if _, err := tier.Copy(t.Context(), log.Segments[2], writer); err != nil {
		t.Fatal(err)
	}
	want(base[0], base[0]-1) // nothing below the third was copied
	want(base[2], log.Segments[2].Info().EndOffset)
	if _, err := tier.Copy(t.Context(), log.Segments[0], writer); err != nil {
		t.Fatal(err)
	}
	want(base[0], base[1]-1)
	want(base[0]+1, base[1]-1)
	if _, err := tier.Copy(t.Context(), log.Segments[1], writer); err != nil {
		t.Fatal(err)
	}
	want(base[0], log.Segments[2].Info().EndOffset)
}

func TestOptionsAreChecked(t *testing.T) {
	for names, o := range map[string]segtier.Options{
		"Options.Store":             {Metadata: metadatatest.NewMem()},
		"Options.Metadata":          {Store: storetest.NewMem()},
		"Options.MemoryBytes is -1": {Store: storetest.NewMem(), Metadata: metadatatest.NewMem(), MemoryBytes: -1},
		"ChunkSize is":              {Store: storetest.NewMem(), Metadata: metadatatest.NewMem(), ChunkSize: 1 << 40},
		"two chunks":                {Store: storetest.NewMem(), Metadata: metadatatest.NewMem(), MemoryBytes: 1 << 20},
		"8192 at least":             {Store: storetest.NewMem(), Metadata: metadatatest.NewMem(), MemoryBytes: 1, ChunkSize: 4096},
		"Requests is negative: -1":  {Store: storetest.NewMem(), Metadata: metadatatest.NewMem(), Requests: -1},
	} {
		if tier, err := segtier.Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), names) {
			t.Errorf("%v does not name %s", err, names)
			if err == nil {
				_ = tier.Close()
			}
		}
	}
}

// What a Tier passes on reaches what it is for: who is given nonsense says by which name.
func TestOptionsReachTheirPackages(t *testing.T) {
	for name, o := range map[string]segtier.Options{
		"MemoryBytes":           {MemoryBytes: -1},
		"ChunkSize":             {ChunkSize: -1},
		"PartSize":              {PartSize: -1},
		"Requests":              {Requests: -1},
		"BytesInFlight":         {BytesInFlight: -1},
		"TenantRequests":        {TenantRequests: -1},
		"TenantBytesInFlight":   {TenantBytesInFlight: -1},
		"UploadBytesPerSecond":  {UploadBytesPerSecond: -1},
		"Attempts":              {Attempts: -1},
		"RetryBudget":           {RetryBudget: -1},
		"ProgressTimeout":       {ProgressTimeout: -1},
		"UploadProgressTimeout": {UploadProgressTimeout: -1},
		"HedgeBytes":            {HedgeBytes: -1},
		"RunBytes -1":           {RunBytes: -1},
		"TailBytes -1":          {TailBytes: -1},
		"VisibilityGrace -1ns":  {VisibilityGrace: -1},
	} {
		o.Store, o.Metadata = storetest.NewMem(), metadatatest.NewMem()
		tier, err := segtier.Open(t.Context(), o)
		if err == nil {
			t.Errorf("%s: accepted", name)
			_ = tier.Close()
		} else if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not what this is about: %v", name, err)
		}
	}
}

// The memory budget is held to the same bounds while a Tier is in use as when it is opened,
// and one that is refused changes nothing.
func TestMemoryBytesInUse(t *testing.T) {
	log := testseg.Random(2, testseg.Options{Segments: 1})
	tier, err := segtier.Open(t.Context(), segtier.Options{
		Store: storetest.NewMem(), Metadata: metadatatest.NewMem(), ChunkSize: 4096, MemoryBytes: math.MaxInt64,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer tier.Close()
	if _, err := tier.Copy(t.Context(), log.Segments[0], writer); err != nil {
		t.Fatal(err)
	}
	info := log.Segments[0].Info()
	var res fetch.Result
	defer res.Release()
	served := func() {
		t.Helper()
		if err := tier.Fetch(t.Context(), fetch.Request{Partition: info.Partition, Offset: info.StartOffset}, &res); err != nil {
			t.Error(err)
		}
	}
	served()
	before := tier.Stats().Cache
	for _, n := range []int64{1, 8191, -1, math.MinInt64} {
		err := tier.SetMemoryBytes(n)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("Options.MemoryBytes is %d", n)) || !strings.Contains(err.Error(), "8192 at least") {
			t.Errorf("%d bytes: %v does not name the option and its least value", n, err)
		}
	}
	if now := tier.Stats().Cache; now.Budget != before.Budget || now.Used != before.Used || now.Chunks != before.Chunks {
		t.Errorf("what was refused has changed %+v to %+v", before, now)
	}
	for _, n := range []int64{8192, 0, math.MaxInt64} {
		if err := tier.SetMemoryBytes(n); err != nil {
			t.Error(err)
		}
		served()
	}
}

// By a lineage that is none nobody is told what he may delete.
func TestFrontierOfNoLineage(t *testing.T) {
	log := testseg.Random(2, testseg.Options{Segments: 1})
	tier, err := segtier.Open(t.Context(), segtier.Options{Store: storetest.NewMem(), Metadata: metadatatest.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer tier.Close()
	if _, err := tier.Copy(t.Context(), log.Segments[0], writer); err != nil {
		t.Fatal(err)
	}
	info := log.Segments[0].Info()
	backwards := append(segment.Lineage{{Epoch: math.MaxInt32, Start: info.EndOffset}}, log.Epochs...)
	n, err := tier.CopiedUpTo(info.Partition, backwards, info.StartOffset)
	if err == nil || n != info.StartOffset-1 {
		t.Errorf("frontier %d (%v), want none and an error", n, err)
	}
}

func TestClosedTier(t *testing.T) {
	log := testseg.Random(2, testseg.Options{Segments: 1})
	meta := metadatatest.NewMem()
	tier, err := segtier.Open(t.Context(), segtier.Options{Store: storetest.NewMem(), Metadata: meta})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := tier.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := tier.Copy(t.Context(), log.Segments[0], writer); !errors.Is(err, lifecycle.ErrClosed) {
		t.Errorf("copy after close: %v", err)
	}
	if ps, err := meta.Partitions(); err != nil || len(ps) != 0 {
		t.Errorf("copy after close wrote metadata: %v, %v", ps, err)
	}
}
