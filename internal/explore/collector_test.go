package explore_test

import (
	"context"

	"github.com/segtier/segtier/audit"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/objstore/endpoint"
)

// collection is what a collector does that takes all it may, of any age: what keeps
// it from taking more is metadata alone.
func collection(d *lifecycle.Deleter, w metadata.Writer) audit.OrphanOptions {
	return audit.OrphanOptions{
		Apply: true, Unknown: true, OlderThan: -1, MaxFraction: 1, PerSecond: -1,
		End: func(ctx context.Context, seg *metadata.Segment) error { return d.Delete(ctx, w, seg) },
	}
}

// collects is an actor that collects orphans.
func collectsAs(name string, w metadata.Writer) actor {
	return actor{name: name, run: func(ctx context.Context, p *proc) error {
		meta, ep := p.seams()
		defer ep.Close()
		d, err := p.deleter(meta, ep)
		if err != nil {
			return err
		}
		defer d.Close()
		o := collection(d, w)
		o.TrustMetadata = p.w.sc.defeat.trust
		_, err = audit.Orphans(ctx, meta, ep, o)
		return err
	}}
}

// collect is the successors' collection: nobody else is there any more.
func (w *world) collect(meta metadata.Store, ep *endpoint.Endpoint, d *lifecycle.Deleter) {
	o := collection(d, leader(9))
	o.Exclusive = true
	if _, err := audit.Orphans(w.t.Context(), meta, ep, o); err != nil {
		w.fail("afterwards, collection: %v", err)
	}
}

// collections are the exhaustive scenarios with a collector.
func collections() []scenario {
	collector := collectsAs("collector", leader(1))
	return []scenario{
		{
			name: "a copy and a collector", quick: true, setup: nothing, copies: 1, hours: 1,
			actors: []actor{copies("leader", leader(1), 0), collector},
		},
		{
			name: "a copy and a collector, a crash and a fault", setup: nothing, copies: 1, faults: 1, crashes: 1, turns: everything(),
			actors: []actor{copies("leader", leader(1), 0), collector},
		},
		{
			name: "a newer leader's copy and a collector", setup: givenUp, copies: 1, hours: 1,
			actors: []actor{copies("leader 2", leader(2), 0), collectsAs("collector", leader(2))},
		},
		{
			name: "two leaders and a collector", setup: nothing, copies: 1, hours: 1,
			actors: []actor{copies("leader 1", leader(1), 0), copies("leader 2", leader(2), 0), collector},
		},
		{
			name: "retention and a collector, a crash and a fault", setup: copied(0, 1), copies: 2, retains: true, faults: 1, crashes: 1, turns: everything(),
			actors: []actor{retires("retention", leader(1)), collector},
		},
		{
			name: "two collectors", setup: orphaned, copies: 1, quick: true,
			actors: []actor{collector, collectsAs("another collector", leader(1))},
		},
		{
			name: "a collector and a reader", setup: copied(0), copies: 1,
			actors: []actor{collector, reads("reader", 1, 3)},
		},
	}
}

// collectedCrowds are the random ones.
func collectedCrowds() []scenario {
	return []scenario{{
		name: "everybody and a collector", setup: orphaned, copies: 3, retains: true, hours: 2, faults: 3, crashes: 3, turns: everything(),
		actors: []actor{
			copies("leader 1", leader(1), 1), copies("leader 2", leader(2), 1, 2), retires("retention", leader(2)),
			collectsAs("collector", leader(2)), reads("reader", 1, 3, 12, 23),
		},
	}}
}

// givenUp leaves a record and an object of a copy that was never finished, as a
// leader does that dies.
func givenUp(w *world) {
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	ep := w.endpoint(w.store)
	defer ep.Close()
	c, err := lifecycle.NewCopier(dying{w.meta.(fullMeta), cancel}, ep, lifecycle.CopierOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Copy(ctx, w.logs[0], leader(0)); err == nil {
		w.t.Fatal("a copy that was to die came through")
	}
	for s := range w.view().All() {
		w.baptize(s.ID, "dead")
	}
	w.look()
	w.first, w.previous = w.present, w.present
}

// orphaned leaves a readable segment, and an object whose segment has ended.
func orphaned(w *world) {
	givenUp(w)
	ep := w.endpoint(w.store)
	defer ep.Close()
	for s := range w.view().All() {
		ev, err := metadata.DeleteStarted(s, leader(0), 1)
		if err != nil {
			w.t.Fatal(err)
		}
		if err := w.meta.Publish(w.t.Context(), ev); err != nil {
			w.t.Fatal(err)
		}
		if ev, err = metadata.DeleteFinished(ev.Segment(), leader(0), 1); err != nil {
			w.t.Fatal(err)
		}
		if err := w.meta.Publish(w.t.Context(), ev); err != nil {
			w.t.Fatal(err)
		}
	}
	copied(0)(w)
}

// dying fails at FINISHED, and everything ends.
type dying struct {
	fullMeta
	die func()
}

func (d dying) Publish(ctx context.Context, ev metadata.Event) error {
	if ev.To() == metadata.CopySegmentFinished {
		d.die()
		return context.Canceled
	}
	return d.fullMeta.Publish(ctx, ev)
}
