package cache

import (
	"errors"
	"math"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"github.com/segtier/segtier/internal/bubble"
)

func TestMemoryLimit(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	meminfo := file("MemTotal:       16384000 kB\nMemFree:        1 kB\n")
	const machine = 16384000 << 10
	for name, tc := range map[string]struct {
		fs   fstest.MapFS
		want int64
	}{
		"nothing is known": {fstest.MapFS{}, 0},
		"no groups":        {fstest.MapFS{"proc/meminfo": meminfo}, machine},
		"version 2": {fstest.MapFS{
			"proc/meminfo": meminfo, "proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("max\n"), "sys/fs/cgroup/a/memory.max": file("1073741824\n"),
		}, 1 << 30},
		"version 2, the inner one is lower": {fstest.MapFS{
			"proc/meminfo": meminfo, "proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("536870912\n"), "sys/fs/cgroup/a/memory.max": file("1073741824\n"),
		}, 512 << 20},
		"version 2, in a container": {fstest.MapFS{
			"proc/meminfo": meminfo, "proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("268435456"),
		}, 256 << 20},
		"version 2, a path of the host": {fstest.MapFS{
			"proc/meminfo": meminfo, "proc/self/cgroup": file("0::/../../kubepods/x\n"), "sys/fs/cgroup/memory.max": file("268435456"),
		}, 256 << 20},
		"version 1": {fstest.MapFS{
			"proc/meminfo": meminfo, "proc/self/cgroup": file("5:cpu,cpuacct:/x\n3:memory:/docker/1\n0::/\n"),
			"sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": file("134217728\n"),
		}, 128 << 20},
		"version 1, no limit": {fstest.MapFS{
			"proc/meminfo": meminfo, "proc/self/cgroup": file("3:memory:/docker/1\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n"),
		}, machine},
		"nonsense": {fstest.MapFS{
			"proc/meminfo": file("MemTotal: many kB\n"), "proc/self/cgroup": file("::\n0\n0::\n"), "sys/fs/cgroup/memory.max": file("-1"),
		}, 0},
	} {
		if got := memoryLimit(tc.fs); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
	if n := DefaultMemoryBytes(); n < leastDefault {
		t.Errorf("default of %d bytes", n)
	}
}

// A smaller budget is in force at once for what nobody leases, for the rest as it is
// released; nothing is granted above it meanwhile.
func TestSetMemoryBytes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, err := New(Options{MemoryBytes: 16 * size, OnHeap: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var leases [8]Lease
		for i := range 16 {
			var l Lease
			get(t, c, key(1, i), &l)
			if i >= 8 {
				leases[i-8] = l
			} else {
				l.Release()
			}
		}
		var large, small Reservation
		failed, served := make(chan error, 1), make(chan error, 1)
		go func() { failed <- c.Reserve(t.Context(), 12*size, &large) }()
		synctest.Wait()
		go func() { served <- c.Reserve(t.Context(), 3*size, &small) }()
		synctest.Wait()

		if err := c.SetMemoryBytes(-1); err == nil {
			t.Error("a negative budget was accepted")
		}
		if err := c.SetMemoryBytes(4 * size); err != nil {
			t.Error(err)
		}
		if err := <-failed; !errors.Is(err, ErrTooLarge) {
			t.Errorf("who waited for more than there will be: %v", err)
		}
		if st := c.Stats(); st.Used != 8*size || st.Budget != 4*size || c.MemoryBytes() != 4*size {
			t.Errorf("what nobody leases is still there: %+v", st)
		}
		var r Reservation
		if c.TryReserve(size, &r) {
			t.Error("more was granted above the budget")
		}
		for i := range leases {
			if !painted(leases[i].Bytes(), key(1, 8+i)) {
				t.Error("a lease lost its bytes")
			}
			leases[i].Release()
			synctest.Wait()
			if st := c.Stats(); st.Used > max(int64(7-i), 4)*size {
				t.Errorf("%d released, and %d bytes are used", i+1, st.Used)
			}
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		small.Release()
		check(t, c)
		if err := c.SetMemoryBytes(8 * size); err != nil {
			t.Error(err)
		}
		if !c.TryReserve(8*size, &r) {
			t.Error("a larger budget is not in force")
		}
		r.Release()
	})
}

// More than there can be is no other than very much: nothing that is computed from a budget
// overflows.
func TestBoundlessMemory(t *testing.T) {
	c, err := New(Options{MemoryBytes: math.MaxInt64})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, n := range []int64{math.MaxInt64, 4096, math.MaxInt64} {
		if err := c.SetMemoryBytes(n); err != nil {
			t.Fatal(err)
		}
		if n := c.MemoryBytes(); n*forgottenAfter < n {
			t.Errorf("some budgets of %d bytes are less than one", n)
		}
	}
	if g := &c.ledger; g.mainTarget < 0 || g.mainTarget > g.budget {
		t.Errorf("main has %d of %d bytes", g.mainTarget, g.budget)
	}
}

// Of less than nothing nothing is reserved, and nothing led.
func TestLessThanNothing(t *testing.T) {
	c := open(t, 4)
	defer c.Close()
	for _, n := range []int64{-1, math.MinInt64} {
		var r Reservation
		if c.TryReserve(n, &r) || r.Bytes() != 0 {
			t.Errorf("%d bytes were reserved", n)
		}
		if err := c.Reserve(t.Context(), n, &r); err == nil || errors.Is(err, ErrTooLarge) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	var r Reservation
	if !c.TryReserve(2*size, &r) {
		t.Fatal("there is room")
	}
	for _, n := range []int{0, -size} {
		var l Lease
		if o, _ := c.Acquire(key(1, 1), n, &r, &l); o != Missing {
			t.Errorf("a chunk of %d bytes: %v", n, o)
		}
	}
	r.Release()
	check(t, c)
}

// The budget may change while somebody is told that he asks for more than that; the race
// detector looks.
func TestBudgetChangesUnderReserve(t *testing.T) {
	c := open(t, 4)
	defer c.Close()
	var changing sync.WaitGroup
	changing.Go(func() {
		for i := range 100 {
			if err := c.SetMemoryBytes(4096 + int64(i)); err != nil {
				t.Error(err)
			}
		}
	})
	for range 100 {
		var room Reservation
		if err := c.Reserve(t.Context(), 1<<20, &room); !errors.Is(err, ErrTooLarge) {
			t.Fatal(err)
		}
	}
	changing.Wait()
}
