package cache

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/segtier/segtier/internal/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soak multiplies the work of stress tests.
func soak() int {
	if n, err := strconv.Atoi(os.Getenv("SEGTIER_SOAK")); err == nil && n > 0 {
		return 50 * n
	}
	return 1
}

const size = 4096

func key(object, chunk int) Key {
	var k Key
	binary.BigEndian.PutUint64(k.Object[8:], uint64(object))
	k.Chunk = uint32(chunk)
	return k
}

// paint writes what only this key's bytes look like.
func paint(b []byte, k Key) {
	for i := range b {
		b[i] = byte(i) ^ k.Object[15] ^ byte(k.Chunk)*31
	}
	binary.BigEndian.PutUint32(b, k.Chunk)
	copy(b[4:], k.Object[:])
}

func painted(b []byte, k Key) bool {
	want := make([]byte, len(b))
	paint(want, k)
	return bytes.Equal(b, want)
}

func open(t testing.TB, chunks int) *Cache {
	t.Helper()
	c, err := New(Options{MemoryBytes: int64(chunks) * size})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// get leases a chunk, filling it if it is absent.
func get(t testing.TB, c *Cache, k Key, l *Lease) Outcome {
	t.Helper()
	var r Reservation
	o, f := c.Acquire(k, size, nil, l)
	if o == Missing {
		if err := c.Reserve(t.Context(), size, &r); err != nil {
			t.Fatal(err)
		}
		defer r.Release()
		o, f = c.Acquire(k, size, &r, l)
	}
	if o == Led {
		paint(f.Buf(), k)
		f.Done()
	}
	if err := l.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !painted(l.Bytes(), k) {
		t.Fatalf("chunk %v holds other bytes", k)
	}
	return o
}

// resident returns the entry of a key.
func resident(c *Cache, k Key) *entry {
	h := hashOf(&k)
	return c.shardOf(h).tab.Load().find(&k, h)
}

// check asserts that the ledger adds up.
func check(t interface{ Fatalf(string, ...any) }, c *Cache) Stats {
	st := c.Stats()
	if sum := st.Reserved + st.Filling + st.Window + st.Main + st.Detached; sum != st.Used {
		t.Fatalf("ledger does not add up: %+v", st)
	}
	if st.Bound < 0 || st.Bound > st.Filling {
		t.Fatalf("memory is taken for what is not to come: %+v", st)
	}
	if st.Used > st.Budget || st.Reserved < 0 || st.Filling < 0 || st.Window < 0 || st.Main < 0 || st.Detached < 0 {
		t.Fatalf("ledger is impossible: %+v", st)
	}
	return st
}

func TestOptions(t *testing.T) {
	if _, err := New(Options{MemoryBytes: -1}); err == nil {
		t.Fatal("a negative budget was accepted")
	}
	c, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.MemoryBytes() != DefaultMemoryBytes() {
		t.Fatalf("budget %d, want the default", c.MemoryBytes())
	}
}

func TestHitJoinLead(t *testing.T) {
	c := open(t, 8)
	k := key(1, 2)
	var r Reservation
	var leader, joiner, late Lease

	if o, _ := c.Acquire(k, size, &r, &leader); o != Missing {
		t.Fatalf("without a reservation: %v", o)
	}
	if !c.TryReserve(2*size, &r) {
		t.Fatal("an empty cache has no room")
	}
	o, f := c.Acquire(k, size, &r, &leader)
	if o != Led || r.Bytes() != size {
		t.Fatalf("first caller: %v, %d bytes left of its reservation", o, r.Bytes())
	}
	if o, _ := c.Acquire(k, size, &r, &joiner); o != Joined || r.Bytes() != size {
		t.Fatalf("second caller: %v", o)
	}
	if joiner.Bytes() != nil {
		t.Fatal("bytes before they are there")
	}
	paint(f.Buf(), k)
	f.Done()
	f.Fail(errors.New("too late")) // only the first call counts
	if err := joiner.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := leader.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o, _ := c.Acquire(k, size, nil, &late); o != Hit {
		t.Fatalf("after the fill: %v", o)
	}
	for _, l := range []*Lease{&leader, &joiner, &late} {
		if !painted(l.Bytes(), k) {
			t.Fatal("wrong bytes")
		}
		l.Release()
		l.Release() // idempotent
	}
	if resident(c, k).leased() {
		t.Fatal("still leased after all were released")
	}
	r.Release()
	r.Release()
	if st := check(t, c); st.Used != size || st.Window != size || st.Leads != 1 || st.Joins != 1 || st.Hits != 1 {
		t.Fatalf("%+v", st)
	}
}

// A caller that leaves, even the leader, reaches nobody else; one that comes
// back finds the data.
func TestCancelReachesNobodyElse(t *testing.T) {
	c := open(t, 8)
	k := key(1, 0)
	var r Reservation
	var leader, joiner Lease
	c.TryReserve(size, &r)
	_, f := c.Acquire(k, size, &r, &leader)
	c.Acquire(k, size, nil, &joiner)

	gone, cancel := context.WithCancelCause(t.Context())
	why := errors.New("client went away")
	cancel(why)
	if err := leader.Wait(gone); !errors.Is(err, why) {
		t.Fatalf("leader: %v", err)
	}
	if leader.e != nil {
		t.Fatal("a lease that will not be waited for is kept")
	}
	paint(f.Buf(), k)
	f.Done()
	if err := joiner.Wait(t.Context()); err != nil {
		t.Fatalf("joiner: %v", err)
	}
	// Data that is there wins over a context that has ended.
	if o, _ := c.Acquire(k, size, nil, &leader); o != Hit || leader.Wait(gone) != nil {
		t.Fatal("the second try did not find the data")
	}
	leader.Release()
	joiner.Release()
}

// A failed fill fails all who wait, with one error, and is never joined again.
func TestFailureIsNotKept(t *testing.T) {
	c := open(t, 8)
	k := key(1, 0)
	var r Reservation
	var a, b, again Lease
	c.TryReserve(2*size, &r)
	defer r.Release()
	_, f := c.Acquire(k, size, &r, &a)
	c.Acquire(k, size, nil, &b)
	boom := errors.New("boom")
	f.Fail(boom)
	if o, f2 := c.Acquire(k, size, &r, &again); o != Led {
		t.Fatalf("after a failure: %v, want a new leader", o)
	} else {
		paint(f2.Buf(), k)
		f2.Done()
	}
	for _, l := range []*Lease{&a, &b} {
		if err := l.Wait(t.Context()); err != boom {
			t.Fatalf("got %v, want the very error", err)
		}
		if l.Bytes() != nil {
			t.Fatal("a failed lease has bytes")
		}
	}
	if err := a.Wait(t.Context()); err == nil {
		t.Fatal("Wait on an empty lease succeeded")
	}
	if err := again.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	again.Release()
	if st := check(t, c); st.Detached != 0 || st.Filling != 0 || st.Window != size {
		t.Fatalf("%+v", st)
	}
}

func TestReserveIsFIFOAndBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, err := New(Options{MemoryBytes: 4 * size})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var all Reservation
		if err := c.Reserve(t.Context(), 5*size, &all); !errors.Is(err, ErrTooLarge) {
			t.Fatalf("above the budget: %v", err)
		}
		if err := c.Reserve(t.Context(), 4*size, &all); err != nil {
			t.Fatal(err)
		}

		var order []int
		var mu sync.Mutex
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for i, n := range []int64{4, 1, 2, 1} { // the first needs all and is not overtaken
			wg.Go(func() {
				var r Reservation
				ctx := ctx
				if i != 1 {
					ctx = t.Context()
				}
				err := c.Reserve(ctx, n*size, &r)
				mu.Lock()
				defer mu.Unlock()
				if i == 1 {
					if !errors.Is(err, context.Canceled) {
						t.Errorf("cancelled waiter: %v", err)
					}
					return
				}
				if err != nil {
					t.Error(err)
				}
				order = append(order, i)
				r.Release()
			})
			synctest.Wait() // queued in this order
		}
		cancel()
		synctest.Wait()
		var part Reservation
		// Give back piece by piece: nobody may slip past the first.
		all.n -= size
		c.unreserve(size)
		if c.TryReserve(size, &part) {
			t.Error("TryReserve overtook those who wait")
		}
		if st := check(t, c); st.Waiting != 3 {
			t.Errorf("%d wait, want 3", st.Waiting)
		}
		all.Release()
		wg.Wait()
		if fmt.Sprint(order) == "[0 2 3]" || fmt.Sprint(order) == "[0 3 2]" {
			// 2 and 3 fit together and may report in either order.
		} else {
			t.Errorf("served in order %v", order)
		}
		if st := check(t, c); st.Used != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// A waiter that leaves lets those behind it have what it was waiting for.
func TestLeavingTheQueueServesTheNext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, err := New(Options{MemoryBytes: 4 * size})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var held, large, small Reservation
		if !c.TryReserve(2*size, &held) {
			t.Fatal("no room")
		}
		ctx, cancel := context.WithCancel(t.Context())
		left, served := make(chan error, 1), make(chan error, 1)
		go func() { left <- c.Reserve(ctx, 3*size, &large) }()
		synctest.Wait()
		go func() { served <- c.Reserve(t.Context(), size, &small) }()
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("the one that left: %v", err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		small.Release()
		held.Release()
		check(t, c)
	})
}

