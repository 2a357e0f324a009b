package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

// keepEnded is how long a segment that has ended stays known, so that its object
// can be told from one that nobody knows, and late events of it are refused.
const keepEnded = 30 * 24 * time.Hour

// forgetAtOnce bounds how many of them a transaction forgets on the way: more
// than one, so that they do not pile up.
const forgetAtOnce = 8

// Publish implements metadata.Store. ctx is honoured while other events are
// being written; the write itself is not given up.
func (s *Store) Publish(ctx context.Context, ev metadata.Event) error {
	if err := ev.Publishable(); err != nil {
		return err
	}
	return s.write(ctx, ev.Partition(), ev.Writer(), func(t *transaction) error { return t.apply(ev) })
}

// SetLogStart implements metadata.LogStarts.
func (s *Store) SetLogStart(ctx context.Context, p segment.Partition, offset int64, w metadata.Writer) error {
	if err := p.Validate(); err != nil {
		return err
	}
	return s.write(ctx, p, w, func(t *transaction) error {
		if offset > t.view.LogStart() {
			info := t.view.Info()
			info.LogStart = offset
			t.view = t.view.WithInfo(info)
		}
		return nil
	})
}

// Remember adds to what is known of a partition besides its segments: the log
// start only moves forward, highest offsets only rise, and the state of the
// deletion stays as it is. It is for importing what another store knew.
func (s *Store) Remember(ctx context.Context, p segment.Partition, i metadata.PartitionInfo, w metadata.Writer) error {
	rec := partitionRecord{partition: p, epoch: w.LeaderEpoch, info: i}
	if err := rec.validate(); err != nil {
		return fmt.Errorf("what to remember of %s: %w", p, err)
	}
	return s.write(ctx, p, w, func(t *transaction) error {
		i.Deletion, i.Incomplete = t.view.Info().Deletion, 0
		t.view = t.view.WithInfo(i)
		return nil
	})
}

// transaction is one change of one partition.
type transaction struct {
	tx    *bolt.Tx
	now   int64 // ms
	key   partitionKey
	part  partitionRecord
	saved []byte         // the partition's record in the file, nil if there is none
	view  *metadata.View // as it is, and then as it will be
	dirty bool           // the file has changed

	forgotten []metadata.Segment // that had ended, of any partition
}

