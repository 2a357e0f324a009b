package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore/endpoint"
)

// Restore writes the files of a segment back from its object into a partition
// directory, which must exist: log, offset and time index, and, if the segment
// has them, txn index and producer snapshot. (The leader epochs are the
// partition's; object.Tail has them.) The object is read and checked in full,
// as by Confirm.
//
// Files get their names only when all of them are complete, verified and synced,
// the log last: where the log is, the segment is whole. A log that is there
// already is an error (fs.ErrExist) and stays as it is. After a failure
// temporary files (*.tmp) are removed; after a crash they may be left, and a
// repeated Restore replaces them.
func Restore(ctx context.Context, ep *endpoint.Endpoint, h object.Header, loc object.Location, dir string) (err error) {
	w := &restoring{dir: dir, base: h.StartOffset, next: h.EndOffset + 1}
	if err := w.free(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.cleanUp()) }()

	r := &fullRead{ctx: ctx, ep: ep, key: h.Key(), loc: loc}
	if err := r.open(); err != nil {
		return err
	}
	if r.tail == nil {
		return r.verdict()
	}
	r.checkHeader(&h)
	c := newLogCheck(r)
	log, err := w.create(object.Log)
	if err != nil {
		return err
	}
	err = r.log(func(i int, b []byte) error {
		if _, err := log.Write(b); err != nil {
			return err
		}
		return c.chunk(i, b)
	})
	if err != nil {
		return r.fail(err)
	}
	if err := c.close(); err != nil {
		return err
	}
	for _, s := range []object.Section{object.OffsetIndex, object.TimeIndex, object.ProducerSnapshot} {
		if s == object.ProducerSnapshot && r.tail.Sections[s].Len == 0 {
			continue
		}
		f, err := w.create(s)
		if err != nil {
			return err
		}
		_, err = r.section(s, func(b []byte) error {
			_, err := f.Write(b)
			return err
		})
		if err != nil {
			return r.fail(err)
		}
	}
	if txn := r.tail.Sections[object.TxnIndex]; txn.Len > 0 {
		f, err := w.create(object.TxnIndex)
		if err != nil {
			return err
		}
		if _, err := f.Write(r.tailBytes[txn.Off-loc.TailOffset:][:txn.Len]); err != nil {
			return err
		}
	}
	if err := r.verdict(); err != nil {
		return err
	}
	return w.publish()
}

// restoring is the files of one segment that are being written.
type restoring struct {
	dir        string
	base, next int64 // the segment's base offset, and that of the one after it
	files      []restored
}

type restored struct {
	section object.Section
	tmp     *os.File
}

// path returns the name of a file as Kafka has it.
func (w *restoring) path(s object.Section) string {
	offset := w.base
	var suffix string
	switch s {
	case object.Log:
		suffix = ".log"
	case object.OffsetIndex:
		suffix = ".index"
	case object.TimeIndex:
		suffix = ".timeindex"
	case object.TxnIndex:
		suffix = ".txnindex"
	case object.ProducerSnapshot:
		offset, suffix = w.next, ".snapshot"
	default:
		panic(fmt.Sprintf("transfer: %s is no file", s))
	}
	return filepath.Join(w.dir, fmt.Sprintf("%020d%s", offset, suffix))
}

// free refuses a directory in which the log exists.
func (w *restoring) free() error {
	name := w.path(object.Log)
	_, err := os.Lstat(name)
	if err == nil {
		return &fs.PathError{Op: "restore", Path: name, Err: fs.ErrExist}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (w *restoring) create(s object.Section) (*os.File, error) {
	f, err := os.OpenFile(w.path(s)+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	w.files = append(w.files, restored{section: s, tmp: f})
	return f, nil
}

// publish makes the files durable and gives them their names.
func (w *restoring) publish() error {
	for _, f := range w.files {
		if err := f.tmp.Sync(); err != nil {
			return err
		}
	}
	for _, f := range w.files[1:] {
		if err := os.Rename(f.tmp.Name(), w.path(f.section)); err != nil {
			return err
		}
	}
	// The log is the first that was created. Unlike a rename, a link never
	// replaces a log that somebody else has put there meanwhile.
	if err := syncDir(w.dir); err != nil {
		return err
	}
	if err := os.Link(w.files[0].tmp.Name(), w.path(object.Log)); err != nil {
		return err
	}
	return syncDir(w.dir)
}

// cleanUp closes the files and removes what still has a temporary name.
func (w *restoring) cleanUp() error {
	var errs []error
	for _, f := range w.files {
		errs = append(errs, f.tmp.Close())
		if err := os.Remove(f.tmp.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
