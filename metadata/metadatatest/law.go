package metadatatest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

func unknownPartition(f *fixture) {
	v := f.view(f.partition())
	if n := len(slices.Collect(v.All())); n != 0 {
		f.Errorf("%d segments", n)
	}
	if _, ok := v.Lookup(nil, 0); ok {
		f.Error("an offset is covered")
	}
	if ps, err := f.store.Partitions(); err != nil || len(ps) != 0 {
		f.Errorf("partitions that have events: %v, %v", ps, err)
	}
	if first, again := f.store.ID(), f.store.ID(); first == "" || first != again {
		f.Errorf("ID is %q, then %q", first, again)
	}
}

func visible(f *fixture) {
	p := f.partition()
	s := NewSample(f, p, 10, 19, nil)
	f.state(s, metadata.None)
	for _, ev := range f.life(s) {
		f.publish(ev)
		f.state(s, ev.To())
		got, ok := f.view(p).Get(s.Segment.ID)
		if ended := ev.To() == metadata.DeleteSegmentFinished; !ok && !ended || ok && !ended && !reflect.DeepEqual(got, ev.Segment()) {
			f.Errorf("after %s the view has %+v, want %+v", ev.To(), got, ev.Segment())
		}
	}
	if ps, err := f.store.Partitions(); err != nil || !slices.Equal(ps, []segment.Partition{p}) {
		f.Errorf("partitions that have events: %v, %v", ps, err)
	}
}

func unproven(f *fixture) {
	p := f.partition()
	s := NewSample(f, p, 10, 19, nil)
	f.refused(metadata.Event{}, metadata.ErrTransition)
	replay := func(to metadata.State) metadata.Event {
		ev, err := metadata.Recorded(f.event(s, to).Segment())
		if err != nil {
			f.Fatal(err)
		}
		return ev
	}
	f.refused(replay(metadata.CopySegmentStarted), metadata.ErrUnproven)
	f.state(s, metadata.None)
	f.publish(f.event(s, metadata.CopySegmentStarted))
	f.refused(replay(metadata.CopySegmentFinished), metadata.ErrUnproven)
	f.state(s, metadata.CopySegmentStarted)
}

func repeated(f *fixture) {
	s := NewSample(f, f.partition(), 10, 19, nil)
	for _, ev := range f.life(s) {
		f.publish(ev, ev, ev)
		f.state(s, ev.To())
	}
}

func illegal(f *fixture) {
	p := f.partition()
	s := NewSample(f, p, 10, 19, nil)
	life := f.life(s)
	for state := metadata.None; state <= metadata.DeleteSegmentFinished; state++ {
		if state != metadata.None {
			f.publish(life[state])
		}
		for _, ev := range life {
			if to := ev.To(); to != state && (ev.From() != state || !state.CanBecome(to)) {
				if state == metadata.DeleteSegmentFinished && to == metadata.CopySegmentStarted {
					continue // only a store that remembers ended ids can refuse it
				}
				f.refused(ev, metadata.ErrTransition)
				f.state(s, state)
			}
		}
	}
	// The same id for something else.
	a, b := NewSample(f, p, 100, 199, nil), NewSample(f, p, 100, 200, nil)
	b.Segment.ID = a.Segment.ID
	f.publish(f.event(a, metadata.CopySegmentStarted))
	f.refused(f.event(b, metadata.CopySegmentStarted), metadata.ErrTransition)
	f.refused(f.event(b, metadata.CopySegmentFinished), metadata.ErrTransition)
	f.state(a, metadata.CopySegmentStarted)
}

func stale(f *fixture) {
	s := NewSample(f, f.partition(), 10, 19, nil)
	started := f.event(s, metadata.CopySegmentStarted)
	giveUp, err := metadata.DeleteStarted(started.Segment(), writer(), 1)
	if err != nil {
		f.Fatal(err)
	}
	f.publish(started, f.event(s, metadata.CopySegmentFinished))
	f.refused(giveUp, metadata.ErrTransition) // somebody has finished it since
	f.state(s, metadata.CopySegmentFinished)
}

