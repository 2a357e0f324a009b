package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/segtier/segtier/objstore"
)

func callRules() []rule {
	return []rule{
		{"10/a cancelled context", func(s *suite) {
			s.put("object", content(1, 100))
			ctx, cancel := context.WithCancel(s.ctx)
			cancel()
			s.everyCall(ctx, context.Canceled)
			s.holds("object", content(1, 100))
			s.absent("new")
		}},
		{"10/a context cancelled inside a body", func(s *suite) {
			data := content(1, 2*partSize)
			s.put("object", data)
			ctx, cancel := context.WithCancel(s.ctx)
			defer cancel()
			_, body, err := s.store.Get(ctx, "object", 0, int64(len(data)), objstore.GetOptions{})
			if err != nil {
				s.Fatalf("Get: %v", err)
			}
			if _, err := io.ReadFull(body, make([]byte, 1000)); err != nil {
				s.Errorf("Read: %v", err)
			}
			cancel()
			if n, err := io.Copy(io.Discard, body); !errors.Is(err, context.Canceled) {
				s.Errorf("%d more bytes, then %v", n, err)
			}
			_ = body.Close() // that an unfinished transfer ended is no news
		}},
		{"10/a context cancelled inside an upload", func(s *suite) {
			data := content(1, 2*partSize+1)
			for _, at := range []int64{0, partSize, 2 * partSize} {
				ctx, cancel := context.WithCancel(s.ctx)
				req := request("object", data)
				req.Body = readerAt(func(p []byte, off int64) (int, error) {
					if off <= at && at < off+int64(len(p)) {
						cancel()
					}
					return bytes.NewReader(data).ReadAt(p, off)
				})
				_, err := s.store.Upload(ctx, req)
				s.failsWith(err, context.Canceled, "upload", "object")
				s.absent("object")
			}
		}},
		{"10/a context cancelled while waiting for a slot", func(s *suite) {
			ctx, cancel := context.WithCancel(s.ctx)
			req := request("object", content(1, 100))
			req.Slots = func(ctx context.Context, _ int64) (func(), error) {
				cancel()
				<-ctx.Done()
				return nil, ctx.Err()
			}
			_, err := s.store.Upload(ctx, req)
			s.failsWith(err, context.Canceled, "upload", "object")
			s.absent("object")
		}},
		{"11/everything at once", everythingAtOnce},
		{"11/closed", func(s *suite) {
			s.put("object", content(1, 100))
			for range 3 {
				if err := s.store.Close(); err != nil {
					s.Errorf("Close: %v", err)
				}
				s.everyCall(s.ctx, objstore.ErrClosed)
			}
		}},
		{"11/closed while in use", func(s *suite) {
			s.put("object", content(1, 1000))
			ready := make(chan struct{}, 4)
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					var err error
					for n := 0; err == nil; n++ {
						if n == 3 {
							ready <- struct{}{}
						}
						switch i {
						case 0:
							_, err = s.store.Stat(s.ctx, "object")
						case 1:
							_, _, err = s.read("object", 0, 1000, objstore.GetOptions{})
						case 2:
							_, err = s.store.Upload(s.ctx, request(fmt.Sprintf("new/%d", n), content(2, 1000)))
						case 3:
							for _, err = range s.store.List(s.ctx, "", "") {
								if err != nil {
									break
								}
							}
						}
					}
					if !errors.Is(err, objstore.ErrClosed) {
						s.Errorf("worker %d: %v", i, err)
					}
				})
			}
			for range 4 {
				<-ready
			}
			if err := s.store.Close(); err != nil {
				s.Errorf("Close: %v", err)
			}
			wg.Wait()
		}},
	}
}

// everyCall checks that each method fails with cause.
func (s *suite) everyCall(ctx context.Context, cause error) {
	s.Helper()
	_, err := s.store.Stat(ctx, "object")
	s.failsWith(err, cause, "stat", "object")
	_, body, err := s.store.Get(ctx, "object", 0, 100, objstore.GetOptions{})
	if err == nil { // at the latest from the body
		_, err = io.Copy(io.Discard, body)
		_ = body.Close()
	}
	s.failsWith(err, cause, "get", "object")
	_, err = s.store.Upload(ctx, request("new", content(1, 100)))
	s.failsWith(err, cause, "upload", "new")
	s.failsWith(s.store.Delete(ctx, "object"), cause, "delete", "object")
	err = nil
	for _, err = range s.store.List(ctx, "", "") {
		if err != nil {
			break
		}
	}
	s.failsWith(err, cause, "list", "")
	if l, ok := s.store.(objstore.UploadLister); ok {
		err = nil
		for _, err = range l.Uploads(ctx, "") {
			if err != nil {
				break
			}
		}
		s.failsWith(err, cause, "uploads", "")
	}
}

// everythingAtOnce lets workers, each with keys of its own, use all methods at the same time.
func everythingAtOnce(s *suite) {
	each(8, func(i int) {
		for n := range 10 {
			key, data := fmt.Sprintf("w%d/%d", i, n%3), content(uint64(i*100+n), 1000+n)
			if err := s.store.Delete(s.ctx, key); err != nil {
				s.Errorf("Delete: %v", err)
			}
			if _, err := s.store.Upload(s.ctx, request(key, data)); err != nil {
				s.Errorf("Upload: %v", err)
				continue
			}
			if _, got, err := s.read(key, 0, int64(len(data)), objstore.GetOptions{}); err != nil || !bytes.Equal(got, data) {
				s.Errorf("Get: %v, or other bytes", err)
			}
			for info, err := range s.store.List(s.ctx, "w", "") {
				if err != nil || info.Size < 1000 {
					s.Errorf("List: %+v, %v", info, err)
				}
			}
		}
	})
	if got := s.list("", ""); len(got) != 8*3 {
		s.Errorf("%d objects, want %d: %q", len(got), 8*3, got)
	}
}
