package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/segtier/segtier/objstore"
)

// Options of a Store. The zero value opens an existing directory for reading
// and writing.
type Options struct {
	// Create makes the directory, and those above it, if it does not exist.
	Create bool
	// ReadOnly refuses every change with objstore.ErrReadOnly.
	ReadOnly bool
	// NoReadBack skips reading back what was written; the evidence is then
	// objstore.Echoed instead of objstore.ReadBack.
	NoReadBack bool
}

// Store is an object store in a directory. Several Stores, also in several
// processes, may use one directory at the same time.
type Store struct {
	root *os.Root
	path string // as given to Open, for messages
	abs  string // the same from the root of the file system
	opts Options

	buffers sync.Pool // of *[blockSize]byte
	hook    hook      // set by tests only

	mu      sync.Mutex
	closed  bool                                // guarded by mu
	uploads map[*upload]context.CancelCauseFunc // in progress; guarded by mu
	running sync.WaitGroup                      // of uploads; Add under mu, while not closed
}

var (
	_ objstore.Store        = (*Store)(nil)
	_ objstore.UploadLister = (*Store)(nil)
)

// Open opens the store in the directory path.
func Open(path string, opts Options) (*Store, error) {
	fail := func(err error) (*Store, error) {
		return nil, &objstore.Error{Op: "open", Err: fmt.Errorf("store directory %s: %w", path, err)}
	}
	if path == "" {
		return fail(errors.New("the path is empty"))
	}
	if opts.Create && !opts.ReadOnly {
		if err := createRoot(path); err != nil {
			return fail(writeError(err))
		}
	}
	fi, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fail(fmt.Errorf("it does not exist; create it first, or open it with Options.Create: %w", err))
	case err != nil:
		return fail(err)
	case !fi.IsDir():
		return fail(errors.New("it is not a directory"))
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return fail(err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return fail(err)
	}
	s := &Store{root: root, path: path, abs: abs, opts: opts, uploads: make(map[*upload]context.CancelCauseFunc)}
	s.buffers.New = func() any { return new([blockSize]byte) }
	return s, nil
}

// createRoot makes the directory and those above it, and makes them durable: each
// new one has its entry in the directory above synced.
func createRoot(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	var above []string
	for p := path; ; p = filepath.Dir(p) {
		if _, err := os.Stat(p); err == nil || !errors.Is(err, os.ErrNotExist) {
			break // Open says what is wrong with it
		}
		above = append(above, filepath.Dir(p))
	}
	if err := os.MkdirAll(path, dirPerm); err != nil {
		return err
	}
	for _, dir := range above {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		err = errors.Join(f.Sync(), f.Close())
		if err != nil {
			return err
		}
	}
	return nil
}

// Get implements objstore.Store. It holds one descriptor until the body is
// closed, so a Delete meanwhile does not disturb it.
func (s *Store) Get(ctx context.Context, key string, off, n int64, opts objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	fail := func(err error) (objstore.Info, io.ReadCloser, error) {
		return objstore.Info{}, nil, &objstore.Error{Op: "get", Key: key, Off: off, Len: n, Err: err}
	}
	if err := s.usable(ctx, key); err != nil {
		return fail(err)
	}
	f, fi, err := s.open(key)
	if err != nil {
		return fail(err)
	}
	info := s.info(key, fi)
	err = objstore.CheckRange(off, n, info.Size)
	if opts.IfMatch != "" && opts.IfMatch != info.Identity {
		err = fmt.Errorf("%w: it is %s, expected %s", objstore.ErrChanged, info.Identity, opts.IfMatch)
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return fail(err)
	}
	return info, &body{f: f, key: key, off: off, end: off + n, pos: off, expired: ctx.Err}, nil
}

// Stat implements objstore.Store.
func (s *Store) Stat(ctx context.Context, key string) (objstore.Info, error) {
	err := s.usable(ctx, key)
	if err == nil {
		var fi os.FileInfo
		if fi, err = s.root.Stat(key); err == nil && fi.Mode().IsRegular() {
			return s.info(key, fi), nil
		} else if err == nil {
			err = fmt.Errorf("%w: it is no regular file", objstore.ErrNotExist)
		}
		err = readError(s.unlessGone(err))
	}
	return objstore.Info{}, &objstore.Error{Op: "stat", Key: key, Err: err}
}

