package job

import (
	"context"
	"math"
	"sync"
)

// Leash keeps readers of one sequence in line: number 0 runs ahead, and each of
// the others stays a distance behind the one before it until that one has
// ended.
type Leash struct {
	lag int64

	mu      sync.Mutex
	at      []int64       // guarded by mu; MaxInt64 when done
	changed chan struct{} // guarded by mu; closed when at has changed
}

// NewLeash returns a Leash for n readers that keep lag bytes apart.
func NewLeash(n int, lag int64) *Leash {
	return &Leash{lag: lag, at: make([]int64, n), changed: make(chan struct{})}
}

// Wait returns when reader i may go on. The one in front waits for the last, if
// that is twice as far behind as it should be: they are one crowd.
func (l *Leash) Wait(ctx context.Context, i int) error {
	for {
		l.mu.Lock()
		ok := true
		if i > 0 && l.lag > 0 {
			ok = l.at[i-1] == math.MaxInt64 || l.at[i-1]-l.at[i] > l.lag
		} else if i == 0 && l.lag > 0 {
			last := l.at[len(l.at)-1]
			ok = last == math.MaxInt64 || l.at[0]-last <= 2*l.lag*int64(len(l.at))
		}
		changed := l.changed
		l.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Moved says that reader i has read n bytes more.
func (l *Leash) Moved(i int, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at[i] += n
	l.wake()
}

// Done says that reader i has ended.
func (l *Leash) Done(i int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at[i] = math.MaxInt64
	l.wake()
}

func (l *Leash) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}
