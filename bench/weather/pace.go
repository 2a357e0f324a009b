package weather

import (
	"context"
	"sync"
	"time"
)

// pace lets bytes pass at a rate: each taker is told when it may go on. The zero
// pace has no limit; it is used under the rate that holds at the moment.
type pace struct {
	mu   sync.Mutex
	next time.Time // when all that was let pass is through; guarded by mu
}

// slack is how far a pace may run ahead before it is waited for: timers are no
// more precise.
const slack = time.Millisecond

// take lets n bytes pass at rate and returns how long to wait.
func (p *pace) take(n int, rate int64) time.Duration {
	if rate <= 0 {
		return 0
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(time.Duration(float64(n) / float64(rate) * float64(time.Second)))
	return p.next.Sub(now)
}

// sleep waits for d, or until ctx ends; false if it has.
func sleep(ctx context.Context, d time.Duration) bool {
	if d < slack {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// bucket lets requests pass at a rate, or refuses them.
type bucket struct {
	mu     sync.Mutex
	tokens float64   // guarded by mu
	filled time.Time // guarded by mu
}

// take reports whether one more may pass.
func (b *bucket) take(rate float64, burst int) bool {
	if rate <= 0 {
		return true
	}
	size := float64(burst)
	if burst == 0 {
		size = max(rate/10, 1)
	}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.filled.IsZero() {
		b.tokens = size
	} else {
		b.tokens = min(size, b.tokens+now.Sub(b.filled).Seconds()*rate)
	}
	b.filled = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
