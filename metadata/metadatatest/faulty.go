package metadatatest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
)

// Kind says what goes wrong in a call.
type Kind uint8

// What a fault does to a call.
const (
	None       Kind = iota
	FailBefore      // fails with Err, without its effect
	FailAfter       // takes effect, then fails with Err: the answer was lost
	Hang            // Publish, Assign: no effect, returns when its ctx is done
	Wait            // Publish, Assign: waits for Gate (or ctx), then goes on as usual
)

// Fault is what happens to one call. The zero Fault is none.
type Fault struct {
	Kind Kind
	Err  error           // nil is metadata.ErrUnavailable, for a View metadata.ErrNotReady
	Gate <-chan struct{} // for Wait
}

// Call is one call that a Plan decides on.
type Call struct {
	Op        string // "publish", "view", "partitions", "assign", "logStart"
	Partition segment.Partition
	Event     metadata.Event // of a publish
	Nth, Seq  int            // count the calls with this Op, and all calls, from 1
}

// Plan decides what goes wrong. It is called once for each call, from several
// goroutines, and must not call the store.
type Plan func(Call) Fault

// Rule is one line of a [Script]: what goes wrong in which calls.
type Rule struct {
	Op          string          // "" is any
	First, Last int             // of the calls with this Op, from 1; 0 is no bound
	Match       func(Call) bool // which of those; nil is all
	Fault       Fault
}

// Script is the plan in which the first rule that fits a call decides on it. An
// outage is a rule with a First and a Last.
func Script(rules ...Rule) Plan {
	return func(c Call) Fault {
		for _, r := range rules {
			n := c.Nth
			if r.Op == "" {
				n = c.Seq
			}
			if (r.Op == "" || r.Op == c.Op) && n >= r.First && (r.Last == 0 || n <= r.Last) && (r.Match == nil || r.Match(c)) {
				return r.Fault
			}
		}
		return Fault{}
	}
}

// Faulty is a metadata store on which things go wrong. It is safe for concurrent
// use.
type Faulty struct {
	store   metadata.Store
	effects *storetest.Effects

	mu struct {
		sync.Mutex
		plan    Plan
		nth     map[string]int
		seq     int
		loading map[segment.Partition]chan struct{}  // closed when loaded
		stale   map[segment.Partition]*metadata.View // what View returns instead
		unknown map[segment.Partition]int            // records that are not understood
	}
}

var (
	_ metadata.Store     = (*Faulty)(nil)
	_ metadata.LogStarts = (*Faulty)(nil)
)

// Inject wraps store. Each event that is published is an effect; give effects
// that are shared with a storetest.Faulty to number the effects on both in one
// sequence, or nil. A nil plan is one without faults. Closing the Faulty closes
// store.
func Inject(store metadata.Store, effects *storetest.Effects, plan Plan) *Faulty {
	if effects == nil {
		effects = new(storetest.Effects)
	}
	f := &Faulty{store: store, effects: effects}
	f.mu.nth = make(map[string]int)
	f.mu.loading = make(map[segment.Partition]chan struct{})
	f.mu.stale = make(map[segment.Partition]*metadata.View)
	f.mu.unknown = make(map[segment.Partition]int)
	f.SetPlan(plan)
	return f
}

