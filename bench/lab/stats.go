package main

import (
	"math"
	"slices"
)

// noise is the band within which two figures that come out of a clock are equal.
const noise = 0.05

// median returns the middle of v, NaN of nothing.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// spread returns how far the middle half of v lies apart, as a share of the
// median; 0 if that says nothing.
func spread(v []float64) float64 {
	m := median(v)
	if len(v) < 3 || m == 0 || math.IsNaN(m) {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return (s[(3*len(s))/4] - s[len(s)/4]) / math.Abs(m)
}

// op is how a figure compares with its reach.
type op string

const (
	atMost  op = "<="
	atLeast op = ">="
)

// met reports whether value reaches limit. timed figures have the noise band,
// counted ones do not.
func met(value float64, o op, limit float64, timed bool) bool {
	if math.IsNaN(value) {
		return false
	}
	band := 0.0
	if timed {
		band = noise
	}
	if o == atLeast {
		return value >= limit*(1-band)
	}
	return value <= limit*(1+band)
}

// round is one A B B A, or A B when short.
type round[R any] struct {
	a, b      []R
	disturbed bool
}

// ratio returns the mean of f over A by that over B.
func (r round[R]) ratio(f func(R) float64) float64 {
	return mean(r.a, f) / mean(r.b, f)
}

func mean[R any](all []R, f func(R) float64) float64 {
	sum := 0.0
	for _, r := range all {
		sum += f(r)
	}
	return sum / float64(len(all))
}

// ratios returns the ratio of each round.
func ratios[R any](rounds []round[R], f func(R) float64) []float64 {
	out := make([]float64, len(rounds))
	for i, r := range rounds {
		out[i] = r.ratio(f)
	}
	return out
}

// plan is how rounds are run.
type plan struct {
	rounds int  // that count
	extra  int  // more, to take the place of disturbed ones
	short  bool // A B instead of A B B A
}

// abba runs rounds of A B B A.
func abba[R any](p plan, quiet func() func() bool, a, b func() (R, error)) ([]round[R], error) {
	all, err := turns(p, quiet, a, b)
	rounds := make([]round[R], len(all))
	for i, t := range all {
		rounds[i] = round[R]{a: t.sides[0], b: t.sides[1], disturbed: t.disturbed}
	}
	return rounds, err
}

// turn is one round of any number of sides.
type turn[R any] struct {
	sides     [][]R
	disturbed bool
}

// turns runs rounds of all sides one after the other and back, A B C C B A, so that what
// drifts concerns them alike. quiet begins to watch for other load and returns what
// tells, at the end of the round, that there was none. A disturbed round is run again as
// long as there are extra ones; after that it counts, and is marked.
func turns[R any](p plan, quiet func() func() bool, sides ...func() (R, error)) ([]turn[R], error) {
	var order []int
	for i := range sides {
		order = append(order, i)
	}
	if !p.short {
		for i := range sides {
			order = append(order, len(sides)-1-i)
		}
	}
	var good, bad []turn[R]
	for len(good) < p.rounds && len(good)+len(bad) < p.rounds+p.extra {
		t := turn[R]{sides: make([][]R, len(sides))}
		undisturbed := quiet()
		for _, i := range order {
			got, err := sides[i]()
			if err != nil {
				return nil, err
			}
			t.sides[i] = append(t.sides[i], got)
		}
		if t.disturbed = !undisturbed(); t.disturbed {
			bad = append(bad, t)
		} else {
			good = append(good, t)
		}
	}
	missing := p.rounds - len(good)
	return append(good, bad[len(bad)-missing:]...), nil
}
