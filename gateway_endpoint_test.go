package segtier_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/gateway"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
)

// TestGatewayReadsOfEveryClass reads a real server through an endpoint, in all
// classes, hedged, while the server is killed and started again: the bytes are
// right, or the error has a type; then all reads succeed, and nothing is left.
func TestGatewayReadsOfEveryClass(t *testing.T) {
	s := gateway.Start(t, gateway.Options{})
	store := openS3(t, s, s.URL(), "reads")
	ep, err := endpoint.New(store, endpoint.Options{Requests: 8, HedgeBytes: 1 << 20, ProgressTimeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(ep.Close(), store.Close()); err != nil {
			t.Error(err)
		}
		if st := ep.Stats(); st.RequestsInFlight != 0 || st.BytesInFlight != 0 || st.Waiting != 0 {
			t.Errorf("left behind: %+v", st)
		}
	}()
	data := make([]byte, 3<<20)
	for i := range data {
		data[i] = byte(i * 7919 >> 8)
	}
	cutter := checksum.NewCutter(int64(len(data)))
	_, _ = cutter.Write(data)
	up := objstore.UploadRequest{Key: "object", Body: bytes.NewReader(data), Size: int64(len(data)), PartSize: int64(len(data)), PartSums: cutter.Pieces(0), Token: "token"}
	if _, err := ep.Upload(t.Context(), up); err != nil {
		t.Fatal(err)
	}
	const piece = 128 << 10
	read := func(ctx context.Context, i int) error {
		req := endpoint.ReadRequest{Key: "object", Off: int64(i%12) * 2 * piece, ObjectSize: int64(len(data)), Class: endpoint.Class(i % 3), Stream: uint64(i % 5), Tenant: []string{"", "a", "b"}[i%3]}
		for k := range int64(2) {
			off := req.Off + k*piece
			req.Pieces = append(req.Pieces, endpoint.Piece{Buf: make([]byte, piece), CRC32C: checksum.CRC32C(data[off : off+piece])})
		}
		_, err := ep.Read(ctx, req)
		for k, p := range req.Pieces {
			if off := req.Off + int64(k)*piece; err == nil && !bytes.Equal(p.Buf, data[off:off+piece]) {
				t.Errorf("wrong bytes at %d", off)
			}
		}
		return err
	}
	all := func(n int, check func(error)) {
		var wg sync.WaitGroup
		for w := range 12 {
			wg.Go(func() {
				for i := range n {
					check(read(t.Context(), w*n+i))
				}
			})
		}
		wg.Wait()
	}
	mustRead := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	all(25, mustRead)
	var meanwhile sync.WaitGroup
	meanwhile.Go(func() {
		s.Kill()
		if err := s.Restart(); err != nil {
			t.Error(err)
		}
	})
	all(25, func(err error) {
		var oe *objstore.Error
		if err != nil && (!errors.As(err, &oe) || oe.Op != "get" || oe.Key != "object") {
			t.Errorf("%v (%T)", err, err)
		}
	})
	meanwhile.Wait()
	all(5, mustRead)
	t.Logf("%+v", ep.Stats())
}
