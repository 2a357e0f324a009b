package cache

import (
	"testing"

	"github.com/dgraph-io/ristretto/v2"
)

// BenchmarkLease compares a hot lease, in the window and in the main region,
// with a bare ristretto.Get of the same run: the measure is the ratio.
func BenchmarkLease(b *testing.B) {
	const chunks = 256
	bare, err := ristretto.NewCache(&ristretto.Config[uint64, []byte]{
		NumCounters: chunks * 10, MaxCost: chunks * 2, BufferItems: 64, IgnoreInternalCost: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer bare.Close()
	for i := range uint64(chunks) {
		bare.Set(i, make([]byte, 1), 1)
	}
	bare.Wait()

	c := open(b, 8*chunks)
	for i := range 3 * chunks { // the first third is in main
		var l Lease
		get(b, c, key(1, i), &l)
		l.Release()
	}
	c.policy.rc.Wait()

	lease := func(from int) func(*testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			var l Lease
			for i := 0; b.Loop(); i++ {
				if o, _ := c.Acquire(key(1, from+i%chunks), size, nil, &l); o != Hit {
					b.Fatal(o)
				}
				l.Release()
			}
		}
	}
	b.Run("ristretto.Get", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, ok := bare.Get(uint64(i % chunks)); !ok {
				b.Fatal("miss")
			}
		}
	})
	b.Run("window", lease(2*chunks))
	b.Run("main", lease(0))
	b.Run("ristretto.Get-parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				bare.Get(uint64(i % chunks))
			}
		})
	})
	b.Run("window-parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			var l Lease
			for i := 0; pb.Next(); i++ {
				if o, _ := c.Acquire(key(1, 2*chunks+i%chunks), size, nil, &l); o != Hit {
					b.Fatal(o)
				}
				l.Release()
			}
		})
	})
}

func TestLeaseDoesNotAllocate(t *testing.T) {
	if poison {
		t.Skip("who looks for leaks allocates")
	}
	c := open(t, 16)
	var l Lease
	get(t, c, key(1, 0), &l)
	l.Release()
	if n := testing.AllocsPerRun(1000, func() {
		c.Acquire(key(1, 0), size, nil, &l)
		_ = l.Wait(t.Context())
		l.Release()
	}); n != 0 {
		t.Fatalf("%v allocations for a hot lease", n)
	}
}
