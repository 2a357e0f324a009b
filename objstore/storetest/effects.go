package storetest

import (
	"errors"
	"slices"
	"sync"
)

// ErrStopped is what every call returns after the process was made to "crash":
// see Effects.StopAfter.
var ErrStopped = errors.New("stopped by the test")

// Effects numbers the effects that calls have on the outside world, and stops
// the world after one of them: the way to test a crash at every effect. Run
// once to learn Count; then, for each k from 0 to that, start from scratch,
// StopAfter(k), run until everything fails, and see whether a fresh start on
// what is left behind converges.
//
// A [Faulty] store has one. Whoever wraps another store (of metadata, say) can
// share it through Do, so that effects on both are numbered in one sequence. The
// zero Effects counts and never stops. It is safe for concurrent use; effects
// that other goroutines have under way when the world stops may still happen,
// as in a crash.
type Effects struct {
	mu    sync.Mutex
	names []string // guarded by mu
	stops bool     // guarded by mu: last is set
	last  int      // guarded by mu: number of effects after which all stops
}

// StopAfter makes the k-th effect, counted from 1, the last: its own call and
// every other call from then on return ErrStopped. With k = 0 nothing happens
// at all.
func (e *Effects) StopAfter(k int) {
	e.mu.Lock()
	e.stops, e.last = true, k
	e.mu.Unlock()
}

// Do performs an effect under the given name, unless the world has stopped. An
// effect that returns an error is not counted, and its error is returned.
func (e *Effects) Do(name string, effect func() error) error {
	if err := e.Err(); err != nil {
		return err
	}
	if err := effect(); err != nil {
		return err
	}
	return e.note(name)
}

// note counts an effect that has happened.
func (e *Effects) note(name string) error {
	e.mu.Lock()
	e.names = append(e.names, name)
	e.mu.Unlock()
	return e.Err()
}

// Err returns ErrStopped once the world has stopped, else nil.
func (e *Effects) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stops && len(e.names) >= e.last {
		return ErrStopped
	}
	return nil
}

// Count returns how many effects there have been.
func (e *Effects) Count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.names)
}

// Names returns the effects so far in order, such as "upload KEY part 0",
// "upload KEY", "delete KEY".
func (e *Effects) Names() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.names)
}
