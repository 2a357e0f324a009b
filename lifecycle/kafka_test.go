package lifecycle_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/objstore/storetest"
)

// Scenarios of Kafka's RemoteLogManagerTest that are about metadata and a copy,
// under their names.

// TestCopyDoesNotUploadSegmentsWhenRemoteLogMetadataManagerIsNotInitialized and
// goes on once metadata was loaded.
func TestCopyDoesNotUploadSegmentsWhenRemoteLogMetadataManagerIsNotInitialized(t *testing.T) {
	log := testseg.Random(3, testseg.Options{Segments: 2})
	w := newWorld()
	p := w.start(t, nil, nil, lifecycle.Events{})
	p.meta.SetLoading(log.Partition, true)
	for range 2 {
		if err := p.copyAll(t.Context(), log); !errors.Is(err, metadata.ErrNotReady) {
			t.Errorf("got %v", err)
		}
	}
	if n := p.store.Effects().Count(); n != 0 {
		t.Errorf("%d effects: %v", n, p.store.Effects().Names())
	}
	p.meta.SetLoading(log.Partition, false)
	if err := p.copyAll(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	w.check(t, log)
}

// TestRLMOpsWhenMetadataIsNotReady: metadata that goes away in the middle of a
// copy, at any of its looks at it, is an error to be tried again, and nothing is
// decided without it.
func TestRLMOpsWhenMetadataIsNotReady(t *testing.T) {
	log := testseg.Random(3, testseg.Options{Segments: 1})
	for n := 1; ; n++ {
		w := newWorld()
		hit := false
		p := w.start(t, nil, metadatatest.Script(metadatatest.Rule{
			Op: "view", First: n, Match: func(metadatatest.Call) bool { hit = true; return true },
			Fault: metadatatest.Fault{Kind: metadatatest.FailBefore},
		}), lifecycle.Events{})
		err := p.copyAll(t.Context(), log)
		if !hit {
			if err != nil || n < 3 {
				t.Errorf("%v after %d looks", err, n)
			}
			return
		}
		if !errors.Is(err, metadata.ErrNotReady) {
			t.Errorf("look %d: %v", n, err)
		}
		p.meta.SetPlan(nil)
		if err := p.copyAll(t.Context(), log); err != nil {
			t.Fatalf("look %d, then again: %v", n, err)
		}
		w.check(t, log)
	}
}

// TestFailedCopyShouldDeleteTheDanglingSegment: in Kafka a failed copy deletes
// what it has announced, so that nothing dangles. Here the next copy takes it up,
// under the same id, which leaves as little behind and sends as few bytes twice.
func TestFailedCopyShouldDeleteTheDanglingSegment(t *testing.T) {
	log := testseg.Random(3, testseg.Options{Segments: 1})
	w := newWorld()
	p := w.start(t, func(c storetest.Call) storetest.Fault {
		if c.Op == "upload" && strings.HasSuffix(c.Key, ".seg") && c.Nth == 1 {
			return storetest.Fault{Kind: storetest.FailBefore}
		}
		return storetest.Fault{}
	}, nil, lifecycle.Events{})
	if err := p.copyAll(t.Context(), log); !errors.Is(err, storetest.ErrInjected) {
		t.Fatal(err)
	}
	view, err := w.meta.View(log.Partition)
	if err != nil {
		t.Fatal(err)
	}
	info := log.Segments[0].Info()
	dangling := view.Started(writer, info.StartOffset, info.EndOffset)
	if len(dangling) != 1 {
		t.Fatalf("%d copies are announced", len(dangling))
	}
	seg, err := p.copier.Copy(t.Context(), log.Segments[0], writer)
	if err != nil || seg.ID != dangling[0].ID {
		t.Errorf("%v, %v", seg, err)
	}
	w.check(t, log) // nothing is left in flight
}
