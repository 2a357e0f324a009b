package fetch

import (
	"context"
	"errors"
	"testing"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/objstore/endpoint"
)

// What comes with another's read is hurried with it; and what has been taken along makes
// no GET, though its slot was given to it at the same moment.
func TestTakenAlong(t *testing.T) {
	r, tl := aloft(t)
	var flights [2]*flight
	for c := range flights {
		fill, _, _ := r.lead(tl, c, 0)
		flights[c] = r.newFlight(tl, span{c, c + 1}, []cache.Fill{fill}, whose{class: endpoint.Prefetch})
		flights[c].depart()
		defer fill.Release()
	}
	f, g := flights[0], flights[1]
	var cause error
	g.cancel = func(err error) { cause = err }
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

// What another stream counts on is not called off with who leaves behind it, though its
// own stream has left before.
func TestSharedIsNotCalledOff(t *testing.T) {
	r, tl := aloft(t)
	var flights [3]*flight
	for c := range flights {
		fill, _, _ := r.lead(tl, c, uint64(c+1))
		flights[c] = r.newFlight(tl, span{c, c + 1}, []cache.Fill{fill}, whose{class: endpoint.Prefetch, stream: uint64(c + 1)})
		flights[c].depart()
		defer fill.Release()
	}
	f := flights[0]
	for _, g := range flights[1:] {
		g.cancel = func(error) {}
		f.take(g, len(f.aboard))
	}
	if n := flights[1].callOff(); n != 0 { // somebody waits behind it
		t.Errorf("%d bytes in the middle were called off", n)
	}
	tl.share(1, 7)
	if n := flights[2].callOff(); n != 1000 {
		t.Errorf("%d bytes were called off, want those of the last chunk", n)
	}
	f.alight(errSought, false)
}
