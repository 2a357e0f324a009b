package cache

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func arenas(t testing.TB) {
	t.Helper()
	if !offHeap {
		t.Skip("chunks lie on the heap here")
	}
}

func TestSlabSize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(pageSize, 1<<30).Draw(t, "n")
		size := slabSize(n)
		if size < n || size%pageSize != 0 || size > n+max(n/8, pageSize) {
			t.Fatalf("a slab of %d bytes for %d", size, n)
		}
		if slabSize(size) != size {
			t.Fatalf("%d is a size, but %d would be taken for it", size, slabSize(size))
		}
	})
	if slabSize(1<<20) != 1<<20 {
		t.Fatal("a megabyte has waste")
	}
}

// Slabs never overlap, hold what was written, and all go back in the end.
func TestSlabs(t *testing.T) {
	arenas(t)
	rapid.Check(t, func(t *rapid.T) {
		var s slabs
		type held struct {
			slab
			mark byte
		}
		var all []held
		used := func() (n int64) {
			for _, h := range all {
				if h.arena != nil {
					n += int64(h.arena.size)
				}
			}
			return n
		}
		for i, n := range rapid.SliceOfN(rapid.IntRange(1, 1<<20), 1, 200).Draw(t, "sizes") {
			if n%3 == 0 && len(all) > 0 {
				j := n % len(all)
				s.free(all[j].slab, 0)
				all = append(all[:j], all[j+1:]...)
			}
			h := held{s.alloc(n), byte(i)}
			if len(h.buf) != n || cap(h.buf) != n {
				t.Fatalf("%d bytes of %d, want %d", len(h.buf), cap(h.buf), n)
			}
			h.buf[0], h.buf[n-1] = h.mark, h.mark
			all = append(all, h)
			if s.used != used() || s.idle > idleMax || s.mapped < s.used+s.idle {
				t.Fatalf("%d are out, by the books %d; %d idle of %d", used(), s.used, s.idle, s.mapped)
			}
		}
		s.close()
		for _, h := range all {
			if h.buf[0] != h.mark || h.buf[len(h.buf)-1] != h.mark {
				t.Fatal("somebody else wrote into a slab")
			}
			s.free(h.slab, 0)
		}
		if s.mapped != 0 || s.used != 0 || s.idle != 0 || s.arenas != 0 {
			t.Fatalf("%d bytes stay mapped, %d used, %d idle, in %d arenas", s.mapped, s.used, s.idle, s.arenas)
		}
	})
}

// Memory that is free is used again before more is mapped, and what was mapped
// for a burst goes back.
func TestSlabsAreReused(t *testing.T) {
	arenas(t)
	var s slabs
	const mib = 1 << 20
	a := s.alloc(mib)
	at := &a.buf[0]
	s.free(a, 0)
	if a = s.alloc(mib); &a.buf[0] != at {
		t.Fatal("a free slab was not used again")
	}
	s.free(a, 0)
	var burst []slab
	for range 1000 {
		burst = append(burst, s.alloc(mib))
	}
	for _, b := range burst {
		s.free(b, 0)
	}
	if s.mapped > 2*arenaBytes || s.idle > idleMax {
		t.Fatalf("after a burst %d bytes are mapped and %d idle", s.mapped, s.idle)
	}
	s.close()
	if s.mapped != 0 {
		t.Fatalf("%d bytes are mapped after close", s.mapped)
	}
}

// The last lease takes the last arena with it, long after Close.
func TestArenasGoWithTheLastLease(t *testing.T) {
	arenas(t)
	c := open(t, 16)
	var held, other Lease
	get(t, c, key(1, 0), &held)
	get(t, c, key(1, 1), &other)
	other.Release()
	c.Close()
	if !painted(held.Bytes(), key(1, 0)) {
		t.Fatal("Close took the bytes of a lease")
	}
	if mapped, _ := c.slabs.stats(); mapped == 0 {
		t.Fatal("nothing is mapped: the test tests nothing")
	}
	held.Release()
	if mapped, idle := c.slabs.stats(); mapped != 0 || idle != 0 {
		t.Fatalf("%d bytes are mapped after the last lease", mapped)
	}
}