// SetPlan replaces the plan.
func (f *Faulty) SetPlan(plan Plan) {
	if plan == nil {
		plan = func(Call) Fault { return Fault{} }
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.plan = plan
}

// Effects returns the numbering of the effects.
func (f *Faulty) Effects() *storetest.Effects { return f.effects }

// SetLoading makes a partition one that is still being loaded (its View is
// metadata.ErrNotReady), or lets the loading end, which those who Watch see.
func (f *Faulty) SetLoading(p segment.Partition, loading bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	done := f.mu.loading[p]
	switch {
	case loading && done == nil:
		f.mu.loading[p] = make(chan struct{})
	case !loading && done != nil:
		close(done)
		delete(f.mu.loading, p)
	}
}

// SetStale makes View return the partition as it is now, whatever is published
// from now on, as a process does that has not read on; or lets it catch up. No
// store may do so to its own publisher: it is for those that read what others
// write.
func (f *Faulty) SetStale(p segment.Partition, stale bool) error {
	var v *metadata.View
	if stale {
		var err error
		if v, err = f.store.View(p); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if delete(f.mu.stale, p); stale {
		f.mu.stale[p] = v
	}
	return nil
}

// SetIncomplete makes a partition one of which so many records could not be
// understood; 0 is a whole one.
func (f *Faulty) SetIncomplete(p segment.Partition, records int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.unknown[p] = records
}

// ID implements metadata.Store.
func (f *Faulty) ID() string { return f.store.ID() }

// Publish implements metadata.Store.
func (f *Faulty) Publish(ctx context.Context, ev metadata.Event) error {
	return f.do(ctx, Call{Op: "publish", Partition: ev.Partition(), Event: ev}, func() error {
		name := "publish nothing"
		if s := ev.Segment(); s != nil {
			name = fmt.Sprintf("%s %d", s.State, s.StartOffset)
		} else if _, to, ok := ev.Deletion(); ok {
			name = to.String()
		}
		return f.effects.Do(name, func() error { return f.store.Publish(ctx, ev) })
	})
}

// View implements metadata.Store.
func (f *Faulty) View(p segment.Partition) (v *metadata.View, err error) {
	f.mu.Lock()
	loading, stale, unknown := f.mu.loading[p] != nil, f.mu.stale[p], f.mu.unknown[p]
	f.mu.Unlock()
	if loading {
		return nil, fmt.Errorf("view of %s: %w", p, metadata.ErrNotReady)
	}
	err = f.do(context.Background(), Call{Op: "view", Partition: p}, func() error {
		v, err = f.store.View(p)
		return err
	})
	if err != nil {
		return nil, err
	}
	if stale != nil {
		v = stale
	}
	if unknown > 0 {
		info := v.Info()
		info.Incomplete = unknown
		v = v.WithInfo(info)
	}
	return v, nil
}

// LogStart implements metadata.LogStarts, if the store does.
func (f *Faulty) LogStart(p segment.Partition) (int64, bool) {
	if s, ok := f.store.(metadata.LogStarts); ok {
		return s.LogStart(p)
	}
	return 0, false
}

// SetLogStart implements metadata.LogStarts: a call "logStart", and an effect. It
// is an error if the store does not implement it.
func (f *Faulty) SetLogStart(ctx context.Context, p segment.Partition, offset int64, w metadata.Writer) error {
	s, ok := f.store.(metadata.LogStarts)
	if !ok {
		return fmt.Errorf("log start of %s: %w", p, errors.ErrUnsupported)
	}
	return f.do(ctx, Call{Op: "logStart", Partition: p}, func() error {
		return f.effects.Do(fmt.Sprintf("log start %d", offset), func() error { return s.SetLogStart(ctx, p, offset, w) })
	})
}

// Partitions implements metadata.Store.
func (f *Faulty) Partitions() (ps []segment.Partition, err error) {
	err = f.do(context.Background(), Call{Op: "partitions"}, func() error {
		ps, err = f.store.Partitions()
		return err
	})
	if err != nil {
		return nil, err
	}
	return ps, nil
}

// Assign implements metadata.Store.
func (f *Faulty) Assign(ctx context.Context, add, remove []segment.Partition) error {
	return f.do(ctx, Call{Op: "assign"}, func() error { return f.store.Assign(ctx, add, remove) })
}

// Watch implements metadata.Store.
func (f *Faulty) Watch(p segment.Partition) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if done := f.mu.loading[p]; done != nil {
		return done
	}
	return f.store.Watch(p)
}

// Close implements metadata.Store.
func (f *Faulty) Close() error {
	f.mu.Lock()
	for p, done := range f.mu.loading {
		close(done)
		delete(f.mu.loading, p)
	}
	f.mu.Unlock()
	return f.store.Close()
}

// do carries out a call as the plan says.
func (f *Faulty) do(ctx context.Context, c Call, call func() error) error {
	if err := f.effects.Err(); err != nil {
		return err
	}
	fault := f.decide(c)
	if fault.Err == nil {
		fault.Err = metadata.ErrUnavailable
		if c.Op == "view" {
			fault.Err = metadata.ErrNotReady
		}
	}
	switch fault.Kind {
	case FailBefore:
		return fault.Err
	case Hang:
		<-ctx.Done()
		return ctx.Err()
	case Wait:
		select {
		case <-fault.Gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := call(); err != nil {
		return err
	}
	if fault.Kind == FailAfter {
		return fault.Err
	}
	return f.effects.Err()
}

func (f *Faulty) decide(c Call) Fault {
	f.mu.Lock()
	f.mu.nth[c.Op]++
	f.mu.seq++
	c.Nth, c.Seq = f.mu.nth[c.Op], f.mu.seq
	plan := f.mu.plan
	f.mu.Unlock()
	return plan(c)
}
