package cache

import (
	"errors"
	"testing"
)

// A fill is abandoned only while nobody waits for it: whoever was in time gets the
// chunk, whoever comes later leads anew, and the memory is nobody's while a read may
// still write to it.
func TestAbandon(t *testing.T) {
	c, err := New(Options{MemoryBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	k := Key{Chunk: 1}
	lead := func(l *Lease) Fill {
		t.Helper()
		var room Reservation
		if !c.TryReserve(1000, &room) {
			t.Fatal("no memory")
		}
		o, f := c.Acquire(k, 1000, &room, l)
		if o != Led {
			t.Fatalf("outcome %d", o)
		}
		return f
	}
	reason := errors.New("nobody wants it")
	var first, second Lease
	f := lead(&first)
	buf := f.Buf()
	if f.Abandon(reason) {
		t.Error("abandoned, though its leader waits")
	}
	first.Release()
	if o, _ := c.Acquire(k, 1000, nil, &second); o != Joined || f.Abandon(reason) {
		t.Errorf("outcome %d; or abandoned, though somebody has joined", o)
	}
	second.Release()
	if !f.Abandon(reason) || f.Abandon(reason) || c.Has(k) {
		t.Error("not abandoned once, with nobody waiting")
	}
	g := lead(&first) // beside the read that still runs
	if &g.Buf()[0] == &buf[0] {
		t.Error("memory that is still written to was given away")
	}
	buf[0] = 1
	f.Done()
	f.Release()
	g.Done()
	if err := first.Wait(t.Context()); err != nil || g.Abandon(reason) {
		t.Errorf("%v; or abandoned what is here", err)
	}
	first.Release()
	if st := c.Stats(); st.Used > 1000 {
		t.Errorf("%+v", st)
	}
}
