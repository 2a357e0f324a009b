package cache

import "testing"

// lead leads a chunk out of a reservation of its own.
func lead(t testing.TB, c *Cache, k Key, l *Lease) Fill {
	t.Helper()
	var r Reservation
	if !c.TryReserve(size, &r) {
		t.Fatalf("no room: %+v", c.Stats())
	}
	defer r.Release()
	o, f := c.Acquire(k, size, &r, l)
	if o != Led {
		t.Fatalf("outcome %d, want to lead", o)
	}
	return f
}

func TestNoteComesAndGoesWithItsChunk(t *testing.T) {
	type batches struct{ at [8]int32 }
	const bytes = 64
	c := open(t, 8)
	want := &batches{at: [8]int32{100, 200}}
	var leader, joiner, late Lease
	f := lead(t, c, key(1, 0), &leader)
	c.Acquire(key(1, 0), size, nil, &joiner)
	paint(f.Buf(), f.Key())
	f.Note(want, bytes)
	if leader.Note() != nil {
		t.Fatal("a note before its bytes")
	}
	f.Done()
	for _, l := range []*Lease{&leader, &joiner} {
		if err := l.Wait(t.Context()); err != nil || l.Note() != any(want) {
			t.Fatalf("note %v, error %v", l.Note(), err)
		}
	}
	c.Acquire(key(1, 0), size, nil, &late)
	if late.Note() != any(want) {
		t.Fatal("a hit has no note")
	}
	if st := check(t, c); st.Used != size+bytes {
		t.Fatalf("%d bytes are used, want those of chunk and note: %+v", st.Used, st)
	}
	allocs := testing.AllocsPerRun(1000, func() {
		c.Acquire(key(1, 0), size, nil, &late)
		if late.Note().(*batches).at[1] != 200 {
			t.Fatal("another note")
		}
		late.Release()
	})
	if allocs != 0 && !poison {
		t.Fatalf("%v allocations to read a note", allocs)
	}
	late.Release()
	leader.Release()
	joiner.Release()
	c.Close()
	if st := check(t, c); st.Used != 0 {
		t.Fatalf("the note is still on the books: %+v", st)
	}
}

// What is held is more important than a note about it; what nobody holds is not.
func TestNoteNeedsRoom(t *testing.T) {
	c := open(t, 2)
	var a, b Lease
	get(t, c, key(1, 0), &a)
	f := lead(t, c, key(1, 1), &b)
	paint(f.Buf(), f.Key())
	f.Note(new(int), 8)
	f.Done()
	if err := b.Wait(t.Context()); err != nil || b.Note() != nil || !painted(b.Bytes(), key(1, 1)) {
		t.Fatalf("note %v, error %v", b.Note(), err)
	}
	if st := check(t, c); st.Used != 2*size {
		t.Fatalf("%+v", st)
	}
	a.Release()
	b.Release()

	get(t, c, key(1, 2), &a)
	a.Release()
	f = lead(t, c, key(1, 3), &b) // one is evicted for it, the other for the note
	f.Note(new(int), 8)
	f.Done()
	if st := check(t, c); b.Wait(t.Context()) != nil || b.Note() == nil || st.Used != size+8 {
		t.Fatalf("note %v: %+v", b.Note(), st)
	}
	b.Release()
}

// A note on a fill that came to nothing costs nothing.
func TestNoteOfALostFill(t *testing.T) {
	c := open(t, 4)
	var dropped, failed Lease
	f := lead(t, c, key(1, 0), &dropped)
	f.Note(new(int), 8)
	c.Drop(key(1, 0).Object)
	f.Done()
	if err := dropped.Wait(t.Context()); err != nil || dropped.Note() != nil {
		t.Fatalf("note %v, error %v", dropped.Note(), err)
	}
	dropped.Release()
	f = lead(t, c, key(2, 0), &failed)
	f.Note(new(int), 8)
	f.Fail(t.Context().Err())
	if failed.Wait(t.Context()) == nil {
		t.Fatal("a failed fill was there")
	}
	if st := check(t, c); st.Used != 0 {
		t.Fatalf("%+v", st)
	}
}
