package endpoint

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
)

// bindLate has the pieces of a request bound late, and returns the list of which were.
func bindLate(req *ReadRequest) *[]int {
	var order []int
	for i := range req.Pieces {
		req.Pieces[i].Len, req.Pieces[i].Buf = len(req.Pieces[i].Buf), nil
	}
	pieces := req.Pieces
	req.Bind = func(i int) []byte {
		order = append(order, i)
		return make([]byte, pieces[i].Len)
	}
	return &order
}

// Each piece has memory from when its first byte is about to be read, and not
// before; once, however often it is asked for.
func TestMemoryIsBoundAtTheFirstByte(t *testing.T) {
	fault := func(kind storetest.Kind, at int64) storetest.Fault { return storetest.Fault{Kind: kind, At: at} }
	for name, c := range map[string]struct {
		faults []storetest.Fault // of the first GETs
		want   []int             // pieces that are bound when the first GET has ended
		err    error
	}{
		"refused":            {faults: []storetest.Fault{{Kind: storetest.FailBefore, Err: objstore.ErrThrottled}}},
		"the answer is lost": {faults: []storetest.Fault{fault(storetest.FailAfter, 0)}},
		"of another size":    {faults: []storetest.Fault{fault(storetest.WrongSize, 0), fault(storetest.WrongSize, 0)}, err: objstore.ErrCorrupt},
		"another object":     {faults: []storetest.Fault{fault(storetest.WrongIdentity, 0)}, err: objstore.ErrChanged},
		"no answer":          {faults: []storetest.Fault{fault(storetest.Hang, 0)}},
		"cut in a piece":     {faults: []storetest.Fault{fault(storetest.Cut, 150)}, want: []int{0, 1}},
		"cut between":        {faults: []storetest.Fault{fault(storetest.Cut, 100), fault(storetest.Cut, 0)}, want: []int{0, 1}},
		"a wrong piece":      {faults: []storetest.Fault{fault(storetest.Flip, 150)}, want: []int{0, 1}},
		"stalled":            {faults: []storetest.Fault{fault(storetest.Stall, 250)}, want: []int{0, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				data := content(400)
				mem := filled(t, data)
				req := read(data, 100, 100, 100, 100)
				info, err := mem.Stat(t.Context(), "key")
				if err != nil {
					t.Fatal(err)
				}
				req.IfMatch = info.Identity
				order := bindLate(&req)
				var first []int
				e := open(t, storetest.Inject(mem, func(call storetest.Call) storetest.Fault {
					if call.Nth == 2 {
						first = slices.Clone(*order)
					}
					if call.Nth <= len(c.faults) {
						return c.faults[call.Nth-1]
					}
					return storetest.Fault{}
				}), Options{})
				_, err = e.Read(t.Context(), req)
				if c.err != nil {
					if !errors.Is(err, c.err) || len(*order) > 0 {
						t.Errorf("%v, and %v were bound", err, *order)
					}
					return
				}
				if err != nil || !bytes.Equal(bytesOf(req), data) || !slices.Equal(first, c.want) || !slices.Equal(*order, []int{0, 1, 2, 3}) {
					t.Errorf("%v; %v were bound by the first GET, then %v; or other bytes", err, first, *order)
				}
			})
		})
	}
}

// Of a hedged GET too one body alone is read, into memory that is bound once.
func TestAHedgeBindsOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		data := content(1000)
		s := &slowly{after: func(n int) time.Duration { return []time.Duration{30 * time.Millisecond, 25 * time.Millisecond}[n] }}
		e := learned(t, s, data, Options{})
		s.deaf = true // the loser's answer comes all the same
		req := read(data, 400, 600)
		order := bindLate(&req)
		if _, err := e.Read(t.Context(), req); err != nil || !bytes.Equal(bytesOf(req), data) || !slices.Equal(*order, []int{0, 1}) || e.Stats().Hedges != 1 {
			t.Errorf("%v, bound %v, %d hedges; or other bytes", err, *order, e.Stats().Hedges)
		}
	})
}

func TestMemoryOfAnotherLength(t *testing.T) {
	data := content(100)
	e := open(t, filled(t, data), Options{})
	req := read(data, 100)
	bindLate(&req)
	req.Bind = func(int) []byte { return make([]byte, 99) }
	if _, err := e.Read(t.Context(), req); !errors.Is(err, errUnbound) || e.Stats().Gets != 1 {
		t.Errorf("%v after %d GETs", err, e.Stats().Gets)
	}
	req.Bind = nil
	if _, err := e.Read(t.Context(), req); err == nil || e.Stats().Gets != 1 {
		t.Errorf("%v: there is no memory, and nobody to give it", err)
	}
}
