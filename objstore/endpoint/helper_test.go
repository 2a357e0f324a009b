package endpoint

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns an Endpoint that is closed, and found to hold no slot, at the
// end of the test.
func open(t *testing.T, store objstore.Store, opts Options) *Endpoint {
	t.Helper()
	e, err := New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		idle(t, e)
	})
	return e
}

// idle checks that all slots have been given back.
func idle(t testing.TB, e *Endpoint) {
	t.Helper()
	if s := e.Stats(); s.RequestsInFlight != 0 || s.BytesInFlight != 0 {
		t.Errorf("%d requests, %d bytes still in flight", s.RequestsInFlight, s.BytesInFlight)
	}
}

func content(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	return b
}

func upload(key string, data []byte, partSize int64) objstore.UploadRequest {
	c := checksum.NewCutter(partSize)
	_, _ = c.Write(data) // never fails
	return objstore.UploadRequest{
		Key: key, Body: bytes.NewReader(data), Size: int64(len(data)), PartSize: partSize, PartSums: c.Pieces(0), Token: "token",
	}
}

// filled returns a store that holds data under "key".
func filled(t testing.TB, data []byte) objstore.Store {
	t.Helper()
	s := storetest.NewMem()
	if _, err := s.Upload(t.Context(), upload("key", data, 1<<20)); err != nil {
		t.Fatal(err)
	}
	return s
}

// read asks for the whole of data in pieces of the given sizes.
func read(data []byte, sizes ...int) ReadRequest {
	req := ReadRequest{Key: "key", ObjectSize: int64(len(data))}
	for _, n := range sizes {
		req.Pieces = append(req.Pieces, Piece{Buf: make([]byte, n), CRC32C: checksum.CRC32C(data[:n])})
		data = data[n:]
	}
	return req
}

// bytesOf returns what the pieces of a request hold.
func bytesOf(req ReadRequest) []byte {
	var all []byte
	for _, p := range req.Pieces {
		all = append(all, p.Buf...)
	}
	return all
}

// lines collects what storetest.Log writes.
type lines struct {
	mu  sync.Mutex
	all []string // guarded by mu
}

func (l *lines) add(line string) {
	l.mu.Lock()
	l.all = append(l.all, line)
	l.mu.Unlock()
}

func (l *lines) check(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.all, want) {
		t.Errorf("the store was asked\n%q, want\n%q", l.all, want)
	}
}

// stub is a store whose Get is a function and that has nothing else.
type stub struct {
	objstore.Store
	get func(ctx context.Context, off, n int64, opts objstore.GetOptions) (objstore.Info, io.ReadCloser, error)
}

func (s stub) Get(ctx context.Context, _ string, off, n int64, opts objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	return s.get(ctx, off, n, opts)
}

// bodyFunc is a body made of a function.
type bodyFunc func(p []byte) (int, error)

func (f bodyFunc) Read(p []byte) (int, error) { return f(p) }
func (f bodyFunc) Close() error               { return nil }

// failFunc reports a failure, from any goroutine.
type failFunc func(format string, args ...any)

// inBubble runs f, which draws nothing, with a clock of its own, and hands its
// failures to rapid, which lives outside.
func inBubble(t *testing.T, rt *rapid.T, f func(failFunc)) {
	var mu sync.Mutex
	var failed []string
	bubble.Test(t, func(*testing.T) {
		f(func(format string, args ...any) {
			mu.Lock()
			failed = append(failed, fmt.Sprintf(format, args...))
			mu.Unlock()
		})
	})
	if len(failed) > 0 {
		rt.Fatalf("%s", strings.Join(failed, "\n"))
	}
}

func rule(op string, nth int, f storetest.Fault) storetest.Rule {
	return storetest.Rule{Op: op, Nth: nth, Fault: f}
}

func always(f storetest.Fault) storetest.Plan {
	return func(storetest.Call) storetest.Fault { return f }
}

func get(off, end int, result string) string {
	return fmt.Sprintf("get key [%d,%d): %s", off, end, result)
}
