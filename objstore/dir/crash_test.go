package dir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
)

const part = blockSize + 1000 // two blocks each, the second short

func request(key string, data []byte) objstore.UploadRequest {
	c := checksum.NewCutter(part)
	_, _ = c.Write(data)
	return objstore.UploadRequest{Key: key, Body: bytes.NewReader(data), Size: int64(len(data)), PartSize: part, PartSums: c.Pieces(0)}
}

// pattern returns n bytes, none of which repeats soon.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16*7)
	}
	return b
}

var errCrash = errors.New("crash")

// disk watches every change to the file system and can stop the process after
// any of them. It knows what a power loss would leave, at worst: of a name only
// what an fsync of its directory has covered, of a file's content only what an
// fsync of the file has.
type disk struct {
	root string
	stop int // changes that are carried out; < 0 all

	mu       sync.Mutex
	ops      []string        // guarded by mu, as are those below
	volatile []string        // names whose directory was not synced since
	dirty    map[string]bool // files written and not synced since
	temp     string          // file created last
}

func (d *disk) hook(op, name string, do func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stop >= 0 && len(d.ops) >= d.stop {
		return errCrash
	}
	d.ops = append(d.ops, op+" "+name)
	if err := do(); err != nil {
		return err
	}
	switch op {
	case "mkdir", "create", "link":
		d.volatile = append(d.volatile, name)
		if op == "create" {
			d.temp = name
		} else if op == "link" && d.dirty[d.temp] {
			d.dirty[name] = true // it is the same file
		}
	case "write":
		d.dirty[name] = true
	case "fsync":
		delete(d.dirty, name)
	case "unlink":
		d.volatile = slices.DeleteFunc(d.volatile, func(v string) bool { return v == name })
		delete(d.dirty, name)
	case "fsync dir":
		d.volatile = slices.DeleteFunc(d.volatile, func(v string) bool { return path.Dir(v) == name })
	}
	return nil
}

