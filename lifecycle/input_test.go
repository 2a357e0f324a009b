package lifecycle_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// retold is a segment of which something else is told.
type retold struct {
	*testseg.Segment
	info segment.Info
}

func (r retold) Info() segment.Info { return r.info }

// A range that no segment can have is refused, and holds back no segment: no copy could ever
// take its place.
func TestImpossibleRangeHoldsBackNobody(t *testing.T) {
	log := testseg.Random(3, testseg.Options{Segments: 2})
	p := newWorld().start(t, nil, nil, lifecycle.Events{})
	defer p.close()
	info := log.Segments[0].Info()
	info.StartOffset = -1
	var refused *transfer.ScanError
	if _, err := p.copier.Copy(t.Context(), retold{log.Segments[0], info}, writer); !errors.As(err, &refused) || !errors.Is(err, transfer.ErrCorruptSegment) {
		t.Errorf("offsets from -1 on: %v", err)
	}
	for _, s := range log.Segments {
		if _, err := p.copier.Copy(t.Context(), s, writer); err != nil {
			t.Error(err)
		}
	}
}

// A copy by a leader that is none any more says which segment it was.
func TestFencedCopyNamesItsRange(t *testing.T) {
	log := testseg.Random(3, testseg.Options{Segments: 2})
	p := newWorld().start(t, nil, nil, lifecycle.Events{})
	defer p.close()
	if _, err := p.copier.Copy(t.Context(), log.Segments[0], writer); err != nil {
		t.Fatal(err)
	}
	s, old := log.Segments[1], writer
	old.LeaderEpoch--
	_, err := p.copier.Copy(t.Context(), s, old)
	if !errors.Is(err, metadata.ErrFenced) {
		t.Fatalf("an older leader copied: %v", err)
	}
	names(t, err, s.Info().Partition.String(), fmt.Sprintf("offsets %d to %d", s.Info().StartOffset, s.Info().EndOffset))
}

// What is asked for without saying of what is an error, not a panic and not a success.
func TestNothingIsNoArgument(t *testing.T) {
	log := testseg.Random(3, testseg.Options{Segments: 1})
	p := newWorld().start(t, nil, nil, lifecycle.Events{})
	defer p.close()
	d, err := lifecycle.NewDeleter(p.meta, p.ep, lifecycle.DeleterOptions{Delay: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	e, err := lifecycle.NewExpirer(d, lifecycle.ExpirerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seg, err := p.copier.Copy(t.Context(), log.Segments[0], writer)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.copier.Copy(t.Context(), nil, writer)
	names(t, err, "without a source")
	names(t, d.Delete(t.Context(), writer, nil), "number 0 is nil")
	names(t, d.Delete(t.Context(), writer, seg, nil), "number 1 is nil")
	names(t, d.Delete(t.Context(), writer, &metadata.Segment{}), "topic name is empty")
	var none segment.Partition
	names(t, d.DeletePartition(t.Context(), none, writer), "topic name is empty")
	names(t, d.Resume(t.Context(), none, writer), "topic name is empty")
	_, err = e.Expire(t.Context(), lifecycle.ExpireRequest{})
	names(t, err, "topic name is empty")
	_, err = e.Outlived(segment.Info{}, 1, 1)
	names(t, err, "topic name is empty")
	if view, err := p.meta.View(seg.Partition); err != nil {
		t.Error(err)
	} else if now, ok := view.Get(seg.ID); !ok || now.State != metadata.CopySegmentFinished {
		t.Errorf("a call that failed has changed %+v", now)
	}
}

func names(t *testing.T, err error, what ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("accepted: want an error with %q", what)
		return
	}
	for _, s := range what {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%v does not name %q", err, s)
		}
	}
}

// A copy that ends by a panic, in one of the host's own callbacks, has failed: what lies above
// it waits for it.
func TestPanicHoldsBackWhatIsAbove(t *testing.T) {
	log := testseg.Random(3, testseg.Options{Segments: 2})
	panics := true
	p := newWorld().start(t, nil, nil, lifecycle.Events{Started: func(*metadata.Segment, int64) {
		if panics {
			panic("a bug of the host's")
		}
	}})
	defer p.close()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is lost")
			}
		}()
		_, _ = p.copier.Copy(t.Context(), log.Segments[0], writer)
	}()
	panics = false
	var order *lifecycle.OrderError
	if _, err := p.copier.Copy(t.Context(), log.Segments[1], writer); !errors.As(err, &order) {
		t.Errorf("the second segment before the first: %v", err)
	}
	for _, s := range log.Segments {
		if _, err := p.copier.Copy(t.Context(), s, writer); err != nil {
			t.Error(err)
		}
	}
}
