package endpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/segtier/segtier/objstore"
)

// call is one call of a method of Endpoint: its context, which ends with the
// caller's, with Close, and when the store makes no progress; and its tries.
type call struct {
	e      *Endpoint
	caller context.Context // what the call was given; lives as long as the call
	tries  tries

	ctx      context.Context         // what the store is given
	cancel   context.CancelCauseFunc // of ctx; replaced under e.mu
	timer    *time.Timer             // cancels ctx when it runs out; nil until armed
	patience time.Duration           // how long it is set to

	urgency *Urgency     // of a Read, that is told of pauses; nil: nobody asks
	got     atomic.Int64 // bytes of the body of this attempt of a Read
	area    *area        // that the call is about; it hears how each attempt ends
	limiter *limiter     // likewise; nil for none
	lessons uint64       // what it knew when the attempt began
}

// learn has a limiter hear how the attempt that begins ends.
func (c *call) learn(l *limiter) { c.limiter, c.lessons = l, l.begin() }

// succeeded notes that an attempt did what it should.
func (c *call) succeeded() {
	c.e.retries.earned()
	c.answered()
}

// answered notes that the store bore what it was asked.
func (c *call) answered() {
	c.e.answeredAt.Store(int64(time.Since(c.e.born)))
	if lesson := c.e.slots.answered(c.area); lesson && c.limiter != nil {
		c.limiter.succeeded()
	}
}

// refused notes that it was asked too much.
func (c *call) refused() {
	c.e.stats.throttles.Add(1)
	c.e.slots.refused(c.area)
	if c.limiter != nil {
		c.limiter.throttled(c.lessons)
	}
}

// outcome is how an attempt of a Read ended.
func (c *call) outcome(err error) outcome {
	switch {
	case err == nil:
		return wentWell
	case c.ctx.Err() != nil && !errors.Is(context.Cause(c.ctx), errStalled), errors.Is(err, errNoTurn):
		return wasLeft
	}
	return wentWrong
}

// errStalled is the cause with which the progress timeout ends a context.
var errStalled = errors.New("no progress")

// errNoEndpoint: the Endpoint is nil.
var errNoEndpoint = errors.New("endpoint: there is none: it is nil")

// begin registers a call, so that Close can end it.
func (e *Endpoint) begin(ctx context.Context, kind areaKind, key string) (*call, error) {
	if e == nil {
		return nil, errNoEndpoint
	}
	c := &call{e: e, caller: ctx, tries: tries{max: e.opts.Attempts}}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	e.mu.Lock()
	closed := e.closed
	if !closed {
		e.calls[c] = struct{}{}
	}
	e.mu.Unlock()
	if closed {
		c.cancel(objstore.ErrClosed)
		return nil, objstore.ErrClosed
	}
	c.area = e.slots.area(kind, key)
	return c, nil
}

// end releases what the call holds.
func (c *call) end() {
	c.disarm()
	c.cancel(context.Canceled)
	c.e.slots.leave(c.area)
	c.e.mu.Lock()
	delete(c.e.calls, c)
	if c.e.closed && len(c.e.calls) == 0 {
		close(c.e.idle)
	}
	c.e.mu.Unlock()
}

// arm starts the progress timeout anew.
func (c *call) arm() { c.armFor(c.e.opts.ProgressTimeout) }

func (c *call) armFor(d time.Duration) {
	if c.timer != nil {
		c.timer.Reset(d)
		return
	}
	c.patience = d
	cancel := c.cancel // of this attempt: a timer that fires late hurts no later one
	c.timer = time.AfterFunc(d, func() { cancel(errStalled) })
}

// disarm stops the progress timeout.
func (c *call) disarm() {
	if c.timer != nil {
		c.timer.Stop()
	}
}

// ready prepares the next attempt: it waits until the store wants requests
// again, and replaces a context that the progress timeout has ended.
func (c *call) ready() error {
	for {
		wait := time.Duration(max(c.e.pauseUntil.Load(), c.area.pauseUntil.Load())) - time.Since(c.e.born)
		if wait <= 0 {
			break
		}
		if err := c.sleep(wait); err != nil {
			return err
		}
	}
	if c.ctx.Err() == nil {
		return nil
	}
	c.timer = nil
	ctx, cancel := context.WithCancelCause(c.caller)
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.ctx, c.cancel = ctx, cancel
	if c.e.closed { // and Close has seen the old context only
		cancel(objstore.ErrClosed)
	}
	return nil
}

