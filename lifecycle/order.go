package lifecycle

import (
	"context"
	"fmt"
	"sync"

	"github.com/segtier/segtier/segment"
)

// OrderError says that a segment was not made readable because a lower one of
// its partition failed to be copied. Copy that one first; its own upload is kept
// and found again.
type OrderError struct {
	Partition segment.Partition
	Failed    int64 // the base offset of the segment that failed
	Err       error // why it failed
}

// Error names the segment to be copied first.
func (e *OrderError) Error() string {
	return fmt.Sprintf("the segment at offset %d of %s must be copied first, it failed: %v", e.Failed, e.Partition, e.Err)
}

// Unwrap returns why the lower segment failed.
func (e *OrderError) Unwrap() error { return e.Err }

// orders holds, per partition, which copies are running and which failed.
type orders struct {
	mu         sync.Mutex
	partitions map[segment.Partition]*order // only those with something in them
}

type order struct {
	running map[int64]int   // base offset -> copies of it now
	failed  map[int64]error // base offset -> why its last copy failed
	changed chan struct{}   // closed and replaced at every leave
}

// turn is one copy's place in the order of its partition.
type turn struct {
	all       *orders
	partition segment.Partition
	start     int64
}

func (o *orders) enter(p segment.Partition, start int64) *turn {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.partitions[p]
	if q == nil {
		q = &order{running: map[int64]int{}, failed: map[int64]error{}, changed: make(chan struct{})}
		o.partitions[p] = q
	}
	q.running[start]++
	return &turn{all: o, partition: p, start: start}
}

// leave ends the copy. A failed one holds back what lies above it until it is copied.
func (t *turn) leave(err error) {
	o := t.all
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.partitions[t.partition]
	if q.running[t.start]--; q.running[t.start] == 0 {
		delete(q.running, t.start)
	}
	if err != nil {
		q.failed[t.start] = err
	} else {
		delete(q.failed, t.start)
	}
	close(q.changed)
	q.changed = make(chan struct{})
	if len(q.running) == 0 && len(q.failed) == 0 {
		delete(o.partitions, t.partition)
	}
}

// await returns when every lower copy of the partition that was running has
// ended, nil if none of them failed. covered says whether an offset has become readable
// otherwise, by another process for example; then its failure here is forgotten.
func (t *turn) await(ctx context.Context, covered func(segment.Partition, int64) bool) error {
	for {
		lower, failed, cause, changed := t.look()
		switch {
		case lower:
			select {
			case <-changed:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		case cause == nil:
			return nil
		case covered(t.partition, failed):
			t.forget(failed)
		default:
			return &OrderError{Partition: t.partition, Failed: failed, Err: cause}
		}
	}
}

// look reports whether a lower copy runs, and the lowest one that failed.
func (t *turn) look() (lower bool, failed int64, cause error, changed <-chan struct{}) {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	q := t.all.partitions[t.partition]
	for start := range q.running {
		lower = lower || start < t.start
	}
	for start, err := range q.failed {
		if start < t.start && (cause == nil || start < failed) {
			failed, cause = start, err
		}
	}
	return lower, failed, cause, q.changed
}

func (t *turn) forget(start int64) {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	delete(t.all.partitions[t.partition].failed, start)
}