// Releasing the last lease of a resident chunk is what a waiter needs.
func TestReleaseWakesWaiter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, err := New(Options{MemoryBytes: 2 * size})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var a, b Lease
		get(t, c, key(1, 0), &a)
		get(t, c, key(1, 1), &b)
		granted := false
		var r Reservation
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := c.Reserve(t.Context(), size, &r); err != nil {
				t.Error(err)
			}
			granted = true
		}()
		synctest.Wait()
		if granted {
			t.Error("granted although everything is leased")
		}
		b.Release()
		<-done
		if !painted(a.Bytes(), key(1, 0)) {
			t.Error("a leased chunk was evicted")
		}
		a.Release()
		r.Release()
		check(t, c)
	})
}

func TestEvictionSparesLeases(t *testing.T) {
	c := open(t, 8)
	var pinned Lease
	get(t, c, key(1, 0), &pinned)
	for i := 1; i < 100; i++ {
		var l Lease
		get(t, c, key(1, i), &l)
		l.Release()
		check(t, c)
	}
	if !painted(pinned.Bytes(), key(1, 0)) {
		t.Fatal("the leased chunk changed")
	}
	pinned.Release()
}

// Two readers whose data does not fit together still get what they asked for.
func TestThrashingMakesProgress(t *testing.T) {
	c := open(t, 2)
	var wg sync.WaitGroup
	for reader := range 4 {
		wg.Go(func() {
			for i := range 200 {
				var l Lease
				get(t, c, key(reader, i%5), &l)
				l.Release()
			}
		})
	}
	wg.Wait()
	check(t, c)
}

