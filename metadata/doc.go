// Package metadata is the one truth about which segments exist in the object
// store and what may be done with them.
//
// A segment moves through Kafka's states, each written by one [Event]:
//
//	            Started              Finished(receipt)
//	(none) ───────────────► STARTED ───────────────► FINISHED
//	                           │  DeleteStarted          │ DeleteStarted
//	                           └──────────┬──────────────┘
//	                                      ▼
//	                               DELETE_STARTED ──► DELETE_FINISHED
//	                                          DeleteFinished
//
// [Step] is that table as a pure function. An event names the state it was
// decided on, so that of two that exclude each other one is refused; repeating an
// event is legal, so that every writer may retry. A segment is readable if and
// only if it is in COPY_SEGMENT_FINISHED, and the only way to the event that says
// so is [Finished], which wants a receipt: proof, made by package transfer alone,
// that the bytes are durable and equal to their source.
//
// A [Store] keeps the events durably, in one total order per partition, and
// serves a [View]: an immutable, lock-free snapshot of a partition that answers
// by lineage and offset. metadata/embedded is one, in a file; the seam fits
// Kafka's own topic as well, where nothing can be compared before it is written,
// loading takes time and records of others are read. metadata/metadatatest holds
// every store to the same law.
//
// # Guarantees
//
//   - Publish returns nil only when the event is durable and visible in the own
//     View.
//   - Any offset covered by a FINISHED segment of the lineage asked for is found,
//     in whatever order events came, where Kafka's own cache loses some.
//   - An id that was seen stays accounted for: superseded, unfinished and deleted
//     segments are in the View until they have ended.
//   - An Event cannot be changed by who holds it, so FINISHED always has its
//     receipt. A program outside the module that tries otherwise is a test.
//   - Missing knowledge is an error of its own (ErrNotReady, ErrUnavailable),
//     never "out of range": a consumer told that resets its position.
//
// # Not handled
//
// Nothing here knows of object stores; what drives states is package lifecycle.
package metadata
