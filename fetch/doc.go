// Package fetch is the read path: it finds the batches for an offset or a time
// in tiered segments and hands them out, whole and verified, from memory shared
// with every other reader.
//
// # Picture
//
//	Request ─► metadata.View ─► segment ─► tail ─► chunk table ─► chunk ─► batch
//	            which FINISHED    Location   one GET   which chunk  cached,    first with
//	            segment of the               cached    to look in   or one     LastOffset
//	            lineage                                              GET a run  ≥ Offset
//
// A cold fetch costs one GET for the tail of the segment and one for data; a
// hot one costs no I/O, no lock that is held long, and no allocation.
//
// Of every chunk it is noted, once, while its bytes are hot from being verified,
// where a batch starts every 4 KiB or more, and which offset comes before. The
// notes are cached with the chunk, so that a hot fetch walks few headers at either
// end of what it returns.
//
// Missing chunks that follow each other are fetched with one GET, a run. The run
// belongs to the Reader: it goes on when its caller has left, so that the
// caller's next try finds the data, and ends with the Reader. Each chunk
// is verified against the CRC-32C that was recorded at copy time and then
// handed to everybody who waits for it, while the run still streams. Its memory is taken
// when its first byte is about to come.
//
// # Strangers
//
// While slots are short, or the store wants fewer requests, several callers may wait for
// chunks beside each other. What a GET reads is decided when its turn comes: it
// takes those along who wait behind it, up to a run of the usual length, and as much before
// it as takes less time than the first byte of another GET. With slots for all nobody
// waits, and so nobody is taken along. It is for callers of one class and one tenant; a prefetch
// that somebody waits for is demand by then. A caller who leaves, a Stream that seeks, and
// damage in one's chunk concern nobody else: the GET ends with the last chunk that is wanted.
//
// # Many partitions
//
// [Reader.FetchMany] is a Fetch request of Kafka's: many partitions, one bound, one
// deadline, which is the context's. It takes what is in memory in the order of the
// request, which has everything else asked for; waits for that, in parallel; and
// gives at the deadline what is ready. A partition that is not has ErrNotReady, and
// what was begun for it goes on. No partition's error is another's, and what one
// that fails had been given of MaxBytes is for those that found nothing left.
//
// # Transactions
//
// For who reads committed data a Fetch lists the aborted transactions with records
// in its Result, from the transaction indexes of this and the following segments,
// until an entry shows that no further marker can concern them. What metadata says
// to hold no transaction is not looked at, and that there are none up to the end of
// the tier is found out once for each View.
//
// # Fetching ahead
//
//	reads ─► stream: who reads in sequence (detected, or announced: Hint, Stream)
//	           │
//	           ├─ demand    the chunk asked for is the beginning of a run
//	           ├─ runs      8 MiB, 16 MiB for who catches up, cut on a grid of their length
//	           ├─ window    at ──────── read ahead, here or on its way ──────── front
//	           └─ segments  along the lineage; the next tail before its data
//
// A stream is recognised at its second read, which begins where the first one ended; of
// each partition the latest 32 reads that began nowhere are remembered. From then
// on it may jump a little, or ahead over what is on its way, and reads from memory
// count like others; when it has gone on twice, the cache is told of it like of a
// consumer that was announced. Of how many of its runs are in flight, the first guess comes
// from how fast one connection was; then it is searched: twice as many while the
// stream waits and the rate answers, fewer when it does not wait. Where connections
// are slow and memory is short, runs get shorter; where they are fast, fewer.
//
// What is ahead of all streams together has half of the cache's budget at most (five
// eighths if there is one stream, a quarter if there are many), in equal shares.
// Memory for it is taken only if it is free or nobody is known to need it, and never
// waited for. Who stops reading is not fetched ahead for. What was fetched and
// not read is counted, and halves the shares when it is more than a tenth.
//
// Tail and first chunk of a cold segment are asked for at once, if the read begins
// with the segment. Elsewhere it is not known which chunk an offset is in.
//
// Whose turn it is when slots are short: see package endpoint. Who comes back at once from a
// wait catches up, once he has read much; who takes his time keeps pace, and so does
// what is fetched ahead of him. Prefetch that somebody waits for is demand.
//
// A [Stream] that seeks or is closed calls off what is on its way for it, from the end
// of each run up to the last chunk that somebody waits for. A run that another
// stream counts on goes on. So does who names a [Cursor], with his first read elsewhere.
// Readers that were found by their reads call off nothing: they may be several.
//
// A run may read over a chunk or two that are here, if that takes less time than
// the first byte of another GET.
//
// # Holes
//
// Who deletes single segments (segtier rm) without moving the log start leaves
// offsets that the tier does not have, between some that it has. The tier cannot
// know whether they are in the local log, so nobody is told to skip them for that
// reason: below the end of the unbroken run they are unavailable, above it they are
// the end of the tier, and the host looks in its log. If it does not have them
// either it would come back for ever; so it says with Request.LocalLogStart from
// where on it has them. Then
//
//	at or above it                        the end of the tier: they are there
//	below, metadata remembers that the
//	segment was readable and was deleted  skipped: they are nowhere any more
//	below, nothing is known of them       unavailable: something is lost, which an
//	                                      operator finds as OFFSET_GAP
//
// A hole is never out of range. Metadata remembers deleted segments for 30 days;
// the log start, moved above the hole, ends it for good.
//
// # Where a read ends
//
//	data               whole batches, at least one; the first has LastOffset ≥ Offset
//	EndOfTierError     nothing from here on is tiered: go on in the local log at Next
//	OutOfRangeError    below the log start that the host gave
//	SkippedError       retention deletes the segment: go on at Next
//	ErrUnavailable     not known or not reachable now: try again
//	CorruptionError    the store's bytes are not what was copied
//	ErrBatchTooLarge   one batch needs more than the memory budget
//	ErrNotReady        FetchMany alone: not before the deadline; ask again
//	context errors     the caller left
//
// Never an empty success, and never out of range for lack of knowledge: a
// consumer that is told so resets its position. An offset that compaction removed
// is no end: data begins at the next batch, in the next segment if need be.
//
// # Guarantees
//
//   - Every byte handed out was checked against a sum recorded at copy time, once
//     per residency in memory.
//   - Every fetch asks metadata for the segment's state, cached or not: what is
//     being deleted is not served.
//   - A fetch follows the lineage: not a batch beyond the offset where segment and
//     lineage part, and no other leader's segment after it.
//   - Callers do not depend on each other: one that leaves, and one that fails, reaches
//     nobody else.
//   - A Result holds what it holds until it is released, once: copies of it that were
//     kept cannot release what a later Fetch has put there.
//   - No caller waits for memory while it holds any, nor does a FetchMany for one
//     partition while it holds another's. A fetch that cannot get all
//     it would like is cut short to what it got, one batch at least.
//
// # Lost and damaged objects
//
// Where the store has no object, another one, or wrong bytes, metadata is read
// again. If the segment is not FINISHED any more, retention was faster
// ([SkippedError]); if it is, this is damage ([CorruptionError]). A missing object
// of a segment that became FINISHED within Options.VisibilityGrace may not be
// visible yet ([ErrUnavailable]). An object with another identity than before is
// read once more without asking for one: the sums are the identity.
//
// # Not handled
//
// Two strangers who ask at the same moment for two neighbours make two GETs if there are
// slots for both: to wait for each other would take longer. A host that keeps
// Results unreleased keeps memory from others: Fetch waits for it, as long as its context lasts.
package fetch
