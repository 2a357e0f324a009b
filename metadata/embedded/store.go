package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	bolt "go.etcd.io/bbolt"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

// Store is a metadata.Store in one file. Its methods may be called concurrently.
type Store struct {
	path string
	id   string
	o    Options // validated
	log  *slog.Logger

	db     *bolt.DB
	file   *os.File             // the one that bbolt has open
	commit func(*bolt.Tx) error // (*bolt.Tx).Commit, but in tests

	// writing is held by who uses db: a send takes it, so that waiting for it
	// can be given up. It guards broken and closed.
	writing  chan struct{}
	broken   error // why nothing can be published any more, nil if it can
	panicked bool  // bbolt gave up in the middle of something
	closed   bool

	changes   atomic.Uint64 // transactions so far
	snapshots snapshots

	mu struct { // no I/O is done under it; taken after writing
		sync.RWMutex
		closed     bool
		partitions map[partitionKey]*partition // those that have events
		watchers   map[partitionKey]chan struct{}
	}
}

// partition is one that has events.
type partition struct {
	name segment.Partition
	view atomic.Pointer[metadata.View]
}

var (
	_ metadata.Store     = (*Store)(nil)
	_ metadata.LogStarts = (*Store)(nil)
)

// ID implements metadata.Store: a random id, made when the file was created.
func (s *Store) ID() string { return s.id }

// current returns the partition's View, an empty one if there is none.
func (s *Store) current(p segment.Partition) (*metadata.View, error) {
	s.mu.RLock()
	closed, known := s.mu.closed, s.mu.partitions[keyOf(p)]
	s.mu.RUnlock()
	switch {
	case closed:
		return nil, metadata.ErrClosed
	case known == nil:
		return metadata.NewView(p), nil
	case known.name != p:
		return nil, mismatch(p, known.name)
	}
	return known.view.Load(), nil
}

// show makes a transaction visible. The caller holds the right to write, so that
// views change in the order of the file.
func (s *Store) show(t *transaction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.mu.partitions[t.key]
	if p == nil {
		p = &partition{name: t.part.partition}
		s.mu.partitions[t.key] = p
	}
	p.view.Store(t.view)
	s.tell(t.key)
	for i := range t.forgotten {
		key := keyOf(t.forgotten[i].Partition)
		p := s.mu.partitions[key]
		p.view.Store(p.view.Load().Forget(t.forgotten[i].ID))
		s.tell(key)
	}
}

// tell wakes those who watch a partition. s.mu must be held.
func (s *Store) tell(key partitionKey) {
	if c := s.mu.watchers[key]; c != nil {
		close(c)
		delete(s.mu.watchers, key)
	}
}

// View implements metadata.Store. It is an error to ask for a topic id under
// another name than the one it is known by.
func (s *Store) View(p segment.Partition) (*metadata.View, error) { return s.current(p) }

// LogStart implements metadata.LogStarts.
func (s *Store) LogStart(p segment.Partition) (int64, bool) {
	v, err := s.current(p)
	if err != nil {
		return 0, false
	}
	return v.LogStart(), v.LogStart() > 0
}

// Partitions implements metadata.Store.
func (s *Store) Partitions() ([]segment.Partition, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.mu.closed {
		return nil, metadata.ErrClosed
	}
	ps := make([]segment.Partition, 0, len(s.mu.partitions))
	for _, p := range s.mu.partitions {
		ps = append(ps, p.name)
	}
	return ps, nil
}

// Assign implements metadata.Store. The file holds all partitions, so it does
// nothing.
func (s *Store) Assign(ctx context.Context, _, _ []segment.Partition) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.mu.closed {
		return metadata.ErrClosed
	}
	return ctx.Err()
}

// Watch implements metadata.Store.
func (s *Store) Watch(p segment.Partition) <-chan struct{} {
	key := keyOf(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mu.watchers[key]
	if c == nil {
		c = make(chan struct{})
		if s.mu.closed {
			close(c)
			return c
		}
		s.mu.watchers[key] = c
	}
	return c
}

// Close implements metadata.Store. It waits for the event that is being written,
// and gives a snapshot that is being written up.
func (s *Store) Close() error {
	s.stopSnapshots()
	s.writing <- struct{}{}
	defer s.end()
	if s.closed {
		return nil
	}
	s.closed = true
	s.mu.Lock()
	s.mu.closed = true
	s.mu.partitions = nil
	for key, c := range s.mu.watchers {
		close(c)
		delete(s.mu.watchers, key)
	}
	s.mu.Unlock()
	if err := s.closeDB(); err != nil {
		return fmt.Errorf("metadata file %s: close: %w", s.path, err)
	}
	return nil
}

func (s *Store) closeDB() error {
	if s.panicked {
		return s.abandon()
	}
	return s.db.Close()
}

// abandon closes the file under bbolt's feet after it has panicked: it may still
// hold locks of its own and would wait for itself. What it has mapped stays so
// until the process ends.
func (s *Store) abandon() error {
	unlock(s.file)
	return s.file.Close()
}
