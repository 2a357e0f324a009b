package segtier_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/gateway"
	"github.com/segtier/segtier/objstore"
)

// TestGatewayCutUploads uploads objects whose earlier uploads were cut a moment
// before. A part that versitygw is still busy with when its upload is aborted
// brings the upload back to life, without what it was created with: an upload
// that takes it for its own can never be completed. It takes a busy machine to
// meet one, so SEGTIER_SOAK has it tried more often.
func TestGatewayCutUploads(t *testing.T) {
	rounds := 3
	if os.Getenv("SEGTIER_SOAK") != "" {
		rounds = 200
	}
	s := gateway.Start(t, gateway.Options{})
	data := bytes.Repeat([]byte("thirteen byte"), (2*s3Part+1)/13+1)[:2*s3Part+1]
	cutter := checksum.NewCutter(s3Part)
	_, _ = cutter.Write(data) // never fails
	sums := cutter.Pieces(0)
	var writers sync.WaitGroup
	for w := range 4 {
		store := openS3(t, s, s.URL(), fmt.Sprintf("writer-%d", w))
		writers.Go(func() {
			defer store.Close()
			for i := range rounds {
				req := objstore.UploadRequest{
					Key: fmt.Sprintf("object-%d", i), Size: int64(len(data)), PartSize: s3Part, PartSums: sums, Token: "token",
				}
				for _, at := range []int64{0, s3Part - 1, s3Part, 2 * s3Part} {
					cause := errors.New("the disk is on fire")
					req.Body = bodyFunc(func(p []byte, off int64) (int, error) {
						if off+int64(len(p)) > at {
							return 0, cause
						}
						return bytes.NewReader(data).ReadAt(p, off)
					})
					if _, err := store.Upload(t.Context(), req); !errors.Is(err, cause) {
						t.Errorf("%s, cut at %d: %v", req.Key, at, err)
					}
				}
				req.Body = bytes.NewReader(data)
				if _, err := store.Upload(t.Context(), req); err != nil {
					t.Errorf("%s of writer %d: %v", req.Key, w, err)
				}
				if err := store.Delete(t.Context(), req.Key); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
}

type bodyFunc func(p []byte, off int64) (int, error)

func (f bodyFunc) ReadAt(p []byte, off int64) (int, error) { return f(p, off) }
