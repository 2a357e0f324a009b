package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

// Store is a metadata.Store in one file. Its methods may be called concurrently.
type Store struct {
	path     string
	id       string
	log      *slog.Logger
	readOnly bool

	db     *bolt.DB
	file   *os.File             // the one that bbolt has open
	commit func(*bolt.Tx) error // (*bolt.Tx).Commit, but in tests

	// writing is held by who uses db: a send takes it, so that waiting for it
	// can be given up. It guards broken and closed.
	writing  chan struct{}
	broken   error // why nothing can be published any more, nil if it can
	panicked bool  // bbolt gave up in the middle of something
	closed   bool

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

var _ metadata.Store = (*Store)(nil)

// ID implements metadata.Store: a random id, made when the file was created.
func (s *Store) ID() string { return s.id }

// Publish implements metadata.Store. ctx is honoured while other events are
// being written; the write itself is not given up.
func (s *Store) Publish(ctx context.Context, ev metadata.Event) error {
	if err := ev.Publishable(); err != nil {
		return err
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.end()
	switch {
	case s.closed:
		return metadata.ErrClosed
	case s.readOnly:
		return fmt.Errorf("metadata file %s: %w", s.path, metadata.ErrReadOnly)
	case s.broken != nil:
		return s.broken
	}
	done := false
	var next *metadata.Segment
	err := guard(func() (err error) {
		next, err = s.write(ev)
		done = true
		return err
	})
	if !done {
		s.panicked = true
		s.breakDown(err)
		return s.broken
	}
	if err == nil && next != nil {
		s.show(next)
	}
	return err
}

// begin takes the right to use db.
func (s *Store) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Store) end() { <-s.writing }

// write applies the event to the file. It returns the segment as it is then, nil
// if nothing has changed.
func (s *Store) write(ev metadata.Event) (*metadata.Segment, error) {
	tx, err := s.db.Begin(true)
	if err != nil {
		return nil, s.failed(err)
	}
	defer func() { _ = tx.Rollback() }() // of no effect after a commit
	next, dirty, err := apply(tx, ev)
	if err != nil {
		if errors.Is(err, metadata.ErrCorrupt) {
			err = fmt.Errorf("metadata file %s: %w", s.path, err)
		}
		return nil, err
	}
	if dirty {
		if err := s.commit(tx); err != nil {
			return nil, s.failed(err)
		}
	}
	return next, nil
}

// apply compares the event with what is in the file and writes what it changes.
func apply(tx *bolt.Tx, ev metadata.Event) (next *metadata.Segment, dirty bool, err error) {
	partitions, segments := tx.Bucket([]byte(partitionsBucket)), tx.Bucket([]byte(segmentsBucket))
	p, w := ev.Partition(), ev.Writer()
	pk := keyOf(p)
	sk := segmentKey(pk, ev.Segment().ID)

	part := partitionRecord{partition: p, epoch: w.LeaderEpoch}
	known := false
	if v := partitions.Get(pk[:]); v != nil {
		if part, err = decodePartition(pk[:], v); err != nil {
			return nil, false, err
		}
		known = true
		if part.partition != p {
			return nil, false, mismatch(p, part.partition)
		}
		if w.LeaderEpoch < part.epoch {
			return nil, false, fmt.Errorf("broker %d with leader epoch %d of %s, epoch %d has written: %w",
				w.BrokerID, w.LeaderEpoch, p, part.epoch, metadata.ErrFenced)
		}
	}
	var rec segmentRecord
	if v := segments.Get(sk); v != nil {
		if rec, err = decodeSegment(p, sk, v); err != nil {
			return nil, false, err
		}
	}
	next, err = metadata.Step(rec.seg, ev)
	if err != nil {
		return nil, false, err
	}
	changed := next != rec.seg
	if !changed && w.LeaderEpoch == part.epoch {
		return nil, false, nil
	}
	if changed {
		rec.seg = next
		switch next.State {
		case metadata.CopySegmentFinished:
			part.finished++
			rec.order = part.finished
		case metadata.DeleteSegmentFinished:
			ended := *next
			ended.Custom = nil
			rec.seg, next = &ended, &ended
		default: // kept as it is
		}
		if err := segments.Put(sk, rec.encode(sk)); err != nil {
			return nil, false, err
		}
	} else {
		next = nil
	}
	if !known || w.LeaderEpoch > part.epoch || changed && next.State == metadata.CopySegmentFinished {
		part.epoch = w.LeaderEpoch
		if err := partitions.Put(pk[:], part.encode(pk[:])); err != nil {
			return nil, false, err
		}
	}
	return next, true, nil
}

func mismatch(asked, known segment.Partition) error {
	return fmt.Errorf("partition %s: this topic id is known under the name %s", asked, known.Topic)
}

// failed makes an error of what the file or the disk said. Where the event has
// not happened and the next may succeed it says so, else nothing is published
// any more.
func (s *Store) failed(err error) error {
	if isFull(err) {
		return fmt.Errorf("metadata file %s: %w: no space to write to: %w", s.path, metadata.ErrUnavailable, err)
	}
	s.breakDown(err)
	return s.broken
}

// breakDown ends publishing. After a write or fsync that failed the kernel may
// have dropped the pages and call them clean: a later fsync would say nothing.
func (s *Store) breakDown(err error) {
	s.broken = fmt.Errorf("metadata file %s: %w until it is closed and opened again, check the disk: %w", s.path, metadata.ErrUnavailable, err)
	s.log.Error("metadata file cannot be written", "path", s.path, "err", err)
}

// isFull reports whether err is about space and came from a write: then bbolt
// has not touched the page that makes a transaction valid. From fsync (which is
// not a PathError there) the same errno says that data was lost.
func isFull(err error) bool {
	if errors.Is(err, bolterrors.ErrMaxSizeReached) {
		return true
	}
	var p *fs.PathError
	return errors.As(err, &p) && p.Op == "write" &&
		(errors.Is(p.Err, syscall.ENOSPC) || errors.Is(p.Err, syscall.EDQUOT) || errors.Is(p.Err, syscall.EFBIG))
}

// show makes a change visible. The caller holds the right to write, so that views
// change in the order of the file.
func (s *Store) show(next *metadata.Segment) {
	key := keyOf(next.Partition)
	s.mu.RLock()
	p := s.mu.partitions[key]
	s.mu.RUnlock()
	fresh := p == nil
	if fresh {
		p = &partition{name: next.Partition}
		p.view.Store(metadata.NewView(next.Partition))
	}
	p.view.Store(p.view.Load().With(next))
	s.mu.Lock()
	defer s.mu.Unlock()
	if fresh {
		s.mu.partitions[key] = p
	}
	if c := s.mu.watchers[key]; c != nil {
		close(c)
		delete(s.mu.watchers, key)
	}
}

// View implements metadata.Store. It is an error to ask for a topic id under
// another name than the one it is known by.
func (s *Store) View(p segment.Partition) (*metadata.View, error) {
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

// Close implements metadata.Store. It waits for the event that is being written.
func (s *Store) Close() error {
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
