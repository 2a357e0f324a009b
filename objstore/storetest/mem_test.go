package storetest

import (
	"testing"

	"github.com/segtier/segtier/objstore"
)

func TestMemKeepsTheLaw(t *testing.T) {
	Acceptance(t, func(*testing.T) objstore.Store { return NewMem() })
}

func TestInjectWithoutFaultsKeepsTheLaw(t *testing.T) {
	Acceptance(t, func(*testing.T) objstore.Store { return Inject(NewMem(), nil) })
}
