// Package pace spaces work so that it does not exceed a rate: bytes that are sent
// or read, objects that are deleted.
//
// Who comes waits until what was let pass before is paid for, and then goes at full
// speed. So the wait comes before the work, where it holds no slot, and a line
// carries bursts of one piece of work. Time in which nothing came is lost: there is
// no burst after a silence. Who gives up waiting has used nothing.
//
// Clocks may jump: no wait is longer than what the work before it cost, whatever
// they say.
package pace

import (
	"context"
	"math"
	"time"
)

// Clock is what a Pacer knows of time. The zero value is the process's clock.
type Clock struct {
	Now  func() time.Time                                 // nil is time.Now
	Wait func(ctx context.Context, d time.Duration) error // nil is Wait
}

// Wait returns after d, or with the cause of ctx when it ends before.
func Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// parts is how many waits Within makes.
const parts = 10

// Within waits for done, for about d, and reports whether it is closed. A process that
// was stopped, or got no processor, loses a tenth of that: others had no time in it to
// get done.
func Within(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for range parts {
		timer.Reset(d / parts)
		select {
		case <-done:
			return true
		case <-timer.C:
		}
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// Pacer lets work pass at a rate. It may be used concurrently; nil lets everything
// pass at once.
type Pacer struct {
	perSecond float64
	clock     Clock

	turn chan struct{} // who holds it may wait, and has what is below
	free time.Time     // when everything that was let pass is paid for
	cost time.Duration // of what was let pass last
}

// New returns a Pacer for that much a second; nil, which lets everything pass, if
// it is not above 0.
func New(perSecond int64, clock Clock) *Pacer {
	if perSecond <= 0 {
		return nil
	}
	if clock.Now == nil {
		clock.Now = time.Now
	}
	if clock.Wait == nil {
		clock.Wait = Wait
	}
	return &Pacer{perSecond: float64(perSecond), clock: clock, turn: make(chan struct{}, 1)}
}

// Wait returns when n more may pass, in the order of the calls, or with the cause
// of ctx when it ends before.
func (p *Pacer) Wait(ctx context.Context, n int64) error {
	if p == nil || n <= 0 {
		return nil
	}
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-p.turn }()
	now := p.clock.Now()
	if d := min(p.free.Sub(now), p.cost); d > 0 {
		if err := p.clock.Wait(ctx, d); err != nil {
			return err
		}
		now = now.Add(d) // a timer that was late is made up for
	}
	p.cost = time.Duration(min(float64(n)/p.perSecond*float64(time.Second), float64(math.MaxInt64/4)))
	p.free = now.Add(p.cost)
	return nil
}
