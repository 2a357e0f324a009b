package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/segtier/segtier/objstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a tester that only remembers that it failed.
type recorder struct {
	t *testing.T

	mu     sync.Mutex
	failed []string // guarded by mu
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.t.Context() }
func (r *recorder) Logf(string, ...any)      {}
func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	r.failed = append(r.failed, fmt.Sprintf(format, args...))
	r.mu.Unlock()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// broken is a store in memory with some methods replaced.
type broken struct {
	objstore.Store
	get    func(s objstore.Store, ctx context.Context, key string, off, n int64, opts objstore.GetOptions) (objstore.Info, io.ReadCloser, error)
	upload func(s objstore.Store, ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error)
	remove func(s objstore.Store, ctx context.Context, keys ...string) error
	list   func(s objstore.Store, ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error]
}

func (b broken) Get(ctx context.Context, key string, off, n int64, opts objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	if b.get != nil {
		return b.get(b.Store, ctx, key, off, n, opts)
	}
	return b.Store.Get(ctx, key, off, n, opts)
}

func (b broken) Upload(ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
	if b.upload != nil {
		return b.upload(b.Store, ctx, req)
	}
	return b.Store.Upload(ctx, req)
}

func (b broken) Delete(ctx context.Context, keys ...string) error {
	if b.remove != nil {
		return b.remove(b.Store, ctx, keys...)
	}
	return b.Store.Delete(ctx, keys...)
}

func (b broken) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	if b.list != nil {
		return b.list(b.Store, ctx, prefix, after)
	}
	return b.Store.List(ctx, prefix, after)
}

// body is a bare body of a Get.
type body struct {
	io.Reader
	io.Closer
}

