package cache

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/segtier/segtier/checksum"
)

// policy is ristretto behind a gate; see the package comment for why.
//
// It is called with no lock of ours held but the gate. Its callback takes the
// locks of a shard and of the ledger one after the other and calls nothing of
// ristretto's, so that neither direction can wait for the other.
type policy struct {
	rc *ristretto.Cache[string, *entry]

	gate   sync.RWMutex // held for reading while Set or Del is called
	closed bool         // guarded by gate

	mu      sync.Mutex
	stale   []*entry // of main, evicted for room, that ristretto still counts
	touched []*entry // of main, with hits that ristretto was not told of
}

func newPolicy(maxCost int64, exit func(*entry)) (*policy, error) {
	rc, err := ristretto.NewCache(&ristretto.Config[string, *entry]{
		// Ten counters for each entry, as ristretto advises; entries are taken to
		// be 64 KiB at least. With few, what was often used is soon forgotten: where
		// chunks are smaller than that, the least is enough for 6,000. Three bytes a
		// counter.
		NumCounters:        min(max(maxCost/(64<<10)*10, 1<<16), 10_000_000),
		MaxCost:            max(maxCost, 1),
		BufferItems:        64, // ristretto's advice
		IgnoreInternalCost: true,
		OnExit:             exit,
		KeyToHash: func(id string) (uint64, uint64) {
			return binary.LittleEndian.Uint64([]byte(id[:8])), binary.LittleEndian.Uint64([]byte(id[8:16]))
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	return &policy{rc: rc}, nil
}

// hashes makes the two independent hashes by which ristretto tells keys apart.
func hashes(k Key) (key, conflict uint64) {
	var b [21]byte
	copy(b[:], k.Object[:])
	binary.LittleEndian.PutUint32(b[16:], k.Chunk)
	key = checksum.XXH64(b[:20])
	b[20] = 1
	return key, checksum.XXH64(b[:])
}

// identity packs both hashes, so that none is computed on a hit.
func identity(key, conflict uint64) string {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], key)
	binary.LittleEndian.PutUint64(b[8:], conflict)
	return string(b[:])
}

// touch puts an entry on the list of those with new hits. It is called once for
// all the hits until the list is read, so that a hit shares nothing.
func (p *policy) touch(e *entry) {
	if e.state.Or(touched)&touched != 0 {
		return
	}
	p.mu.Lock()
	p.touched = append(p.touched, e)
	p.mu.Unlock()
}

// missed counts a miss: a chunk that keeps coming back is to be kept.
func (p *policy) missed(e *entry) {
	p.gate.RLock()
	defer p.gate.RUnlock()
	if !p.closed {
		p.rc.Get(e.id) // counts; what it holds is not used
	}
}

// maxTold bounds how many hits of an entry ristretto is told of at once: its
// counters end at 15.
const maxTold = 8

// tell counts the hits of an entry since it was last asked. The caller is inside the
// gate and holds mu.
func (p *policy) tell(e *entry) {
	hits := e.hits()
	for range min(hits-e.told, maxTold) {
		p.rc.Get(e.id)
	}
	e.told = hits
}

// offer gives ristretto an entry to judge. False: it does not want it, and will
// not call back.
//
// What ristretto holds in sum is to stay within maxCost.
func (p *policy) offer(e *entry, maxCost int64) bool {
	p.gate.RLock()
	defer p.gate.RUnlock()
	if p.closed {
		return false
	}
	if p.rc.MaxCost() != maxCost {
		p.rc.UpdateMaxCost(maxCost)
	}
	p.mu.Lock()
	stale := p.stale
	p.stale = nil
	for _, t := range p.touched {
		t.state.And(^uint32(touched)) // before hits are read: later ones come again
		p.tell(t)
	}
	clear(p.touched)
	p.touched = p.touched[:0]
	p.tell(e)
	p.mu.Unlock()
	for _, s := range stale {
		// It may delete a newer entry of the same key instead: that one is then
		// called back for and leaves, which costs a fetch at worst.
		p.rc.Del(s.id)
	}
	return p.rc.Set(e.id, e, e.size)
}

// forget says that an entry left without ristretto's doing.
func (p *policy) forget(e *entry) {
	p.mu.Lock()
	p.stale = append(p.stale, e)
	p.mu.Unlock()
}

// shut closes the gate, waits for those inside, and ends ristretto. Called once.
func (p *policy) shut() {
	p.gate.Lock()
	p.closed = true
	p.gate.Unlock()
	p.rc.Close()
}