// Followers a few chunks behind hit, however little each chunk is known: what a
// frequency sketch alone gets wrong.
func TestFollowersHitTheWindow(t *testing.T) {
	c := open(t, 64) // the window holds 16
	miss := 0
	for i := range 1000 {
		for _, behind := range []int{0, 5, 10} {
			if i < behind {
				continue
			}
			var l Lease
			if o := get(t, c, key(1, i-behind), &l); o == Led && behind > 0 {
				miss++
			}
			l.Release()
		}
	}
	if miss > 0 {
		t.Fatalf("%d misses behind the leader", miss)
	}
}

// Chunks that are asked for again and again survive a scan that is many times
// the budget.
func TestPopularSurvivesScan(t *testing.T) {
	c := open(t, 256)
	popular := func() (hits int) {
		for i := range 16 {
			var l Lease
			if get(t, c, key(1, i), &l) == Hit {
				hits++
			}
			l.Release()
		}
		return hits
	}
	scanned := 0
	scan := func(n int) {
		for range n {
			var l Lease
			get(t, c, key(2, scanned), &l)
			l.Release()
			if scanned++; scanned%16 == 0 {
				c.policy.rc.Wait() // ristretto samples and drops when pushed; the test is of the policy
			}
		}
	}
	for range 64 {
		popular()
		scan(2)
	}
	const rounds = 10
	hits := 0
	for range rounds {
		scan(300) // more than the budget: first in, first out would keep none
		hits += popular()
	}
	// A FIFO or LRU scores 0 here, ristretto 1; but it counts through a sync.Pool,
	// which drops at random under -race and leaves .1 to .2.
	if rate := float64(hits) / (rounds * 16); rate < .02 {
		t.Fatalf("hit ratio of popular chunks %.2f", rate)
	} else {
		t.Logf("hit ratio of popular chunks %.2f", rate)
	}
}

