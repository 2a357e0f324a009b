package dir

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, path string, opts Options) *Store {
	t.Helper()
	s, err := Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStoreKeepsTheLaw(t *testing.T) {
	for name, opts := range map[string]Options{"read back": {}, "no read back": {NoReadBack: true}} {
		t.Run(name, func(t *testing.T) {
			storetest.Acceptance(t, func(t *testing.T) objstore.Store { return open(t, t.TempDir(), opts) })
		})
	}
}
