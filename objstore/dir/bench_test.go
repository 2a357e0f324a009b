package dir

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
)

// What reading back costs is in the package comment.
func BenchmarkUpload(b *testing.B) {
	const size, partSize = 64 << 20, 16 << 20
	data := pattern(size)
	c := checksum.NewCutter(partSize)
	_, _ = c.Write(data)
	req := objstore.UploadRequest{Body: bytes.NewReader(data), Size: size, PartSize: partSize, PartSums: c.Pieces(0)}
	for _, noReadBack := range []bool{false, true} {
		b.Run(fmt.Sprintf("size=64MiB/readback=%v", !noReadBack), func(b *testing.B) {
			s, err := Open(b.TempDir(), Options{NoReadBack: noReadBack})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			b.SetBytes(size)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				req.Key = fmt.Sprintf("topic/0/%d", i)
				if _, err := s.Upload(b.Context(), req); err != nil {
					b.Fatal(err)
				}
				if err := s.Delete(b.Context(), req.Key); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