func TestDrop(t *testing.T) {
	c := open(t, 16)
	var kept, held, flying Lease
	get(t, c, key(1, 0), &held)
	get(t, c, key(2, 0), &kept)
	var r Reservation
	c.TryReserve(size, &r)
	_, f := c.Acquire(key(1, 1), size, &r, &flying)

	c.Drop(key(1, 0).Object)
	var l Lease
	for chunk := range 2 {
		if o, _ := c.Acquire(key(1, chunk), size, nil, &l); o != Missing {
			t.Fatalf("chunk %d after Drop: %v", chunk, o)
		}
	}
	if o, _ := c.Acquire(key(2, 0), size, nil, &l); o != Hit {
		t.Fatalf("another object was dropped too: %v", o)
	}
	l.Release()
	paint(f.Buf(), f.Key())
	f.Done()
	if err := flying.Wait(t.Context()); err != nil || !painted(flying.Bytes(), key(1, 1)) {
		t.Fatalf("a fill in flight was lost: %v", err)
	}
	if !painted(held.Bytes(), key(1, 0)) {
		t.Fatal("a lease lost its bytes")
	}
	if st := check(t, c); st.Detached != 2*size {
		t.Fatalf("%+v", st)
	}
	flying.Release()
	held.Release()
	kept.Release()
	if st := check(t, c); st.Used != size {
		t.Fatalf("%+v", st)
	}
}

func TestClose(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, err := New(Options{MemoryBytes: 4 * size})
		if err != nil {
			t.Fatal(err)
		}
		var held, flying Lease
		var r, rest Reservation
		get(t, c, key(1, 0), &held)
		c.TryReserve(3*size, &r)
		_, f := c.Acquire(key(1, 1), size, &r, &flying)
		waited := make(chan error)
		go func() { waited <- c.Reserve(context.Background(), 2*size, &rest) }()
		synctest.Wait()

		c.Close()
		c.Close()
		if err := <-waited; !errors.Is(err, ErrClosed) {
			t.Errorf("waiting at Close: %v", err)
		}
		if err := c.Reserve(t.Context(), 1, &rest); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		var l Lease
		if o, _ := c.Acquire(key(1, 0), size, &r, &l); o != Missing {
			t.Errorf("Acquire after Close: %v", o)
		}
		paint(f.Buf(), key(1, 1))
		f.Done()
		if err := flying.Wait(t.Context()); err != nil || !painted(flying.Bytes(), key(1, 1)) || !painted(held.Bytes(), key(1, 0)) {
			t.Errorf("leases did not outlive Close: %v", err)
		}
		held.Release()
		flying.Release()
		r.Release()
		if st := check(t, c); st.Used != 0 || st.Chunks != 0 {
			t.Errorf("not back to zero: %+v", st)
		}
	})
}
