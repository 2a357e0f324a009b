package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, path string, opts Options) *Store {
	t.Helper()
	s, err := Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStoreKeepsTheLaw(t *testing.T) {
	storetest.Acceptance(t, func(t *testing.T) objstore.Store { return open(t, t.TempDir(), Options{}) })
}

// The evidence says no more than was done.
func TestEvidence(t *testing.T) {
	for _, c := range []struct {
		opts Options
		want objstore.Level
	}{{Options{}, objstore.ReadBack}, {Options{NoReadBack: true}, objstore.Echoed}} {
		s := open(t, t.TempDir(), c.opts)
		for _, want := range []objstore.Level{c.want, objstore.ReadBack} { // the second time it is compared
			ev, err := s.Upload(t.Context(), request("key", pattern(2*part)))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range ev.Parts {
				if p.Level != want {
					t.Errorf("%+v: part %d is %v, want %v", c.opts, p.Part, p.Level, want)
				}
			}
			holds(t, s, "key", pattern(2*part))
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	tmp := t.TempDir()
	file := filepath.Join(tmp, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		opts Options
		want string
	}{
		{"", Options{}, "path is empty"},
		{filepath.Join(tmp, "absent"), Options{}, "does not exist"},
		{filepath.Join(tmp, "absent"), Options{Create: true, ReadOnly: true}, "does not exist"},
		{file, Options{}, "not a directory"},
		{file, Options{Create: true}, "not a directory"},
		{filepath.Join(file, "below"), Options{Create: true}, "not a directory"},
	} {
		s, err := Open(c.path, c.opts)
		var e *objstore.Error
		if err == nil || s != nil || !errors.As(err, &e) || e.Op != "open" || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("Open(%q, %+v): %v, want %q", c.path, c.opts, err, c.want)
		}
	}
}

func TestOpenCreates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "c")
	s := open(t, path, Options{Create: true})
	if _, err := s.Upload(t.Context(), request("key", pattern(5))); err != nil {
		t.Fatal(err)
	}
	holds(t, open(t, path, Options{Create: true}), "key", pattern(5))
}

// TestRootRemoved: who takes the directory away under an open store is told so. Nobody is
// told that there is no object, or that one is deleted, which would be damage, or the end of
// it, to those who believe it.
func TestRootRemoved(t *testing.T) {
	for what, replaced := range map[string]bool{"removed": false, "another": true} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store")
			s := open(t, path, Options{Create: true})
			if _, err := s.Upload(t.Context(), request("topic/old", pattern(5))); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			if replaced {
				if err := os.Mkdir(path, dirPerm); err != nil {
					t.Fatal(err)
				}
			}
			ctx := t.Context()
			_, upload := s.Upload(ctx, request("topic/key", pattern(5)))
			_, _, get := s.Get(ctx, "topic/old", 0, 5, objstore.GetOptions{})
			_, stat := s.Stat(ctx, "topic/old")
			var list, uploads error
			for _, err := range s.List(ctx, "", "") {
				list = err
			}
			for _, err := range s.Uploads(ctx, "") {
				uploads = err
			}
			for call, err := range map[string]error{"upload": upload, "get": get, "stat": stat, "delete": s.Delete(ctx, "topic/old"), "list": list, "uploads": uploads} {
				if err == nil || errors.Is(err, objstore.ErrNotExist) || !strings.Contains(err.Error(), path+" was removed or replaced") {
					t.Errorf("%s: got %v", call, err)
				}
			}
		})
	}
}

func TestReadOnly(t *testing.T) {
	root := t.TempDir()
	if _, err := open(t, root, Options{}).Upload(t.Context(), request("key", pattern(5))); err != nil {
		t.Fatal(err)
	}
	s := open(t, root, Options{ReadOnly: true})
	holds(t, s, "key", pattern(5))
	_, err := s.Upload(t.Context(), request("key", pattern(5)))
	for what, err := range map[string]error{
		"upload": err, "delete": s.Delete(t.Context(), "key"),
		"abort": s.Abort(t.Context(), objstore.Pending{Key: "key", ID: newID()}),
	} {
		if !errors.Is(err, objstore.ErrReadOnly) || !strings.Contains(err.Error(), root) {
			t.Errorf("%s: %v", what, err)
		}
	}
	holds(t, s, "key", pattern(5))
}

// A key and the directory of another cannot both be.
func TestDirectoryInTheWay(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	if _, err := s.Upload(t.Context(), request("a/b", pattern(5))); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "a/b/c", "a/b/c/d"} {
		if _, err := s.Upload(t.Context(), request(key, pattern(5))); !errors.Is(err, objstore.ErrConflict) || errors.Is(err, objstore.ErrNotExist) {
			t.Errorf("upload of %s beside a/b: %v", key, err)
		}
	}
	holds(t, s, "a/b", pattern(5))
}

// A name that the file system cannot have is refused in its own words.
func TestNameTooLong(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, Options{})
	for _, key := range []string{strings.Repeat("x", 232), strings.Repeat("x", 256) + "/y"} {
		if _, err := s.Upload(t.Context(), request(key, pattern(5))); !errors.Is(err, syscall.ENAMETOOLONG) {
			t.Errorf("a name of %d bytes: %v", len(key), err)
		}
	}
	if _, err := s.Upload(t.Context(), request(strings.Repeat("x", 231), pattern(5))); err != nil {
		t.Error(err)
	}
	if names, err := filepath.Glob(filepath.Join(root, "*")); err != nil || len(names) != 1 {
		t.Errorf("left are %q, %v", names, err)
	}
}

