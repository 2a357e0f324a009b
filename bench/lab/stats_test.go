package main

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.v); got != c.want {
			t.Errorf("median of %v is %v", c.v, got)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("nothing has a median")
	}
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 20).Draw(t, "v")
		before := slices.Clone(v)
		m := median(v)
		below, above := 0, 0
		for _, x := range v {
			if x < m {
				below++
			} else if x > m {
				above++
			}
		}
		if below > len(v)/2 || above > len(v)/2 || !slices.Equal(v, before) {
			t.Fatalf("median of %v is %v: %d below, %d above", v, m, below, above)
		}
	})
}

func TestNoiseBandIsForClocks(t *testing.T) {
	for _, c := range []struct {
		value float64
		op    op
		limit float64
		timed bool
		want  bool
	}{
		{.6, atMost, .6, true, true},
		{.629, atMost, .6, true, true},
		{.631, atMost, .6, true, false},
		{1.001, atMost, 1, false, false},
		{0, atMost, 0, false, true},
		{1, atMost, 0, false, false},
		{.86, atLeast, .9, true, true},
		{.85, atLeast, .9, true, false},
		{.899, atLeast, .9, false, false},
		{math.NaN(), atMost, 1, true, false},
		{math.NaN(), atLeast, 1, false, false},
	} {
		if got := met(c.value, c.op, c.limit, c.timed); got != c.want {
			t.Errorf("%v %s %v, timed %v: met %v", c.value, c.op, c.limit, c.timed, got)
		}
	}
}

func TestRoundsAreABBA(t *testing.T) {
	var order strings.Builder
	a := func() (float64, error) { order.WriteByte('A'); return 2, nil }
	b := func() (float64, error) { order.WriteByte('B'); return 4, nil }
	quiet := func() func() bool { return func() bool { return true } }
	rounds, err := abba(plan{rounds: 2, extra: 2}, quiet, a, b)
	if err != nil || order.String() != "ABBAABBA" || len(rounds) != 2 {
		t.Fatalf("%s, %d rounds, %v", order.String(), len(rounds), err)
	}
	if got := ratios(rounds, func(v float64) float64 { return v }); got[0] != .5 || got[1] != .5 {
		t.Fatalf("ratios %v", got)
	}
	order.Reset()
	if _, err := abba(plan{rounds: 1, short: true}, quiet, a, b); err != nil || order.String() != "AB" {
		t.Fatalf("a short round is %s, %v", order.String(), err)
	}
	broken := errors.New("broken")
	if _, err := abba(plan{rounds: 1}, quiet, a, func() (float64, error) { return 0, broken }); !errors.Is(err, broken) {
		t.Fatalf("the error of a side is lost: %v", err)
	}
}

// More than two sides go there and back.
func TestTurnsGoThereAndBack(t *testing.T) {
	var order strings.Builder
	var sides []func() (byte, error)
	for _, c := range []byte("ABC") {
		sides = append(sides, func() (byte, error) { order.WriteByte(c); return c, nil })
	}
	quiet := func() func() bool { return func() bool { return false } }
	rounds, err := turns(plan{rounds: 1}, quiet, sides...)
	if err != nil || order.String() != "ABCCBA" || len(rounds) != 1 || !rounds[0].disturbed {
		t.Fatalf("%s, %+v, %v", order.String(), rounds, err)
	}
	for i, got := range rounds[0].sides {
		if want := strings.Repeat("ABC"[i:i+1], 2); string(got) != want {
			t.Errorf("side %d gave %q, not %q", i, got, want)
		}
	}
	order.Reset()
	if _, err := turns(plan{rounds: 1, short: true}, quiet, sides...); err != nil || order.String() != "ABC" {
		t.Errorf("a short round is %s, %v", order.String(), err)
	}
}

