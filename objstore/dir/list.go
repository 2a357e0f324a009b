package dir

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/segtier/segtier/objstore"
)

// List implements objstore.Store. It reads one directory at a time.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		w := walk{s: s, prefix: prefix, after: after}
		w.visit = func(name string) (bool, error) {
			if !strings.HasPrefix(name, prefix) || name <= after || !isKey(name) {
				return true, nil
			}
			fi, err := s.root.Lstat(name)
			if err != nil {
				return true, unlessAbsent(err) // deleted a moment ago
			}
			return yield(s.info(name, fi), nil), nil
		}
		err := s.gone()
		if err == nil {
			_, err = w.dir(ctx, ".")
		}
		if err != nil {
			yield(objstore.Info{}, &objstore.Error{Op: "list", Key: prefix, Err: readError(err)})
		}
	}
}

// Uploads implements objstore.UploadLister: it yields temporary files that are
// there, of uploads in progress and of those that died. Started is when the
// file was last written to, which is no earlier than when the upload began.
func (s *Store) Uploads(ctx context.Context, prefix string) iter.Seq2[objstore.Pending, error] {
	return func(yield func(objstore.Pending, error) bool) {
		w := walk{s: s, prefix: prefix}
		w.visit = func(name string) (bool, error) {
			key, id, ok := parseTemp(name)
			if !ok || !strings.HasPrefix(key, prefix) || !isKey(key) {
				return true, nil
			}
			fi, err := s.root.Lstat(name)
			if err != nil {
				return true, unlessAbsent(err) // finished a moment ago
			}
			return yield(objstore.Pending{Key: key, ID: id, Started: fi.ModTime()}, nil), nil
		}
		err := s.gone()
		if err == nil {
			_, err = w.dir(ctx, ".")
		}
		if err != nil {
			yield(objstore.Pending{}, &objstore.Error{Op: "uploads", Key: prefix, Err: readError(err)})
		}
	}
}

// Abort implements objstore.UploadLister. An upload that is still in progress
// fails, and its object does not appear.
func (s *Store) Abort(ctx context.Context, p objstore.Pending) error {
	err := s.usable(ctx, p.Key)
	switch {
	case err != nil:
	case s.opts.ReadOnly:
		err = s.readOnly()
	case !validID(p.ID):
		err = errors.New("no id of an upload: " + p.ID)
	default:
		err = unlessAbsent(s.unlink(tempName(p.Key, p.ID)))
	}
	if err != nil {
		return &objstore.Error{Op: "abort", Key: p.Key, Err: writeError(err)}
	}
	return nil
}

// isKey reports whether a file can be an object: anything may lie in a directory.
func isKey(name string) bool { return objstore.ValidateKey(name) == nil }

// walk visits files in ascending order of their paths.
type walk struct {
	s             *Store
	prefix, after string
	visit         func(name string) (more bool, err error)
}

// dir visits the files below a directory. It returns false if no more are
// wanted.
func (w *walk) dir(ctx context.Context, dir string) (bool, error) {
	names, err := w.read(ctx, dir)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if w.s.isClosed() {
			return false, objstore.ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		more := true
		if sub, isDir := strings.CutSuffix(name, "/"); !isDir {
			more, err = w.visit(name)
		} else if w.wants(name) {
			more, err = w.dir(ctx, sub)
		}
		if err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// read returns the paths of the files and directories in dir, those of
// directories with a slash at the end: so they sort as the keys in them do.
func (w *walk) read(ctx context.Context, dir string) ([]string, error) {
	if w.s.isClosed() {
		return nil, objstore.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := w.s.root.Open(dir)
	if isAbsent(err) && dir != "." {
		return nil, nil // removed a moment ago, by hand
	} else if err != nil {
		return nil, err
	}
	defer f.Close() // read only
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		switch name := path.Join(dir, e.Name()); {
		case e.IsDir():
			names = append(names, name+"/")
		case e.Type() == fs.FileMode(0):
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// wants reports whether a directory, given with a slash at its end, can hold
// keys that are asked for.
func (w *walk) wants(dir string) bool {
	if !strings.HasPrefix(dir, w.prefix) && !strings.HasPrefix(w.prefix, dir) {
		return false
	}
	return dir > w.after || strings.HasPrefix(w.after, dir)
}
