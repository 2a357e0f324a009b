package segtier_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
)

// TestReadersInFlightAreSkipped: a fetch whose object goes while it waits for it,
// and one that comes while the segment is being deleted, are told to skip; then
// the offset is not there.
func TestReadersInFlightAreSkipped(t *testing.T) {
	log := testseg.Random(31, testseg.Options{Segments: 2, Batches: 40})
	gate, reached := make(chan struct{}), make(chan struct{}, 100)
	var slow bool
	store := storetest.Inject(storetest.NewMem(), func(c storetest.Call) storetest.Fault {
		if c.Op == "get" && slow && c.Key != object.OwnerKey {
			reached <- struct{}{}
			return storetest.Fault{Kind: storetest.Wait, Gate: gate}
		}
		return storetest.Fault{}
	})
	started := make(chan struct{}, 2)
	tier := openTierOn(t, store, t.TempDir(), segtier.Options{
		ChunkSize: 4096, PartSize: 8192, DeleteDelay: -1, DeletesPerSecond: -1,
		DeleteEvents: lifecycle.DeleteEvents{Started: func(*metadata.Segment) { started <- struct{}{} }},
	})
	for _, s := range log.Segments {
		if _, err := tier.Copy(t.Context(), s, writer); err != nil {
			t.Fatal(err)
		}
	}
	view, err := tier.View(log.Partition)
	if err != nil {
		t.Fatal(err)
	}
	seg := slices.Collect(view.All())[0]
	slow = true
	req := fetch.Request{Partition: log.Partition, Lineage: log.Epochs, LogStart: seg.StartOffset, Offset: seg.StartOffset, MaxBytes: 1 << 20}
	ended := make(chan error, 1)
	go func() {
		var res fetch.Result
		defer res.Release()
		ended <- tier.Fetch(t.Context(), req, &res)
	}()
	<-reached
	if err := tier.Delete(t.Context(), writer, seg); err != nil {
		t.Fatal(err)
	}
	close(gate)
	next := log.Segments[1].Info().StartOffset
	var skipped *fetch.SkippedError
	if err := <-ended; !errors.As(err, &skipped) || skipped.Next != next {
		t.Errorf("the fetch in flight ended with %v, want Skipped to %d", err, next)
	}
	if s := tier.Stats().Deletes; s.Started != 1 || s.Finished != 1 || s.Bytes != seg.SizeBytes {
		t.Errorf("%+v", s)
	}
}

// TestExpireMovesEverything: the log start in metadata and in the host; what is
// below it is out of range and is not copied again.
func TestExpireMovesEverything(t *testing.T) {
	log := testseg.Random(32, testseg.Options{Segments: 4, Batches: 5})
	var moved []int64
	tier := openTierOn(t, storetest.NewMem(), t.TempDir(), segtier.Options{
		DeleteDelay: -1, LogStartMoved: func(_ context.Context, _ segment.Partition, to int64) error {
			moved = append(moved, to)
			return nil
		},
	})
	for _, s := range log.Segments[:2] {
		if _, err := tier.Copy(t.Context(), s, writer); err != nil {
			t.Fatal(err)
		}
	}
	infos := []segment.Info{log.Segments[0].Info(), log.Segments[1].Info(), log.Segments[2].Info(), log.Segments[3].Info()}
	req := lifecycle.ExpireRequest{
		Partition: log.Partition, Writer: writer, Lineage: log.Epochs, LogEnd: infos[3].EndOffset + 1,
		RetentionMs: 1, ReportOnly: true,
	}
	x, err := tier.Expire(t.Context(), req)
	if err != nil || len(x.Expired) != 2 || len(moved) > 0 {
		t.Fatalf("%v, %+v, %v", err, x, moved)
	}
	req.ReportOnly = false
	if _, err = tier.Expire(t.Context(), req); err != nil || !slices.Equal(moved, []int64{infos[1].EndOffset + 1}) {
		t.Fatalf("%v, %v", err, moved)
	}
	if old, err := tier.Outlived(infos[0], 0, -1); err != nil || !old {
		t.Errorf("%v, %v", old, err)
	}
	var res fetch.Result
	err = tier.Fetch(t.Context(), fetch.Request{Partition: log.Partition, Lineage: log.Epochs, Offset: infos[1].EndOffset, MaxBytes: 1}, &res)
	var out *fetch.OutOfRangeError
	if !errors.As(err, &out) || out.LogStart != infos[1].EndOffset+1 {
		t.Errorf("%v", err)
	}
	if _, err := tier.Copy(t.Context(), log.Segments[0], writer); !errors.Is(err, lifecycle.ErrBelowLogStart) {
		t.Errorf("%v", err)
	}
}

