package endpoint

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func newSlots(requests int, bytes int64) *slots {
	return &slots{maxRequests: requests, maxBytes: bytes}
}

// Slots are given in the order in which they were asked for, whatever their
// size.
func TestSlotsAreFIFO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(10, 100)
		if err := s.acquire(t.Context(), 60); err != nil {
			t.Fatal(err)
		}
		var got []int
		var wg sync.WaitGroup
		for i, n := range []int64{80, 30, 1000, 1} { // 30 and 1 would fit at once
			wg.Go(func() {
				if err := s.acquire(t.Context(), n); err != nil {
					t.Error(err)
				}
				got = append(got, i)
				<-time.After(time.Second)
				s.release(n)
			})
			synctest.Wait()
		}
		if len(got) > 0 {
			t.Errorf("%v overtook", got)
		}
		s.release(60)
		wg.Wait()
		if !slices.Equal(got, []int{0, 1, 2, 3}) {
			t.Errorf("order %v", got)
		}
		if r, b := s.inFlight(); r != 0 || b != 0 {
			t.Errorf("%d requests, %d bytes left", r, b)
		}
	})
}

// Who stops waiting makes room for those behind.
func TestSlotsWaiterLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(10, 100)
		if err := s.acquire(t.Context(), 60); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.acquire(ctx, 80); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		small := false
		wg.Go(func() {
			if err := s.acquire(t.Context(), 40); err != nil {
				t.Error(err)
			}
			small = true
		})
		synctest.Wait()
		if small {
			t.Error("the small one overtook")
		}
		cancel()
		wg.Wait()
		if r, b := s.inFlight(); !small || r != 2 || b != 100 {
			t.Errorf("%d requests, %d bytes in flight", r, b)
		}
		if err := s.acquire(ctx, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("acquire when cancelled: %v", err)
		}
	})
}

// slotJob is somebody who wants a slot for n bytes at some instant, waits so
// long at most, and then keeps it for a while; times in nanoseconds.
type slotJob struct{ start, patience, hold, n int64 }

// Under any load the bounds hold and everything is given back.
func TestSlotsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newSlots(rapid.IntRange(1, 4).Draw(rt, "requests"), rapid.Int64Range(1, 100).Draw(rt, "bytes"))
		jobs := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) slotJob {
			ns := rapid.Int64Range(0, 50)
			return slotJob{ns.Draw(rt, "start"), ns.Draw(rt, "patience") + 1, ns.Draw(rt, "hold"), rapid.Int64Range(0, 150).Draw(rt, "n")}
		}), 1, 30).Draw(rt, "jobs")
		inBubble(t, rt, func(fail failFunc) { runSlotJobs(s, jobs, fail) })
	})
}

func runSlotJobs(s *slots, jobs []slotJob, fail failFunc) {
	var wg sync.WaitGroup
	for _, j := range jobs {
		wg.Go(func() {
			<-time.After(time.Duration(j.start))
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(j.patience))
			defer cancel()
			err := s.acquire(ctx, j.n)
			if r, b := s.inFlight(); r > s.maxRequests || b > s.maxBytes {
				fail("%d requests, %d bytes in flight", r, b)
			}
			if err == nil {
				<-time.After(time.Duration(j.hold))
				s.release(j.n)
			} else if !errors.Is(err, context.DeadlineExceeded) {
				fail("%v", err)
			}
		})
	}
	wg.Wait()
	if r, b := s.inFlight(); r != 0 || b != 0 || s.queue.Len() != 0 {
		fail("%d requests, %d bytes, %d waiters left", r, b, s.queue.Len())
	}
}
