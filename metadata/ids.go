package metadata

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sort"

	"github.com/segtier/segtier/segment"
)

// idIndex leads from the id of a segment to its start offset, with which its row
// is found: sorted blocks of hashes of the ids.
type idIndex []idDir

type idDir struct {
	first   uint64
	entries []idEntry // immutable, not empty, ascending by hash
}

// idEntry is 16 bytes instead of the 24 of the id itself. Two ids with one hash
// are possible and told apart by their rows.
type idEntry struct {
	hash  uint64
	start int64
}

// hashID mixes an id, so that ids that are not random spread too.
func hashID(id *segment.UUID) uint64 {
	h := binary.BigEndian.Uint64(id[:8])*0x9e3779b97f4a7c15 ^ binary.BigEndian.Uint64(id[8:])
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return h ^ h>>32
}

// newIDIndex takes entries over and sorts them.
func newIDIndex(entries []idEntry) idIndex {
	slices.SortFunc(entries, func(a, b idEntry) int { return cmp.Compare(a.hash, b.hash) })
	x := make(idIndex, 0, (len(entries)+fillBlock-1)/fillBlock)
	for chunk := range slices.Chunk(entries, fillBlock) {
		x = append(x, idDir{first: chunk[0].hash, entries: slices.Clone(chunk)})
	}
	return x
}

// find returns the place of the first entry with a hash, or where it would be.
func (x idIndex) find(hash uint64) (block, i int) {
	block = max(0, sort.Search(len(x), func(i int) bool { return x[i].first >= hash })-1)
	if block == len(x) {
		return block, 0
	}
	i = sort.Search(len(x[block].entries), func(i int) bool { return x[block].entries[i].hash >= hash })
	return block, i
}

// with returns x with an id that it does not have.
func (x idIndex) with(id *segment.UUID, start int64) idIndex {
	e := idEntry{hashID(id), start}
	at, i := x.find(e.hash)
	if at == len(x) {
		return newIDIndex([]idEntry{e})
	}
	old := x[at].entries
	entries := make([]idEntry, 0, len(old)+1)
	return x.replace(at, append(append(append(entries, old[:i]...), e), old[i:]...))
}

// without returns x without an id that began at start.
func (x idIndex) without(id *segment.UUID, start int64) idIndex {
	e := idEntry{hashID(id), start}
	for at, i := x.find(e.hash); at < len(x) && x[at].first <= e.hash; at, i = at+1, 0 {
		for ; i < len(x[at].entries) && x[at].entries[i].hash == e.hash; i++ {
			if x[at].entries[i] == e {
				return x.replace(at, slices.Delete(slices.Clone(x[at].entries), i, i+1))
			}
		}
	}
	return x
}

func (x idIndex) replace(at int, entries []idEntry) idIndex {
	n := make(idIndex, 0, len(x)+1)
	n = append(n, x[:at]...)
	if half := len(entries) / 2; len(entries) > maxBlock {
		n = append(n, idDir{first: entries[0].hash, entries: entries[:half:half]})
		entries = entries[half:]
	}
	if len(entries) > 0 {
		n = append(n, idDir{first: entries[0].hash, entries: entries})
	}
	return append(n, x[at+1:]...)
}

// starts calls try with each start offset that may be the id's, until it
// returns true.
func (x idIndex) starts(id *segment.UUID, try func(start int64) bool) {
	hash := hashID(id)
	for at, i := x.find(hash); at < len(x) && x[at].first <= hash; at, i = at+1, 0 {
		for entries := x[at].entries; i < len(entries) && entries[i].hash <= hash; i++ {
			if entries[i].hash == hash && try(entries[i].start) {
				return
			}
		}
	}
}
