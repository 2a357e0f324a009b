package lifecycle_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

// stretched is a source as a directory gives it whose next log file is missing:
// it claims the offsets of that one too.
type stretched struct {
	*testseg.Segment

	end int64
}

func (s stretched) Info() segment.Info {
	info := s.Segment.Info()
	info.EndOffset = s.end
	return info
}

// TestMissingLogHidesNothing: a source that reaches over offsets it does not have
// is refused while the tier has them, and noticed otherwise.
func TestMissingLogHidesNothing(t *testing.T) {
	log := testseg.Random(20, testseg.Options{Segments: 3, Plain: true})
	gap := stretched{log.Segments[0], log.Segments[1].Info().EndOffset}

	w := newWorld()
	var notices []string
	p := w.start(t, nil, nil, lifecycle.Events{Noticed: func(_ segment.Info, text string) { notices = append(notices, text) }})
	if err := p.copyAll(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	before := p.store.Effects().Count()
	_, err := p.copier.Copy(t.Context(), gap, writer)
	var hidden *lifecycle.GapError
	if !errors.As(err, &hidden) || hidden.From != log.Segments[1].Info().StartOffset || hidden.To != log.Segments[1].Info().EndOffset {
		t.Errorf("error %v, want the offsets of the second segment named", err)
	}
	if n := p.store.Effects().Count() - before; n != 0 || len(notices) != 0 {
		t.Errorf("%d effects, notices %q", n, notices)
	}
	w.check(t, log)

	// With nothing in the tier nobody can tell it from a compacted log. The
	// segment that was missing is then copied and seen, not said to be there.
	w = newWorld()
	p = w.start(t, nil, nil, lifecycle.Events{Noticed: func(_ segment.Info, text string) { notices = append(notices, text) }})
	if _, err := p.copier.Copy(t.Context(), gap, writer); err != nil {
		t.Fatal(err)
	}
	if len(notices) != 1 || !strings.Contains(notices[0], "log file is missing") {
		t.Errorf("notices %q", notices)
	}
	if err := p.copyAll(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	view, err := w.meta.View(log.Partition)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range log.Segments {
		for _, offset := range []int64{s.Info().StartOffset, s.Info().EndOffset} {
			seg, ok := view.Lookup(s.Info().Epochs, offset)
			if !ok || seg.StartOffset != s.Info().StartOffset || seg.EndOffset != s.Info().EndOffset {
				t.Errorf("offset %d is found in %+v", offset, seg)
			}
		}
	}
}

// TestCopyOfOneSegmentAtOnce: however many callers copy the same segment at the
// same time, one copy is made and all get its record.
func TestCopyOfOneSegmentAtOnce(t *testing.T) {
	log := testseg.Random(21, testseg.Options{Segments: 1})
	for range 20 {
		w := newWorld()
		p := w.start(t, nil, nil, lifecycle.Events{})
		var wg sync.WaitGroup
		ids := make([]segment.UUID, 8)
		for i := range ids {
			wg.Go(func() {
				seg, err := p.copier.Copy(t.Context(), log.Segments[0], writer)
				if err != nil {
					t.Error(err)
					return
				}
				ids[i] = seg.ID
			})
		}
		wg.Wait()
		for _, id := range ids {
			if id != ids[0] {
				t.Fatalf("callers got the records %v", ids)
			}
		}
		w.check(t, log)
	}
}

// TestWrongLeaderEpochs: a history that the batches contradict is not published.
func TestWrongLeaderEpochs(t *testing.T) {
	log := testseg.Random(22, testseg.Options{Segments: 1, Plain: true})
	w := newWorld()
	p := w.start(t, nil, nil, lifecycle.Events{})
	_, err := p.copier.Copy(t.Context(), rewritten{log.Segments[0]}, metadata.Writer{BrokerID: 1, LeaderEpoch: 1 << 30})
	if err == nil || !strings.Contains(err.Error(), "leader epoch") || p.store.Effects().Count() != 0 {
		t.Errorf("error %v, effects %v", err, p.store.Effects().Names())
	}
}

// rewritten claims another leader epoch than its batches carry.
type rewritten struct{ *testseg.Segment }

func (s rewritten) Info() segment.Info {
	info := s.Segment.Info()
	info.Epochs = segment.Lineage{{Epoch: 1 << 30, Start: info.Epochs[0].Start}}
	return info
}

// TestShadowedSegmentIsTold: a range that was copied again as part of a larger
// segment is readable, by way of that one; copying it again is no error, and says
// where readers go.
func TestShadowedSegmentIsTold(t *testing.T) {
	log := testseg.Random(23, testseg.Options{Segments: 2, Plain: true})
	var batches []testseg.Batch
	for _, s := range log.Segments {
		for _, b := range s.Batches {
			batches = append(batches, testseg.Batch{BaseOffset: b.Header.BaseOffset, LastOffset: b.Header.LastOffset, Records: b.Records, LeaderEpoch: b.Header.LeaderEpoch})
		}
	}
	first, last := log.Segments[0].Info(), log.Segments[1].Info()
	larger := testseg.Build(testseg.Spec{Partition: log.Partition, Start: first.StartOffset, End: last.EndOffset, Epochs: last.Epochs, Batches: batches})
	w := newWorld()
	var notices []string
	p := w.start(t, nil, nil, lifecycle.Events{Noticed: func(_ segment.Info, text string) { notices = append(notices, text) }})
	if err := p.copyAll(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	over, err := p.copier.Copy(t.Context(), larger, writer)
	if err != nil || len(notices) != 0 {
		t.Fatal(err, notices)
	}
	before := p.store.Effects().Count()
	if err := p.copyAll(t.Context(), log); err != nil {
		t.Error(err)
	}
	if len(notices) != 2 || !strings.Contains(notices[0], over.ID.String()) || p.store.Effects().Count() != before {
		t.Errorf("notices %q, effects %v", notices, p.store.Effects().Names()[before:])
	}
}
