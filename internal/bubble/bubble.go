// Package bubble runs tests in virtual time: testing/synctest, and a way around
// a fault of the race detector that ends them by chance.
//
// The race detector keeps one context for all timers of a synctest bubble, and
// takes for granted that one thread at a time runs them. That does not hold for
// the channel of a time.Timer that has expired while nobody waited on it: whoever
// looks at the channel next runs the timer itself. Two goroutines that do so on
// two Ps, or one of them and the goroutine that lets the bubble's time go on, use
// the context at once, and the process ends with a SIGSEGV on g0, with
// "ThreadSanitizer: CHECK failed: tsan_rtl.cpp", or hangs (golang/go issue 78156,
// open as of Go 1.26). With one P only one thread can, so under the race detector
// Test runs with GOMAXPROCS 1. The detector still sees what is not ordered by
// synchronisation: it compares vector clocks, not moments. Without it, bubbles
// run on all Ps.
//
// A test of internal/house refuses synctest.Test anywhere else.
package bubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// ps is as global as GOMAXPROCS.
var ps struct {
	mu     sync.Mutex
	inside int // bubbles that run now; more than one in parallel tests
	before int // GOMAXPROCS before the first of them
}

// Test is synctest.Test.
func Test(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if RaceDetector {
		enter()
		defer leave()
	}
	synctest.Test(t, f)
}

func enter() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.inside == 0 {
		ps.before = runtime.GOMAXPROCS(1)
	}
	ps.inside++
}

func leave() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.inside--
	if ps.inside == 0 {
		runtime.GOMAXPROCS(ps.before)
	}
}