// do runs attempt until it succeeds or another try is pointless. at says what
// is being done; its Err is filled in.
func (e *Endpoint) do(ctx context.Context, kind areaKind, at objstore.Error, attempt func(*call) error) error {
	c, err := e.begin(ctx, kind, at.Key)
	if err != nil {
		at.Err = err
		return &at
	}
	defer c.end()
	for {
		err := c.ready()
		if err == nil {
			err = attempt(c)
		}
		if err == nil {
			c.succeeded()
			return nil
		}
		if err = c.retry(err, at); err != nil {
			return err
		}
	}
}

// retry decides on a failed attempt: it returns nil, after a pause, if there is
// to be another one, else the error for the caller.
func (c *call) retry(err error, at objstore.Error) error {
	if final := c.interrupted(); final != nil {
		at.Err = final
		return &at
	}
	if errors.Is(context.Cause(c.ctx), errOverdue) {
		c.e.stats.retries.Add(1) // which is nobody's fault
		return nil
	}
	if errors.Is(context.Cause(c.ctx), errStalled) {
		// Whatever the store made of it, it is a timeout: the caller has
		// cancelled nothing.
		err = fmt.Errorf("nothing from the store for %v: %w", c.patience, os.ErrDeadlineExceeded)
		c.e.stats.stalls.Add(1)
	}
	throttled := errors.Is(err, objstore.ErrThrottled)
	if throttled {
		c.refused()
	}
	free := throttled || c.tries.free()
	wait, again := c.tries.next(err)
	if again && !free && !c.e.retries.spend(&c.area.share) {
		c.e.stats.unretried.Add(1)
		return describe(err, at, "no retry, since too many requests fail")
	}
	if !again {
		if n := c.tries.total; n > 1 {
			return describe(err, at, fmt.Sprintf("gave up after %d tries", n))
		}
		return describe(err, at, "")
	}
	c.e.stats.retries.Add(1)
	c.e.opts.Logger.DebugContext(c.caller, "retrying", "op", at.Op, "key", at.Key, "off", at.Off,
		"try", c.tries.total, "wait", wait, "err", err)
	c.heed(err)
	if err := c.sleep(wait); err != nil {
		at.Err = err
		return &at
	}
	return nil
}

// interrupted returns why the call must end, whatever the store says: Close or
// the caller's context. Otherwise nil.
func (c *call) interrupted() error {
	if c.caller.Err() != nil {
		cause := context.Cause(c.caller)
		if !errors.Is(cause, c.caller.Err()) {
			return fmt.Errorf("%w: %w", c.caller.Err(), cause)
		}
		return cause
	}
	select {
	case <-c.e.done:
		return objstore.ErrClosed
	default:
		return nil
	}
}

// sleep waits, unless the call is interrupted. It is called without a slot.
func (c *call) sleep(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	if c.urgency != nil {
		c.urgency.paused.Store(true)
		defer c.urgency.paused.Store(false)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.caller.Done():
	case <-c.e.done:
	}
	return c.interrupted()
}

// everybody is how many areas ask us to wait, while none answers, until it is the store
// that does.
const everybody = 4

// heed remembers how long the store asked us to wait. That is for requests to the same
// area, since no more is known. Where several ask, and nothing has been answered for as long
// as that, it is for all.
func (c *call) heed(err error) {
	var oe *objstore.Error
	if !errors.As(err, &oe) || oe.RetryAfter <= 0 {
		return
	}
	now, wait := int64(time.Since(c.e.born)), int64(min(oe.RetryAfter, maxRetryAfter))
	raise(&c.area.pauseUntil, now+wait)
	if now-c.e.answeredAt.Load() > wait && c.e.slots.paused(now) >= everybody {
		raise(&c.e.pauseUntil, now+wait)
	}
}

// raise makes a number at least n.
func raise(a *atomic.Int64, n int64) {
	for old := a.Load(); old < n && !a.CompareAndSwap(old, n); old = a.Load() {
	}
}

// describe returns err as the *objstore.Error of the whole call, without naming
// the operation twice.
func describe(err error, at objstore.Error, note string) error {
	at.Err = err
	//nolint:errorlint // only err itself: what wraps it would be lost
	if oe, ok := err.(*objstore.Error); ok && oe.Op == at.Op {
		at = *oe
	}
	if note != "" {
		at.Err = fmt.Errorf("%s: %w", note, at.Err)
	}
	return &at
}
