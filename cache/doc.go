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
//	Acquire(key) ─► table ─┬─ resident ──► Hit      a lease, at once
//	                       ├─ in flight ─► Joined   a lease to Wait for
//	           ─► shard ───┼─ absent, room reserved ─► Led      a lease to Wait for, and a Fill
//	                       └─ absent, no room ─► Missing        Reserve first
//
//	Fill.Place, Fill.Done ─► window ──► main (ristretto judges) ─► gone
//	                           ▲ ╰────────────────────────────────► gone
//	            cursors ───────╯ who will reach which chunk when
//
// One critical section of a shard answers join or lead, so a chunk is fetched
// once per residency: no caller can find a chunk absent and then fetch it beside
// somebody else's fill. The tables of the shards are the truth of what is here and
// are asked by full [Key]; ristretto never answers for bytes.
//
// # Hits
//
// A hit takes no lock and writes to one word, of the chunk's own header: a count of
// leases, with the count of hits in the same word. The count is in four stripes, and each
// processor uses its own, so that two of them do not hand one cache line to and fro. Who
// evicts a chunk marks the stripes dead, one after the other, if they are at zero; a
// count never rises on a stripe that is dead, and if one is not at zero all come back to
// life, which whoever met a dead one waits for. Readers walk a hash table whose slots only writers, under
// the shard's lock, change; what they miss there is looked for again under the lock.
// Headers are never recycled, so that whatever a stale pointer finds is a header,
// with no reference left.
//
// # Window and main
//
// Log traffic is no frequency traffic: a chunk is new, is read by each consumer
// once within seconds, and never again. So a new chunk enters the window, which
// knows cursors ([Cache.Announce]): of readers that hosts tell of, and of those that
// whoever reads through the cache has found by their reads. A chunk's next use is
// when the first cursor on its way reaches it, by distance and speed; a cursor that
// is late is expected to be late for as long again, and one that went back to what it had
// read, to go round: then what it has just read is what it needs last. Evicted is what
// nobody is known to need, the least recently used first, then what is needed last: the
// worst of 32 samples and of what earlier samples left.
//
// Time is counted in bytes that became resident, so that decisions follow from the
// requests alone, and nothing ages while nothing is fetched.
//
// What no cursor will reach, but two streams have read, or what comes back after
// it was evicted, is main's if it earns it. While main has room it takes all of those.
// Then what was used twice as much as main's coldest takes that one's place: in a sum of
// uses that count half after each four budgets of new chunks, and that those which were
// evicted keep for a while. The rest is offered to ristretto, one at a time, which
// compares how often chunks were asked for, with a longer memory. So what is read often
// is told from what is not where that stays the same, gives way within a few budgets
// where it does not, and of chunks that are read in turn, more than there is room for,
// the same ones stay.
//
// Main begins with a tenth of the budget; whoever earns more takes from the other. A chunk
// that comes back, and was evicted while a cursor was on its way, moves the border by its
// size in favour of the window; one that no cursor was known to need, or that was
// main's, in favour of main. While there is room, both take it.
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
// only when chunks are fetched: hits are told to it then, some at a time.
//
// # Ledger
//
//	Used = Reserved + Filling + Window + Main + Detached ≤ MemoryBytes
//
// at every moment, and zero when everything was released after Close. Detached
// is what was evicted, dropped or failed while somebody still holds its memory. Memory is
// reserved before it is held: [Cache.Reserve] waits first come first served, and
// whoever waits there must hold no lease, so that no two callers can wait for
// each other. [Cache.TryReserve] never waits and never overtakes who does. Room is made
// by evicting what nobody leases. When the budget is lowered, Used may exceed it by
// what is leased or promised, until that is released.
//
// # Slabs
//
// Chunks lie in arenas of the system's memory, cut into slabs of a few sizes: a
// chunk that is freed is the next one's memory, and the process is as large as the
// budget, where the garbage collector would let it become twice that. A size that is no
// multiple of a page wastes an eighth at most. Slabs of a MiB and more are asked for in huge
// pages, where the system gives them: a fill touches its slab for the first time, in
// 256 faults or in one. Free slabs beyond 16 MiB, and beyond what is reserved and
// not taken yet, are given back, as are arenas that are free, and after Close the last lease takes the last
// arena with it. A [Fill] is on the books from the start, takes its slab when
// [Fill.Buf] is called, which is when its first byte is about to come (Stats.Bound), and
// is its only writer. If it fails while the read still runs (at Close, or by a panic) the slab
// stays on the books, and is nobody else's, until [Fill.Release].
//
// Under the race detector, which does not see such memory, where mappings are not
// to be had, and with Options.OnHeap, chunks are ordinary slices. The build tag segtier_poison
// overwrites what is freed, and reports leases that the garbage collector finds
// unreleased.
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
//     key is free for a new leader before they learn of it. The error is not kept.
//   - The bytes of a lease do not change and stay valid until it is released,
//     evictions, Drop and Close notwithstanding.
//
// # Not handled
//
// The cache moves and checks no bytes: who fills a chunk verifies it before
// Done. A cursor is believed: one that is announced and never read with keeps its
// chunks until eight budgets of others have come.
package cache
