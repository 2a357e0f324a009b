package metadatatest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
)

func partition() segment.Partition {
	return segment.Partition{Topic: "orders", TopicID: segment.UUID{15: 1}}
}

func state(t *testing.T, s metadata.Store, sample *metadatatest.Sample) metadata.State {
	t.Helper()
	v, err := s.View(partition())
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := v.Get(sample.Segment.ID); ok {
		return got.State
	}
	return metadata.None
}

func started(t *testing.T) (*metadatatest.Sample, metadata.Event) {
	t.Helper()
	s := metadatatest.NewSample(t, partition(), 0, 9, nil)
	return s, s.Event(t, metadata.CopySegmentStarted, metadata.Writer{})
}

// TestFaults: what each kind does to a Publish and to a View.
func TestFaults(t *testing.T) {
	boom := errors.New("boom")
	tests := []struct {
		fault     metadatatest.Fault
		err       error
		happened  bool
		effects   int
		viewFails error
	}{
		{metadatatest.Fault{}, nil, true, 1, nil},
		{metadatatest.Fault{Kind: metadatatest.FailBefore}, metadata.ErrUnavailable, false, 0, metadata.ErrNotReady},
		{metadatatest.Fault{Kind: metadatatest.FailBefore, Err: boom}, boom, false, 0, boom},
		{metadatatest.Fault{Kind: metadatatest.FailAfter}, metadata.ErrUnavailable, true, 1, metadata.ErrNotReady},
	}
	for _, test := range tests {
		mem := metadatatest.NewMem()
		fault := test.fault
		f := metadatatest.Inject(mem, nil, func(metadatatest.Call) metadatatest.Fault { return fault })
		sample, ev := started(t)
		if err := f.Publish(t.Context(), ev); !errors.Is(err, test.err) {
			t.Errorf("%+v: got %v", test.fault, err)
		}
		if happened := state(t, mem, sample) != metadata.None; happened != test.happened {
			t.Errorf("%+v: happened is %v", test.fault, happened)
		}
		if n := f.Effects().Count(); n != test.effects {
			t.Errorf("%+v: %d effects", test.fault, n)
		}
		if _, err := f.View(partition()); !errors.Is(err, test.viewFails) {
			t.Errorf("%+v: View: %v", test.fault, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestPlanSeesTheCall: a fault can be aimed at one event.
func TestPlanSeesTheCall(t *testing.T) {
	var seen []string
	f := metadatatest.Inject(metadatatest.NewMem(), nil, func(c metadatatest.Call) metadatatest.Fault {
		seen = append(seen, c.Op)
		if c.Op == "publish" && c.Event.To() == metadata.CopySegmentFinished && c.Nth == 2 {
			return metadatatest.Fault{Kind: metadatatest.FailAfter}
		}
		return metadatatest.Fault{}
	})
	sample, ev := started(t)
	if err := f.Publish(t.Context(), ev); err != nil {
		t.Error(err)
	}
	finished := sample.Event(t, metadata.CopySegmentFinished, metadata.Writer{})
	if err := f.Publish(t.Context(), finished); !errors.Is(err, metadata.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if got := state(t, f, sample); got != metadata.CopySegmentFinished {
		t.Errorf("state is %s", got)
	}
	f.SetPlan(nil)
	if err := f.Publish(t.Context(), finished); err != nil {
		t.Error(err)
	}
	if want := []string{"publish", "publish", "view"}; !slices.Equal(seen, want) {
		t.Errorf("the plan saw %v", seen)
	}
}

// TestCrashAfterEveryEffect stops a life of a segment after each of its events,
// and numbers them together with effects elsewhere.
func TestCrashAfterEveryEffect(t *testing.T) {
	sample, _ := started(t)
	for k := range 6 {
		mem, effects := metadatatest.NewMem(), new(storetest.Effects)
		f := metadatatest.Inject(mem, effects, nil)
		effects.StopAfter(k)
		var err error
		for to := metadata.CopySegmentStarted; to <= metadata.DeleteSegmentFinished && err == nil; to++ {
			if to == metadata.CopySegmentFinished {
				err = effects.Do("an upload", func() error { return nil })
			}
			if err == nil {
				err = f.Publish(t.Context(), sample.Event(t, to, metadata.Writer{}))
			}
		}
		if !errors.Is(err, storetest.ErrStopped) {
			t.Errorf("after %d effects: %v", k, err)
		}
		if effects.Count() != k {
			t.Errorf("%d effects, want %d: %v", effects.Count(), k, effects.Names())
		}
		want := []metadata.State{
			metadata.None, metadata.CopySegmentStarted, metadata.CopySegmentStarted,
			metadata.CopySegmentFinished, metadata.DeleteSegmentStarted, metadata.DeleteSegmentFinished,
		}[k]
		if got := state(t, mem, sample); got != want {
			t.Errorf("after %d effects the segment is in %s, want %s", k, got, want)
		}
		if _, err := f.View(partition()); !errors.Is(err, storetest.ErrStopped) {
			t.Errorf("View after the crash: %v", err)
		}
	}
}

// TestLoading: a partition that is not loaded is an error of its own, and those
// who watch see the end of it.
func TestLoading(t *testing.T) {
	f := metadatatest.Inject(metadatatest.NewMem(), nil, nil)
	f.SetLoading(partition(), true)
	f.SetLoading(partition(), true)
	if _, err := f.View(partition()); !errors.Is(err, metadata.ErrNotReady) {
		t.Errorf("got %v", err)
	}
	other := partition()
	other.Number++
	if _, err := f.View(other); err != nil {
		t.Errorf("another partition: %v", err)
	}
	loaded := f.Watch(partition())
	f.SetLoading(partition(), false)
	<-loaded
	if _, err := f.View(partition()); err != nil {
		t.Errorf("loaded: %v", err)
	}
	f.SetLoading(partition(), true)
	loaded = f.Watch(partition())
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	<-loaded
}

// TestHanging: a call that hangs ends with its context, one that waits at a gate
// goes on when it opens.
func TestHanging(t *testing.T) {
	sample, ev := started(t)
	bubble.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		fault := metadatatest.Fault{Kind: metadatatest.Hang}
		mem := metadatatest.NewMem()
		f := metadatatest.Inject(mem, nil, func(metadatatest.Call) metadatatest.Fault { return fault })
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 1)
		publish := func() { errs <- f.Publish(ctx, ev) }

		go publish()
		synctest.Wait()
		cancel()
		if err := <-errs; !errors.Is(err, context.Canceled) || state(t, mem, sample) != metadata.None {
			t.Errorf("got %v, state %s", err, state(t, mem, sample))
		}

		ctx, fault = t.Context(), metadatatest.Fault{Kind: metadatatest.Wait, Gate: gate}
		go publish()
		synctest.Wait()
		if got := state(t, mem, sample); got != metadata.None {
			t.Errorf("before the gate opens: %s", got)
		}
		close(gate)
		if err := <-errs; err != nil || state(t, mem, sample) != metadata.CopySegmentStarted {
			t.Errorf("got %v, state %s", err, state(t, mem, sample))
		}
	})
}
