package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/segtier/segtier/objstore"
)

// Upload creates an object; see objstore.Store. Every request that carries part
// bytes takes a slot; req.Slots is not used. An upload that fails in a way that
// another try may cure is tried again with the same request, which the law of
// package objstore makes safe: what is there already is recognised. Confirmed
// is called once for each part, however many tries it takes, and a try that
// confirmed another part starts the counting of Options.Attempts anew. A source
// that ends before req.Size is an error at once.
func (e *Endpoint) Upload(ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
	at := objstore.Error{Op: "upload", Key: req.Key}
	if err := req.Validate(); err != nil {
		at.Err = err
		return objstore.Evidence{}, &at
	}
	if e == nil {
		at.Err = errNoEndpoint
		return objstore.Evidence{}, &at
	}
	u := &uploading{req: req, stream: e.uploads.Add(1), seen: make([]atomic.Bool, len(req.PartSums))}
	var ev objstore.Evidence
	var last error // of the try before
	err := e.do(ctx, forWrites, at, func(c *call) (err error) {
		if last != nil && req.Retried != nil {
			req.Retried(last)
		}
		e.stats.uploads.Add(1)
		c.learn(e.writeLimit)
		u.begin(c)
		ev, err = e.store.Upload(c.ctx, u.request())
		u.end()
		if err != nil && u.gained.Swap(false) {
			c.tries.gained()
		}
		if short := u.short.Load(); err != nil && short != nil {
			err = fmt.Errorf("%w: %w", *short, err)
		}
		last = err
		return err
	})
	if err != nil {
		return objstore.Evidence{}, err
	}
	e.stats.bytesUploaded.Add(req.Size)
	return ev, nil
}

// uploading is the state of one Upload. It stands between the store and what it
// was given, and so sees whether the upload gets on.
type uploading struct {
	req    objstore.UploadRequest
	stream uint64 // as which it takes turns with others
	gained atomic.Bool
	seen   []atomic.Bool // parts that Confirmed was called for
	short  atomic.Pointer[error]

	mu   sync.Mutex
	call *call // of this try, nil between tries; guarded by mu
	held int   // slots; the progress timeout runs while there are some; guarded by mu
}

// request is what the store is given.
func (u *uploading) request() objstore.UploadRequest {
	req := u.req
	req.Body, req.Slots, req.Confirmed = u, u.slot, u.confirmed
	return req
}

func (u *uploading) begin(c *call) {
	u.mu.Lock()
	u.call, u.held = c, 0
	u.mu.Unlock()
}

func (u *uploading) end() {
	u.mu.Lock()
	u.call.disarm()
	u.call = nil
	u.mu.Unlock()
}

// progress starts the timeout anew if a slot is held, and stops it otherwise;
// slots is by how many it holds more.
func (u *uploading) progress(slots int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.call == nil {
		return
	}
	if u.held += slots; u.held > 0 {
		u.call.armFor(u.call.e.opts.UploadProgressTimeout)
	} else {
		u.call.disarm()
	}
}

// slot is objstore.Slots: it waits for the share of the bandwidth, then for a slot.
func (u *uploading) slot(ctx context.Context, n int64) (func(), error) {
	u.mu.Lock()
	c := u.call
	u.mu.Unlock()
	if c == nil {
		return nil, errors.New("a slot is asked for after the upload has ended")
	}
	e := c.e
	if err := e.pace.Wait(ctx, n); err != nil {
		return nil, err
	}
	w, err := e.slots.acquire(ctx, want{line: writing, stream: u.stream, n: n, area: c.area})
	if err != nil {
		return nil, err
	}
	u.progress(1)
	var once sync.Once
	return func() {
		once.Do(func() {
			u.progress(-1)
			e.slots.release(w)
		})
	}, nil
}

// confirmed is UploadRequest.Confirmed.
func (u *uploading) confirmed(p objstore.PartEvidence) {
	if p.Part >= 0 && p.Part < len(u.seen) {
		if !u.seen[p.Part].CompareAndSwap(false, true) {
			return
		}
		u.gained.Store(true)
	}
	u.progress(0)
	u.mu.Lock()
	if u.call != nil && !p.Resumed {
		u.call.answered()
	}
	u.mu.Unlock()
	if u.req.Confirmed != nil {
		u.req.Confirmed(p)
	}
}

// ReadAt reads the source, and notes when it is shorter than it was.
func (u *uploading) ReadAt(b []byte, off int64) (int, error) {
	n, err := u.req.Body.ReadAt(b, off)
	if end := off + int64(n); errors.Is(err, io.EOF) && n < len(b) && end < u.req.Size {
		err := fmt.Errorf("%w: at byte %d of %d", errShrunk, end, u.req.Size)
		u.short.Store(&err)
	}
	if n > 0 {
		u.progress(0)
	}
	return n, err
}

// Uploads yields the unfinished uploads whose keys begin with prefix; see
// objstore.UploadLister. A store that is none leaves nothing behind to list. When
// listing fails and another try may help, it starts anew and leaves out what it
// has yielded. Like List it takes no slot.
func (e *Endpoint) Uploads(ctx context.Context, prefix string) iter.Seq2[objstore.Pending, error] {
	return func(yield func(objstore.Pending, error) bool) {
		lister, ok := e.store.(objstore.UploadLister)
		if !ok {
			return
		}
		type id struct{ key, upload string }
		seen := make(map[id]bool)
		err := e.do(ctx, forListing, objstore.Error{Op: "uploads", Key: prefix}, func(c *call) error {
			e.stats.lists.Add(1)
			for p, err := range lister.Uploads(c.ctx, prefix) {
				if err != nil {
					return err
				}
				if seen[id{p.Key, p.ID}] {
					continue
				}
				seen[id{p.Key, p.ID}] = true
				c.tries.gained()
				if !yield(p, nil) {
					return nil
				}
			}
			return nil
		})
		if err != nil {
			yield(objstore.Pending{}, err)
		}
	}
}

// Abort discards an unfinished upload; absent is success, and so is any on a
// store that leaves none unfinished.
func (e *Endpoint) Abort(ctx context.Context, p objstore.Pending) error {
	lister, ok := e.store.(objstore.UploadLister)
	if !ok {
		return nil
	}
	return e.do(ctx, forWrites, objstore.Error{Op: "abort", Key: p.Key}, func(c *call) error {
		w, err := e.slots.acquire(c.ctx, want{line: deleting, area: c.area})
		if err != nil {
			return err
		}
		defer e.slots.release(w)
		c.learn(e.writeLimit)
		e.stats.deletes.Add(1)
		return lister.Abort(c.ctx, p)
	})
}

var _ objstore.UploadLister = (*Endpoint)(nil)
