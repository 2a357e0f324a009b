package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrClosed: the Copier, Deleter or Expirer was closed.
var ErrClosed = errors.New("copier, deleter or expirer is closed")

// gate counts the calls that run, so that Close can cancel and join them. The
// zero gate is open.
type gate struct {
	mu      sync.Mutex
	closed  bool                                  // guarded by mu
	cancels map[*context.CancelCauseFunc]struct{} // of the calls in progress; guarded by mu
	running sync.WaitGroup                        // Add only while not closed
}

// enter lets a call in, unless the gate is closed; its ctx ends with close.
func (g *gate) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, nil, ErrClosed
	}
	g.running.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	if g.cancels == nil {
		g.cancels = map[*context.CancelCauseFunc]struct{}{}
	}
	g.cancels[&cancel] = struct{}{}
	return ctx, func() {
		cancel(nil)
		g.mu.Lock()
		delete(g.cancels, &cancel)
		g.mu.Unlock()
		g.running.Done()
	}, nil
}

// close cancels the calls that run, waits for them, and lets no other in.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	for cancel := range g.cancels {
		(*cancel)(ErrClosed)
	}
	g.mu.Unlock()
	g.running.Wait()
}

// told returns err with ErrClosed in it if that is why ctx ended.
func told(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrClosed) && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}