// The memory of a fill that was failed while its read hangs is nobody else's
// until the read has returned, and stays on the books.
func TestMemoryOfAHungReadIsNotReused(t *testing.T) {
	c := open(t, 4)
	var l, other Lease
	f := lead(t, c, key(1, 0), &l)
	hung := f.Buf()
	f.Fail(errors.New("closed"))
	if err := l.Wait(t.Context()); err == nil {
		t.Fatal("a failed fill was there")
	}
	for i := range 32 { // through all the memory that there is
		get(t, c, key(2, i), &other)
		for j := range hung {
			hung[j] = 0xEE
		}
		if !painted(other.Bytes(), key(2, i)) {
			t.Fatal("a hung read wrote into another chunk")
		}
		other.Release()
	}
	if st := check(t, c); st.Detached != size {
		t.Fatalf("the memory of the hung read is not on the books: %+v", st)
	}
	f.Release()
	f.Release()
	if st := check(t, c); st.Detached != 0 {
		t.Fatalf("it is still on the books after the read returned: %+v", st)
	}

	// Failed before anybody took memory: there is nothing to wait for. Who comes late
	// gets memory that nobody sees.
	f = lead(t, c, key(1, 0), &l)
	f.Fail(errors.New("closed"))
	if l.Wait(t.Context()) == nil {
		t.Fatal("a failed fill was there")
	}
	if st := check(t, c); st.Detached != 0 || st.Filling != 0 {
		t.Fatalf("%+v", st)
	}
	mapped := c.slabs.used
	if late := f.Buf(); len(late) != size || c.slabs.used != mapped {
		t.Fatalf("%d bytes, %d of slabs that nobody would give back", len(late), c.slabs.used-mapped)
	}
	check(t, c)
	f.Release()
	c.Close()
	if st := check(t, c); st.Used != 0 || st.Mapped != 0 {
		t.Fatalf("%+v", st)
	}
}

// A fill that is given up without a word fails those who wait for it.
func TestReleaseOfAnUnfinishedFill(t *testing.T) {
	c := open(t, 4)
	var l Lease
	f := lead(t, c, key(1, 0), &l)
	f.Buf()
	f.Release()
	if err := l.Wait(t.Context()); err == nil {
		t.Fatal("there was data")
	}
	f = lead(t, c, key(1, 0), &l)
	paint(f.Buf(), f.Key())
	f.Done()
	f.Release()
	if err := l.Wait(t.Context()); err != nil || !painted(l.Bytes(), key(1, 0)) {
		t.Fatalf("after Done: %v", err)
	}
	l.Release()
	if st := check(t, c); st.Window != size || st.Used != size {
		t.Fatalf("%+v", st)
	}
}

// With the tag, what is freed reads as nonsense and a lease that was forgotten is
// found.
func TestPoisonAndLeaks(t *testing.T) {
	if !poison {
		t.Skip("without the build tag segtier_poison")
	}
	c := open(t, 4)
	var l Lease
	get(t, c, key(1, 0), &l)
	stale := l.Bytes()
	l.Release()
	c.Drop(key(1, 0).Object)
	if offHeap && stale[0] != poisonByte {
		t.Errorf("freed memory reads %x", stale[0])
	}
	func() {
		forgotten := new(Lease)
		get(t, c, key(1, 1), forgotten)
	}()
	for guard := time.Now().Add(5 * time.Minute); time.Now().Before(guard); runtime.Gosched() {
		if runtime.GC(); c.Stats().Leaked == 1 {
			return
		}
	}
	t.Error("a lease that was forgotten was not found")
}

// A leader's failure makes one new leader of all who try again, each time: an
// error is not kept, and is no stampede.
func TestErrorsMakeNoStampede(t *testing.T) {
	c := open(t, 64)
	const callers, failures = 50, 20
	var wg sync.WaitGroup
	var mu sync.Mutex
	led, flying := 0, 0
	for range callers {
		wg.Go(func() {
			for {
				var l Lease
				var r Reservation
				if err := c.Reserve(t.Context(), size, &r); err != nil {
					t.Error(err)
					return
				}
				o, f := c.Acquire(key(1, 0), size, &r, &l)
				r.Release()
				if o == Led {
					mu.Lock()
					led++
					n := led
					if flying++; flying > 1 {
						t.Error("two lead at once")
					}
					mu.Unlock()
					runtime.Gosched()
					paint(f.Buf(), f.Key())
					mu.Lock()
					flying--
					mu.Unlock()
					if n <= failures {
						f.Fail(errors.New("injected"))
						f.Release()
					} else {
						f.Done()
					}
				}
				if l.Wait(t.Context()) != nil {
					continue
				}
				if !painted(l.Bytes(), key(1, 0)) {
					t.Error("wrong bytes")
				}
				l.Release()
				return
			}
		})
	}
	wg.Wait()
	if led != failures+1 {
		t.Fatalf("%d led, want one for each failure and one more", led)
	}
	check(t, c)
}

// What is evicted for somebody who has not come to take it keeps its memory until he does:
// to give it back and have it again would be a fault for each page.
func TestEvictedForWhoComesLater(t *testing.T) {
	arenas(t)
	const chunks, mib = 64, 1 << 20
	c, err := New(Options{MemoryBytes: chunks * mib})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range chunks {
		var r Reservation
		var l Lease
		if !c.TryReserve(mib, &r) {
			t.Fatal("no memory in an empty cache")
		}
		_, f := c.Acquire(Key{Chunk: uint32(i)}, mib, &r, &l)
		f.Buf()
		f.Done()
		l.Release()
	}
	var r Reservation
	if !c.TryReserve(48*mib, &r) {
		t.Fatal("nothing is evicted")
	}
	if _, idle := c.slabs.stats(); idle != 48*mib {
		t.Errorf("%d MiB are kept for the 48 that are reserved", idle/mib)
	}
	r.Release()
}
