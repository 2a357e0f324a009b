package metadatatest

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

// Mem is a metadata.Store in memory. It keeps the law, fences writers, and
// forgets everything with the last reference to it.
type Mem struct {
	id string

	mu struct {
		sync.Mutex
		closed     bool
		partitions map[segment.Partition]*memPartition
	}
}

type memPartition struct {
	view    *metadata.View // nil: no event yet
	epoch   int32          // greatest of its writers
	changed chan struct{}  // nil: nobody watches
}

var (
	_ metadata.Store     = (*Mem)(nil)
	_ metadata.LogStarts = (*Mem)(nil)
)

// NewMem returns an empty store with an ID of its own.
func NewMem() *Mem {
	m := &Mem{id: segment.NewUUID().String()}
	m.mu.partitions = make(map[segment.Partition]*memPartition)
	return m
}

// ID implements metadata.Store.
func (m *Mem) ID() string { return m.id }

// Publish implements metadata.Store.
func (m *Mem) Publish(ctx context.Context, ev metadata.Event) error {
	if err := ev.Publishable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return metadata.ErrClosed
	}
	p := m.partition(ev.Partition())
	view := p.view
	if view == nil {
		view = metadata.NewView(ev.Partition())
	} else if ev.Writer().LeaderEpoch < p.epoch {
		return metadata.ErrFenced
	}
	next, err := view.Apply(ev)
	if err != nil {
		return err
	}
	p.epoch = ev.Writer().LeaderEpoch
	p.show(next)
	return nil
}

// LogStart implements metadata.LogStarts.
func (m *Mem) LogStart(p segment.Partition) (int64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.mu.partitions[p]; known != nil && known.view != nil {
		return known.view.LogStart(), known.view.LogStart() > 0
	}
	return 0, false
}

// SetLogStart implements metadata.LogStarts.
func (m *Mem) SetLogStart(ctx context.Context, p segment.Partition, offset int64, w metadata.Writer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return metadata.ErrClosed
	}
	known := m.partition(p)
	view := known.view
	if view == nil {
		view = metadata.NewView(p)
	} else if w.LeaderEpoch < known.epoch {
		return metadata.ErrFenced
	}
	known.epoch = w.LeaderEpoch
	if offset > view.LogStart() {
		info := view.Info()
		info.LogStart = offset
		view = view.WithInfo(info)
	}
	known.show(view)
	return nil
}

// show makes a view the current one. Mem.mu must be held.
func (p *memPartition) show(v *metadata.View) {
	if p.view == v {
		return
	}
	p.view = v
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// View implements metadata.Store.
func (m *Mem) View(p segment.Partition) (*metadata.View, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return nil, metadata.ErrClosed
	}
	if known := m.mu.partitions[p]; known != nil && known.view != nil {
		return known.view, nil
	}
	return metadata.NewView(p), nil
}

// Partitions implements metadata.Store.
func (m *Mem) Partitions() ([]segment.Partition, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return nil, metadata.ErrClosed
	}
	return slices.DeleteFunc(slices.Collect(maps.Keys(m.mu.partitions)), func(p segment.Partition) bool {
		return m.mu.partitions[p].view == nil
	}), nil
}

// Assign implements metadata.Store. Mem holds all partitions.
func (m *Mem) Assign(ctx context.Context, _, _ []segment.Partition) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return metadata.ErrClosed
	}
	return ctx.Err()
}

// Watch implements metadata.Store.
func (m *Mem) Watch(p segment.Partition) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return closedChan()
	}
	known := m.partition(p)
	if known.changed == nil {
		known.changed = make(chan struct{})
	}
	return known.changed
}

// Close implements metadata.Store.
func (m *Mem) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return nil
	}
	m.mu.closed = true
	for _, p := range m.mu.partitions {
		if p.changed != nil {
			close(p.changed)
		}
	}
	m.mu.partitions = nil
	return nil
}

// partition returns what is kept of a partition. m.mu must be held.
func (m *Mem) partition(p segment.Partition) *memPartition {
	known := m.mu.partitions[p]
	if known == nil {
		known = new(memPartition)
		m.mu.partitions[p] = known
	}
	return known
}

func closedChan() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
