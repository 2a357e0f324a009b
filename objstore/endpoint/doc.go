// Package endpoint is an [objstore.Store] and what we learned of it: how many
// requests and bytes may be in flight, when it asked for fewer, which of its
// errors pass when tried again. Every request of the library goes through one
// Endpoint for each store, whoever makes it, so that the bounds hold for all of
// them together.
//
//	Read ── slot ── Store.Get ── body ──► Piece.Buf ── CRC32C ── Done(i)
//	  ▲                            │ cut, stalled, throttled
//	  └──── pause, no slot held ───┘ goes on at the first byte not yet had
//
// # Guarantees
//
//   - A Read that returns nil has filled every piece with the object's bytes,
//     and they match their checksums; a piece is reported by Done only then. What
//     it returns otherwise is an error that says which range of which object is
//     concerned. A wrong checksum is fetched once more, since it may have been
//     wrong on the way; the second one is objstore.ErrCorrupt. What was wrong in the
//     middle of an answer begins the next one, and only from then on counts.
//   - Memory for a piece is asked for (ReadRequest.Bind) when an answer was checked and the
//     first byte of the piece is about to be read, once; one body at a time is read
//     into it. A Read that waits holds none for what has not begun to come.
//   - What a Read reads may be decided when it has its slot (ReadRequest.Turn), as long as
//     no byte of it has come. What is more than it has waited for is within the
//     bounds too, and on the account of the stream whose it is.
//   - Retries are bounded, wait between tries (full jitter), and end with ctx. Errors
//     that another try cannot cure are returned at once: ErrNotExist, ErrRange,
//     ErrChanged, ErrConflict, ErrReadOnly, ErrRefused, ErrFull, ErrClosed.
//   - At most Options.Requests requests and Options.BytesInFlight bytes are in
//     flight. Nothing that waits, for a slot, for its share of
//     Options.UploadBytesPerSecond or for the next try, holds a slot.
//   - Where more is asked for, demand at the tail, demand of backfills, prefetch
//     for who keeps pace, other prefetch, uploads, deletes and looks at objects (Stat)
//     take turns by weights of 8, 4, 4, 2, 4, 1 and 1; in each the tenants do, and in
//     each of those the streams (an upload is one). An eighth of the slots is kept for the
//     tail, another eighth for demand; the last two have an eighth together at most.
//     Nobody's turn is skipped for ever: a large request is not passed by small ones
//     without end. Prefetch goes no wider than fills the line.
//     What one tenant waits for, having all it may, and another wants too, is the
//     other's from then on (Urgency.RaiseFor).
//   - A store that sends no byte for Options.ProgressTimeout loses the request,
//     which goes on elsewhere. A slow store that keeps sending is left alone. An
//     Upload that holds slots and gets no further is given up likewise; what it had
//     confirmed is not sent again.
//   - Faults, throttling and short slots have clocks of their own: a store that is
//     busy for a while does not use up the tries for faults, and waiting for a slot
//     uses up none. A store that is down is not asked several times for each thing
//     (Options.RetryBudget).
//   - What is wrong with the objects of one directory is charged to it. Directories that have
//     throttled are asked for half as much at a time, reads and writes apart, and for more
//     again as they answer; a Retry-After is for the directory, unless several ask for one and
//     none answers. Those that have not answered yet have half of the slots together, those
//     that are slow compared with others an eighth, of the bytes too, who has least of it first: what
//     they hold beyond that is taken from them when others wait, but for one, and likewise what
//     one of them has overdue while another has less by two; they go on where they were.
//   - With Options.HedgeBytes, demand that is slow to be answered is asked for once
//     more, in at most 4.5 % of the cases, and never while the store throttles or
//     slots are short. The first answer is read; the other one is closed unread, so
//     that one body alone is ever written into a piece.
//   - Close ends every call in progress with ErrClosed, and waits for them.
//
// # Cost
//
// The happy path of a Read makes 7 allocations of its own, 400 bytes together,
// whatever its size: its context, its timer, and the state of the call. Bytes
// are copied once, by the store, into memory that is the caller's, and summed
// while they are in the processor's cache.
//
// # Not handled
//
// There is no cache and no joining of equal reads, which package cache does, nor of
// neighbouring ones: package fetch does that in Turn.
// Sealing an object may keep a store busy for minutes, and is bounded by ctx alone.
// There is no circuit breaker: with the retry budget a store that is down gets one
// request for each call, and a call fails after one.
package endpoint