// TestCopyDeleteRead lets a copier, two deleters, retention and readers loose on one
// partition, with no delay for readers, which must hold without it. A reader gets
// the log's bytes or a typed end, and never learns of damage; in the end everything
// can be copied again, and nothing is left that no record names.
func TestCopyDeleteRead(t *testing.T) {
	enough := int64(100)                 // segments deleted
	if os.Getenv("SEGTIER_SOAK") != "" { // where it is a hundred times as long
		enough *= 100
	}
	log := testseg.Random(33, testseg.Options{Segments: 5, Batches: 20})
	p := log.Partition
	var all []byte
	for _, s := range log.Segments {
		all = append(all, s.Log...)
	}
	store, meta := storetest.NewMem(), metadatatest.NewMem()
	tier, err := segtier.Open(t.Context(), segtier.Options{
		Store: store, Metadata: meta, ChunkSize: 4096, PartSize: 8192, MemoryBytes: 1 << 20, DeleteDelay: -1, DeletesPerSecond: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer tier.Close()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	var actors sync.WaitGroup
	over := make(chan struct{}) // the copier has seen enough
	running := func() bool {
		select {
		case <-over:
			return false
		default:
			return true
		}
	}
	for i := range 3 {
		actors.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			var res fetch.Result
			defer res.Release()
			for running() {
				offset := r.Int64N(log.Segments[4].Info().EndOffset + 1)
				err := tier.Fetch(ctx, fetch.Request{Partition: p, Lineage: log.Epochs, Offset: offset, MaxBytes: 8192}, &res)
				switch {
				case err == nil:
					var got []byte
					for _, b := range res.AppendTo(net.Buffers{}) {
						got = append(got, b...)
					}
					if h, err := segment.ParseHeader(got); err != nil || h.BaseOffset != res.FirstOffset() || !bytes.Contains(all, got) {
						t.Errorf("offset %d: %d bytes that are not the log's (%v)", offset, len(got), err)
					}
				case errors.Is(err, fetch.ErrEndOfTier), errors.Is(err, fetch.ErrSkipped), errors.Is(err, fetch.ErrUnavailable):
				default:
					t.Errorf("offset %d: %v", offset, err)
				}
			}
		})
	}
	actors.Go(func() {
		defer close(over)
		for (tier.Stats().Deletes.Finished < enough || tier.Stats().Fetch.Fetches == 0) && ctx.Err() == nil {
			for _, s := range log.Segments {
				// Deleters take segments that are being copied, too: their state is
				// another then, or their object is gone before it is sealed.
				if _, err := tier.Copy(ctx, s, writer); err != nil && !errors.Is(err, metadata.ErrTransition) &&
					!errors.Is(err, objstore.ErrNotExist) && !strings.Contains(err.Error(), "must be copied first") {
					t.Errorf("copy: %v", err)
				}
			}
		}
	})
	for i := range 2 {
		actors.Go(func() {
			r := rand.New(rand.NewPCG(2, uint64(i)))
			for running() {
				view, err := tier.View(p)
				if err != nil {
					t.Error(err)
					return
				}
				segs := slices.Collect(view.All())
				if len(segs) == 0 {
					continue
				}
				if err := tier.Delete(ctx, writer, segs[r.IntN(len(segs)):]...); err != nil && !errors.Is(err, metadata.ErrTransition) {
					t.Errorf("delete: %v", err)
				}
			}
		})
	}
	actors.Go(func() {
		for running() {
			_, err := tier.Expire(ctx, lifecycle.ExpireRequest{Partition: p, Writer: writer, Lineage: log.Epochs, LogEnd: math.MaxInt64})
			if err != nil && !errors.Is(err, metadata.ErrTransition) {
				t.Errorf("expire: %v", err)
			}
		}
	})
	actors.Wait()
	if err := tier.ResumeDeletes(ctx, p, writer); err != nil {
		t.Error(err)
	}
	for _, s := range log.Segments {
		if _, err := tier.Copy(ctx, s, writer); err != nil {
			t.Errorf("copy in the end: %v", err)
		}
	}
	view, err := tier.View(p)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for seg := range view.All() {
		known[object.Key(p, seg.StartOffset, seg.ID)] = seg.State == metadata.CopySegmentFinished
	}
	for seg := range view.Ended() {
		known[object.Key(p, seg.StartOffset, seg.ID)] = false
	}
	found := 0
	for info, err := range store.List(ctx, "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if readable, ok := known[info.Key]; info.Key != object.OwnerKey && !ok {
			t.Errorf("object %s is named by no record", info.Key)
		} else if readable {
			found++
		}
	}
	if found != 5 {
		t.Errorf("%d objects are readable", found)
	}
	served, deleted := tier.Stats().Fetch, tier.Stats().Deletes
	t.Logf("%d segments were deleted; %+v", deleted.Finished, served)
	if deleted.Finished < enough || served.Fetches == 0 {
		t.Error("hardly anything happened")
	}
}