// Two processes have two stores on one directory.
func TestTwoStoresOnOneDirectory(t *testing.T) {
	root := t.TempDir()
	stores := []*Store{open(t, root, Options{}), open(t, root, Options{})}
	for round := range 10 {
		key := fmt.Sprintf("deep/er/%d", round)
		var won atomic.Int64
		var wg sync.WaitGroup
		for i, s := range stores {
			wg.Go(func() {
				_, err := s.Upload(t.Context(), request(key, pattern(100+i)))
				if err == nil {
					won.Add(1)
				} else if !errors.Is(err, objstore.ErrConflict) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Errorf("%d winners", won.Load())
		}
	}
}

// No key and no link leads out of the root.
func TestNothingOutsideTheRoot(t *testing.T) {
	base := t.TempDir()
	outside := filepath.Join(base, "outside")
	root := filepath.Join(base, "root")
	for _, dir := range []string{outside, filepath.Join(root, "in")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "secret"), filepath.Join(root, "in", "file")); err != nil {
		t.Fatal(err)
	}
	s := open(t, root, Options{})
	for _, key := range []string{"link/secret", "in/file", "../outside/secret", "in/../../outside/secret"} {
		if _, body, err := s.Get(t.Context(), key, 0, 6, objstore.GetOptions{}); err == nil {
			_ = body.Close()
			t.Errorf("Get of %s works", key)
		}
		if _, err := s.Stat(t.Context(), key); err == nil {
			t.Errorf("Stat of %s works", key)
		}
	}
	if _, err := s.Upload(t.Context(), request("link/new", pattern(5))); err == nil {
		t.Error("Upload through a link works")
	}
	if err := s.Delete(t.Context(), "link/secret"); err == nil {
		t.Error("Delete through a link works")
	}
	for info, err := range s.List(t.Context(), "", "") {
		t.Errorf("List yields %v, %v", info, err)
	}
	if names, err := filepath.Glob(filepath.Join(outside, "*")); err != nil || len(names) != 1 {
		t.Errorf("outside are %q, %v", names, err)
	}
}

// Abort removes what an upload made and nothing else.
func TestAbortRemovesOnlyUploads(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, Options{})
	if _, err := s.Upload(t.Context(), request("a/key", pattern(5))); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"", "../key", "0123456789abcdeF", "0123456789abcdef0", "/../../a/key"} {
		if err := s.Abort(t.Context(), objstore.Pending{Key: "a/key", ID: id}); err == nil {
			t.Errorf("Abort of %q works", id)
		}
	}
	left := filepath.Join(root, tempName("a/key", "0123456789abcdef"))
	for _, name := range []string{left, filepath.Join(root, "a/key note.txt"), filepath.Join(root, "a/key 123.upload")} {
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for p, err := range s.Uploads(t.Context(), "a/") {
		if n++; err != nil || p.Key != "a/key" || p.ID != "0123456789abcdef" || time.Since(p.Started) > time.Hour {
			t.Errorf("%+v, %v", p, err)
		}
		if err := s.Abort(t.Context(), p); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(left); n != 1 || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%d uploads listed; %v", n, err)
	}
	holds(t, s, "a/key", pattern(5))
}

// An object that is cut behind our back, while it is read, is never an empty
// success.
func TestFileCutWhileRead(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, Options{})
	if _, err := s.Upload(t.Context(), request("key", pattern(1000))); err != nil {
		t.Fatal(err)
	}
	info, body, err := s.Get(t.Context(), "key", 100, 900, objstore.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(root, "key"), 600); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(body)
	if len(got) != 500 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := body.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := s.Get(t.Context(), "key", 0, 600, objstore.GetOptions{IfMatch: info.Identity}); !errors.Is(err, objstore.ErrChanged) {
		t.Errorf("Get of the object as it was: %v", err)
	}
	if _, _, err := s.Get(t.Context(), "key", 0, 1000, objstore.GetOptions{}); !errors.Is(err, objstore.ErrRange) {
		t.Errorf("Get of what is cut off: %v", err)
	}
}

// Close ends uploads in progress and leaves nothing of them.
func TestCloseEndsUploads(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, Options{})
	ready := make(chan struct{})
	failed := make(chan error)
	req := request("key", pattern(part))
	req.Slots = func(ctx context.Context, _ int64) (func(), error) {
		close(ready)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	go func() {
		_, err := s.Upload(t.Context(), req)
		failed <- err
	}()
	<-ready
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	if err := <-failed; !errors.Is(err, objstore.ErrClosed) {
		t.Errorf("Upload: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(root, "*")); err != nil || len(left) > 0 {
		t.Errorf("left are %q, %v", left, err)
	}
}

// TestNamesTooLongAreAbsent: a key may be longer than a file system allows in
// one element. No object can lie there, which is what reading it says.
func TestNamesTooLongAreAbsent(t *testing.T) {
	store, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	key := strings.Repeat("x", 300)
	if _, err := store.Stat(t.Context(), key); !errors.Is(err, objstore.ErrNotExist) {
		t.Errorf("Stat: %v", err)
	}
	if _, _, err := store.Get(t.Context(), key, 0, 1, objstore.GetOptions{}); !errors.Is(err, objstore.ErrNotExist) {
		t.Errorf("Get: %v", err)
	}
	if err := store.Delete(t.Context(), key); err != nil {
		t.Errorf("Delete: %v", err)
	}
}
