package endpoint

import (
	"container/list"
	"context"
	"sync"
)

// slots bounds the requests, and the bytes they carry, that are in flight. It
// gives them out in the order of asking: a large request is never overtaken for
// ever by small ones. A request takes both at once, so that a waiting one holds
// neither; that is why this is not two semaphores.
type slots struct {
	maxRequests int
	maxBytes    int64

	mu       sync.Mutex
	requests int       // in flight; guarded by mu
	bytes    int64     // in flight; guarded by mu
	queue    list.List // of *waiter, in the order of asking; guarded by mu
}

type waiter struct {
	n     int64
	ready chan struct{} // closed, under mu, when the slot is the waiter's
}

// acquire waits for a slot for a request that carries n bytes. A request larger
// than the whole budget runs alone.
func (s *slots) acquire(ctx context.Context, n int64) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	n = s.clamp(n)
	s.mu.Lock()
	if s.queue.Len() == 0 && s.fits(n) {
		s.take(n)
		s.mu.Unlock()
		return nil
	}
	w := &waiter{n: n, ready: make(chan struct{})}
	elem := s.queue.PushBack(w)
	s.mu.Unlock()

	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.ready: // given in the same instant: give it back
		s.give(n)
	default:
		s.queue.Remove(elem)
	}
	s.wake() // those behind may fit where this one did not
	return context.Cause(ctx)
}

// release gives back what acquire took for n bytes.
func (s *slots) release(n int64) {
	s.mu.Lock()
	s.give(s.clamp(n))
	s.wake()
	s.mu.Unlock()
}

// inFlight returns what is taken.
func (s *slots) inFlight() (requests int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests, s.bytes
}

func (s *slots) clamp(n int64) int64 { return max(0, min(n, s.maxBytes)) }

// fits, take, give and wake need mu.

func (s *slots) fits(n int64) bool {
	return s.requests < s.maxRequests && n <= s.maxBytes-s.bytes
}

func (s *slots) take(n int64) { s.requests++; s.bytes += n }

func (s *slots) give(n int64) { s.requests--; s.bytes -= n }

func (s *slots) wake() {
	for e := s.queue.Front(); e != nil; e = s.queue.Front() {
		w := e.Value.(*waiter)
		if !s.fits(w.n) {
			return
		}
		s.take(w.n)
		s.queue.Remove(e)
		close(w.ready)
	}
}
