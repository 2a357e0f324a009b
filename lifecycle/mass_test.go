package lifecycle_test

import (
	"context"
	"encoding/binary"
	"io"
	"iter"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/segment"
)

// distant is a store that takes a time for each answer.
type distant struct {
	objstore.Store
	takes   time.Duration
	deletes *atomic.Int64
}

func (s distant) Get(ctx context.Context, key string, off, n int64, o objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	<-time.After(s.takes)
	return s.Store.Get(ctx, key, off, n, o)
}

func (s distant) Stat(ctx context.Context, key string) (objstore.Info, error) {
	<-time.After(s.takes)
	return s.Store.Stat(ctx, key)
}

func (s distant) Delete(ctx context.Context, keys ...string) error {
	<-time.After(s.takes)
	s.deletes.Add(int64(len(keys)))
	return s.Store.Delete(ctx, keys...)
}

func (s distant) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return s.Store.List(ctx, prefix, after)
}

// locked is paper that several may write on.
type locked struct {
	*paper
	mu *sync.Mutex
}

func (m locked) View(p segment.Partition) (*metadata.View, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.paper.View(p)
}

func (m locked) Publish(ctx context.Context, ev metadata.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.paper.Publish(ctx, ev)
}

// TestMassDeletionBesideReaders: 10,000 segments (here fewer) go at the default
// pace, on a store that takes 10 ms for each answer, beside readers who keep every
// connection busy: those keep 0.93 of their rate. In the bubble's time, so that it
// is the same on every machine.
func TestMassDeletionBesideReaders(t *testing.T) {
	n := 400
	if os.Getenv("SEGTIER_SOAK") != "" {
		n = 10_000
	}
	segs := make([]*metadata.Segment, n)
	for i := range segs {
		segs[i] = rec(1, metadata.CopySegmentFinished, int64(i)*10, int64(i)*10+9, 10, 50)
		binary.BigEndian.PutUint32(segs[i].ID[:], uint32(i)+1)
	}
	bubble.Test(t, func(t *testing.T) {
		m := locked{&paper{Mem: metadatatest.NewMem(), view: metadata.NewView(paperPartition, segs...)}, new(sync.Mutex)}
		store := distant{owned(t, m.ID()), 10 * time.Millisecond, new(atomic.Int64)}
		for _, s := range segs {
			if err := put(store.Store, object.Key(s.Partition, s.StartOffset, s.ID), "a segment"); err != nil {
				t.Fatal(err)
			}
		}
		if err := put(store.Store, "read", "what consumers read"); err != nil {
			t.Fatal(err)
		}
		ep, err := endpoint.New(store, endpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer ep.Close()
		d, err := lifecycle.NewDeleter(m, ep, lifecycle.DeleterOptions{Delay: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()

		var reads atomic.Int64
		var readers sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		for i := range 128 {
			readers.Go(func() {
				buf := make([]byte, 4)
				for ctx.Err() == nil {
					_, err := ep.Read(ctx, endpoint.ReadRequest{Key: "read", Stream: uint64(i) + 1, Pieces: []endpoint.Piece{{Buf: buf, NoVerify: true}}})
					if err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
					reads.Add(1)
				}
			})
		}
		rate := func(during func()) (float64, time.Duration) {
			before, begun := reads.Load(), time.Now()
			during()
			took := time.Since(begun)
			return float64(reads.Load()-before) / took.Seconds(), took
		}
		alone, _ := rate(func() { <-time.After(5 * time.Second) })
		beside, took := rate(func() {
			if err := d.Delete(t.Context(), writer, segs...); err != nil {
				t.Error(err)
			}
		})
		stop()
		readers.Wait()
		perSecond := float64(n) / took.Seconds()
		t.Logf("%d segments deleted in %v, %.0f/s; reads %.0f/s alone, %.0f/s beside: %.3f", n, took, perSecond, alone, beside, beside/alone)
		if beside < 0.93*alone {
			t.Errorf("readers keep %.3f of their rate", beside/alone)
		}
		if perSecond > 101 || perSecond < 50 {
			t.Errorf("%.0f segments are deleted in a second", perSecond)
		}
		if got := store.deletes.Load(); got != int64(n) {
			t.Errorf("%d deletes", got)
		}
	})
}
