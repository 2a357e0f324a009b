package subject

import (
	"bytes"
	"context"
	"io"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/objstore"
)

// NewStore returns a read-only store of generated objects in this process, for
// what is not about transfer.
func NewStore() objstore.Store { return &local{} }

type local struct {
	objects sync.Map     // key → *weather.Object
	data    atomic.Int64 // bytes of logs that were asked for
}

func (s *local) open(key string) (*weather.Object, error) {
	if o, ok := s.objects.Load(key); ok {
		return o.(*weather.Object), nil
	}
	o, err := weather.NewObject(key)
	if err != nil {
		return nil, &objstore.Error{Op: "get", Key: key, Err: objstore.ErrNotExist}
	}
	s.objects.Store(key, o)
	return o, nil
}

// Get implements objstore.Store.
func (s *local) Get(ctx context.Context, key string, off, n int64, _ objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return objstore.Info{}, nil, err
	}
	o, err := s.open(key)
	if err != nil {
		return objstore.Info{}, nil, err
	}
	if err := objstore.CheckRange(off, n, o.Size()); err != nil {
		return objstore.Info{}, nil, &objstore.Error{Op: "get", Key: key, Off: off, Len: n, Err: err}
	}
	b := make([]byte, n)
	if _, err := o.ReadAt(b, off); err != nil {
		return objstore.Info{}, nil, err
	}
	if off < o.Location().TailOffset {
		s.data.Add(n)
	}
	return objstore.Info{Key: key, Size: o.Size(), Identity: "1"}, io.NopCloser(bytes.NewReader(b)), nil
}

// Stat implements objstore.Store.
func (s *local) Stat(_ context.Context, key string) (objstore.Info, error) {
	o, err := s.open(key)
	if err != nil {
		return objstore.Info{}, err
	}
	return objstore.Info{Key: key, Size: o.Size(), Identity: "1"}, nil
}

// Upload refuses.
func (s *local) Upload(context.Context, objstore.UploadRequest) (objstore.Evidence, error) {
	return objstore.Evidence{}, &objstore.Error{Op: "upload", Err: objstore.ErrReadOnly}
}

// Delete refuses.
func (s *local) Delete(context.Context, ...string) error {
	return &objstore.Error{Op: "delete", Err: objstore.ErrReadOnly}
}

// List yields nothing: there is no end of generated objects.
func (s *local) List(context.Context, string, string) iter.Seq2[objstore.Info, error] {
	return func(func(objstore.Info, error) bool) {}
}

// Close implements objstore.Store.
func (s *local) Close() error { return nil }
