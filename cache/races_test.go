package cache

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// colliding returns keys that the tables cannot tell apart by their hash.
func colliding(i int) Key {
	var k Key
	binary.LittleEndian.PutUint64(k.Object[:], uint64(i))
	binary.LittleEndian.PutUint64(k.Object[8:], bits.RotateLeft64(uint64(i), 32))
	return k
}

// Get racing evict racing Drop racing a change of the budget racing Close, on keys
// of equal hashes in the tables and in ristretto: it never panics, never serves
// another key's bytes, never leaks.
func TestGetEvictClose(t *testing.T) {
	if a, b := colliding(1), colliding(2); hashOf(&a) != hashOf(&b) {
		t.Fatal("the hashes differ: the test tests less than it says")
	}
	for range 1000 * soak() {
		c, err := New(Options{MemoryBytes: 6 * size})
		if err != nil {
			t.Fatal(err)
		}
		c.hash = func(Key) (uint64, uint64) { return 7, 9 }
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				var leases [2]Lease
				cur := c.Announce(Log{}, int64(rand.IntN(10)))
				defer cur.Close()
				for range 20 {
					k := colliding(rand.IntN(10))
					l := &leases[rand.IntN(len(leases))]
					var r Reservation
					c.TryReserve(size, &r)
					o, f := c.Acquire(k, size, &r, l)
					r.Release()
					switch o {
					case Missing:
						continue
					case Led:
						b := f.Buf()
						f.Place(Place{First: int64(k.Object[0]), Next: int64(k.Object[0]) + 1})
						paint(b, k)
						if rand.IntN(8) == 0 {
							f.Fail(errors.New("injected"))
						} else {
							f.Note(t, 8)
							f.Done()
						}
						f.Release()
					case Hit, Joined:
					}
					cur.Read(int64(k.Object[0]), int64(k.Object[0])+1)
					if l.Wait(t.Context()) == nil && !painted(l.Bytes(), k) {
						t.Error("another key's bytes")
						return
					}
				}
				for i := range leases {
					leases[i].Release()
				}
			})
		}
		for range rand.IntN(3) {
			runtime.Gosched()
			check(t, c)
		}
		c.Drop(colliding(rand.IntN(10)).Object)
		c.Close()
		wg.Wait()
		if st := check(t, c); st.Used != 0 || st.Chunks != 0 || st.Mapped != 0 {
			t.Fatalf("not back to zero: %+v", st)
		}
		for i := range c.logs {
			for _, lc := range c.logs[i].logs {
				if n := lc.held.Load(); n != 0 {
					t.Fatalf("%d chunks of a log were not counted off", n)
				}
			}
		}
	}
}

// Readers that take no lock find what is there while others insert, remove and
// rehash.
func TestTable(t *testing.T) {
	var s shard
	s.tab.Store(newTable(16))
	entries := make([]*entry, 500)
	for i := range entries {
		k := key(1, i)
		if i%4 == 0 {
			k = colliding(i)
		}
		entries[i] = &entry{key: k, hash: hashOf(&k)}
	}
	stays := func(i int) bool { return i%5 == 0 }
	s.mu.Lock()
	for i, e := range entries {
		if stays(i) {
			s.put(e)
		}
	}
	s.mu.Unlock()
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !stop.Load() {
				for i, e := range entries {
					// It may miss what was moved to a new table just now: then the lock decides.
					got := s.tab.Load().find(&e.key, e.hash)
					if got == nil && stays(i) {
						s.mu.Lock()
						got = s.tab.Load().find(&e.key, e.hash)
						s.mu.Unlock()
					}
					if got != nil && got != e || got == nil && stays(i) {
						t.Errorf("key %d: found %p, want %p", i, got, e)
						return
					}
				}
			}
		})
	}
	here := map[int]bool{}
	for range 20_000 {
		i := rand.IntN(len(entries))
		if stays(i) {
			continue
		}
		s.mu.Lock()
		if here[i] {
			s.remove(entries[i])
		} else {
			s.put(entries[i])
		}
		here[i] = !here[i]
		s.mu.Unlock()
	}
	stop.Store(true)
	wg.Wait()
	n := 0
	for range s.each {
		n++
	}
	want := 0
	for i := range entries {
		if stays(i) || here[i] {
			want++
		}
	}
	if n != want || s.live != want || 2*s.used > len(s.tab.Load().slots) {
		t.Fatalf("%d entries, by its count %d, want %d; %d of %d slots are used", n, s.live, want, s.used, len(s.tab.Load().slots))
	}
}
