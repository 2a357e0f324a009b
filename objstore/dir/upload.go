package dir

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
)

const (
	// blockSize is how much is read, summed and written at a time: it stays in
	// the processor's cache between the three.
	blockSize = 256 << 10
	// parallel is how many parts of one upload are written at a time: enough to
	// keep reading, summing and writing busy together.
	parallel = 4
)

// upload is one Upload in progress.
type upload struct {
	s   *Store
	req *objstore.UploadRequest
	ev  objstore.Evidence
}

// Upload implements objstore.Store. See the package comment for its steps and
// for what its evidence is worth.
func (s *Store) Upload(ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
	u := &upload{s: s, req: &req}
	err := u.run(ctx)
	if err == nil {
		return u.ev, nil
	}
	var e *objstore.Error
	if !errors.As(err, &e) {
		err = &objstore.Error{Op: "upload", Key: req.Key, Err: writeError(err)}
	}
	return objstore.Evidence{}, err
}

func (u *upload) run(ctx context.Context) error {
	if err := u.s.usable(ctx, u.req.Key); err != nil {
		return err
	}
	if u.s.opts.ReadOnly {
		return u.s.readOnly()
	}
	if err := u.req.Validate(); err != nil {
		return err
	}
	ctx, leave, err := u.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()

	u.ev = objstore.Evidence{Size: u.req.Size, Parts: make([]objstore.PartEvidence, len(u.req.PartSums))}
	if _, err := u.s.root.Lstat(u.req.Key); err == nil {
		return u.adopt(ctx)
	}
	return u.create(ctx)
}

// enter registers the upload, so that Close can end it.
func (u *upload) enter(ctx context.Context) (context.Context, func(), error) {
	s := u.s
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		cancel(objstore.ErrClosed)
		return nil, nil, objstore.ErrClosed
	}
	s.running.Add(1)
	s.uploads[u] = cancel
	return ctx, func() {
		cancel(nil)
		s.mu.Lock()
		delete(s.uploads, u)
		s.mu.Unlock()
		s.running.Done()
	}, nil
}

// create writes the object under a temporary name and links it into place.
func (u *upload) create(ctx context.Context) error {
	tmp := tempName(u.req.Key, newID())
	taken, err := u.place(ctx, tmp)
	// Before settle, whose fsync makes this durable too. What cannot be removed
	// does no harm: Uploads lists it.
	_ = u.s.unlink(tmp)
	switch {
	case err != nil:
		return err
	case taken:
		return u.adopt(ctx)
	}
	return u.settle()
}

