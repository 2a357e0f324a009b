package pace_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/internal/pace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Who is done in time is, and a wait ends when it should.
func TestWithin(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			after time.Duration
			want  bool
		}{{0, true}, {time.Millisecond, true}, {9500 * time.Millisecond, true}, {11 * time.Second, false}} {
			done := make(chan struct{})
			begin := time.Now()
			time.AfterFunc(c.after, func() { close(done) })
			if got, took := pace.Within(done, 10*time.Second), time.Since(begin); got != c.want || took != min(c.after, 10*time.Second) {
				t.Errorf("done after %v: %v, after %v", c.after, got, took)
			}
			<-done
		}
	})
}

// A process that was stopped gives others the time that they should have. It is the test
// itself that is stopped, as a child.
func TestWithinAStoppedProcess(t *testing.T) {
	const name = "SEGTIER_TEST_STOPPED"
	if os.Getenv(name) != "" {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 2 {
				<-time.After(400 * time.Millisecond) // of what a second has
			}
		}()
		fmt.Println("begun")
		fmt.Println(pace.Within(done, time.Second))
		<-done
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestWithinAStoppedProcess$")
	cmd.Env = append(os.Environ(), name+"=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "begun" {
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	<-time.After(1500 * time.Millisecond)
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "true" {
		t.Errorf("it says %q", lines.Text())
	}
	for lines.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// All callers together keep to the rate, from the second on.
func TestRate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := pace.New(1000, pace.Clock{})
		begin := time.Now()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for range 5 {
					if err := p.Wait(t.Context(), 500); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if took := time.Since(begin); took != 7*time.Second {
			t.Errorf("15 of half a second each, the first at once, took %v", took)
		}
		<-time.After(time.Hour) // nothing is saved up
		begin = time.Now()
		for range 3 {
			if err := p.Wait(t.Context(), 1000); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("3 of a second each, after a silence, took %v", took)
		}
	})
}

// Who leaves, waiting for the time or for the turn, has used nothing.
func TestLeaving(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := pace.New(1, pace.Clock{})
		begin := time.Now()
		if err := p.Wait(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		left := make(chan error)
		for range 2 {
			go func() { left <- p.Wait(ctx, 1000) }()
		}
		synctest.Wait()
		gone := errors.New("gone")
		cancel(gone)
		for range 2 {
			if err := <-left; !errors.Is(err, gone) {
				t.Errorf("error %v", err)
			}
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("they left after %v", took)
		}
		if err := p.Wait(t.Context(), 1); err != nil || time.Since(begin) != 100*time.Second {
			t.Errorf("the next passed after %v: %v", time.Since(begin), err)
		}
	})
}

// A clock that jumps back holds nobody up for longer than the work before cost; one
// that jumps forward lets one piece pass early.
func TestClockThatJumps(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	var waited []time.Duration
	p := pace.New(10, pace.Clock{
		Now: func() time.Time { return now },
		Wait: func(_ context.Context, d time.Duration) error {
			waited = append(waited, d)
			return nil
		},
	})
	for _, jump := range []time.Duration{0, -1000 * time.Hour, 0, 2000 * time.Hour, 0} {
		now = now.Add(jump)
		if err := p.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	if len(waited) != 3 {
		t.Errorf("waits %v", waited)
	}
	for _, d := range waited {
		if d != 100*time.Millisecond {
			t.Errorf("a wait of %v", d)
		}
	}
}

// No rate is no wait, and a rate that is tiny does not overflow.
func TestNoRate(t *testing.T) {
	for _, rate := range []int64{0, -1} {
		p := pace.New(rate, pace.Clock{Wait: func(context.Context, time.Duration) error { return errors.New("waited") }})
		for range 3 {
			if err := p.Wait(t.Context(), 1<<62); err != nil {
				t.Error(err)
			}
		}
	}
	var longest time.Duration
	p := pace.New(1, pace.Clock{Wait: func(_ context.Context, d time.Duration) error {
		longest = max(longest, d)
		return nil
	}})
	for range 3 {
		if err := p.Wait(t.Context(), 1<<62); err != nil {
			t.Error(err)
		}
	}
	if longest <= 0 {
		t.Errorf("waited %v", longest)
	}
}
