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
// It is called by offer, without any lock of ours held, and by touch, under the
// lock of a shard. Its callback takes the locks of a shard and of the ledger
// one after the other and calls nothing of ristretto's, so that neither
// direction can wait for the other. Clear, in shut, calls back under a lock of
// ristretto's that touch takes too: by then every shard is closed to touch.
type policy struct {
	rc *ristretto.Cache[string, *entry]

	gate   sync.RWMutex // held for reading while Set or Del is called
	closed bool         // guarded by gate

	// Main entries that were evicted for room and that ristretto still counts.
	stale struct {
		sync.Mutex
		list []*entry
	}
}

func newPolicy(maxCost int64, exit func(*entry)) (*policy, error) {
	rc, err := ristretto.NewCache(&ristretto.Config[string, *entry]{
		// Ten counters for each entry, as ristretto advises; entries are taken to
		// be 64 KiB at least. Three bytes a counter.
		NumCounters:        min(max(maxCost/(64<<10)*10, 1000), 10_000_000),
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

// touch counts a hit. It reports whether ristretto holds this very entry; what
// it holds is not used otherwise. The caller holds the lock of the entry's
// shard, which is open.
func (p *policy) touch(e *entry) bool {
	got, ok := p.rc.Get(e.id)
	return ok && got == e
}

// offer gives ristretto an entry to judge. False: it does not want it, and will
// not call back.
func (p *policy) offer(e *entry) bool {
	p.gate.RLock()
	defer p.gate.RUnlock()
	if p.closed {
		return false
	}
	p.stale.Lock()
	stale := p.stale.list
	p.stale.list = nil
	p.stale.Unlock()
	for _, s := range stale {
		// It may delete a newer entry of the same key instead: that one is then
		// called back for and leaves, which costs a fetch at worst.
		p.rc.Del(s.id)
	}
	return p.rc.Set(e.id, e, e.size)
}

// forget says that an entry left without ristretto's doing.
func (p *policy) forget(e *entry) {
	p.stale.Lock()
	p.stale.list = append(p.stale.list, e)
	p.stale.Unlock()
}

// shut closes the gate, waits for those inside, and ends ristretto. Every shard
// is closed to touch by then. Called once.
func (p *policy) shut() {
	p.gate.Lock()
	p.closed = true
	p.gate.Unlock()
	p.rc.Close()
}
