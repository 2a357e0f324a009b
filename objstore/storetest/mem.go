package storetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
)

// NewMem returns an empty store in memory that keeps the whole law of package
// objstore. It holds a copy of every object and has no bound: it is for tests.
// It is an objstore.UploadLister: an upload whose context ends stays behind
// unfinished, as on a store that could not be told, and is taken up by the next
// one with the same key and token.
func NewMem() objstore.Store {
	return &mem{objects: make(map[string]*memObject), pending: make(map[string]*memUpload)}
}

type mem struct {
	mu      sync.RWMutex
	closed  bool                  // guarded by mu
	writes  int                   // guarded by mu; makes identities and upload ids
	objects map[string]*memObject // guarded by mu; the objects are immutable
	pending map[string]*memUpload // unfinished, by id; guarded by mu
}

type memUpload struct {
	objstore.Pending
	token string
	busy  bool // an Upload is at it
}

type memObject struct {
	data []byte
	info objstore.Info
}

func (m *mem) Get(ctx context.Context, key string, off, n int64, opts objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	fail := func(err error) (objstore.Info, io.ReadCloser, error) {
		return objstore.Info{}, nil, &objstore.Error{Op: "get", Key: key, Off: off, Len: n, Err: err}
	}
	o, err := m.find(ctx, key)
	if err != nil {
		return fail(err)
	}
	if opts.IfMatch != "" && opts.IfMatch != o.info.Identity {
		return fail(fmt.Errorf("%w: it is %s, expected %s", objstore.ErrChanged, o.info.Identity, opts.IfMatch))
	}
	if err := objstore.CheckRange(off, n, int64(len(o.data))); err != nil {
		return fail(err)
	}
	info := o.info
	info.Now = time.Now()
	return info, &memBody{key: key, off: off, n: n, rest: o.data[off : off+n], expired: ctx.Err}, nil
}

func (m *mem) Stat(ctx context.Context, key string) (objstore.Info, error) {
	o, err := m.find(ctx, key)
	if err != nil {
		return objstore.Info{}, &objstore.Error{Op: "stat", Key: key, Err: err}
	}
	info := o.info
	info.Now = time.Now()
	return info, nil
}

// find returns the object under key.
func (m *mem) find(ctx context.Context, key string) (*memObject, error) {
	if err := m.usable(ctx); err != nil {
		return nil, err
	}
	if err := objstore.ValidateKey(key); err != nil {
		return nil, err
	}
	m.mu.RLock()
	o := m.objects[key]
	m.mu.RUnlock()
	if o == nil {
		return nil, objstore.ErrNotExist
	}
	return o, nil
}

func (m *mem) usable(ctx context.Context) error {
	m.mu.RLock()
	closed := m.closed
	m.mu.RUnlock()
	if closed {
		return objstore.ErrClosed
	}
	return ctx.Err()
}

func (m *mem) Upload(ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
	ev, err := m.upload(ctx, &req)
	if err != nil {
		var e *objstore.Error
		if !errors.As(err, &e) {
			err = &objstore.Error{Op: "upload", Key: req.Key, Err: err}
		}
		return objstore.Evidence{}, err
	}
	return ev, nil
}

func (m *mem) upload(ctx context.Context, req *objstore.UploadRequest) (objstore.Evidence, error) {
	if err := m.usable(ctx); err != nil {
		return objstore.Evidence{}, err
	}
	if err := req.Validate(); err != nil {
		return objstore.Evidence{}, err
	}
	id, err := m.begin(req)
	if err != nil {
		return objstore.Evidence{}, err
	}
	ev, err := m.transfer(ctx, req, id)
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pending[id]; p != nil && err != nil && ctx.Err() != nil {
		p.busy = false
	} else {
		delete(m.pending, id)
	}
	return ev, err
}

// begin returns the id of a new unfinished upload, or of one left by an earlier
// try.
func (m *mem) begin(req *objstore.UploadRequest) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return "", objstore.ErrClosed
	}
	for id, p := range m.pending {
		if p.Key == req.Key && p.token == req.Token && !p.busy {
			p.busy = true
			return id, nil
		}
	}
	m.writes++
	id := "u" + strconv.Itoa(m.writes)
	m.pending[id] = &memUpload{
		Pending: objstore.Pending{Key: req.Key, ID: id, Started: time.Now()}, token: req.Token, busy: true,
	}
	return id, nil
}

// transfer carries the parts over and makes the object visible.
func (m *mem) transfer(ctx context.Context, req *objstore.UploadRequest, id string) (objstore.Evidence, error) {
	data := make([]byte, req.Size)
	ev := objstore.Evidence{Size: req.Size, Parts: make([]objstore.PartEvidence, len(req.PartSums))}
	for i := range req.PartSums {
		sum, err := memPart(ctx, req, i, data)
		if err != nil {
			return objstore.Evidence{}, err
		}
		ev.Parts[i] = objstore.PartEvidence{Part: i, Sum: sum, Level: objstore.ReadBack}
		if req.Confirmed != nil {
			req.Confirmed(ev.Parts[i])
		}
	}
	if err := ctx.Err(); err != nil {
		return objstore.Evidence{}, err
	}
	var err error
	ev.Identity, ev.Existed, err = m.create(req, data, id)
	return ev, err
}

