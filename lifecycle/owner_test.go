package lifecycle_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/transfer"
)

func TestStoreThatIsNotTheMetadatas(t *testing.T) {
	log := testseg.Random(16, testseg.Options{Segments: 2})
	w := newWorld()
	if err := w.start(t, nil, nil, lifecycle.Events{}).copyAll(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	empty := world{store: storetest.NewMem(), meta: w.meta}
	p := empty.start(t, nil, nil, lifecycle.Events{})
	err := p.copyAll(t.Context(), log)
	var owner *transfer.OwnerError
	if !errors.As(err, &owner) || owner.Owner != "" || p.store.Effects().Count() != 0 {
		t.Errorf("error %v, effects %v", err, p.store.Effects().Names())
	}
}

func TestDamagedOwnerMarker(t *testing.T) {
	log := testseg.Random(17, testseg.Options{Segments: 1})
	for _, marker := range []string{"junk", strings.Repeat("x", 5000), `{"format":2}`} {
		w := newWorld()
		w.put(t, object.OwnerKey, marker)
		p := w.start(t, nil, nil, lifecycle.Events{})
		err := p.copyAll(t.Context(), log)
		if err == nil || errors.Is(err, objstore.ErrConflict) || strings.Contains(err.Error(), "\n") || p.store.Effects().Count() != 0 {
			t.Errorf("error %v, effects %v", err, p.store.Effects().Names())
		}
	}
}

func TestPrefixOfAnotherMetadataStore(t *testing.T) {
	log := testseg.Random(8, testseg.Options{Segments: 1})
	w := newWorld()
	if err := w.start(t, nil, nil, lifecycle.Events{}).copyAll(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	other := world{store: w.store, meta: metadatatest.NewMem()}
	err := other.start(t, nil, nil, lifecycle.Events{}).copyAll(t.Context(), log)
	var owner *transfer.OwnerError
	if !errors.As(err, &owner) || owner.Owner != w.meta.ID() || owner.Mine != other.meta.ID() {
		t.Fatalf("error %v, want the owner %s named", err, w.meta.ID())
	}
	if view, err := other.meta.View(log.Partition); err != nil {
		t.Fatal(err)
	} else if seg, ok := view.Latest(nil); ok {
		t.Errorf("a record was written: %+v", seg)
	}
}
