package metadatatest

import (
	"errors"
	"slices"

	"github.com/segtier/segtier/metadata"
)

// faulty puts faults between the fixture and its store.
func (f *fixture) faulty(plan Plan) *Faulty {
	f.Helper()
	return Inject(f.store, nil, plan)
}

// outage lets every single publish of some lives fail, before it happens and
// after, and then longer and longer rows of them. A writer that tries again until
// it succeeds ends where one without faults ends.
func outage(f *fixture) {
	for _, kind := range []Kind{FailBefore, FailAfter} {
		for first := 1; first <= 8; first++ {
			p := f.partition()
			want := metadata.NewView(p)
			faulty := f.faulty(Script(Rule{Op: "publish", First: first, Last: first + first%3, Fault: Fault{Kind: kind}}))
			failed := 0
			for i, upTo := range []metadata.State{metadata.CopySegmentFinished, metadata.DeleteSegmentFinished, metadata.DeleteSegmentStarted} {
				s := NewSample(f, p, int64(10*i), int64(10*i+9), nil)
				for _, ev := range f.life(s)[:upTo+1] {
					err := errors.New("not tried yet")
					for try := 0; err != nil; try++ {
						if err = faulty.Publish(f.Context(), ev); err == nil {
							break
						}
						if failed++; !errors.Is(err, metadata.ErrUnavailable) || try > 4 {
							f.Fatalf("%s, try %d: %v", ev.To(), try, err)
						}
					}
					next, err := want.Apply(ev)
					if err != nil {
						f.Fatal(err)
					}
					want = next
				}
			}
			if failed != 1+first%3 {
				f.Errorf("%d calls failed, want %d", failed, 1+first%3)
			}
			sameView(f, f.view(p), want)
		}
	}
}

// lostAnswer: an event that has happened although its publisher was told
// otherwise is in the View, and may be repeated.
func lostAnswer(f *fixture) {
	s := NewSample(f, f.partition(), 10, 19, nil)
	faulty := f.faulty(Script(Rule{Op: "publish", Fault: Fault{Kind: FailAfter}}))
	for _, ev := range f.life(s) {
		if err := faulty.Publish(f.Context(), ev); !errors.Is(err, metadata.ErrUnavailable) {
			f.Fatalf("%s: %v", ev.To(), err)
		}
		f.state(s, ev.To())
		f.publish(ev)
		f.state(s, ev.To())
	}
}

// slowLoading: while a partition is loaded nobody is told that something is not
// there; then everything is, at once.
func slowLoading(f *fixture) {
	p, q := f.partition(), f.partition()
	s := NewSample(f, p, 10, 19, nil)
	f.publish(f.life(s)[:2]...)
	faulty := f.faulty(nil)
	faulty.SetLoading(p, true)
	loaded := faulty.Watch(p)
	if v, err := faulty.View(p); v != nil || !errors.Is(err, metadata.ErrNotReady) {
		f.Errorf("while it is loaded: %v, %v", v, err)
	}
	if _, err := faulty.View(q); err != nil {
		f.Errorf("another partition: %v", err)
	}
	faulty.SetLoading(p, false)
	f.await(f.Context(), loaded, "the end of loading")
	v, err := faulty.View(p)
	if err != nil {
		f.Fatal(err)
	}
	if got, ok := v.Lookup(nil, 15); !ok || got.ID != s.Segment.ID {
		f.Error("a segment is missing after loading")
	}
}

// staleView: a collector that still sees STARTED must not end what was FINISHED
// since: the event carries the state that it was decided on.
func staleView(f *fixture) {
	p := f.partition()
	s := NewSample(f, p, 10, 19, nil)
	life := f.life(s)
	f.publish(life[0])
	faulty := f.faulty(nil)
	if err := faulty.SetStale(p, true); err != nil {
		f.Fatal(err)
	}
	f.publish(life[1])
	v, err := faulty.View(p)
	if err != nil {
		f.Fatal(err)
	}
	seen, ok := v.Get(s.Segment.ID)
	if !ok || seen.State != metadata.CopySegmentStarted {
		f.Fatalf("the stale view says %v", seen)
	}
	giveUp, err := metadata.DeleteStarted(seen, writer(), 1)
	if err != nil {
		f.Fatal(err)
	}
	if err := faulty.Publish(f.Context(), giveUp); !errors.Is(err, metadata.ErrTransition) {
		f.Errorf("got %v", err)
	}
	f.state(s, metadata.CopySegmentFinished)
	if err := faulty.SetStale(p, false); err != nil {
		f.Fatal(err)
	}
	if v, err = faulty.View(p); err != nil || len(slices.Collect(v.All())) != 1 {
		f.Fatal(err)
	}
	if seen, _ := v.Get(s.Segment.ID); seen.State != metadata.CopySegmentFinished {
		f.Errorf("after catching up it says %s", seen.State)
	}
}

// incomplete: what is known stays readable, and the View says that more may be.
func incomplete(f *fixture) {
	p := f.partition()
	f.publish(f.life(NewSample(f, p, 10, 19, nil))[:2]...)
	faulty := f.faulty(nil)
	for _, n := range []int{3, 0} {
		faulty.SetIncomplete(p, n)
		v, err := faulty.View(p)
		if err != nil {
			f.Fatal(err)
		}
		if _, ok := v.Lookup(nil, 15); !ok || v.Incomplete() != n || v.Info().Incomplete != n {
			f.Errorf("%d records are not understood, the view says %d; offset 15 is found: %v", n, v.Incomplete(), ok)
		}
	}
}
