package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/segtier/segtier/segment"
)

// OrderError says that a segment was not made readable because a lower one of
// its partition failed to be copied in this process. Copy that one first (or
// Forget it, if the log start has passed it); an upload that was made is kept and
// found again.
type OrderError struct {
	Partition segment.Partition
	Failed    int64 // the base offset of the segment that failed
	Err       error // why it failed
}

// Error names the segment to be copied first.
func (e *OrderError) Error() string {
	return fmt.Sprintf("the segment at offset %d of %s must be copied first, it failed: %v", e.Failed, e.Partition, e.Err)
}

// Unwrap returns why the lower segment failed, unless its caller had left: the
// end of that caller's context is not the end of this one's.
func (e *OrderError) Unwrap() error {
	if errors.Is(e.Err, context.Canceled) || errors.Is(e.Err, context.DeadlineExceeded) {
		return nil
	}
	return e.Err
}

// orders holds, per partition, which copies are running and which failed.
type orders struct {
	mu         sync.Mutex
	partitions map[segment.Partition]*order // only those with something in them
}

type order struct {
	running map[int64]struct{} // base offsets of the copies that run
	failed  map[int64]failure  // by base offset: the last copy failed
	changed chan struct{}      // closed and replaced at every leave
}

type failure struct {
	end int64 // the segment's last offset
	err error
}

// turn is one copy's place in the order of its partition.
type turn struct {
	all        *orders
	partition  segment.Partition
	start, end int64
}

// enter takes a place. Copies that begin at the same offset go one after the
// other: the second then finds what the first has made.
func (o *orders) enter(ctx context.Context, p segment.Partition, start, end int64) (*turn, error) {
	for {
		same := o.tryEnter(p, start)
		if same == nil {
			return &turn{all: o, partition: p, start: start, end: end}, nil
		}
		select {
		case <-same:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tryEnter takes a place unless a copy from start runs; then it returns a
// channel that is closed when a copy of the partition ends.
func (o *orders) tryEnter(p segment.Partition, start int64) (wait <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.partitions[p]
	if q == nil {
		q = &order{running: map[int64]struct{}{}, failed: map[int64]failure{}, changed: make(chan struct{})}
		o.partitions[p] = q
	}
	if _, taken := q.running[start]; taken {
		return q.changed
	}
	q.running[start] = struct{}{}
	return nil
}

// leave ends the copy. A failed one holds back what lies above it until it is copied.
func (t *turn) leave(err error) {
	o := t.all
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.partitions[t.partition]
	delete(q.running, t.start)
	if err != nil {
		q.failed[t.start] = failure{t.end, err}
	} else {
		delete(q.failed, t.start)
	}
	o.notify(t.partition, q)
}

// notify wakes those who wait and drops an order with nothing in it. Needs mu.
func (o *orders) notify(p segment.Partition, q *order) {
	close(q.changed)
	q.changed = make(chan struct{})
	if len(q.running) == 0 && len(q.failed) == 0 {
		delete(o.partitions, p)
	}
}

// forget drops the failures of segments that end below logStart.
func (o *orders) forget(p segment.Partition, logStart int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.partitions[p]
	if q == nil {
		return
	}
	for start, f := range q.failed {
		if f.end < logStart {
			delete(q.failed, start)
		}
	}
	o.notify(p, q)
}

// await returns when every lower copy of the partition that was running has
// ended, nil if none of them failed. covered says whether an offset has become
// readable otherwise, by another process for example; then its failure here is
// forgotten.
func (t *turn) await(ctx context.Context, covered func(segment.Partition, int64) bool) error {
	for {
		lower, changed := t.lowerRunning()
		if !lower {
			return t.blocked(covered)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// blocked returns an *OrderError if a lower segment failed.
func (t *turn) blocked(covered func(segment.Partition, int64) bool) error {
	for {
		start, f, ok := t.lowestFailed()
		switch {
		case !ok:
			return nil
		case !covered(t.partition, start):
			return &OrderError{Partition: t.partition, Failed: start, Err: f.err}
		}
		t.settle(start)
	}
}

func (t *turn) lowerRunning() (lower bool, changed <-chan struct{}) {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	q := t.all.partitions[t.partition]
	for start := range q.running {
		lower = lower || start < t.start
	}
	return lower, q.changed
}

func (t *turn) lowestFailed() (start int64, lowest failure, ok bool) {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	for at, f := range t.all.partitions[t.partition].failed {
		if at < t.start && (!ok || at < start) {
			start, lowest, ok = at, f, true
		}
	}
	return start, lowest, ok
}

// settle forgets one failure.
func (t *turn) settle(start int64) {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	delete(t.all.partitions[t.partition].failed, start)
}
