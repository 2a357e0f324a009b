package cache

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"sync/atomic"
)

// numShards spreads the locks of those who change something: enough that two
// cores rarely meet, few enough to walk in Drop. A power of two.
const numShards = 64

// shard is the truth of which chunks are here, for its part of the keys. Who
// looks a chunk up takes no lock: an entry that is found is retained, which fails
// if it is being evicted, and one that is missed is looked for again under mu.
type shard struct {
	tab atomic.Pointer[table]

	mu     sync.Mutex
	closed bool
	live   int // entries in tab
	used   int // slots of tab that are not nil: entries and graves
	hits   int64
	joins  atomic.Int64
	leads  int64
	_      [64]byte // its own cache line
}

// table is a hash table with linear probing. Slots are written under the shard's
// mu; a slot that was used once is never nil again, so that a reader stops only
// where an entry was never put. At most half of it is used.
type table struct {
	slots []atomic.Pointer[entry]
	grave *entry // what a removed entry leaves behind; its hash is nobody's
}

func newTable(n int) *table {
	return &table{slots: make([]atomic.Pointer[entry], n), grave: new(entry)}
}

// hashOf mixes a key: ids are random, but tests and other hosts may count them.
// It is never zero.
func hashOf(k *Key) uint64 {
	h := binary.LittleEndian.Uint64(k.Object[:8]) ^ bits.RotateLeft64(binary.LittleEndian.Uint64(k.Object[8:]), 32)
	h = (h ^ uint64(k.Chunk)*0x9E3779B97F4A7C15) * 0xD6E8FEB86659FD93 // odd constants with well-spread bits
	return h ^ h>>32 | 1<<31
}

func (c *Cache) shardOf(hash uint64) *shard { return &c.shards[hash>>(64-6)] }

// find returns the entry of a key, nil if there is none. It may be called
// without the shard's mu, and then misses what is inserted meanwhile.
func (t *table) find(k *Key, hash uint64) *entry {
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		e := t.slots[i].Load()
		if e == nil || e.hash == hash && e.key == *k {
			return e
		}
	}
}

// put inserts an entry whose key is not there, or replaces the one of that key.
// The caller holds mu.
func (s *shard) put(e *entry) {
	t := s.tab.Load()
	if 2*(s.used+1) > len(t.slots) {
		t = s.rehash(t)
	}
	mask := uint64(len(t.slots) - 1)
	free := -1
	for i := e.hash & mask; ; i = (i + 1) & mask {
		old := t.slots[i].Load()
		switch {
		case old == nil:
			if free < 0 {
				free = int(i)
				s.used++
			}
			s.live++
			t.slots[free].Store(e)
			return
		case old == t.grave:
			if free < 0 {
				free = int(i)
			}
		case old.hash == e.hash && old.key == e.key: // evicted, and not taken out yet
			s.count(old)
			t.slots[i].Store(e)
			return
		}
	}
}

// rehash makes a table for twice what is there, without the graves. Who still
// reads the old one sees it as it was.
func (s *shard) rehash(old *table) *table {
	n := 16
	for n < 4*(s.live+1) {
		n *= 2
	}
	t := newTable(n)
	mask := uint64(n - 1)
	for i := range old.slots {
		e := old.slots[i].Load()
		if e == nil || e == old.grave {
			continue
		}
		j := e.hash & mask
		for t.slots[j].Load() != nil {
			j = (j + 1) & mask
		}
		t.slots[j].Store(e)
	}
	s.used = s.live
	s.tab.Store(t)
	return t
}

// remove takes an entry out, if it is the one there. The caller holds mu.
func (s *shard) remove(e *entry) {
	s.count(e)
	t := s.tab.Load()
	mask := uint64(len(t.slots) - 1)
	for i := e.hash & mask; ; i = (i + 1) & mask {
		old := t.slots[i].Load()
		if old == e {
			t.slots[i].Store(t.grave)
			s.live--
		}
		if old == e || old == nil {
			return
		}
	}
}

// count adds the hits of an entry that were not counted yet. The caller holds mu.
func (s *shard) count(e *entry) {
	hits := e.hits()
	s.hits += int64(hits - e.counted) // modulo 2^32, like hits
	e.counted = hits
}

// each yields the entries of the shard. The caller holds mu and may remove the
// one yielded.
func (s *shard) each(yield func(*entry) bool) {
	t := s.tab.Load()
	for i := range t.slots {
		if e := t.slots[i].Load(); e != nil && e != t.grave && !yield(e) {
			return
		}
	}
}