// race lets FINISHED and the giving up of the same copy race: exactly one of
// them happens, and its publisher is told so.
func race(f *fixture) {
	p := f.partition()
	for i := range 10 {
		s := NewSample(f, p, int64(10*i), int64(10*i+9), nil)
		started := f.event(s, metadata.CopySegmentStarted)
		giveUp, err := metadata.DeleteStarted(started.Segment(), writer(), 1)
		if err != nil {
			f.Fatal(err)
		}
		rivals := []metadata.Event{f.event(s, metadata.CopySegmentFinished), giveUp}
		f.publish(started)
		errs := make([]error, len(rivals))
		var wg sync.WaitGroup
		for j, ev := range rivals {
			wg.Go(func() { errs[j] = f.store.Publish(f.Context(), ev) })
		}
		wg.Wait()
		winner := 0
		if errs[0] != nil {
			winner = 1
		}
		if errs[winner] != nil || !errors.Is(errs[1-winner], metadata.ErrTransition) {
			f.Errorf("FINISHED: %v; DELETE_STARTED: %v; want one to succeed and one to be refused", errs[0], errs[1])
			continue
		}
		f.state(s, rivals[winner].To())
	}
}

// concurrent publishes lives of many segments of one partition at once.
func concurrent(f *fixture) {
	p := f.partition()
	const segments = 12
	lives := make([][]metadata.Event, segments)
	samples := make([]*Sample, segments)
	for i := range segments {
		samples[i] = NewSample(f, p, int64(10*i), int64(10*i+9), segment.Lineage{{Epoch: 0, Start: 0}})
		lives[i] = f.life(samples[i])[:1+i%4]
	}
	var wg sync.WaitGroup
	errs := make([]error, segments)
	for i, life := range lives {
		wg.Go(func() {
			for _, ev := range life {
				if err := f.store.Publish(f.Context(), ev); err != nil {
					errs[i] = fmt.Errorf("%s: %w", ev.To(), err)
					return
				}
				v, err := f.store.View(p)
				if err != nil {
					errs[i] = err
					return
				}
				if s, ok := v.Get(ev.Segment().ID); ev.To() != metadata.DeleteSegmentFinished && (!ok || s.State != ev.To()) {
					errs[i] = fmt.Errorf("%s is not visible to its publisher", ev.To())
					return
				}
			}
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			f.Errorf("segment %d: %v", i, err)
		}
		f.state(samples[i], lives[i][len(lives[i])-1].To())
	}
	sameView(f, f.view(p), f.view(p))
}

// random publishes events of random kinds, half of them out of turn, and
// compares with what Step makes of the same events.
func random(f *fixture) {
	const histories, segments, events = 4, 3, 24
	for seed := range uint64(histories) {
		rng := rand.New(rand.NewPCG(seed, 0))
		p := f.partition()
		want := metadata.NewView(p)
		lives := make([][]metadata.Event, segments)
		for i := range lives {
			start := rng.Int64N(20)
			s := NewSample(f, p, start, start+1+rng.Int64N(20), segment.Lineage{{Epoch: 0, Start: 0}, {Epoch: 2, Start: 15}})
			lives[i] = f.life(s)
			giveUp, err := metadata.DeleteStarted(lives[i][0].Segment(), writer(), 7)
			if err != nil {
				f.Fatal(err)
			}
			lives[i] = append(lives[i], giveUp)
		}
		for range events {
			life := lives[rng.IntN(segments)]
			ev := life[rng.IntN(len(life))]
			cur, _ := want.Get(ev.Segment().ID)
			if rng.IntN(2) == 0 { // one that is in turn, to get somewhere
				for _, e := range life {
					if cur == nil && e.From() == metadata.None || cur != nil && e.From() == cur.State {
						ev = e
					}
				}
			}
			if cur != nil && cur.State == metadata.DeleteSegmentFinished {
				continue // stores may forget it
			}
			next, wantErr := metadata.Step(cur, ev)
			err := f.store.Publish(f.Context(), ev)
			if (err == nil) != (wantErr == nil) || wantErr != nil && !errors.Is(err, metadata.ErrTransition) {
				f.Fatalf("seed %d: %s decided on %s: got %v, Step says %v", seed, ev.To(), ev.From(), err, wantErr)
			}
			if wantErr == nil {
				want = want.With(next)
			}
			sameView(f, f.view(p), want)
		}
	}
}

// sameView compares what two views answer.
func sameView(f *fixture, got, want *metadata.View) {
	f.Helper()
	if a, b := slices.Collect(got.All()), slices.Collect(want.All()); !slices.EqualFunc(a, b, equalSegments) {
		f.Fatalf("view has %v, want %v", describe(a), describe(b))
	}
	if !slices.Equal(got.Lineage(), want.Lineage()) {
		f.Fatalf("lineage is %v, want %v", got.Lineage(), want.Lineage())
	}
	for _, e := range want.Lineage() {
		a, _ := got.HighestOffset(e.Epoch)
		if b, _ := want.HighestOffset(e.Epoch); a != b {
			f.Fatalf("highest offset of epoch %d is %d, want %d", e.Epoch, a, b)
		}
	}
	for offset := range int64(45) {
		a, _ := got.Lookup(nil, offset)
		if b, _ := want.Lookup(nil, offset); (a == nil) != (b == nil) || a != nil && a.ID != b.ID {
			f.Fatalf("lookup of %d gives %v, want %v", offset, a, b)
		}
	}
}

// equalSegments ignores what a store may not keep.
func equalSegments(a, b *metadata.Segment) bool {
	x, y := *a, *b
	if x.LeaderEpoch == -1 || y.LeaderEpoch == -1 {
		x.LeaderEpoch, y.LeaderEpoch = 0, 0
	}
	return reflect.DeepEqual(x, y)
}

func describe(segs []*metadata.Segment) (out []string) {
	for _, s := range segs {
		out = append(out, fmt.Sprintf("%s %d-%d %s", s.ID, s.StartOffset, s.EndOffset, s.State))
	}
	return out
}

func immutable(f *fixture) {
	p := f.partition()
	s := NewSample(f, p, 10, 19, nil)
	f.publish(f.event(s, metadata.CopySegmentStarted))
	before := f.view(p)
	f.publish(f.event(s, metadata.CopySegmentFinished), f.event(NewSample(f, p, 20, 29, nil), metadata.CopySegmentStarted))
	if got, ok := before.Get(s.Segment.ID); !ok || got.State != metadata.CopySegmentStarted {
		f.Errorf("an older view says %v", got)
	}
	if _, ok := before.Lookup(nil, 10); ok || len(slices.Collect(before.All())) != 1 {
		f.Error("an older view shows what came later")
	}
}

func apart(f *fixture) {
	p := f.partition()
	q, r := p, p
	q.Number++
	r.TopicID = segment.NewUUID()
	f.assign(q, r)
	a, b := NewSample(f, p, 10, 19, nil), NewSample(f, q, 10, 19, nil)
	b.Segment.ID = a.Segment.ID
	f.publish(f.event(a, metadata.CopySegmentStarted), f.event(a, metadata.CopySegmentFinished))
	f.state(b, metadata.None)
	f.publish(f.event(b, metadata.CopySegmentStarted))
	f.state(a, metadata.CopySegmentFinished)
	f.state(b, metadata.CopySegmentStarted)
	if n := len(slices.Collect(f.view(r).All())); n != 0 {
		f.Errorf("another topic of the same name has %d segments", n)
	}
	ps, err := f.store.Partitions()
	if err != nil || len(ps) != 2 || !slices.Contains(ps, p) || !slices.Contains(ps, q) {
		f.Errorf("partitions that have events: %v, %v", ps, err)
	}
}

func watch(f *fixture) {
	p, q := f.partition(), f.partition()
	f.view(p)
	f.view(q)
	s := NewSample(f, p, 10, 19, nil)
	first, other := f.store.Watch(p), f.store.Watch(q)
	if isClosed(first) {
		f.Error("closed before anything has changed")
	}
	life := f.life(s)
	f.publish(life[0])
	f.await(f.Context(), first, "an event")
	second := f.store.Watch(p)
	if isClosed(second) {
		f.Error("a new channel is closed before anything has changed again")
	}
	f.publish(life[1])
	f.await(f.Context(), second, "another event")
	if isClosed(other) {
		f.Error("closed by an event of another partition")
	}
	last := f.store.Watch(p)
	if err := f.store.Close(); err != nil {
		f.Fatal(err)
	}
	f.await(f.Context(), last, "Close")
	f.await(f.Context(), other, "Close")
	f.await(f.Context(), f.store.Watch(p), "Close, asked for afterwards")
}

func cancelled(f *fixture) {
	s := NewSample(f, f.partition(), 10, 19, nil)
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	ev := f.event(s, metadata.CopySegmentStarted)
	if err := f.store.Publish(ctx, ev); !errors.Is(err, context.Canceled) {
		f.Errorf("Publish with a cancelled context: got %v", err)
	}
	// Whether it happened or not, it can be done now.
	f.publish(ev)
	f.state(s, metadata.CopySegmentStarted)
}

func closing(f *fixture) {
	p := f.partition()
	s := NewSample(f, p, 10, 19, nil)
	f.publish(f.event(s, metadata.CopySegmentStarted))
	kept, id := f.view(p), f.store.ID()
	for range 2 {
		if err := f.store.Close(); err != nil {
			f.Fatalf("Close: %v", err)
		}
	}
	f.closedErr("Publish", f.store.Publish(f.Context(), f.event(s, metadata.CopySegmentFinished)))
	_, err := f.store.View(p)
	f.closedErr("View", err)
	_, err = f.store.Partitions()
	f.closedErr("Partitions", err)
	f.closedErr("Assign", f.store.Assign(f.Context(), []segment.Partition{p}, nil))
	if _, ok := kept.Get(s.Segment.ID); !ok {
		f.Error("a view is empty after Close")
	}
	if f.store.ID() != id {
		f.Errorf("ID is %q after Close, %q before", f.store.ID(), id)
	}
}

func fencing(f *fixture) {
	p, q := f.partition(), f.partition()
	by := func(epoch int32) metadata.Writer { return metadata.Writer{BrokerID: 10 + epoch, LeaderEpoch: epoch} }
	s := NewSample(f, p, 10, 19, nil)
	f.publish(s.Event(f, metadata.CopySegmentStarted, by(5)))
	f.refused(s.Event(f, metadata.CopySegmentFinished, by(4)), metadata.ErrFenced)
	f.refused(s.Event(f, metadata.CopySegmentStarted, by(4)), metadata.ErrFenced) // a repetition too
	f.refused(s.Event(f, metadata.CopySegmentFinished, by(-1)), metadata.ErrFenced)
	f.state(s, metadata.CopySegmentStarted)

	// A newer leader takes over with its first event, even one without effect.
	f.publish(s.Event(f, metadata.CopySegmentStarted, by(7)))
	f.refused(s.Event(f, metadata.CopySegmentFinished, by(5)), metadata.ErrFenced)
	f.refused(NewSample(f, p, 20, 29, nil).Event(f, metadata.CopySegmentStarted, by(5)), metadata.ErrFenced)

	// What is refused takes nothing over.
	f.refused(s.Event(f, metadata.DeleteSegmentFinished, by(9)), metadata.ErrTransition)
	f.publish(s.Event(f, metadata.CopySegmentFinished, by(7)))
	f.state(s, metadata.CopySegmentFinished)
	if got, ok := f.view(p).Get(s.Segment.ID); !ok || got.LeaderEpoch != 7 || got.BrokerID != 17 {
		f.Errorf("the view says it was written by %+v", got)
	}

	f.publish(NewSample(f, q, 10, 19, nil).Event(f, metadata.CopySegmentStarted, by(-1)))
	f.publish(NewSample(f, q, 20, 29, nil).Event(f, metadata.CopySegmentStarted, by(0)))
	f.refused(NewSample(f, q, 30, 39, nil).Event(f, metadata.CopySegmentStarted, by(-1)), metadata.ErrFenced)

	if f.suite.Reopen != nil {
		f.store = f.suite.Reopen(f.T, f.store)
		f.assign(p)
		f.refused(NewSample(f, p, 20, 29, nil).Event(f, metadata.CopySegmentStarted, by(6)), metadata.ErrFenced)
		f.publish(NewSample(f, p, 20, 29, nil).Event(f, metadata.CopySegmentStarted, by(7)))
	}
}

func reopened(f *fixture) {
	p, q := f.partition(), f.partition()
	lineage := segment.Lineage{{Epoch: 0, Start: 0}, {Epoch: 2, Start: 15}, {Epoch: 3, Start: 25}}
	publish := func(p segment.Partition, start, end int64, upTo metadata.State) *Sample {
		s := NewSample(f, p, start, end, lineage)
		f.publish(f.life(s)[:upTo+1]...)
		return s
	}
	publish(p, 0, 9, metadata.CopySegmentFinished)
	publish(p, 30, 39, metadata.DeleteSegmentFinished) // leaves the highest offset of epoch 3
	publish(p, 20, 29, metadata.DeleteSegmentStarted)
	publish(p, 5, 30, metadata.CopySegmentFinished) // later than the first: it has 5 to 9
	publish(p, 10, 19, metadata.CopySegmentFinished)
	publish(p, 40, 41, metadata.CopySegmentStarted)
	s := publish(q, 0, 9, metadata.CopySegmentStarted)
	before := map[segment.Partition]*metadata.View{p: f.view(p), q: f.view(q)}
	id := f.store.ID()

	f.store = f.suite.Reopen(f.T, f.store)
	f.assign(p, q)
	if f.store.ID() != id {
		f.Errorf("ID is %q, was %q", f.store.ID(), id)
	}
	if ps, err := f.store.Partitions(); err != nil || len(ps) != 2 {
		f.Errorf("partitions that have events: %v, %v", ps, err)
	}
	for p, want := range before {
		sameView(f, f.view(p), want)
	}
	f.publish(f.event(s, metadata.CopySegmentFinished)) // and it goes on
	f.state(s, metadata.CopySegmentFinished)
}
