package explore_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// effort is how much is done by make test, by make check, and in the long run;
// SEGTIER_STATES says it by number.
func effort(test, check, soak int) int {
	n, err := strconv.Atoi(os.Getenv("SEGTIER_STATES"))
	switch {
	case err == nil:
		return n
	case os.Getenv("SEGTIER_SOAK") != "":
		return soak
	case os.Getenv("SEGTIER_GATEWAY") == "required":
		return check
	}
	return test
}

func nothing(*world) {}

// everything that can become of a call.
func everything() []turn { return []turn{failed, lost, stale, ancient, late, lie, blind} }

// exhaustive are the scenarios in which every schedule is followed, by make test if
// quick, else in the long run. The short run follows some of the others.
func exhaustive() []scenario {
	leaders := []actor{copies("leader 1", leader(1), 0), copies("leader 2", leader(2), 0)}
	same := []actor{copies("leader 1", leader(1), 0), copies("leader 1 again", leader(1), 0)}
	twice := []actor{retires("retention 1", leader(1)), retires("retention 2", leader(2))}
	return append([]scenario{
		{name: "two leaders", quick: true, setup: nothing, copies: 1, actors: leaders},
		{name: "two leaders, a fault", setup: nothing, copies: 1, faults: 1, turns: everything(), actors: leaders},
		{name: "two leaders, a crash", setup: nothing, copies: 1, crashes: 1, actors: leaders},
		{name: "two of one leader epoch", quick: true, setup: nothing, copies: 1, actors: same},
		{name: "two of one leader epoch, a fault", setup: nothing, copies: 1, faults: 1, turns: everything(), actors: same},
		{name: "the first two copies of a prefix", quick: true, setup: nothing, copies: 1, unclaimed: true, actors: leaders},
		{
			name: "two segments at once", setup: nothing, copies: 2,
			actors: []actor{copies("leader", leader(1), 0, 1)},
		},
		{
			name: "two segments at once, a crash or a fault", setup: nothing, copies: 2, faults: 1, crashes: 1, turns: everything(),
			actors: []actor{copies("leader", leader(1), 0, 1)},
		},
		{
			name: "a copy, five faults and crashes", setup: nothing, copies: 1, faults: 3, crashes: 2, turns: everything(),
			actors: []actor{copies("leader", leader(1), 0)},
		},
		{
			name: "retention, five faults and crashes", setup: copied(0), copies: 1, retains: true, faults: 3, crashes: 2, turns: everything(),
			actors: []actor{retires("retention", leader(1))},
		},
		{name: "retention twice", quick: true, setup: copied(0), copies: 1, retains: true, actors: twice},
		{
			name: "retention twice, a crash and a fault", setup: copied(0), copies: 1, retains: true, faults: 1, crashes: 1, turns: everything(),
			actors: twice,
		},
		{
			name: "retention and a newer leader's copy", setup: copied(0), copies: 2, retains: true,
			actors: []actor{retires("retention", leader(1)), copies("leader 2", leader(2), 1)},
		},
		{
			name: "a copy and its deletion", setup: nothing, copies: 1,
			actors: []actor{copies("leader", leader(1), 0), deletes("deleter", leader(1), 0)},
		},
		{
			name: "a copy and its deletion, a crash and a fault", setup: nothing, copies: 1, faults: 1, crashes: 1, turns: everything(),
			actors: []actor{copies("leader", leader(1), 0), deletes("deleter", leader(1), 0)},
		},
		{
			name: "retention and a reader", quick: true, setup: copied(0, 1), copies: 2, retains: true, patient: true,
			actors: []actor{retires("retention", leader(1)), reads("reader", 1, 3, 12)},
		},
		{
			name: "retention and a slow reader", quick: true, setup: copied(0, 1), copies: 2, retains: true,
			actors: []actor{retires("retention", leader(1)), reads("reader", 1<<20, 3)},
		},
		{
			name: "retention and a slow reader, a crash and a fault", setup: copied(0, 1), copies: 2, retains: true, faults: 1, crashes: 1, turns: everything(),
			actors: []actor{retires("retention", leader(1)), reads("reader", 1<<20, 3)},
		},
		{
			name: "a copy, its deletion and a reader", setup: nothing, copies: 1,
			actors: []actor{copies("leader", leader(1), 0), deletes("deleter", leader(1), 0), reads("reader", 1, 3)},
		},
	}, collections()...)
}

