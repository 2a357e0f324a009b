package cache

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// Whatever ristretto mixes up among equal hashes, nobody gets another's bytes
// and no byte is lost.
func TestEqualHashes(t *testing.T) {
	for name, hash := range map[string]func(Key) (uint64, uint64){
		"both equal":    func(Key) (uint64, uint64) { return 7, 9 },
		"key equal":     func(k Key) (uint64, uint64) { return 7, uint64(k.Chunk) + 1 },
		"three buckets": func(k Key) (uint64, uint64) { return uint64(k.Chunk % 3), uint64(k.Chunk) + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t, 32)
			c.hash = hash
			for range 2000 {
				var l Lease
				get(t, c, key(1, rand.IntN(60)), &l)
				l.Release()
				check(t, c)
			}
			c.Close()
			if st := check(t, c); st.Used != 0 {
				t.Fatalf("leaked: %+v", st)
			}
		})
	}
}

// Get, evict, fail, cancel, Drop and Close at once; -race watches.
func TestStorm(t *testing.T) {
	for range 20 * soak() {
		c := open(t, 24)
		if rand.IntN(2) == 0 {
			c.hash = func(k Key) (uint64, uint64) { return uint64(k.Chunk % 5), uint64(k.Chunk) }
		}
		var stop atomic.Bool
		var wg, audit sync.WaitGroup
		audit.Go(func() {
			for !stop.Load() {
				check(t, c)
				runtime.Gosched()
			}
		})
		for range 6 {
			wg.Go(func() {
				var fills sync.WaitGroup
				defer fills.Wait()
				leases := make([]Lease, 3)
				for i := range 300 {
					k := key(rand.IntN(3), rand.IntN(20))
					l := &leases[rand.IntN(len(leases))]
					l.Release()
					var r Reservation
					c.TryReserve(size, &r)
					o, f := c.Acquire(k, size, &r, l)
					r.Release()
					switch o {
					case Missing:
						if i%4 == 0 { // wait, holding nothing
							for j := range leases {
								leases[j].Release()
							}
							if c.Reserve(t.Context(), size, &r) == nil {
								r.Release()
							}
						}
						continue
					case Led:
						fail := rand.IntN(5) == 0
						fills.Go(func() {
							if fail {
								f.Fail(errors.New("injected"))
								return
							}
							paint(f.Buf(), k)
							f.Done()
						})
					}
					ctx, cancel := context.WithCancel(t.Context())
					if rand.IntN(5) == 0 {
						cancel()
					}
					if err := l.Wait(ctx); err == nil && !painted(l.Bytes(), k) {
						t.Error("another chunk's bytes")
					}
					cancel()
					if rand.IntN(100) == 0 {
						c.Drop(k.Object)
					}
				}
				for j := range leases {
					leases[j].Release()
				}
			})
		}
		if rand.IntN(2) == 0 {
			wg.Go(func() { // race with the rest
				for c.Stats().Leads < 100 {
					runtime.Gosched()
				}
				c.Close()
			})
		}
		wg.Wait()
		c.Close()
		stop.Store(true)
		audit.Wait()
		if st := check(t, c); st.Used != 0 || st.Waiting != 0 {
			t.Fatalf("not back to zero: %+v", st)
		}
	}
}

// Ristretto panics when Set or Del races with its Close: the gate keeps them
// apart.
func TestPolicyShutsSafely(t *testing.T) {
	for range 40 * soak() {
		p, err := newPolicy(16*size, func(*entry) {})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for g := range 3 {
			wg.Go(func() {
				for i := range 50 {
					e := &entry{size: size, id: identity(hashes(key(g, i)))}
					if p.offer(e, 16*size) && i%2 == 0 {
						p.forget(e)
					}
				}
			})
		}
		p.shut()
		wg.Wait()
		if p.offer(&entry{size: size, id: identity(1, 2)}, size) {
			t.Fatal("an offer was taken after the end")
		}
	}
}