// write lets f change a partition in a transaction and shows the outcome.
func (s *Store) write(ctx context.Context, p segment.Partition, w metadata.Writer, f func(*transaction) error) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.end()
	switch {
	case s.closed:
		return metadata.ErrClosed
	case s.o.ReadOnly:
		return fmt.Errorf("metadata file %s: %w", s.path, metadata.ErrReadOnly)
	case s.broken != nil:
		return s.broken
	}
	t := &transaction{now: s.o.Now().UnixMilli(), key: keyOf(p), part: partitionRecord{partition: p, epoch: w.LeaderEpoch}}
	done := false
	err := guard(func() error {
		err := s.transact(t, w, f)
		done = true
		return err
	})
	if !done {
		s.panicked = true
		s.breakDown(err)
		return s.broken
	}
	if err == nil && t.dirty {
		s.changes.Add(1)
		s.show(t)
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

// transact does what write promises, but for showing.
func (s *Store) transact(t *transaction, w metadata.Writer, f func(*transaction) error) (err error) {
	if t.tx, err = s.db.Begin(true); err != nil {
		return s.failed(err)
	}
	defer func() { _ = t.tx.Rollback() }() // of no effect after a commit
	if t.view, err = s.current(t.part.partition); err == nil {
		err = t.load(w)
	}
	if err == nil {
		err = f(t)
	}
	if err == nil {
		err = t.save(w)
	}
	switch {
	case errors.Is(err, metadata.ErrCorrupt):
		return fmt.Errorf("metadata file %s: %w", s.path, err)
	case err != nil || !t.dirty:
		return err
	}
	if err := s.commit(t.tx); err != nil {
		return s.failed(err)
	}
	return nil
}

// load reads the partition's record and compares the writer with it.
func (t *transaction) load(w metadata.Writer) error {
	b := t.tx.Bucket([]byte(partitionsBucket)).Get(t.key[:])
	if b == nil {
		return nil
	}
	rec, err := decodePartition(t.key[:], b)
	if err != nil {
		return err
	}
	p := t.part.partition
	switch {
	case rec.partition != p:
		return mismatch(p, rec.partition)
	case w.LeaderEpoch < rec.epoch:
		return fmt.Errorf("broker %d with leader epoch %d of %s, epoch %d has written: %w",
			w.BrokerID, w.LeaderEpoch, p, rec.epoch, metadata.ErrFenced)
	}
	t.part, t.saved = rec, b
	return nil
}

func mismatch(asked, known segment.Partition) error {
	return fmt.Errorf("partition %s: this topic id is known under the name %s", asked, known.Topic)
}

// apply compares the event with the segment's record in the file, and with the
// rest of the partition, and writes what it changes.
func (t *transaction) apply(ev metadata.Event) error {
	if _, _, ok := ev.Deletion(); ok {
		v, err := t.view.Apply(ev)
		if err == nil {
			t.view = v
		}
		return err
	}
	segments := t.tx.Bucket([]byte(segmentsBucket))
	key := segmentKey(t.key, ev.Segment().ID)
	var rec segmentRecord
	if v := segments.Get(key); v != nil {
		var err error
		if rec, err = decodeSegment(t.part.partition, key, v); err != nil {
			return err
		}
	}
	if err := t.view.Admits(ev); err != nil {
		return err
	}
	next, err := metadata.Step(rec.seg, ev)
	if err != nil || next == rec.seg {
		return err
	}
	rec.seg = next
	switch next.State {
	case metadata.CopySegmentFinished:
		t.part.finished++
		rec.order = t.part.finished
	case metadata.DeleteSegmentFinished:
		next.Custom = nil
		if err := t.tx.Bucket([]byte(endedBucket)).Put(endedKey(t.now, key), nil); err != nil {
			return err
		}
	default:
	}
	t.view, t.dirty = t.view.With(next), true
	return segments.Put(key, rec.encode(key))
}

// save writes the partition's record if it has changed, and forgets some of the
// segments that ended long ago. An event that changes nothing leaves t clean, and
// costs no fsync.
func (t *transaction) save(w metadata.Writer) error {
	t.part.epoch = max(t.part.epoch, w.LeaderEpoch)
	t.part.info = t.view.Info()
	t.part.info.Incomplete = 0
	if b := t.part.encode(t.key[:]); !bytes.Equal(b, t.saved) {
		t.dirty = true
		if err := t.tx.Bucket([]byte(partitionsBucket)).Put(t.key[:], b); err != nil {
			return err
		}
	}
	if !t.dirty {
		return nil
	}
	return t.forget()
}

// forget removes the records of segments that ended before keepEnded, the oldest
// first. Their partitions' records have the highest offsets of their epochs.
func (t *transaction) forget() error {
	ended, segments := t.tx.Bucket([]byte(endedBucket)), t.tx.Bucket([]byte(segmentsBucket))
	for range forgetAtOnce {
		k, _ := ended.Cursor().First()
		if k == nil {
			return nil
		}
		at, key, err := splitEnded(k)
		if err != nil {
			return err
		}
		if at > t.now-keepEnded.Milliseconds() {
			return nil
		}
		v := segments.Get(key)
		p, err := decodePartition(key[:partitionKeySize], t.tx.Bucket([]byte(partitionsBucket)).Get(key[:partitionKeySize]))
		if err != nil {
			return err
		}
		rec, err := decodeSegment(p.partition, key, v)
		if err != nil {
			return err
		}
		t.forgotten = append(t.forgotten, *rec.seg)
		if err := errors.Join(segments.Delete(bytes.Clone(key)), ended.Delete(bytes.Clone(k))); err != nil {
			return err
		}
	}
	return nil
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