// A drift that is the same for each run does not show in a round's ratio.
func TestABBACancelsDrift(t *testing.T) {
	drift := 0.0
	side := func(v float64) func() (float64, error) {
		return func() (float64, error) { drift += .1; return v + drift, nil }
	}
	rounds, err := abba(plan{rounds: 3}, func() func() bool { return func() bool { return true } }, side(1), side(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range ratios(rounds, func(v float64) float64 { return v }) {
		if math.Abs(r-1) > 1e-9 {
			t.Fatalf("equal sides have ratio %v", r)
		}
	}
}

func TestDisturbedRoundsAreRepeatedAndMarked(t *testing.T) {
	one := func() (float64, error) { return 1, nil }
	run := func(p plan, quiet ...bool) (rounds []round[float64], watched int) {
		rounds, err := abba(p, func() func() bool {
			return func() bool { watched++; return quiet[(watched-1)%len(quiet)] }
		}, one, one)
		if err != nil {
			t.Fatal(err)
		}
		return rounds, watched
	}
	disturbed := func(rounds []round[float64]) (n int) {
		for _, r := range rounds {
			if r.disturbed {
				n++
			}
		}
		return n
	}
	if rounds, n := run(plan{rounds: 3, extra: 3}, false, true); len(rounds) != 3 || n != 6 || disturbed(rounds) != 0 {
		t.Errorf("%d rounds of %d, %d disturbed", len(rounds), n, disturbed(rounds))
	}
	if rounds, n := run(plan{rounds: 3, extra: 2}, false); len(rounds) != 3 || n != 5 || disturbed(rounds) != 3 {
		t.Errorf("%d rounds of %d, %d disturbed", len(rounds), n, disturbed(rounds))
	}
	if rounds, n := run(plan{rounds: 2}, true, false); len(rounds) != 2 || n != 2 || disturbed(rounds) != 1 {
		t.Errorf("%d rounds of %d, %d disturbed", len(rounds), n, disturbed(rounds))
	}
}

func TestQuiet(t *testing.T) {
	at := time.Unix(0, 0)
	second := func(total, ours, steal time.Duration) bool {
		return quiet(busy{at: at}, busy{at: at.Add(time.Second), total: total, ours: ours, steal: steal})
	}
	for _, c := range []struct {
		total, ours, steal time.Duration
		want               bool
	}{
		{2 * time.Second, 2 * time.Second, 0, true},
		{1100 * time.Millisecond, time.Second, 0, true},
		{1500 * time.Millisecond, time.Second, 0, false},
		{time.Second, time.Second, 100 * time.Millisecond, false},
	} {
		if got := second(c.total, c.ours, c.steal); got != c.want {
			t.Errorf("everybody %v, we %v, steal %v: quiet is %v", c.total, c.ours, c.steal, got)
		}
	}
}

// What this process does itself is no other load.
func TestOwnWorkIsOurs(t *testing.T) {
	before := loadWatch{}.now()
	if !before.ok {
		t.Skip("no /proc/stat here")
	}
	// How long it takes until this process has worked for half a second is up to others.
	after := before
	for guard := time.Now().Add(5 * time.Minute); after.ours-before.ours < 500*time.Millisecond; after = (loadWatch{}).now() {
		if time.Now().After(guard) {
			t.Fatalf("5 minutes of work are counted as %v", after.ours-before.ours)
		}
	}
	// The system counts ticks: of each kind of work the last one may be missing, and whoever
	// works at a tick has worked since the one before.
	if total := after.total - before.total; total < 300*time.Millisecond {
		t.Errorf("we did 500 ms, everybody together %v", total)
	}
}

func TestBestSettingIsFastAndCheap(t *testing.T) {
	all := []tried{
		{settings: settings{1, 1}, cpu: .1, wall: 3}, // cheap because it is slow
		{settings: settings{1, 2}, cpu: .4, wall: 1.1},
		{settings: settings{2, 2}, cpu: .3, wall: 1.2},
		{settings: settings{2, 4}, cpu: .5, wall: 1},
		{settings: settings{4, 4}, err: errors.New("refused")},
	}
	if got, ok := choose(all); !ok || got != (settings{2, 2}) {
		t.Errorf("chose %v, %v", got, ok)
	}
	if _, ok := choose(all[4:]); ok {
		t.Error("chose a setting that does not work")
	}
}
