package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"

	"github.com/segtier/segtier/objstore"
)

// Log wraps store so that write is given one line for each call as it ends: what
// was asked, and what came of it. Lines hold nothing that differs between two
// runs (no identities, no times), so they can be compared with a golden file.
// A Get's line comes when its body is closed and says how much of it was read.
//
//	upload orders/0/a.seg: 10485761 bytes in 3 parts
//	get orders/0/a.seg [0,4096): 4096 bytes
//	get orders/0/b.seg [0,4096): object does not exist
//	list "orders/": 1 objects
//
// write is called from the goroutines that call the store. Log implements
// objstore.UploadLister; on a store that does not, it lists nothing.
func Log(store objstore.Store, write func(line string)) objstore.Store {
	return &logged{store: store, write: write}
}

type logged struct {
	store objstore.Store
	write func(string)
}

// say writes the line of a call: its outcome is err, if any, else result.
func (l *logged) say(err error, result, call string, args ...any) {
	if err != nil {
		result = outcome(err)
	}
	l.write(fmt.Sprintf(call, args...) + ": " + result)
}

// outcome names a failure: by its sentinel, or else in its own words.
func outcome(err error) string {
	for _, sentinel := range []error{
		objstore.ErrNotExist, objstore.ErrConflict, objstore.ErrThrottled, objstore.ErrChanged, objstore.ErrRange,
		objstore.ErrCorrupt, objstore.ErrClosed, objstore.ErrReadOnly, objstore.ErrFull, objstore.ErrBadAnswer, ErrInjected, ErrStopped,
		context.Canceled, context.DeadlineExceeded, io.ErrUnexpectedEOF,
	} {
		if errors.Is(err, sentinel) {
			return sentinel.Error()
		}
	}
	return err.Error()
}

func (l *logged) Get(ctx context.Context, key string, off, n int64, opts objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	info, body, err := l.store.Get(ctx, key, off, n, opts)
	if err != nil {
		l.say(err, "", "get %s [%d,%d)", key, off, off+n)
		return info, nil, err
	}
	return info, &loggedBody{ReadCloser: body, l: l, key: key, off: off, n: n}, nil
}

type loggedBody struct {
	io.ReadCloser
	l      *logged
	key    string
	off, n int64

	mu     sync.Mutex
	read   int64 // guarded by mu
	err    error // that ended it, other than io.EOF; guarded by mu
	closed bool  // guarded by mu
}

func (b *loggedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read += int64(n)
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

func (b *loggedBody) Close() error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	result := fmt.Sprintf("%d bytes", b.read)
	if b.err != nil {
		result += ", then " + outcome(b.err)
	}
	b.mu.Unlock()
	if first {
		b.l.say(nil, result, "get %s [%d,%d)", b.key, b.off, b.off+b.n)
	}
	return b.ReadCloser.Close()
}

func (l *logged) Stat(ctx context.Context, key string) (objstore.Info, error) {
	info, err := l.store.Stat(ctx, key)
	l.say(err, fmt.Sprintf("%d bytes", info.Size), "stat %s", key)
	return info, err
}

func (l *logged) Upload(ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
	ev, err := l.store.Upload(ctx, req)
	result := fmt.Sprintf("%d bytes in %d parts", ev.Size, len(ev.Parts))
	if ev.Existed {
		result += ", existed"
	}
	l.say(err, result, "upload %s", req.Key)
	return ev, err
}

func (l *logged) Delete(ctx context.Context, keys ...string) error {
	err := l.store.Delete(ctx, keys...)
	l.say(err, "done", "delete %s", strings.Join(keys, " "))
	return err
}

func (l *logged) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	call := fmt.Sprintf("list %q", prefix)
	if after != "" {
		call += fmt.Sprintf(" after %q", after)
	}
	return loggedSeq(l, call, "objects", l.store.List(ctx, prefix, after))
}

func (l *logged) Uploads(ctx context.Context, prefix string) iter.Seq2[objstore.Pending, error] {
	return loggedSeq(l, fmt.Sprintf("uploads %q", prefix), "unfinished", uploads(ctx, l.store, prefix))
}

func loggedSeq[T any](l *logged, call, what string, inner iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		n := 0
		var failed error
		defer func() { l.say(failed, fmt.Sprintf("%d %s", n, what), "%s", call) }()
		for v, err := range inner {
			if failed = err; err == nil {
				n++
			}
			if !yield(v, err) {
				return
			}
		}
	}
}

func (l *logged) Abort(ctx context.Context, p objstore.Pending) error {
	err := abort(ctx, l.store, p)
	l.say(err, "done", "abort %s", p.Key)
	return err
}

func (l *logged) Close() error {
	err := l.store.Close()
	l.say(err, "done", "close")
	return err
}

// uploads and abort are those of an objstore.UploadLister, or do nothing.

func uploads(ctx context.Context, store objstore.Store, prefix string) iter.Seq2[objstore.Pending, error] {
	if l, ok := store.(objstore.UploadLister); ok {
		return l.Uploads(ctx, prefix)
	}
	return func(func(objstore.Pending, error) bool) {}
}

func abort(ctx context.Context, store objstore.Store, p objstore.Pending) error {
	if l, ok := store.(objstore.UploadLister); ok {
		return l.Abort(ctx, p)
	}
	return nil
}
