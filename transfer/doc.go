// Package transfer moves a segment's bytes to a store and back, with proof.
//
//	segment.Source                             object store
//	┌─────────┐  Scan: one pass, every sum     ┌───────────────────┐
//	│ log     │  every batch, every index      │ log               │
//	│ indexes │ ─────────────► Plan            │ indexes           │
//	│ …       │                 │              │ …                 │
//	└────┬────┘  Upload         ▼              │                   │
//	     └───── body read in place, tail ────► │ tail, trailer     │
//	            made in memory                 └─────────┬─────────┘
//	            every part's sum confirmed               │
//	            source unchanged, tail read back ◄───────┘
//	                      │
//	                      ▼
//	                   Receipt
//
// A [Receipt] is proof that an object is durable and equal to its source; no
// segment becomes readable without one. There are two ways to it: [Upload],
// which sends the bytes that [Scan] summed and has every part's sum confirmed by
// the store, and [Confirm], which reads the whole object and checks every byte.
//
// # Guarantees
//
//   - A segment with a corrupt batch, a truncated log, offsets outside its range
//     or an index that disagrees with its log is refused before anything is sent.
//   - What is sent is what was scanned. The sums of all parts are fixed before the
//     first byte leaves; a source that changes in between fails the copy, whether
//     it changes in size, is replaced, or has one bit flipped.
//   - An object's bytes depend on the source's files, its Info, the chunk size and
//     the STARTED record, on nothing else. Repeating an Upload is harmless.
//   - Evidence is not taken on trust: every part must be confirmed exactly once,
//     in order, with the sum that was asked for, and the object's size and tail are
//     read back. A store that echoes a wrong sum, drops a part or cuts the object
//     gets no receipt.
//   - Memory is bounded, whatever the segment's size: a few hundred KiB to scan,
//     the tail to upload, 8 MiB (or one chunk) to read.
//   - Contexts are obeyed between blocks of 256 KiB.
//
// # Not handled
//
// This package knows no metadata states, and does not retry: lifecycle decides
// when to copy and what follows a failure, endpoint retries single requests. A
// failed Upload may leave an object under the key of its segment id, never
// another's, and never readable.
package transfer
