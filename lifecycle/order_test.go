package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore/storetest"
)

func TestACallerThatLeaves(t *testing.T) {
	log := testseg.Random(19, testseg.Options{Segments: 3})
	w := newWorld()
	ctx, cancel := context.WithCancel(t.Context())
	p := w.start(t, func(c storetest.Call) storetest.Fault {
		if c.Op == "upload" {
			cancel()
		}
		return storetest.Fault{}
	}, nil, lifecycle.Events{})
	if _, err := p.copier.Copy(ctx, log.Segments[0], writer); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	before := p.store.Effects().Count()
	_, err := p.copier.Copy(t.Context(), log.Segments[1], writer)
	var order *lifecycle.OrderError
	if !errors.As(err, &order) || errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want an OrderError that is no cancellation", err)
	}
	if n := p.store.Effects().Count() - before; n != 0 {
		t.Errorf("%d effects of a copy that was refused", n)
	}
	// Retention passes the first; the second was not tried again either.
	p.copier.Forget(log.Partition, log.Segments[1].Info().StartOffset)
	if _, err := p.copier.Copy(t.Context(), log.Segments[2], writer); !errors.As(err, &order) || order.Failed != log.Segments[1].Info().StartOffset {
		t.Errorf("error %v, want the second segment named", err)
	}
	p.copier.Forget(log.Partition, log.Segments[2].Info().StartOffset)
	if _, err := p.copier.Copy(t.Context(), log.Segments[2], writer); err != nil {
		t.Error(err)
	}
}

func TestFinishedInOffsetOrder(t *testing.T) {
	log := testseg.Random(9, testseg.Options{Segments: 3, Batches: 10})
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			w := newWorld()
			gates := map[int64]chan struct{}{}
			reached := map[int64]chan struct{}{}
			for _, s := range log.Segments {
				gates[s.Info().StartOffset] = make(chan struct{})
				reached[s.Info().StartOffset] = make(chan struct{})
			}
			var mu sync.Mutex
			var finished []int64
			p := w.start(t, func(c storetest.Call) storetest.Fault {
				if c.Op != "upload" || c.Key == object.OwnerKey {
					return storetest.Fault{}
				}
				_, start, _, err := object.ParseKey(c.Key)
				if err != nil {
					t.Error(err)
				}
				close(reached[start])
				return storetest.Fault{Kind: storetest.Wait, Gate: gates[start]}
			}, func(c metadatatest.Call) metadatatest.Fault {
				if c.Op == "publish" && c.Event.To() == metadata.CopySegmentFinished {
					mu.Lock()
					finished = append(finished, c.Event.Segment().StartOffset)
					mu.Unlock()
				}
				return metadatatest.Fault{}
			}, lifecycle.Events{})
			var wg sync.WaitGroup
			for _, s := range log.Segments {
				wg.Go(func() {
					if _, err := p.copier.Copy(t.Context(), s, writer); err != nil {
						t.Error(err)
					}
				})
				<-reached[s.Info().StartOffset] // all of them have entered before one ends
			}
			for _, i := range order {
				close(gates[log.Segments[i].Info().StartOffset])
			}
			wg.Wait()
			if !slices.IsSorted(finished) || len(finished) != 3 {
				t.Errorf("FINISHED in the order %v", finished)
			}
			w.check(t, log)
		})
	}
}

func TestFrontierStopsAtAFailure(t *testing.T) {
	log := testseg.Random(10, testseg.Options{Segments: 3, Batches: 10})
	w := newWorld()
	p := w.start(t, storetest.Rules(storetest.Rule{
		Op: "upload", Key: "*/*/*/*.seg",
		Fault: storetest.Fault{Kind: storetest.FailBefore},
	}), nil, lifecycle.Events{})
	if _, err := p.copier.Copy(t.Context(), log.Segments[0], writer); err == nil {
		t.Fatal("the fault was not injected")
	}
	_, err := p.copier.Copy(t.Context(), log.Segments[1], writer)
	var order *lifecycle.OrderError
	if !errors.As(err, &order) || order.Failed != log.Segments[0].Info().StartOffset {
		t.Fatalf("error %v, want an OrderError naming offset %d", err, log.Segments[0].Info().StartOffset)
	}
	view, err := w.meta.View(log.Partition)
	if err != nil {
		t.Fatal(err)
	}
	if seg, ok := view.Latest(nil); ok {
		t.Fatalf("segment at %d is readable past the one that failed", seg.StartOffset)
	}
	if err := p.copyAll(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	w.check(t, log)
}

func TestFrontierGoesOnWhenAnotherCopied(t *testing.T) {
	log := testseg.Random(11, testseg.Options{Segments: 2, Batches: 10})
	w := newWorld()
	p := w.start(t, storetest.Rules(storetest.Rule{
		Op: "upload", Key: "*/*/*/*.seg",
		Fault: storetest.Fault{Kind: storetest.FailBefore},
	}), nil, lifecycle.Events{})
	if _, err := p.copier.Copy(t.Context(), log.Segments[0], writer); err == nil {
		t.Fatal("the fault was not injected")
	}
	if _, err := w.start(t, nil, nil, lifecycle.Events{}).copier.Copy(t.Context(), log.Segments[0], writer); err != nil {
		t.Fatal(err)
	}
	if _, err := p.copier.Copy(t.Context(), log.Segments[1], writer); err != nil {
		t.Fatal(err)
	}
	w.check(t, log)
}

func TestWaitingForTheTurnEndsWithTheContext(t *testing.T) {
	log := testseg.Random(12, testseg.Options{Segments: 2, Batches: 10})
	w := newWorld()
	gate, reached := make(chan struct{}), make(chan struct{})
	lowest := log.Segments[0].Info().StartOffset
	uploaded := make(chan struct{})
	higher := sync.OnceFunc(func() { close(uploaded) })
	p := w.start(t, func(c storetest.Call) storetest.Fault {
		if c.Op == "upload" && c.Key != object.OwnerKey {
			if _, start, _, _ := object.ParseKey(c.Key); start == lowest {
				close(reached)
				return storetest.Fault{Kind: storetest.Wait, Gate: gate}
			}
			higher()
		}
		return storetest.Fault{}
	}, nil, lifecycle.Events{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := p.copier.Copy(t.Context(), log.Segments[0], writer); err != nil {
			t.Error(err)
		}
	})
	<-reached
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() {
		if _, err := p.copier.Copy(ctx, log.Segments[1], writer); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", err)
		}
	})
	<-uploaded
	cancel()
	close(gate)
	wg.Wait()
	if err := p.copyAll(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	w.check(t, log)
}
