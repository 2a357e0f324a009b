package metadatatest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemKeepsTheLaw(t *testing.T) {
	metadatatest.Suite{
		Open:   func(*testing.T) metadata.Store { return metadatatest.NewMem() },
		Fences: true,
	}.Run(t)
}

// A store on which nothing goes wrong is one like the store under it.
func TestFaultyKeepsTheLaw(t *testing.T) {
	metadatatest.Suite{
		Open:   func(*testing.T) metadata.Store { return metadatatest.Inject(metadatatest.NewMem(), nil, nil) },
		Fences: true,
	}.Run(t)
}
