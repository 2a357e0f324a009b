package endpoint

import (
	"context"
	"math"
	"sync"
	"time"
)

// pace spaces requests so that the bytes they carry do not exceed a rate. Each
// request waits until those before it have been paid for, and then goes at full
// speed: so the wait comes before the request, where it holds no slot, and the
// line carries bursts of one request. The zero pace lets everything pass.
type pace struct {
	bytesPerSecond int64

	mu   sync.Mutex
	free time.Time // when everything that was let pass is paid for; guarded by mu
}

// wait returns when n more bytes may be sent. If ctx ends first, they are not
// charged.
func (p *pace) wait(ctx context.Context, n int64) error {
	if p.bytesPerSecond == 0 || n <= 0 {
		return nil
	}
	cost := p.cost(n)
	now := time.Now()
	p.mu.Lock()
	start := p.free
	if start.Before(now) {
		start = now // what was not used before is lost: no burst after a silence
	}
	p.free = start.Add(cost)
	p.mu.Unlock()

	delay := start.Sub(now)
	if delay <= 0 {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.free = p.free.Add(-cost) // for those who come; those who wait have their time
	p.mu.Unlock()
	return context.Cause(ctx)
}

// cost is how long n bytes take at the rate.
func (p *pace) cost(n int64) time.Duration {
	return time.Duration(min(float64(n)/float64(p.bytesPerSecond)*float64(time.Second), float64(math.MaxInt64/4)))
}
