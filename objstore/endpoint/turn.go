package endpoint

import (
	"errors"
	"fmt"
)

// Turn is the turn of a Read: it has its slot, and has not begun its GET. It is valid
// until the function that was given it returns, and for one goroutine.
type Turn struct {
	slots  *slots
	want   want
	others bool // its slot is of another tenant's, who waits for the Read too: he pays for no more
	last   bool // it has failed before, and there is no try after this one
}

// Take has the GET carry n bytes more, which are taken from what stream, of the same
// class and tenant, would be given in its turn. It is false if they are more than may be
// in flight now: nobody waits for them. It is false too if the Read has come to the last
// of its tries: whose bytes they are has more of them by himself.
func (t *Turn) Take(n int64, stream uint64) bool {
	return n >= 0 && !t.others && !t.last && t.slots.widen(&t.want, n, stream)
}

// turn asks what to read, if that is to be decided now. w is what the Read has, with what it
// takes along, also if who is asked panics.
func (r *reading) turn(w *want) error {
	if r.req.Turn == nil || r.touched {
		return nil
	}
	t := Turn{r.call.e.slots, *w, w.tenant != r.req.Tenant, r.call.tries.last()}
	defer func() { *w = t.want }()
	off, pieces, err := r.req.Turn(&t)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoTurn, err)
	}
	had := r.size
	r.req.Off, r.req.Pieces = off, pieces
	if err := r.req.validate(); err != nil {
		return fmt.Errorf("%w: %w", errNoTurn, err)
	}
	r.size = r.req.size()
	if taken := t.want.n - w.n; r.size-had > taken {
		return fmt.Errorf("%w: %d bytes are more than the %d waited for and the %d of Turn.Take", errNoTurn, r.size, had, taken)
	}
	if r.size < t.want.n {
		r.call.e.slots.narrow(&t.want, t.want.n-r.size)
	}
	return nil
}

// errNoTurn is permanent: the caller has nothing to read any more.
var errNoTurn = errors.New("there is nothing to read")

// widen takes n bytes more for a request that has its slot, if they are to be had at
// once, and has a stream of the same line and tenant pay for them if it waits for
// anything else.
func (s *slots) widen(w *want, n int64, stream uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.needs[w.lane()] {
		if r := &s.rooms[i]; n > r.bytes-r.taken.bytes {
			return false
		}
	}
	if most := s.perTenant.bytes; w.tenant != "" && most > 0 && n > most-s.tenant(w.tenant).taken.bytes {
		return false
	}
	s.adjust(w, n)
	at := &s.turns
	for _, key := range [...]turnKey{{number: uint64(w.lane())}, {name: w.tenant}, w.leaf(stream)} {
		next := at.children[key]
		if next == nil {
			break
		}
		at = next
	}
	at.charge(n)
	return true
}

// narrow gives n bytes of a request that goes on back.
func (s *slots) narrow(w *want, n int64) {
	s.mu.Lock()
	s.adjust(w, -n)
	s.wake()
	s.mu.Unlock()
}

// adjust changes how many bytes a request has in flight. It needs mu.
func (s *slots) adjust(w *want, n int64) {
	w.n += n
	for _, i := range s.needs[w.lane()] {
		s.rooms[i].taken.bytes += n
	}
	if w.area != nil {
		w.area.taken[w.line].bytes += n
	}
	if w.seat > 0 {
		s.areas.seats[w.seat-1].size += n
	}
	if w.tenant != "" {
		s.tenant(w.tenant).taken.bytes += n
	}
}
