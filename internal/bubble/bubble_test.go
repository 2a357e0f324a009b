package bubble_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/segtier/segtier/internal/bubble"
)

// TestTimersThatNobodyWaitedFor ends the process under the race detector within
// a second where bubbles run on two Ps.
func TestTimersThatNobodyWaitedFor(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	for range 20 {
		bubble.Test(t, func(t *testing.T) {
			var wg sync.WaitGroup
			for range 64 {
				wg.Go(func() {
					for range 100 {
						late := time.NewTimer(time.Millisecond)
						<-time.After(time.Millisecond)
						select {
						case <-late.C:
						default:
							t.Error("a timer that is due has nothing to say")
						}
					}
				})
			}
			wg.Wait()
		})
	}
	if after := runtime.GOMAXPROCS(0); after != before {
		t.Errorf("GOMAXPROCS %d after the bubbles, want %d as before", after, before)
	}
}

// TestParallelBubbles: the last to leave gives the Ps back.
func TestParallelBubbles(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Run("all", func(t *testing.T) {
		for range 8 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				bubble.Test(t, func(*testing.T) { <-time.After(time.Hour) })
			})
		}
	})
	if after := runtime.GOMAXPROCS(0); after != before {
		t.Errorf("GOMAXPROCS %d after the bubbles, want %d as before", after, before)
	}
}