// Every way to break the law must be seen by a rule of the suite.
func TestAcceptanceSeesBrokenStores(t *testing.T) {
	always := func(f Fault) func() objstore.Store {
		return func() objstore.Store { return Inject(NewMem(), func(Call) Fault { return f }) }
	}
	for name, c := range map[string]struct {
		rule string // that must fail
		open func() objstore.Store
	}{
		"wrong sum in the evidence":      {"6/objects at part borders", always(Fault{Kind: WrongSum, At: 1})},
		"part missing in the evidence":   {"6/objects at part borders", always(Fault{Kind: DropPart, At: 1})},
		"wrong size":                     {"6/objects at part borders", always(Fault{Kind: WrongSize})},
		"short object":                   {"6/objects at part borders", always(Fault{Kind: ShortObject, At: 3})},
		"flipped object":                 {"6/objects at part borders", always(Fault{Kind: FlipStored, At: 0})},
		"body ends early without error":  {"8/ranges are exact", always(Fault{Kind: EarlyEOF, At: 0})},
		"body is damaged":                {"8/ranges are exact", always(Fault{Kind: Flip, At: 0})},
		"identity differs between calls": {"8/IfMatch", always(Fault{Kind: WrongIdentity})},
		"sums are not checked": {"6/a part sum that is wrong", func() objstore.Store {
			return broken{Store: NewMem(), upload: func(s objstore.Store, ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
				if req.Validate() == nil {
					resummed, err := resum(req)
					if err == nil {
						req = resummed
					}
				}
				return s.Upload(ctx, req)
			}}
		}},
		"uploads overwrite": {"5/other bytes are a conflict", func() objstore.Store {
			return broken{Store: NewMem(), upload: func(s objstore.Store, ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
				_ = s.Delete(ctx, req.Key)
				return s.Upload(ctx, req)
			}}
		}},
		"the same bytes are a conflict": {"5/the same bytes again", func() objstore.Store {
			return broken{Store: NewMem(), upload: func(s objstore.Store, ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
				if _, err := s.Stat(ctx, req.Key); err == nil {
					return objstore.Evidence{}, &objstore.Error{Op: "upload", Key: req.Key, Err: objstore.ErrConflict}
				}
				return s.Upload(ctx, req)
			}}
		}},
		"check and create are two steps": {"5/of concurrent uploads", func() objstore.Store {
			return broken{Store: NewMem(), upload: func(s objstore.Store, ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
				ev, err := s.Upload(ctx, req)
				if errors.Is(err, objstore.ErrConflict) {
					_ = s.Delete(ctx, req.Key)
					return s.Upload(ctx, req)
				}
				return ev, err
			}}
		}},
		"slots are not taken": {"13/slots are taken", func() objstore.Store {
			return broken{Store: NewMem(), upload: func(s objstore.Store, ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
				req.Slots = nil
				return s.Upload(ctx, req)
			}}
		}},
		"parts are confirmed twice": {"6/objects at part borders", func() objstore.Store {
			return broken{Store: NewMem(), upload: func(s objstore.Store, ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
				if f := req.Confirmed; f != nil {
					req.Confirmed = func(p objstore.PartEvidence) { f(p); f(p) }
				}
				return s.Upload(ctx, req)
			}}
		}},
		"existing parts are not confirmed": {"5/the same bytes again", func() objstore.Store {
			return broken{Store: NewMem(), upload: func(s objstore.Store, ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
				if _, err := s.Stat(ctx, req.Key); err == nil {
					req.Confirmed = nil
				}
				return s.Upload(ctx, req)
			}}
		}},
		"uploads ignore their context": {"10/a context cancelled inside an upload", func() objstore.Store {
			return broken{Store: NewMem(), upload: func(s objstore.Store, ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
				return s.Upload(context.WithoutCancel(ctx), req)
			}}
		}},
		"bodies ignore their context": {"10/a context cancelled inside a body", func() objstore.Store {
			return broken{Store: NewMem(), get: func(s objstore.Store, ctx context.Context, key string, off, n int64, opts objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
				return s.Get(context.WithoutCancel(ctx), key, off, n, opts)
			}}
		}},
		"closed bodies can be read": {"8/bodies may be closed early", func() objstore.Store {
			return broken{Store: NewMem(), get: func(s objstore.Store, ctx context.Context, key string, off, n int64, opts objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
				info, b, err := s.Get(ctx, key, off, n, opts)
				if err != nil {
					return info, b, err
				}
				return info, body{b, io.NopCloser(nil)}, nil
			}}
		}},
		"ranges are cut short": {"8/ranges outside the object", func() objstore.Store {
			return broken{Store: NewMem(), get: func(s objstore.Store, ctx context.Context, key string, off, n int64, opts objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
				if info, err := s.Stat(ctx, key); err == nil && off >= 0 && off < info.Size && n > info.Size-off {
					n = info.Size - off
				}
				return s.Get(ctx, key, off, n, opts)
			}}
		}},
		"IfMatch is ignored": {"8/IfMatch", func() objstore.Store {
			return broken{Store: NewMem(), get: func(s objstore.Store, ctx context.Context, key string, off, n int64, _ objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
				return s.Get(ctx, key, off, n, objstore.GetOptions{})
			}}
		}},
		"deleting what is absent fails": {"9/what is absent", func() objstore.Store {
			return broken{Store: NewMem(), remove: func(s objstore.Store, ctx context.Context, keys ...string) error {
				for _, key := range keys {
					if _, err := s.Stat(ctx, key); err != nil {
						return err
					}
				}
				return s.Delete(ctx, keys...)
			}}
		}},
		"only the first key is deleted": {"9/delete several", func() objstore.Store {
			return broken{Store: NewMem(), remove: func(s objstore.Store, ctx context.Context, keys ...string) error {
				return s.Delete(ctx, keys[:min(1, len(keys))]...)
			}}
		}},
		"list includes after": {"12/order", func() objstore.Store {
			return broken{Store: NewMem(), list: func(s objstore.Store, ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
				if after != "" {
					after = after[:len(after)-1]
				}
				return s.List(ctx, prefix, after)
			}}
		}},
		"list is not in order": {"12/order", func() objstore.Store {
			return broken{Store: NewMem(), list: func(s objstore.Store, ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
				return func(yield func(objstore.Info, error) bool) {
					var all []objstore.Info
					for info, err := range s.List(ctx, prefix, after) {
						if err != nil {
							yield(info, err)
							return
						}
						all = append(all, info)
					}
					slices.Reverse(all)
					for _, info := range all {
						if !yield(info, nil) {
							return
						}
					}
				}
			}}
		}},
		"list takes prefixes for directories": {"12/order", func() objstore.Store {
			return broken{Store: NewMem(), list: func(s objstore.Store, ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
				if prefix != "" {
					prefix = strings.TrimSuffix(prefix, "/") + "/"
				}
				return s.List(ctx, prefix, after)
			}}
		}},
		"errors are bare": {"9/what is absent", func() objstore.Store {
			return broken{Store: NewMem(), get: func(s objstore.Store, ctx context.Context, key string, off, n int64, opts objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
				info, b, err := s.Get(ctx, key, off, n, opts)
				return info, b, errors.Unwrap(err)
			}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			i := slices.IndexFunc(rules(), func(r rule) bool { return strings.HasPrefix(r.name, c.rule) })
			if i < 0 {
				t.Fatalf("no rule %q", c.rule)
			}
			r := &recorder{t: t}
			done := make(chan struct{})
			go func() { // Fatalf leaves it
				defer close(done)
				rules()[i].test(newSuite(r, c.open()))
			}()
			<-done
			if len(r.failed) == 0 {
				t.Errorf("rule %q is content", c.rule)
			}
		})
	}
}

// bytesOf reads an object whole.
func bytesOf(t *testing.T, s objstore.Store, key string) []byte {
	t.Helper()
	info, err := s.Stat(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	_, body, err := s.Get(t.Context(), key, 0, info.Size, objstore.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = body.Close() }()
	var buf bytes.Buffer
	if _, err := buf.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