// TestEveryOrder follows every schedule.
func TestEveryOrder(t *testing.T) {
	var sum figures
	for _, sc := range exhaustive() {
		t.Run(sc.name, func(t *testing.T) {
			most := effort(200, 3_000, 100_000)
			if sc.quick {
				most = max(most, 10_000)
			}
			f, bad, complete := explore(t, &sc, most)
			t.Logf("%v; all of them: %v", f, complete)
			sum.add(f)
			if bad != nil {
				t.Errorf("%q\n%s", bad.wrong, bad.trace)
			} else if sc.quick && !complete {
				t.Error("not every schedule was followed")
			}
			if f.ends < 2 {
				t.Errorf("only %d ends", f.ends)
			}
		})
	}
	t.Logf("together: %v", sum)
}

// crowds are walked at random: everybody at once, and several things going wrong.
func crowds() []scenario {
	return append([]scenario{
		{
			name: "everybody", setup: copied(0), copies: 3, retains: true, faults: 3, crashes: 3, turns: everything(),
			actors: slices.Concat([]actor{
				copies("leader 1", leader(1), 1, 2), copies("leader 2", leader(2), 1, 2), retires("retention", leader(2)),
				reads("reader 1", 1, 3, 12, 23), reads("reader 2", 1<<20, 12, 3),
			}),
		},
		{
			name: "everybody, patient", setup: copied(0), copies: 3, retains: true, patient: true, faults: 1, crashes: 1, turns: everything(),
			actors: []actor{
				copies("leader 1", leader(1), 1), retires("retention 1", leader(1)), copies("leader 2", leader(2), 1, 2),
				retires("retention 2", leader(2)), reads("reader", 1, 3, 12, 23),
			},
		},
	}, collectedCrowds()...)
}

// TestRandomWalks walks where there are too many schedules, with seeds of its own
// each time that SEGTIER_SEED says so.
func TestRandomWalks(t *testing.T) {
	seeds, from := uint64(effort(40, 500, 10_000)), uint64(1)
	if s := os.Getenv("SEGTIER_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds, from = 1, n
	}
	var sum figures
	for _, sc := range crowds() {
		t.Run(sc.name, func(t *testing.T) {
			f, bad := walk(t, &sc, from, seeds)
			t.Logf("seeds %d to %d: %v", from, from+seeds-1, f)
			sum.add(f)
			if bad != nil {
				t.Errorf("%q\n%s", bad.wrong, bad.trace)
			}
			if uint64(f.ends) != seeds && bad == nil {
				t.Errorf("%d of %d runs came to their end", f.ends, seeds)
			}
		})
	}
	t.Logf("together: %v", sum)
}

// TestReplay runs the schedule of SEGTIER_SCHEDULE, as a failure prints it: the
// scenario's name, a colon, numbers. Without one it runs one of its own, twice.
func TestReplay(t *testing.T) {
	spec := os.Getenv("SEGTIER_SCHEDULE")
	told := spec != ""
	if !told {
		spec = "two leaders: 0 0 0 1 0 0 1 0 1 0 0 1"
	}
	name, numbers, ok := strings.Cut(spec, ":")
	var schedule []int
	for _, f := range strings.Fields(numbers) {
		n, err := strconv.Atoi(f)
		ok = ok && err == nil
		schedule = append(schedule, n)
	}
	if !ok {
		t.Fatalf("SEGTIER_SCHEDULE is %q, want NAME: NUMBERS", spec)
	}
	all := slices.Concat(exhaustive(), crowds())
	for _, g := range guards() {
		all = append(all, g.scenario)
	}
	i := slices.IndexFunc(all, func(s scenario) bool { return s.name == name })
	if i < 0 {
		t.Fatalf("there is no scenario %q", name)
	}
	once, again := replay(t, &all[i], told, schedule), replay(t, &all[i], told, schedule)
	if told {
		t.Logf("%q\n%s", once.wrong, once.trace)
	}
	if fmt.Sprint(once) != fmt.Sprint(again) || once.steps < len(schedule) {
		t.Errorf("the same schedule was another run:\n%s\n%s", once.trace, again.trace)
	}
	if len(once.wrong) > 0 {
		t.Errorf("%q", once.wrong)
	}
}