// place writes and proves the temporary file and gives it the object's name,
// unless that is taken.
func (u *upload) place(ctx context.Context, tmp string) (taken bool, err error) {
	if err := u.s.mkdirs(path.Dir(u.req.Key)); err != nil {
		return false, err
	}
	if err := u.write(ctx, tmp); err != nil {
		return false, err
	}
	if err := u.confirm(ctx, tmp); err != nil {
		return false, err
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	// From here on the object is there: a context that ends no longer matters.
	err = u.s.link(tmp, u.req.Key)
	if errors.Is(err, os.ErrExist) {
		return true, nil
	}
	return false, err
}

// settle makes the object's name durable and says what it is.
func (u *upload) settle() error {
	for dir := path.Dir(u.req.Key); ; dir = path.Dir(dir) {
		if err := u.s.syncDir(dir); err != nil {
			return err
		}
		if dir == "." {
			break
		}
	}
	fi, err := u.s.root.Stat(u.req.Key)
	if err != nil {
		return err
	}
	u.ev.Size, u.ev.Identity = fi.Size(), identity(fi)
	return nil
}

// write creates the temporary file, fills it, part by part, and makes its
// content durable.
func (u *upload) write(ctx context.Context, tmp string) (err error) {
	f, err := u.s.create(tmp)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr // some file systems report a failed write only here
		}
	}()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i := range u.req.PartSums {
		g.Go(func() error { return u.writePart(ctx, f, tmp, i) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return u.s.syncFile(f, tmp)
}

// writePart copies one part of the body into the file and checks its sum.
func (u *upload) writePart(ctx context.Context, f *os.File, tmp string, i int) error {
	off, n := u.req.Part(i)
	if u.req.Slots != nil {
		release, err := u.req.Slots(ctx, n)
		if err != nil {
			return err
		}
		defer release()
	}
	return u.sumPart(ctx, i, u.req.Body, "reading the body", func(pos int64, block []byte) error {
		if err := u.s.write(f, tmp, pos, block); err != nil {
			return &objstore.Error{Op: "upload", Key: u.req.Key, Off: off, Len: n, Err: writeError(err)}
		}
		return nil
	})
}

// confirm reads the file back and confirms every part.
func (u *upload) confirm(ctx context.Context, tmp string) error {
	if u.s.opts.NoReadBack {
		for i := range u.req.PartSums {
			u.confirmed(i, objstore.Echoed)
		}
		return nil
	}
	f, err := u.s.root.Open(tmp)
	if err != nil {
		return err
	}
	defer f.Close() // read only
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i := range u.req.PartSums {
		g.Go(func() error {
			err := u.sumPart(ctx, i, f, "reading back what was written", func(int64, []byte) error { return nil })
			if err == nil {
				u.confirmed(i, objstore.ReadBack)
			}
			return err
		})
	}
	return g.Wait()
}

// adopt succeeds if the object that has the key holds the same bytes, and is ErrConflict if
// not. It makes the object durable: whoever made it may have died before that.
func (u *upload) adopt(ctx context.Context) error {
	f, err := u.s.root.Open(u.req.Key)
	if err != nil {
		return err // also if it was deleted a moment ago: the next try creates it
	}
	defer f.Close() // read only
	fi, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !fi.Mode().IsRegular():
		return fmt.Errorf("%w: it is no regular file, perhaps the directory of other keys", objstore.ErrConflict)
	case fi.Size() != u.req.Size:
		return fmt.Errorf("%w: it has %d bytes, not %d", objstore.ErrConflict, fi.Size(), u.req.Size)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i := range u.req.PartSums {
		g.Go(func() error { return u.comparePart(gctx, f, i) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := u.s.syncFile(f, u.req.Key); err != nil {
		return err
	}
	for i := range u.req.PartSums {
		u.confirmed(i, objstore.ReadBack)
	}
	u.ev.Existed = true
	return u.settle()
}

// comparePart compares one part of the body with the file, byte by byte.
func (u *upload) comparePart(ctx context.Context, f *os.File, i int) error {
	buf := u.s.buffers.Get().(*[blockSize]byte)
	defer u.s.buffers.Put(buf)
	return u.sumPart(ctx, i, u.req.Body, "reading the body", func(pos int64, block []byte) error {
		there := buf[:len(block)]
		if err := readFull(f, there, pos); err != nil {
			return u.failed(i, fmt.Errorf("reading the object that exists: %w", err))
		}
		if !bytes.Equal(there, block) {
			return u.failed(i, objstore.ErrConflict)
		}
		return nil
	})
}

// sumPart reads part i from src, hands every block to use, and compares the
// part's sum with the one it must have.
func (u *upload) sumPart(ctx context.Context, i int, src io.ReaderAt, doing string, use func(pos int64, block []byte) error) error {
	buf := u.s.buffers.Get().(*[blockSize]byte)
	defer u.s.buffers.Put(buf)
	off, n := u.req.Part(i)
	var crc uint32
	for pos := off; pos < off+n; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		block := buf[:min(blockSize, off+n-pos)]
		if err := readFull(src, block, pos); err != nil {
			return u.failed(i, fmt.Errorf("%s: %w", doing, err))
		}
		crc = checksum.Update(crc, block)
		if err := use(pos, block); err != nil {
			return err
		}
		pos += int64(len(block))
	}
	if want := u.req.PartSums[i].CRC32C; crc != want {
		return u.failed(i, fmt.Errorf("%w: %s: %w", objstore.ErrCorrupt, doing, &checksum.MismatchError{
			What: "part " + strconv.Itoa(i), Off: off, Len: n, Want: want, Got: crc,
		}))
	}
	return nil
}

// confirmed records the evidence for part i, whose sum has been compared, and
// tells the caller.
func (u *upload) confirmed(i int, level objstore.Level) {
	u.ev.Parts[i] = objstore.PartEvidence{Part: i, Sum: u.req.PartSums[i], Level: level}
	if u.req.Confirmed != nil {
		u.req.Confirmed(u.ev.Parts[i])
	}
}

// failed returns err as an error of part i.
func (u *upload) failed(i int, err error) error {
	off, n := u.req.Part(i)
	return &objstore.Error{Op: "upload", Key: u.req.Key, Off: off, Len: n, Err: err}
}

// readFull fills p from off; less is io.ErrUnexpectedEOF.
func readFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// newID returns the id of an upload: 16 hexadecimal digits.
func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return hex.EncodeToString(b[:])
}
