package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/segtier/segtier/metadata"
)

const (
	defaultSnapshotKeep = 3

	// A snapshot of FILE is FILE.snapshot-TIME; in the making it has another name.
	snapshotInfix = ".snapshot-"
	snapshotTime  = "20060102T150405.000Z"
	snapshotNew   = ".snapshot.new-"
)

// errStopped ends a snapshot that is being written when the store is closed.
var errStopped = fmt.Errorf("snapshot given up: %w", metadata.ErrClosed)

// snapshots is the task that writes them.
type snapshots struct {
	once sync.Once
	stop chan struct{} // closed by Close, once
	done chan struct{} // closed when the task has ended; nil: there is none
	one  chan struct{} // held by who writes one
}

// startSnapshots starts the task if there is to be one.
func (s *Store) startSnapshots() {
	s.snapshots.stop = make(chan struct{})
	s.snapshots.one = make(chan struct{}, 1)
	if s.o.SnapshotEvery == 0 || s.o.ReadOnly {
		return
	}
	s.snapshots.done = make(chan struct{})
	go func() {
		defer close(s.snapshots.done)
		tick := time.NewTicker(s.o.SnapshotEvery)
		defer tick.Stop()
		last := uint64(0) // what was there when it was opened has been there before
		for {
			select {
			case <-s.snapshots.stop:
				return
			case <-tick.C:
			}
			changes := s.changes.Load()
			if changes == last {
				continue
			}
			path, err := s.snapshot(s.snapshots.stop)
			switch {
			case err == nil:
				last = changes
				s.log.Info("metadata snapshot written", "path", path)
			case !errors.Is(err, metadata.ErrClosed):
				s.log.Error("metadata snapshot failed", "path", s.path, "err", err)
			}
		}
	}()
}

// stopSnapshots ends the task and joins it.
func (s *Store) stopSnapshots() {
	s.snapshots.once.Do(func() { close(s.snapshots.stop) })
	if s.snapshots.done != nil {
		<-s.snapshots.done
	}
}

// Snapshot writes a consistent copy of the file beside it, while others go on
// publishing, and returns its path: FILE.snapshot-TIME. The copy was read back
// whole before it got its name. Only the newest Options.SnapshotKeep stay. A
// snapshot is a metadata file of its own that can be opened, read-only by many,
// while FILE itself is in use; it has the ID of the store it is of. To restore
// one, copy it to FILE while nobody has FILE open.
//
// While it is written, the file cannot shrink, and an event that makes it grow
// may wait for the end.
func (s *Store) Snapshot(ctx context.Context) (path string, err error) {
	if path, err = s.snapshot(ctx.Done()); errors.Is(err, errStopped) && ctx.Err() != nil {
		err = ctx.Err()
	}
	return path, err
}

// snapshot is Snapshot that is given up when stop is closed, or the store is.
func (s *Store) snapshot(stop <-chan struct{}) (path string, err error) {
	select {
	case s.snapshots.one <- struct{}{}:
		defer func() { <-s.snapshots.one }()
	case <-stop:
		return "", errStopped
	case <-s.snapshots.stop:
		return "", errStopped
	}
	dir, base := filepath.Split(s.path)
	dir = filepath.Clean(dir)
	f, err := os.CreateTemp(dir, base+snapshotNew+"*")
	if err != nil {
		return "", fmt.Errorf("metadata snapshot: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // renamed by then, or of no use
	err = s.copyTo(&stoppable{Writer: f, stop: stop, closed: s.snapshots.stop})
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("metadata snapshot of %s: %w", s.path, err)
	}
	if err := s.readable(f.Name()); err != nil {
		return "", fmt.Errorf("metadata snapshot of %s cannot be read back: %w", s.path, err)
	}
	path = s.path + snapshotInfix + s.o.Now().UTC().Format(snapshotTime)
	if err := errors.Join(os.Rename(f.Name(), path), s.o.syncDir(dir)); err != nil {
		return "", fmt.Errorf("metadata snapshot %s: %w", path, err)
	}
	return path, removeOld(dir, base, s.o.SnapshotKeep)
}

// copyTo writes the file as it is now.
func (s *Store) copyTo(w *stoppable) error {
	select {
	case s.writing <- struct{}{}:
	case <-w.stop:
		return errStopped
	case <-w.closed:
		return errStopped
	}
	switch {
	case s.closed:
		s.end()
		return errStopped
	case s.o.ReadOnly:
		s.end()
		return metadata.ErrReadOnly
	case s.broken != nil:
		defer s.end()
		return s.broken
	}
	tx, err := s.db.Begin(false) // Close waits for it
	s.end()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err = tx.WriteTo(w); w.err != nil {
		return w.err // bbolt tells only its text
	}
	return err
}

// readable opens a copy and reads every record of it.
func (s *Store) readable(path string) error {
	c, err := open(path, Options{ReadOnly: true, Logger: s.log, Now: s.o.Now, syncDir: s.o.syncDir})
	if err != nil {
		return err
	}
	defer c.Close()
	if c.id != s.id {
		return corrupt("it has the id %s, not %s", c.id, s.id)
	}
	return nil
}

// removeOld removes all snapshots but the newest, and what crashes have left of
// unfinished ones: only who has the file open writes them.
func removeOld(dir, base string, keep int) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("metadata snapshots: %w", err)
	}
	var old, gone []string
	for _, e := range entries { // ascending by name, so by time
		switch name := e.Name(); {
		case strings.HasPrefix(name, base+snapshotNew):
			gone = append(gone, name)
		case strings.HasPrefix(name, base+snapshotInfix):
			if _, err := time.Parse(snapshotTime, name[len(base+snapshotInfix):]); err == nil {
				old = append(old, name)
			}
		}
	}
	slices.Sort(old)
	gone = append(gone, old[:max(0, len(old)-keep)]...)
	for _, name := range gone {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("metadata snapshots: %w", err)
		}
	}
	return nil
}

// stoppable is a writer that fails when it is to stop.
type stoppable struct {
	io.Writer
	stop, closed <-chan struct{}
	err          error // the first
}

func (w *stoppable) Write(p []byte) (n int, err error) {
	select {
	case <-w.stop:
		err = errStopped
	case <-w.closed:
		err = errStopped
	default:
		n, err = w.Writer.Write(p)
	}
	w.err = cmp.Or(w.err, err)
	return n, err
}