// losePower leaves what is durable.
func (d *disk) losePower(t *testing.T) {
	t.Helper()
	for name := range d.dirty {
		if err := os.Truncate(filepath.Join(d.root, name), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	for _, name := range d.volatile {
		if err := os.RemoveAll(filepath.Join(d.root, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// watched opens a store on a disk that stops after the given number of changes.
func watched(t *testing.T, root string, stop int) (*Store, *disk) {
	d := &disk{root: root, stop: stop, dirty: make(map[string]bool)}
	s := open(t, root, Options{})
	s.hook = d.hook
	return s, d
}

// holds checks that the object is there, whole.
func holds(t *testing.T, s *Store, key string, data []byte) {
	t.Helper()
	_, body, err := s.Get(t.Context(), key, 0, int64(len(data)), objstore.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(body)
	if cerr := body.Close(); err != nil || cerr != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes of %d, %v, %v; or other bytes", len(got), len(data), err, cerr)
	}
	if fi, err := s.Stat(t.Context(), key); err != nil || fi.Size != int64(len(data)) {
		t.Fatalf("Stat: %+v, %v", fi, err)
	}
}

// Stopped after any change to the file system, by a crash of the process or of
// the machine, an upload leaves the whole object or none; run again, it
// succeeds, and then a power loss does not undo it.
func TestCrashAfterEveryChange(t *testing.T) {
	const key = "topic/0/object.seg"
	data := pattern(2*part + 100)
	whole, d := watched(t, t.TempDir(), -1)
	if _, err := whole.Upload(t.Context(), request(key, data)); err != nil {
		t.Fatal(err)
	}
	if len(d.ops) < 10 {
		t.Fatalf("only %d changes: %q", len(d.ops), d.ops)
	}
	total := len(d.ops)
	for _, power := range []bool{false, true} {
		for stop := range total + 1 {
			t.Run(fmt.Sprintf("after %d of %d, power loss %v", stop, total, power), func(t *testing.T) {
				root := t.TempDir()
				s, d := watched(t, root, stop)
				_, err := s.Upload(t.Context(), request(key, data))
				if stop < total && err == nil {
					t.Errorf("success without all %d changes", total)
				}
				if power {
					d.losePower(t)
				}
				again, d2 := watched(t, root, -1)
				d2.volatile, d2.dirty = d.volatile, d.dirty // a process forgets, a disk does not
				if _, serr := again.Stat(t.Context(), key); serr == nil {
					holds(t, again, key, data)
				} else if !errors.Is(serr, objstore.ErrNotExist) || err == nil {
					t.Fatalf("Stat: %v; the upload had returned %v", serr, err)
				}
				for range 2 {
					if _, err := again.Upload(t.Context(), request(key, data)); err != nil {
						t.Fatalf("upload again: %v", err)
					}
					d2.losePower(t)
					holds(t, again, key, data)
				}
				sweep(t, again, root)
			})
		}
	}
}

// sweep aborts what is left of dead uploads, and checks that nothing but the
// object is left then.
func sweep(t *testing.T, s *Store, root string) {
	t.Helper()
	for p, err := range s.Uploads(t.Context(), "topic/") {
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Abort(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	var files []string
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, e.Name())
		}
		return err
	})
	if err != nil || !slices.Equal(files, []string{"object.seg"}) {
		t.Errorf("left are %q, %v", files, err)
	}
}

// The order of changes is the design: it is written out in the package comment.
func TestChangesInOrder(t *testing.T) {
	s, d := watched(t, t.TempDir(), -1)
	if _, err := s.Upload(t.Context(), request("a/b/c", pattern(10))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Upload(t.Context(), request("a/b/c", pattern(10))); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "a/b/c", "a/b/absent", "a/b"); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"mkdir a", "mkdir a/b", "create a/b/c TMP", "write a/b/c TMP", "fsync a/b/c TMP",
		"link a/b/c", "unlink a/b/c TMP", "fsync dir a/b", "fsync dir a", "fsync dir .",
		"fsync a/b/c", "fsync dir a/b", "fsync dir a", "fsync dir .",
		"unlink a/b/c", "fsync dir a/b",
	}
	for i, op := range d.ops {
		if name, _, ok := parseTemp(op); ok {
			d.ops[i] = name + " TMP"
		}
	}
	if !slices.Equal(d.ops, want) {
		t.Errorf("changes\n%q, want\n%q", d.ops, want)
	}
}

// What the file system refuses becomes the sentinel that says what to do, and
// leaves nothing behind.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		op   string
		err  error
		want error
	}{
		{"write", syscall.ENOSPC, objstore.ErrFull},
		{"write", syscall.EDQUOT, objstore.ErrFull},
		{"fsync", syscall.ENOSPC, objstore.ErrFull},
		{"create", syscall.ENOSPC, objstore.ErrFull},
		{"mkdir", syscall.ENOSPC, objstore.ErrFull},
		{"link", syscall.ENOSPC, objstore.ErrFull},
		{"create", syscall.EROFS, objstore.ErrReadOnly},
		{"create", syscall.EACCES, objstore.ErrReadOnly},
		{"mkdir", syscall.EPERM, objstore.ErrReadOnly},
		{"write", syscall.EIO, syscall.EIO},
		{"fsync", syscall.EIO, syscall.EIO},
		{"link", syscall.EMLINK, syscall.EMLINK},
	} {
		t.Run(fmt.Sprintf("%s %v", c.op, c.err), func(t *testing.T) {
			root := t.TempDir()
			s := open(t, root, Options{})
			failed := false
			s.hook = func(op, name string, do func() error) error {
				if op == c.op && !failed {
					failed = true
					return &os.PathError{Op: op, Path: name, Err: c.err}
				}
				return do()
			}
			_, err := s.Upload(t.Context(), request("topic/object.seg", pattern(part)))
			var e *objstore.Error
			if !errors.Is(err, c.want) || !errors.As(err, &e) || e.Op != "upload" || e.Key != "topic/object.seg" {
				t.Fatalf("Upload: %v, want %v", err, c.want)
			}
			if left, err := filepath.Glob(filepath.Join(root, "topic", "*")); err != nil || len(left) > 0 {
				t.Errorf("left are %q, %v", left, err)
			}
			if _, err := s.Upload(t.Context(), request("topic/object.seg", pattern(part))); err != nil {
				t.Errorf("upload again: %v", err)
			}
		})
	}
	for err, want := range map[error]error{syscall.EROFS: objstore.ErrReadOnly, syscall.EACCES: objstore.ErrReadOnly, syscall.EIO: syscall.EIO} {
		s := open(t, t.TempDir(), Options{})
		if _, err := s.Upload(t.Context(), request("object", pattern(1))); err != nil {
			t.Fatal(err)
		}
		s.hook = func(string, string, func() error) error { return err }
		if err := s.Delete(t.Context(), "object"); !errors.Is(err, want) {
			t.Errorf("Delete: %v, want %v", err, want)
		}
	}
}

// Bytes that change between being summed and being on disk are found.
func TestReadBackFindsDamage(t *testing.T) {
	for _, noReadBack := range []bool{false, true} {
		root := t.TempDir()
		s := open(t, root, Options{NoReadBack: noReadBack})
		s.hook = func(op, name string, do func() error) error {
			if op == "fsync" { // of the file, all written
				f, err := os.OpenFile(filepath.Join(root, name), os.O_WRONLY, 0)
				if err != nil {
					return err
				}
				if _, err := f.WriteAt([]byte("X"), part+5); err != nil {
					return err
				}
				if err := f.Close(); err != nil {
					return err
				}
			}
			return do()
		}
		_, err := s.Upload(t.Context(), request("object", pattern(2*part)))
		if noReadBack {
			if err != nil {
				t.Errorf("without reading back: %v", err)
			}
			continue
		}
		var e *objstore.Error
		var m *checksum.MismatchError
		if !errors.Is(err, objstore.ErrCorrupt) || !errors.As(err, &e) || !errors.As(err, &m) || e.Off != part || e.Len != part || m.What != "part 1" {
			t.Errorf("Upload: %v", err)
		}
		if _, err := s.Stat(t.Context(), "object"); !errors.Is(err, objstore.ErrNotExist) {
			t.Errorf("Stat: %v", err)
		}
	}
}

// A context that ends before the commit prevents it, however late.
func TestCancelBeforeTheCommit(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	req := request("object", pattern(part))
	req.Confirmed = func(objstore.PartEvidence) { cancel() }
	if _, err := s.Upload(ctx, req); !errors.Is(err, context.Canceled) {
		t.Errorf("Upload: %v", err)
	}
	if _, err := s.Stat(t.Context(), "object"); !errors.Is(err, objstore.ErrNotExist) {
		t.Errorf("Stat: %v", err)
	}
}
