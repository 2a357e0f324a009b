package cache

import "sync"

const (
	pageSize   = 4 << 10
	arenaBytes = 64 << 20 // address space taken at a time, at most
	arenaSlabs = 64       // and slabs
	// idleMax bounds what free slabs keep of the machine's memory: the budget
	// counts what is used. What was promised and not taken yet is kept beside it: to
	// give it back and have it again are 256 faults a MiB.
	idleMax = 16 << 20
	// hugeSlab is from which size on slabs lie in huge pages. They are handed out side
	// by side, so that each size has one page at most that is touched but not full;
	// of smaller ones there are many sizes, with few slabs each.
	hugeSlab = 1 << 20
)

// slab is the memory of one chunk. The zero slab is none.
type slab struct {
	buf   []byte // of the length asked for
	arena *arena // nil: of Go's heap
	index int
}

// arena is memory of the system's, cut into slabs of one size. The garbage collector knows
// nothing of it: a free slab is used again at once, and the process is as large as
// what it holds, not twice that.
type arena struct {
	mem  []byte
	size int // of a slab
	used int
}

// class is the slabs of one size.
type class struct {
	warm []slab // free, and in memory, maybe
	cold []slab // free, and not in memory: never used, or given back
}

// slabs makes and takes back the memory of chunks.
type slabs struct {
	heap bool // all of Go's heap

	mu      sync.Mutex
	classes map[int]*class
	arenas  int
	mapped  int64 // bytes of arenas
	used    int64 // bytes of slabs of arenas that are out
	idle    int64 // bytes of warm slabs
	closed  bool
}

// slabSize rounds a length up to whole pages, with eight sizes between powers of
// two, so that not more than an eighth is lost.
func slabSize(n int) int {
	step := pageSize
	for n > 16*step {
		step *= 2
	}
	return (n + step - 1) / step * step
}

// alloc returns memory of n bytes, with whatever is in it.
func (s *slabs) alloc(n int) slab {
	if s.heap || n < pageSize {
		return slab{buf: make([]byte, n)}
	}
	size := slabSize(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.classes[size]
	if k == nil {
		if s.classes == nil {
			s.classes = make(map[int]*class)
		}
		k = new(class)
		s.classes[size] = k
	}
	if len(k.warm)+len(k.cold) == 0 && !s.grow(k, size) {
		return slab{buf: make([]byte, n)} // the system has no more mappings for us
	}
	from := &k.warm
	if len(*from) == 0 {
		from = &k.cold
	} else {
		s.idle -= int64(size)
	}
	b := (*from)[len(*from)-1]
	*from = (*from)[:len(*from)-1]
	b.arena.used++
	s.used += int64(size)
	b.buf = b.buf[:n:n]
	return b
}

// grow maps another arena. The caller holds mu.
func (s *slabs) grow(k *class, size int) bool {
	n := max(min(arenaBytes/size, arenaSlabs), 1)
	mem, err := mapMemory(n * size)
	if err != nil {
		return false
	}
	if size >= hugeSlab {
		wantHugePages(mem)
	}
	a := &arena{mem: mem, size: size}
	for i := n - 1; i >= 0; i-- {
		k.cold = append(k.cold, slab{arena: a, index: i, buf: mem[i*size : (i+1)*size : (i+1)*size]})
	}
	s.arenas++
	s.mapped += int64(len(mem))
	return true
}

// free takes back what alloc gave. Nobody may read or write it any more. So many bytes
// are due: they will be asked for, and free slabs are kept for them.
func (s *slabs) free(b slab, due int64) {
	if b.buf == nil {
		return
	}
	if poison {
		for i := range b.buf {
			b.buf[i] = poisonByte
		}
	}
	a := b.arena
	if a == nil {
		return
	}
	b.buf = a.mem[b.index*a.size : (b.index+1)*a.size : (b.index+1)*a.size]
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.classes[a.size]
	a.used--
	s.used -= int64(a.size)
	if s.idle+int64(a.size) <= idleMax+due && !s.closed {
		s.idle += int64(a.size)
		k.warm = append(k.warm, b)
	} else {
		releaseMemory(b.buf)
		k.cold = append(k.cold, b)
	}
	// One arena that is free may stay, so that the border is not a place to thrash.
	if a.used == 0 && (s.closed || (len(k.warm)+len(k.cold))*a.size >= 2*len(a.mem)) {
		s.unmap(k, a)
	}
}

// unmap gives an arena of which nothing is used back to the system. The caller
// holds mu.
func (s *slabs) unmap(k *class, a *arena) {
	others := func(list []slab) []slab {
		kept := list[:0]
		for _, b := range list {
			if b.arena != a {
				kept = append(kept, b)
			}
		}
		clear(list[len(kept):])
		return kept
	}
	warm := len(k.warm)
	k.warm, k.cold = others(k.warm), others(k.cold)
	s.idle -= int64(warm-len(k.warm)) * int64(a.size)
	s.arenas--
	s.mapped -= int64(len(a.mem))
	unmapMemory(a.mem)
	a.mem = nil
}

// close gives back what is free now, and the rest as it becomes free.
func (s *slabs) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, k := range s.classes {
		for {
			var empty *arena
			for _, list := range [][]slab{k.warm, k.cold} {
				for _, b := range list {
					if b.arena.used == 0 {
						empty = b.arena
					}
				}
			}
			if empty == nil {
				break
			}
			s.unmap(k, empty)
		}
	}
}

func (s *slabs) stats() (mapped, idle int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mapped, s.idle
}
