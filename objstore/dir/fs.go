package dir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/segtier/segtier/objstore"
)

// Owner and group: a broker and its sidecars often run as different users.
const (
	dirPerm  = 0o750
	filePerm = 0o640
)

// hook stands between the store and the file system in tests: it is given every
// change in order, by name and path, and does it, or not.
type hook func(op, path string, do func() error) error

// do makes one change to the file system. All changes go through it.
func (s *Store) do(op, path string, change func() error) error {
	if s.hook != nil {
		return s.hook(op, path, change)
	}
	return change()
}

// mkdirs makes dir and the directories above it, up to the root. They become
// durable when the object does.
func (s *Store) mkdirs(dir string) error {
	if dir == "." {
		return nil
	}
	if fi, err := s.root.Stat(dir); err == nil && fi.IsDir() {
		return nil
	}
	if err := s.mkdirs(path.Dir(dir)); err != nil {
		return err
	}
	err := s.do("mkdir", dir, func() error { return s.root.Mkdir(dir, dirPerm) })
	if errors.Is(err, fs.ErrExist) {
		// Another upload was quicker; or an object has that name.
		if fi, serr := s.root.Stat(dir); serr != nil || !fi.IsDir() {
			return fmt.Errorf("%w: %s is an object, not a directory", objstore.ErrConflict, dir)
		}
		return nil
	}
	return s.unlessGone(err)
}

func (s *Store) create(name string) (f *os.File, err error) {
	err = s.do("create", name, func() (err error) {
		f, err = s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, filePerm)
		return err
	})
	return f, s.unlessGone(err)
}

func (s *Store) write(f *os.File, name string, pos int64, block []byte) error {
	return s.do("write", name, func() error {
		_, err := f.WriteAt(block, pos)
		return err
	})
}

func (s *Store) syncFile(f *os.File, name string) error {
	return s.do("fsync", name, f.Sync)
}

func (s *Store) link(from, to string) error {
	return s.do("link", to, func() error { return s.root.Link(from, to) })
}

func (s *Store) unlink(name string) error {
	return s.do("unlink", name, func() error { return s.root.Remove(name) })
}

func (s *Store) syncDir(dir string) error {
	return s.do("fsync dir", dir, func() error {
		f, err := s.root.Open(dir)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}

const tempSuffix = ".upload"

// tempName is where an upload's bytes are until they are an object. The space in
// it cannot be in a key.
func tempName(key, id string) string { return key + " " + id + tempSuffix }

// parseTemp returns what tempName was made from.
func parseTemp(name string) (key, id string, ok bool) {
	name, ok = strings.CutSuffix(name, tempSuffix)
	i := strings.LastIndexByte(name, ' ')
	if !ok || i < 0 || !validID(name[i+1:]) {
		return "", "", false
	}
	return name[:i], name[i+1:], true
}

func validID(id string) bool {
	return len(id) == 16 && strings.Trim(id, "0123456789abcdef") == ""
}

// isAbsent reports whether err says that there is no such file, also because
// what should be its directory is a file, or no file can have that name.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG)
}

// unlessAbsent returns err, or nil if it says that there is no such file.
func unlessAbsent(err error) error {
	if isAbsent(err) {
		return nil
	}
	return err
}

// gone says so if the directory of the store is not at its path any more: removed, moved
// away, not mounted, or another by now. That nothing is found in it says nothing of
// what the store holds then.
func (s *Store) gone() error {
	was, err := s.root.Stat(".")
	if err != nil {
		return readError(err)
	}
	now, err := os.Stat(s.abs)
	if err == nil && os.SameFile(was, now) || err != nil && !isAbsent(err) {
		return nil
	}
	return fmt.Errorf("the store's directory %s was removed or replaced: bring it back, then open the store again", s.path)
}

// unlessGone returns err, or if it says that there is no such file, and the whole store is
// not there, that.
func (s *Store) unlessGone(err error) error {
	if isAbsent(err) {
		if gone := s.gone(); gone != nil {
			return gone
		}
	}
	return err
}

// readError adds the sentinel for a failed read.
func readError(err error) error {
	switch {
	case errors.Is(err, os.ErrClosed):
		return objstore.ErrClosed
	case isAbsent(err):
		return objstore.ErrNotExist
	case errors.Is(err, fs.ErrPermission), escapes(err):
		return fmt.Errorf("%w: %w", objstore.ErrRefused, err)
	}
	return err
}

// escapes reports whether os.Root refused a path that leads out of it, for which
// it has no sentinel.
func escapes(err error) bool {
	e, ok := errors.AsType[*fs.PathError](err)
	return ok && e.Err.Error() == "path escapes from parent"
}

// writeError adds the sentinel for a failed change.
func writeError(err error) error {
	switch {
	case errors.Is(err, os.ErrClosed):
		return objstore.ErrClosed
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", objstore.ErrFull, err)
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", objstore.ErrReadOnly, err)
	}
	return err
}
