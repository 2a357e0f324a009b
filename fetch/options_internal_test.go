package fetch

import (
	"testing"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
)

// Runs that nobody has chosen leave room for others in what may be in flight: one that is
// longer than all of it goes alone.
func TestRunsLeaveRoomForOthers(t *testing.T) {
	for _, c := range []struct{ inFlight, run, want int64 }{
		{0, 0, 16 << 20},
		{1 << 40, 0, 16 << 20},
		{64 << 20, 0, 4 << 20},
		{16 << 20, 0, 1 << 20},
		{1 << 20, 0, 1 << 20},
		{16 << 20, 8 << 20, 8 << 20}, // as the host says
	} {
		ep, err := endpoint.New(storetest.NewMem(), endpoint.Options{BytesInFlight: c.inFlight})
		if err != nil {
			t.Fatal(err)
		}
		chunks, err := cache.New(cache.Options{MemoryBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(metadatatest.NewMem(), ep, chunks, Options{RunBytes: c.run})
		if err != nil {
			t.Fatal(err)
		}
		if r.o.RunBytes != c.want {
			t.Errorf("%d bytes in flight, runs of %d: %d, want %d", c.inFlight, c.run, r.o.RunBytes, c.want)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		chunks.Close()
		if err := ep.Close(); err != nil {
			t.Error(err)
		}
	}
}