// Delete implements objstore.Store. The removals are durable when it returns.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	dirs := make(map[string]struct{})
	for _, key := range keys {
		removed, err := s.remove(ctx, key)
		if err != nil {
			return &objstore.Error{Op: "delete", Key: key, Err: err}
		}
		if removed {
			dirs[path.Dir(key)] = struct{}{}
		}
	}
	for dir := range dirs {
		if err := s.syncDir(dir); err != nil {
			return &objstore.Error{Op: "delete", Key: dir, Err: writeError(err)}
		}
	}
	if len(keys) == 0 && s.isClosed() {
		return &objstore.Error{Op: "delete", Err: objstore.ErrClosed}
	}
	return nil
}

func (s *Store) remove(ctx context.Context, key string) (bool, error) {
	if err := s.usable(ctx, key); err != nil {
		return false, err
	}
	if s.opts.ReadOnly {
		return false, s.readOnly()
	}
	// Removing a name would remove an empty directory too, which is no object.
	fi, err := s.root.Lstat(key)
	if err == nil && fi.IsDir() {
		return false, nil
	}
	if err == nil {
		err = s.unlink(key)
	}
	if isAbsent(err) {
		return false, s.gone()
	}
	return err == nil, writeError(err)
}

// Close implements objstore.Store. Uploads in progress are ended and waited
// for; bodies that are open stay readable.
func (s *Store) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	for _, cancel := range s.uploads {
		cancel(objstore.ErrClosed)
	}
	s.mu.Unlock()
	s.running.Wait()
	if !first {
		return nil
	}
	return s.root.Close()
}

func (s *Store) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// usable is what every call on a key checks first.
func (s *Store) usable(ctx context.Context, key string) error {
	if s.isClosed() {
		return objstore.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return objstore.ValidateKey(key)
}

func (s *Store) readOnly() error {
	return fmt.Errorf("%w: directory %s was opened so", objstore.ErrReadOnly, s.path)
}

// open opens an object for reading.
func (s *Store) open(key string) (*os.File, os.FileInfo, error) {
	// Looked at before it is opened: opening a pipe would wait for its writer.
	if fi, err := s.root.Stat(key); err != nil {
		return nil, nil, readError(s.unlessGone(err))
	} else if !fi.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%w: it is no regular file", objstore.ErrNotExist)
	}
	f, err := s.root.Open(key)
	if err != nil {
		return nil, nil, readError(s.unlessGone(err))
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%w: it is no regular file", objstore.ErrNotExist)
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, nil, readError(s.unlessGone(err))
	}
	return f, fi, nil
}

func (s *Store) info(key string, fi os.FileInfo) objstore.Info {
	return objstore.Info{Key: key, Size: fi.Size(), Identity: identity(fi), Modified: fi.ModTime(), Now: time.Now()}
}

// body reads a range of an object.
type body struct {
	f             *os.File
	key           string
	off, end, pos int64
	expired       func() error // of the Get's context
}

func (b *body) Read(p []byte) (int, error) {
	if err := b.expired(); err != nil {
		return 0, b.fail(err)
	}
	if b.pos == b.end {
		return 0, io.EOF
	}
	n, err := b.f.ReadAt(p[:min(int64(len(p)), b.end-b.pos)], b.pos)
	b.pos += int64(n)
	switch {
	case n > 0 || err == nil:
		return n, nil // an error comes again with the next read
	case err == io.EOF:
		return 0, b.fail(fmt.Errorf("the file was cut to %d bytes: %w", b.pos, io.ErrUnexpectedEOF))
	default:
		return 0, b.fail(err)
	}
}

func (b *body) fail(err error) error {
	return &objstore.Error{Op: "get", Key: b.key, Off: b.off, Len: b.end - b.off, Err: err}
}

func (b *body) Close() error {
	if err := b.f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return b.fail(err)
	}
	return nil
}
