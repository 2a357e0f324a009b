package lifecycle_test

import (
	"testing"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/segment"
)

// left announces a copy of a segment that nobody goes on with.
func (w world) left(t *testing.T, s *testseg.Segment, by metadata.Writer) *metadata.Segment {
	t.Helper()
	info := s.Info()
	ev, err := metadata.Started(&metadata.Segment{
		Partition: info.Partition, ID: segment.NewUUID(), StartOffset: info.StartOffset, EndOffset: info.EndOffset,
		SizeBytes: 1, Epochs: info.Epochs.Range(info.StartOffset, info.EndOffset), Custom: []byte("plan"),
	}, by, 1)
	if err == nil {
		err = w.meta.Publish(t.Context(), ev)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ev.Segment()
}

func (w world) state(t *testing.T, s *metadata.Segment) metadata.State {
	t.Helper()
	v, err := w.meta.View(s.Partition)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := v.Get(s.ID); ok {
		return got.State
	}
	return metadata.None
}

// TestOlderLeadersAreRetired: what an older leader announced of the range goes to
// DELETE_STARTED, and nothing else does.
func TestOlderLeadersAreRetired(t *testing.T) {
	log := testseg.Random(3, testseg.Options{Segments: 2})
	w := newWorld()
	first, second := log.Segments[0], log.Segments[1]
	unknown := w.left(t, first, metadata.Writer{BrokerID: 1, LeaderEpoch: -1})
	older := w.left(t, first, metadata.Writer{BrokerID: 1, LeaderEpoch: 8})
	elsewhere := w.left(t, second, metadata.Writer{BrokerID: 1, LeaderEpoch: 8})
	rival := w.left(t, first, metadata.Writer{BrokerID: 1, LeaderEpoch: writer.LeaderEpoch})
	p := w.start(t, nil, nil, lifecycle.Events{})
	if _, err := p.copier.Copy(t.Context(), first, writer); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		who  string
		seg  *metadata.Segment
		want metadata.State
	}{
		{"an older leader's", older, metadata.DeleteSegmentStarted},
		{"one of nobody knows when", unknown, metadata.CopySegmentStarted},
		{"one of another range", elsewhere, metadata.CopySegmentStarted},
		{"one of the same leader epoch", rival, metadata.CopySegmentStarted},
	} {
		if got := w.state(t, c.seg); got != c.want {
			t.Errorf("%s is in %s", c.who, got)
		}
	}
}

// TestRetiredByAnother: somebody else ends the older leader's copy at the same
// moment.
func TestRetiredByAnother(t *testing.T) {
	log := testseg.Random(3, testseg.Options{Segments: 1})
	w := newWorld()
	older := w.left(t, log.Segments[0], metadata.Writer{BrokerID: 1, LeaderEpoch: 8})
	p := w.start(t, nil, func(c metadatatest.Call) metadatatest.Fault {
		if c.Op == "publish" && c.Event.To() == metadata.DeleteSegmentStarted {
			ev, err := metadata.DeleteStarted(older, writer, 1)
			if err == nil {
				err = w.meta.Publish(t.Context(), ev)
			}
			if err == nil {
				ev, err = metadata.DeleteFinished(ev.Segment(), writer, 1)
			}
			if err == nil {
				err = w.meta.Publish(t.Context(), ev)
			}
			if err != nil {
				t.Error(err)
			}
		}
		return metadatatest.Fault{}
	}, lifecycle.Events{})
	if err := p.copyAll(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	if got := w.state(t, older); got != metadata.DeleteSegmentFinished {
		t.Errorf("it is in %s", got)
	}
}
