package metadatatest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

// Suite is the law of metadata.Store as tests, for a store with abilities that
// not every store has. [Contract] is for one without.
type Suite struct {
	// Open returns a store without events, for the test it is given; the suite
	// closes it. Required.
	Open func(t *testing.T) metadata.Store

	// Reopen, for a store that outlives its process, closes s and opens the same
	// metadata again.
	Reopen func(t *testing.T, s metadata.Store) metadata.Store

	// Fences says that the store compares before it writes: it refuses writers that
	// are older than one it has seen, and a second copy of what is readable.
	Fences bool
}

// Contract holds a store to the law of metadata.Store. Open is called for each
// part of it, returns a store without events, and need not close it.
func Contract(t *testing.T, open func(t *testing.T) metadata.Store) {
	Suite{Open: open}.Run(t)
}

// Run runs every part of the law as a subtest.
func (s Suite) Run(t *testing.T) {
	parts := []struct {
		name string
		run  func(*fixture)
	}{
		{"an unknown partition is an empty view", unknownPartition},
		{"what was published is visible at once", visible},
		{"what proves nothing is refused", unproven},
		{"repeating an event is success", repeated},
		{"illegal transitions change nothing", illegal},
		{"an event decided on another state is refused", stale},
		{"one of two that exclude each other wins", race},
		{"all publishers agree on one order", concurrent},
		{"random histories follow Step", random},
		{"a view does not change", immutable},
		{"partitions are apart", apart},
		{"watching", watch},
		{"the deletion of a partition", deletion},
		{"a writer that tries again gets through an outage", outage},
		{"a lost acknowledgement is found by reading back", lostAnswer},
		{"a partition that is still being loaded", slowLoading},
		{"what was decided on a stale view is refused", staleView},
		{"a partition with records that are not understood", incomplete},
		{"a cancelled context", cancelled},
		{"closing", closing},
	}
	for _, part := range parts {
		t.Run(part.name, func(t *testing.T) { part.run(newFixture(t, s)) })
	}
	if s.Fences {
		t.Run("older writers are fenced", func(t *testing.T) { fencing(newFixture(t, s)) })
		t.Run("a range is readable once in a history", func(t *testing.T) { duplicate(newFixture(t, s)) })
	}
	t.Run("the log start only moves forward", func(t *testing.T) {
		f := newFixture(t, s)
		if _, ok := f.store.(metadata.LogStarts); !ok {
			return // the host tells it with each read
		}
		logStart(f)
	})
	if s.Reopen != nil {
		t.Run("everything is there after opening again", func(t *testing.T) { reopened(newFixture(t, s)) })
	}
}

// fixture is one store and what tests say about it.
type fixture struct {
	*testing.T
	suite Suite
	store metadata.Store
}

func newFixture(t *testing.T, s Suite) *fixture {
	f := &fixture{T: t, suite: s, store: s.Open(t)}
	t.Cleanup(func() {
		if err := f.store.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return f
}

func writer() metadata.Writer { return metadata.Writer{BrokerID: 1, LeaderEpoch: 5} }

// partition returns a new partition that the store was told to hold.
func (f *fixture) partition() segment.Partition {
	f.Helper()
	p := segment.Partition{Topic: "contract", TopicID: segment.NewUUID(), Number: 2}
	f.assign(p)
	return p
}

func (f *fixture) assign(ps ...segment.Partition) {
	f.Helper()
	if err := f.store.Assign(f.Context(), ps, nil); err != nil {
		f.Fatalf("Assign: %v", err)
	}
}

// view returns a partition's view, after waiting for it to be loaded.
func (f *fixture) view(p segment.Partition) *metadata.View {
	f.Helper()
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	for {
		changed := f.store.Watch(p)
		v, err := f.store.View(p)
		if err == nil {
			if v.Partition() != p {
				f.Fatalf("view of %s is that of %s", p, v.Partition())
			}
			return v
		}
		if !errors.Is(err, metadata.ErrNotReady) {
			f.Fatalf("View: %v", err)
		}
		select {
		case <-changed:
		case <-timeout.C:
			f.Fatalf("partition %s was not loaded in 30 s: %v", p, err)
		}
	}
}

// publish publishes what must succeed.
func (f *fixture) publish(events ...metadata.Event) {
	f.Helper()
	for _, ev := range events {
		if err := f.store.Publish(f.Context(), ev); err != nil {
			f.Fatalf("Publish of %s: %v", ev.To(), err)
		}
	}
}

// refused publishes what must be refused, for the reason given.
func (f *fixture) refused(ev metadata.Event, reason error) {
	f.Helper()
	if err := f.store.Publish(f.Context(), ev); !errors.Is(err, reason) {
		f.Errorf("Publish of %s decided on %s: got %v, want %v", ev.To(), ev.From(), err, reason)
	}
}

// state checks the state of a segment, in the view as it is now. A segment that
// has ended may be forgotten.
func (f *fixture) state(s *Sample, want metadata.State) {
	f.Helper()
	v := f.view(s.Segment.Partition)
	got, ok := v.Get(s.Segment.ID)
	switch {
	case !ok && (want == metadata.None || want == metadata.DeleteSegmentFinished):
	case !ok:
		f.Errorf("segment is not in the view, want it in %s", want)
	case got.State != want:
		f.Errorf("segment is in %s, want %s", got.State, want)
	}
	listed := slices.ContainsFunc(slices.Collect(v.All()), func(m *metadata.Segment) bool { return m.ID == s.Segment.ID })
	if live := want != metadata.None && want != metadata.DeleteSegmentFinished; listed != live {
		f.Errorf("segment in %s: listed is %v", want, listed)
	}
	readable := want == metadata.CopySegmentFinished
	for _, offset := range []int64{s.Segment.StartOffset, s.Segment.EndOffset} {
		if found, ok := v.Lookup(s.Segment.Epochs, offset); ok != readable || ok && found.ID != s.Segment.ID {
			f.Errorf("segment in %s: lookup of offset %d finds %v", want, offset, ok)
		}
	}
}

// event is Sample.Event by the usual writer.
func (f *fixture) event(s *Sample, to metadata.State) metadata.Event {
	f.Helper()
	return s.Event(f, to, writer())
}

// life returns the events of a whole life of a segment.
func (f *fixture) life(s *Sample) []metadata.Event {
	f.Helper()
	return []metadata.Event{
		f.event(s, metadata.CopySegmentStarted),
		f.event(s, metadata.CopySegmentFinished),
		f.event(s, metadata.DeleteSegmentStarted),
		f.event(s, metadata.DeleteSegmentFinished),
	}
}

func (f *fixture) closedErr(what string, err error) {
	f.Helper()
	if !errors.Is(err, metadata.ErrClosed) {
		f.Errorf("%s after Close: got %v, want ErrClosed", what, err)
	}
}

// isClosed reports whether a channel of Watch is closed now.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// await waits for a channel of Watch.
func (f *fixture) await(ctx context.Context, c <-chan struct{}, what string) {
	f.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	select {
	case <-c:
	case <-ctx.Done():
		f.Fatalf("the channel of Watch was not closed after %s", what)
	}
}
