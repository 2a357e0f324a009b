package metadatatest_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/segment"
)

// hostStore is a metadata.Store as a host would write one, with nothing but what
// package metadata exports, in 60 lines: the proof that the seam is one.
type hostStore struct {
	mu       sync.Mutex
	err      error // ErrClosed after Close
	views    map[segment.Partition]*metadata.View
	watchers map[segment.Partition]chan struct{}
}

func (s *hostStore) lock() func() { s.mu.Lock(); return s.mu.Unlock }

func (s *hostStore) ID() string { return "host" }

func (s *hostStore) Publish(ctx context.Context, ev metadata.Event) error {
	defer s.lock()()
	if err := cmp.Or(ev.Publishable(), ctx.Err(), s.err); err != nil {
		return err
	}
	view := cmp.Or(s.views[ev.Partition()], metadata.NewView(ev.Partition()))
	next, err := view.Apply(ev)
	if err == nil && next != view {
		s.views[ev.Partition()] = next
		s.tell(ev.Partition())
	}
	return err
}

func (s *hostStore) View(p segment.Partition) (*metadata.View, error) {
	defer s.lock()()
	return cmp.Or(s.views[p], metadata.NewView(p)), s.err
}

func (s *hostStore) Partitions() ([]segment.Partition, error) {
	defer s.lock()()
	return slices.Collect(maps.Keys(s.views)), s.err
}

func (s *hostStore) Assign(context.Context, []segment.Partition, []segment.Partition) error {
	defer s.lock()()
	return s.err
}

func (s *hostStore) Watch(p segment.Partition) <-chan struct{} {
	defer s.lock()()
	c := cmp.Or(s.watchers[p], make(chan struct{}))
	s.watchers[p] = c
	if s.err != nil {
		s.tell(p)
	}
	return c
}

func (s *hostStore) Close() error {
	defer s.lock()()
	s.err = metadata.ErrClosed
	for p := range s.watchers {
		s.tell(p)
	}
	return nil
}

func (s *hostStore) tell(p segment.Partition) {
	if c, ok := s.watchers[p]; ok {
		close(c)
		delete(s.watchers, p)
	}
}

func newHostStore(*testing.T) metadata.Store {
	return &hostStore{views: map[segment.Partition]*metadata.View{}, watchers: map[segment.Partition]chan struct{}{}}
}

func TestHostStoreKeepsTheLaw(t *testing.T) {
	metadatatest.Contract(t, newHostStore)
}

// A host's own store is held to the law in five lines.
func ExampleContract() {
	_ = func(t *testing.T) { // func TestLaw(t *testing.T)
		metadatatest.Contract(t, func(t *testing.T) metadata.Store {
			return newHostStore(t)
		})
	}
}
