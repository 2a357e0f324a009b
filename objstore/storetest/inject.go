package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"github.com/segtier/segtier/objstore"
)

// Faulty is a store on which things go wrong as a [Plan] says. It implements
// objstore.UploadLister too; on a store that does not, it lists nothing. It is
// safe for concurrent use.
type Faulty struct {
	store   objstore.Store
	plan    Plan
	effects Effects

	mu  sync.Mutex
	nth map[Call]int // guarded by mu; by Op and Key alone
	seq int          // guarded by mu
}

// Inject wraps store. A nil plan is one without faults, to count effects or to
// stop after one of them. Closing the Faulty closes store.
func Inject(store objstore.Store, plan Plan) *Faulty {
	if plan == nil {
		plan = func(Call) Fault { return Fault{} }
	}
	return &Faulty{store: store, plan: plan, nth: make(map[Call]int)}
}

// Effects returns the numbering of the effects on this store: each part of an
// upload as it is confirmed, each object that appears, each key deleted, each
// upload aborted.
func (f *Faulty) Effects() *Effects { return &f.effects }

// begin decides on a call and carries out what goes wrong before it reaches
// the store.
func (f *Faulty) begin(ctx context.Context, c Call) (Fault, error) {
	if err := f.effects.Err(); err != nil {
		return Fault{}, c.wrap(err)
	}
	f.mu.Lock()
	id := Call{Op: c.Op, Key: c.Key}
	f.nth[id]++
	f.seq++
	c.Nth, c.Seq = f.nth[id], f.seq
	f.mu.Unlock()

	fault := f.plan(c)
	if fault.Err == nil {
		fault.Err = ErrInjected
		if fault.Kind == Cut && c.Op == "get" {
			fault.Err = io.ErrUnexpectedEOF
		}
	}
	switch fault.Kind {
	case FailBefore:
		return fault, c.wrap(fault.Err)
	case Hang:
		<-ctx.Done()
		return fault, c.wrap(ctx.Err())
	case Wait:
		select {
		case <-fault.Gate:
		case <-ctx.Done():
			return fault, c.wrap(ctx.Err())
		}
	}
	return fault, nil
}

// end makes of an outcome what the caller gets to see.
func (f *Faulty) end(c Call, fault Fault, err error) error {
	if stopped := f.effects.Err(); stopped != nil {
		return c.wrap(stopped)
	}
	if err == nil && fault.Kind == FailAfter {
		return c.wrap(fault.Err)
	}
	return err
}

// wrap returns err as the *objstore.Error of this call.
func (c Call) wrap(err error) error {
	var e *objstore.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	return &objstore.Error{Op: c.Op, Key: c.Key, Off: c.Off, Len: c.Len, Err: err}
}

// Get implements objstore.Store.
func (f *Faulty) Get(ctx context.Context, key string, off, n int64, opts objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	c := Call{Op: "get", Key: key, Off: off, Len: n}
	fault, err := f.begin(ctx, c)
	if err != nil {
		return objstore.Info{}, nil, err
	}
	info, body, err := f.store.Get(ctx, key, off, n, opts)
	if err = f.end(c, fault, err); err != nil {
		if body != nil {
			_ = body.Close() // the answer is thrown away
		}
		return objstore.Info{}, nil, err
	}
	fault.lieInfo(&info)
	return info, &faultyBody{body: body, call: c, fault: fault, effects: &f.effects, ctx: ctx, closed: make(chan struct{})}, nil
}

// Stat implements objstore.Store.
func (f *Faulty) Stat(ctx context.Context, key string) (objstore.Info, error) {
	c := Call{Op: "stat", Key: key}
	fault, err := f.begin(ctx, c)
	if err != nil {
		return objstore.Info{}, err
	}
	info, err := f.store.Stat(ctx, key)
	if err = f.end(c, fault, err); err != nil {
		return objstore.Info{}, err
	}
	fault.lieInfo(&info)
	return info, nil
}

func (fault Fault) lieInfo(info *objstore.Info) {
	switch fault.Kind {
	case WrongSize:
		info.Size--
	case WrongIdentity:
		info.Identity += "'"
	}
}

// Upload implements objstore.Store.
func (f *Faulty) Upload(ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
	c := Call{Op: "upload", Key: req.Key, Len: req.Size}
	fault, err := f.begin(ctx, c)
	if err != nil {
		return objstore.Evidence{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	inner, err := fault.tamper(ctx, req)
	if err != nil {
		return objstore.Evidence{}, c.wrap(err)
	}
	inner.Confirmed = func(p objstore.PartEvidence) {
		if f.effects.note(fmt.Sprintf("upload %s part %d", req.Key, p.Part)) != nil {
			cancel() // the process has died: nothing more is sent
			return
		}
		if told := fault.lieParts(&req, []objstore.PartEvidence{p}); req.Confirmed != nil && len(told) > 0 {
			req.Confirmed(told[0])
		}
	}
	ev, err := f.store.Upload(ctx, inner)
	if err == nil && !ev.Existed {
		_ = f.effects.note("upload " + req.Key) // end reports it
	}
	if err = f.end(c, fault, err); err != nil {
		return objstore.Evidence{}, err
	}
	return fault.lieEvidence(&req, ev), nil
}

// Delete implements objstore.Store. It passes the keys on one by one.
func (f *Faulty) Delete(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return f.store.Delete(ctx)
	}
	for _, key := range keys {
		c := Call{Op: "delete", Key: key}
		fault, err := f.begin(ctx, c)
		if err != nil {
			return err
		}
		err = f.store.Delete(ctx, key)
		if err == nil {
			_ = f.effects.note("delete " + key) // end reports it
		}
		if err = f.end(c, fault, err); err != nil {
			return err
		}
	}
	return nil
}

// List implements objstore.Store.
func (f *Faulty) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return faultySeq(ctx, f, Call{Op: "list", Key: prefix}, f.store.List(ctx, prefix, after))
}

// Uploads implements objstore.UploadLister.
func (f *Faulty) Uploads(ctx context.Context, prefix string) iter.Seq2[objstore.Pending, error] {
	return faultySeq(ctx, f, Call{Op: "uploads", Key: prefix}, uploads(ctx, f.store, prefix))
}

func faultySeq[T any](ctx context.Context, f *Faulty, c Call, inner iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		fault, err := f.begin(ctx, c)
		if err != nil {
			yield(zero, err)
			return
		}
		var n int64
		for v, err := range inner {
			if err == nil && fault.Kind == Cut && n == fault.At {
				err = c.wrap(fault.Err)
			}
			if stopped := f.effects.Err(); stopped != nil {
				err = c.wrap(stopped)
			}
			if err != nil {
				yield(zero, err)
				return
			}
			if n++; !yield(v, nil) {
				return
			}
		}
		if err := f.end(c, fault, nil); err != nil {
			yield(zero, err)
		}
	}
}

// Abort implements objstore.UploadLister.
func (f *Faulty) Abort(ctx context.Context, p objstore.Pending) error {
	c := Call{Op: "abort", Key: p.Key}
	fault, err := f.begin(ctx, c)
	if err != nil {
		return err
	}
	err = abort(ctx, f.store, p)
	if err == nil {
		_ = f.effects.note("abort " + p.Key) // end reports it
	}
	return f.end(c, fault, err)
}

// Close implements objstore.Store. It works after a stop too.
func (f *Faulty) Close() error { return f.store.Close() }

var (
	_ objstore.Store        = (*Faulty)(nil)
	_ objstore.UploadLister = (*Faulty)(nil)
)
