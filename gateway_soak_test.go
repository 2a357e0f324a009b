package segtier_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/internal/gateway"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
)

// TestSeaweedFS is the second opinion: another server, other habits. It runs where
// SEGTIER_SOAK is set.
func TestSeaweedFS(t *testing.T) {
	if os.Getenv("SEGTIER_SOAK") == "" {
		t.Skip("a second S3 server takes minutes to build: make soak")
	}
	s := gateway.StartSeaweedFS(t)
	t.Run("abilities", func(t *testing.T) {
		store := openS3(t, s, s.URL(), "abilities")
		defer store.Close()
		tier := openTierOn(t, store, t.TempDir(), segtier.Options{PartSize: s3Part})
		copyUntilFinished(t.Context(), t, tier, testseg.Big(2, 11<<20, testseg.Options{}).Segments[0])
		a, ok := store.Abilities()
		t.Logf("abilities: %v (%v)", a, ok)
	})
	t.Run("acceptance", func(t *testing.T) {
		var n atomic.Int64
		storetest.Acceptance(t, func(t *testing.T) objstore.Store {
			return openS3(t, s, s.URL(), fmt.Sprintf("acceptance-%d", n.Add(1)))
		})
	})
	t.Run("partitions", func(t *testing.T) {
		paths, err := filepath.Glob("testdata/partitions/*")
		if err != nil || len(paths) < 10 {
			t.Fatalf("%d partitions in testdata: %v", len(paths), err)
		}
		big, err := testseg.Big(1, 12<<20, testseg.Options{Segments: 3}).WriteDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		checkPartitions(t, s, append(paths, big))
	})
}