// memPart copies part i of the body to its place in data and checks its sum.
func memPart(ctx context.Context, req *objstore.UploadRequest, i int, data []byte) (checksum.Sum, error) {
	off, n := req.Part(i)
	if req.Slots != nil {
		release, err := req.Slots(ctx, n)
		if err != nil {
			return checksum.Sum{}, err
		}
		defer release()
	}
	if err := ctx.Err(); err != nil {
		return checksum.Sum{}, err
	}
	part := data[off : off+n]
	if got, err := req.Body.ReadAt(part, off); int64(got) < n {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return checksum.Sum{}, &objstore.Error{
			Op: "upload", Key: req.Key, Off: off, Len: n,
			Err: fmt.Errorf("reading the body: %w", err),
		}
	}
	sum := checksum.Sum{Len: n, CRC32C: checksum.CRC32C(part)}
	if want := req.PartSums[i]; sum != want {
		return sum, &objstore.Error{
			Op: "upload", Key: req.Key, Off: off, Len: n,
			Err: fmt.Errorf("%w: %w", objstore.ErrCorrupt, &checksum.MismatchError{
				What: "part " + strconv.Itoa(i), Off: off, Len: n, Want: want.CRC32C, Got: sum.CRC32C,
			}),
		}
	}
	return sum, nil
}

// create makes the object visible, unless the key is taken or the upload was
// aborted.
func (m *mem) create(req *objstore.UploadRequest, data []byte, id string) (identity string, existed bool, err error) {
	crc := req.Sum().CRC32C
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return "", false, objstore.ErrClosed
	}
	if m.pending[id] == nil {
		m.mu.Unlock()
		return "", false, errors.New("the upload was aborted")
	}
	old := m.objects[req.Key]
	if old == nil {
		m.writes++
		identity = "w" + strconv.Itoa(m.writes)
		m.objects[req.Key] = &memObject{data: data, info: objstore.Info{
			Key: req.Key, Size: req.Size, Identity: identity, Modified: time.Now(), Token: req.Token,
			CRC32C: crc, HasCRC32C: true,
		}}
		m.mu.Unlock()
		return identity, false, nil
	}
	m.mu.Unlock()
	if !bytes.Equal(old.data, data) {
		return "", false, objstore.ErrConflict
	}
	return old.info.Identity, true, nil
}

func (m *mem) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := m.usable(ctx); err != nil {
			return &objstore.Error{Op: "delete", Key: key, Err: err}
		}
		if err := objstore.ValidateKey(key); err != nil {
			return &objstore.Error{Op: "delete", Key: key, Err: err}
		}
		m.mu.Lock()
		delete(m.objects, key)
		m.mu.Unlock()
	}
	return nil
}

func (m *mem) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		m.mu.RLock()
		var found []objstore.Info
		for key, o := range m.objects {
			if strings.HasPrefix(key, prefix) && key > after {
				found = append(found, o.info)
			}
		}
		m.mu.RUnlock()
		slices.SortFunc(found, func(a, b objstore.Info) int { return strings.Compare(a.Key, b.Key) })
		for i := 0; ; i++ {
			if err := m.usable(ctx); err != nil {
				yield(objstore.Info{}, &objstore.Error{Op: "list", Key: prefix, Err: err})
				return
			}
			if i == len(found) {
				return
			}
			found[i].Now = time.Now()
			if !yield(found[i], nil) {
				return
			}
		}
	}
}

func (m *mem) Uploads(ctx context.Context, prefix string) iter.Seq2[objstore.Pending, error] {
	return func(yield func(objstore.Pending, error) bool) {
		if err := m.usable(ctx); err != nil {
			yield(objstore.Pending{}, &objstore.Error{Op: "uploads", Key: prefix, Err: err})
			return
		}
		m.mu.RLock()
		var found []objstore.Pending
		for _, p := range m.pending {
			if strings.HasPrefix(p.Key, prefix) {
				found = append(found, p.Pending)
			}
		}
		m.mu.RUnlock()
		slices.SortFunc(found, func(a, b objstore.Pending) int {
			return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.ID, b.ID))
		})
		for _, p := range found {
			if !yield(p, nil) {
				return
			}
		}
	}
}

func (m *mem) Abort(ctx context.Context, p objstore.Pending) error {
	if err := m.usable(ctx); err != nil {
		return &objstore.Error{Op: "abort", Key: p.Key, Err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if u := m.pending[p.ID]; u != nil && u.Key == p.Key {
		delete(m.pending, p.ID)
	}
	return nil
}

func (m *mem) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	return nil
}

// memBody is the body of one Get.
type memBody struct {
	key     string
	off, n  int64
	rest    []byte
	expired func() error // of the Get's context
	closed  atomic.Bool
}

func (b *memBody) Read(p []byte) (int, error) {
	err := b.expired()
	if b.closed.Load() {
		err = errors.New("read of a closed body")
	}
	if err != nil {
		return 0, &objstore.Error{Op: "get", Key: b.key, Off: b.off, Len: b.n, Err: err}
	}
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *memBody) Close() error {
	b.closed.Store(true)
	return nil
}
