// Package cache keeps verified chunks of segments in memory, within one budget
// for everything: what is resident, what is being filled, what is promised and
// what is leased.
//
// # Problem
//
// Many consumers read the same megabytes of a log within seconds of each other.
// Each megabyte should be fetched once, whoever asks first; a caller that gives
// up must not take the others with it; and memory must stay within what the
// host gave us however many callers there are.
//
// # Picture
//
//	Acquire(key) ─► shard ─┬─ resident ──► Hit      a lease, at once
//	                       ├─ in flight ─► Joined   a lease to Wait for
//	                       ├─ absent, room reserved ─► Led      a lease to Wait for, and a Fill
//	                       └─ absent, no room ─► Missing        Reserve first
//
//	Fill.Done ─► window (FIFO) ─► main (ristretto judges) ─► gone
//
// One critical section of a shard answers hit, join or lead, so a chunk is
// fetched once per residency: no caller can find a chunk absent and then fetch it beside
// somebody else's fill. The map of the shards is the truth of what is here and
// is asked by full [Key]; ristretto never answers for bytes.
//
// A new chunk enters the window, a FIFO over a quarter of the budget: tail
// readers come seconds after one another, and a frequency sketch alone would
// refuse each chunk before its second reader. What falls out of the window is
// offered to ristretto, which knows how often each chunk was asked for; what it
// refuses or evicts leaves memory. An eighth of the budget is left to fills.
//
// # Ristretto
//
// It drops silently (a full Set buffer, equal hashes, an update racing an
// eviction), calls back late, and panics when Close races with Set. Therefore:
// its values are headers that are never recycled; every header has one
// reference of the cache's own, and a count never rises from zero; a Set that
// it refuses, or an OnExit, gives that reference back, once; and the ledger and
// the list of the main region are ours, so that what it forgot is found again
// under pressure. It is only called through a gate that Close shuts first, and
// only from the low rate of demotions, besides counting hits.
//
// # Ledger
//
//	Used = Reserved + Filling + Window + Main + Detached ≤ MemoryBytes
//
// at every moment, and zero when everything was released after Close. Detached
// is what was evicted or dropped while somebody still leased it. Memory is
// reserved before it is held: [Cache.Reserve] waits first come first served, and
// whoever waits there must hold no lease, so that no two callers can wait for
// each other. [Cache.TryReserve] never waits and never overtakes who does. Room is made
// by evicting what nobody leases: the oldest of main, then of the window.
//
// # Notes
//
// Whoever fills a chunk has walked over it and knows what readers would look for,
// such as where its batches begin. [Fill.Note] keeps that with the chunk, on the
// chunk's account; [Lease.Note] hands it out. It lives and leaves with the chunk,
// and is the first thing to be left out when memory is short.
//
// # Guarantees
//
//   - A fill belongs to whoever runs it, not to the caller that led it. Callers
//     wait with their own contexts; one that leaves reaches nobody else.
//   - A failed fill fails everyone who waits for it with the same error, and the
//     key is free for a new leader before they learn of it.
//   - The bytes of a lease do not change and stay valid until it is released,
//     evictions, Drop and Close notwithstanding.
//
// # Not handled
//
// The cache moves and checks no bytes: who fills a chunk verifies it before
// Done. Buffers are ordinary heap slices; memory that left the ledger is
// the garbage collector's to return.
package cache
