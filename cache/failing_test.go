package cache

import (
	"sync"
	"testing"
)

// A fill that fails while whoever runs it still works on it: neither the bytes
// nor the note that it writes are looked at.
func TestFailBesideNote(t *testing.T) {
	c, err := New(Options{MemoryBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range uint32(200) {
		var r Reservation
		var l Lease
		if !c.TryReserve(100, &r) {
			t.Fatal("no memory")
		}
		_, f := c.Acquire(Key{Chunk: i}, 100, &r, &l)
		var wg sync.WaitGroup
		wg.Go(func() {
			f.Buf()
			f.Note(t, 10)
			f.Done()
		})
		wg.Go(func() { f.Fail(nil) })
		wg.Wait()
		l.Release()
		r.Release()
	}
}