// TestModel runs random operations one at a time against what must hold of
// them: the ledger holds exactly what is promised, in flight, leased or
// findable; leases keep their bytes; a chunk in flight is never led twice.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 10
		chunks := most
		c, err := New(Options{MemoryBytes: most * size, OnHeap: rapid.Bool().Draw(t, "on heap")})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		type held struct {
			l Lease
			k Key
		}
		var (
			leases []*held
			fills  = map[Key]Fill{}
			hung   []Fill // failed while their reads go on
			r      Reservation
		)
		cursors := [2]*Cursor{c.Announce(Log{}, 0), c.Announce(Log{}, 4)}
		keys := rapid.Custom(func(t *rapid.T) Key {
			return key(rapid.IntRange(1, 2).Draw(t, "object"), rapid.IntRange(0, 8).Draw(t, "chunk"))
		})
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				n := int64(rapid.IntRange(1, most+1).Draw(t, "chunks")) * size
				pinned := map[*entry]bool{}
				for _, h := range leases {
					pinned[h.l.e] = true
				}
				for _, f := range fills {
					pinned[f.e] = true
				}
				before := r.Bytes()
				if got := c.TryReserve(n, &r); got {
					if r.Bytes() != before+n {
						t.Fatalf("reserved %d, want %d", r.Bytes(), before+n)
					}
				} else if int64(len(pinned)+len(hung))*size+before+n <= int64(chunks)*size {
					t.Fatalf("refused %d bytes although there is room: %+v", n, c.Stats())
				}
			},
			"unreserve": func(t *rapid.T) { r.Release() },
			"acquire": func(t *rapid.T) {
				h := &held{k: keys.Draw(t, "key")}
				before := r.Bytes()
				o, f := c.Acquire(h.k, size, &r, &h.l)
				_, flying := fills[h.k]
				switch {
				case flying && o != Joined:
					t.Fatalf("in flight, but %v", o)
				case o == Missing && before >= size:
					t.Fatal("missing although there is a reservation")
				case o == Led:
					if r.Bytes() != before-size {
						t.Fatal("led without paying")
					}
					if rapid.Bool().Draw(t, "placed") {
						f.Place(Place{First: int64(h.k.Chunk), Next: int64(h.k.Chunk) + 1})
					}
					fills[h.k] = f
				case o == Hit && !painted(h.l.Bytes(), h.k):
					t.Fatal("another chunk's bytes")
				}
				if o != Missing {
					leases = append(leases, h)
				}
			},
			"fill": func(t *rapid.T) {
				for k, f := range fills {
					paint(f.Buf(), k)
					f.Done()
					delete(fills, k)
					break
				}
			},
			"budget": func(t *rapid.T) {
				chunks = rapid.IntRange(3, most).Draw(t, "budget")
				if err := c.SetMemoryBytes(int64(chunks) * size); err != nil {
					t.Fatal(err)
				}
			},
			"return": func(t *rapid.T) {
				for _, f := range hung {
					f.Release()
				}
				hung = nil
			},
			"read": func(t *rapid.T) {
				at := int64(rapid.IntRange(0, 8).Draw(t, "at"))
				cursors[rapid.IntRange(0, 1).Draw(t, "who")].Read(at, at+1)
			},
			"fail": func(t *rapid.T) {
				for k, f := range fills {
					if rapid.Bool().Draw(t, "hangs") {
						f.Buf()
						hung = append(hung, f)
					}
					f.Fail(errors.New("injected"))
					delete(fills, k)
					var kept []*held
					for _, h := range leases {
						if h.k == k && h.l.Bytes() == nil && h.l.Wait(context.Background()) != nil {
							continue
						}
						kept = append(kept, h)
					}
					leases = kept
					break
				}
			},
			"release": func(t *rapid.T) {
				if len(leases) > 0 {
					i := rapid.IntRange(0, len(leases)-1).Draw(t, "lease")
					leases[i].l.Release()
					leases = append(leases[:i], leases[i+1:]...)
				}
			},
			"drop": func(t *rapid.T) {
				object := keys.Draw(t, "object").Object
				c.Drop(object)
				// What flew is on its own now; end it, so that the map above stays true.
				for k, f := range fills {
					if k.Object == object {
						paint(f.Buf(), k)
						f.Done()
						delete(fills, k)
					}
				}
			},
			"": func(t *rapid.T) {
				// Above a budget that was lowered is only what somebody holds.
				st := c.Stats()
				held := map[*entry]bool{}
				for _, h := range leases {
					held[h.l.e] = true
				}
				for _, f := range fills {
					held[f.e] = true
				}
				if n := int64(len(held)+len(hung))*size + r.Bytes(); st.Used > max(n, st.Budget) || st.Used < n {
					t.Fatalf("%d bytes are held: %+v", n, st)
				}
				if sum := st.Reserved + st.Filling + st.Window + st.Main + st.Detached; sum != st.Used {
					t.Fatalf("ledger does not add up: %+v", st)
				}
				if st.Reserved != r.Bytes() {
					t.Fatalf("reserved %d, want %d", st.Reserved, r.Bytes())
				}
				for _, h := range leases {
					if b := h.l.Bytes(); b != nil && !painted(b, h.k) {
						t.Fatalf("lease of %v lost its bytes", h.k)
					}
				}
			},
		})
		for _, f := range fills {
			f.Done()
		}
		for _, h := range leases {
			h.l.Release()
		}
		for _, f := range hung {
			f.Release()
		}
		r.Release()
		c.Close()
		if st := check(t, c); st.Used != 0 || st.Mapped != 0 {
			t.Fatalf("not back to zero: %+v", st)
		}
	})
}
