package endpoint

import (
	"context"
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
// confirmed another part starts the counting of Options.Attempts anew.
func (e *Endpoint) Upload(ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
	at := objstore.Error{Op: "upload", Key: req.Key}
	if err := req.Validate(); err != nil {
		at.Err = err
		return objstore.Evidence{}, &at
	}
	stream := e.uploads.Add(1) // uploads take turns
	req.Slots = func(ctx context.Context, n int64) (func(), error) {
		if err := e.pace.wait(ctx, n); err != nil {
			return nil, err
		}
		w := want{line: writing, stream: stream, n: n}
		if err := e.slots.acquire(ctx, w); err != nil {
			return nil, err
		}
		var once sync.Once
		return func() { once.Do(func() { e.slots.release(w) }) }, nil
	}
	var gained atomic.Bool // in this try
	seen := make([]atomic.Bool, len(req.PartSums))
	confirmed := req.Confirmed
	req.Confirmed = func(p objstore.PartEvidence) {
		if p.Part >= 0 && p.Part < len(seen) {
			if !seen[p.Part].CompareAndSwap(false, true) {
				return
			}
			gained.Store(true)
		}
		if confirmed != nil {
			confirmed(p)
		}
	}
	var ev objstore.Evidence
	var last error // of the try before
	err := e.do(ctx, at, func(c *call) (err error) {
		if last != nil && req.Retried != nil {
			req.Retried(last)
		}
		e.stats.uploads.Add(1)
		ev, err = e.store.Upload(c.ctx, req)
		if err != nil && gained.Swap(false) {
			c.tries.gained()
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
		err := e.do(ctx, objstore.Error{Op: "uploads", Key: prefix}, func(c *call) error {
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
	return e.do(ctx, objstore.Error{Op: "abort", Key: p.Key}, func(c *call) error {
		w := want{line: writing}
		if err := e.slots.acquire(c.ctx, w); err != nil {
			return err
		}
		defer e.slots.release(w)
		e.stats.deletes.Add(1)
		return lister.Abort(c.ctx, p)
	})
}

var _ objstore.UploadLister = (*Endpoint)(nil)
