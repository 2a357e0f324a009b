package fetch

import (
	"context"
	"errors"
	"testing"

	"github.com/segtier/segtier/objstore/endpoint"
)

// What comes with another's read is hurried with it; and what has been taken along makes
// no GET, though its slot was given to it at the same moment.
func TestTakenAlong(t *testing.T) {
	tl := new(tail)
	f := &flight{r: new(Reader), t: tl, run: span{0, 1}, urgency: endpoint.NewUrgency(endpoint.Prefetch)}
	g := &flight{t: tl, run: span{1, 2}, urgency: endpoint.NewUrgency(endpoint.Prefetch)}
	var cause error
	g.cancel = func(err error) { cause = err }
	g.limit = 1
	g.self[0] = g
	g.aboard = g.self[:]
	tl.flights = []*flight{f, g}
	f.take(g, 0)
	tl.hurry(1, whose{class: endpoint.BackfillDemand})
	if f.urgency.Class() != endpoint.BackfillDemand {
		t.Errorf("somebody waits for what comes with a read of class %v", f.urgency.Class())
	}
	if _, _, err := g.turn(nil); !errors.Is(err, errTaken) || !errors.Is(cause, errTaken) {
		t.Errorf("%v, %v", err, cause)
	}
	f.alight(context.Canceled, false)
	if _, _, err := g.turn(nil); !errors.Is(err, errTaken) || g.pilot != nil || !errors.Is(g.err, context.Canceled) {
		t.Errorf("its read goes on for %v, which it has not heard of: %v", g.err, err)
	}
}
