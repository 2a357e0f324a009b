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
// [Step] is that table as a pure function, and [StepPartition] the one of a whole
// partition's deletion. An event names the state it was decided on, so that of two
// that exclude each other one is refused; repeating an event is legal, so that
// every writer may retry. What the rest of the partition forbids is for
// [View.Admits] to say; [View.Apply] is all of that together. A segment is
// readable if and only if it is in COPY_SEGMENT_FINISHED, and the only way to the
// event that says so is [Finished], which wants a receipt: proof, made by package
// transfer alone, that the bytes are durable and equal to their source.
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
//     segments are in the View until they have ended, each in exactly one of
//     referenced and unreferenced in each of its leader epochs.
//   - A range is not announced or made readable twice in one history of leader
//     epochs, except where a store replays what others wrote.
//   - An Event cannot be changed by who holds it, so FINISHED always has its
//     receipt. A program outside the module that tries otherwise is a test.
//   - Missing knowledge is an error of its own (ErrNotReady, ErrUnavailable,
//     ErrIncomplete, ErrUnknownPartition), never "out of range": a consumer told
//     that resets its position.
//
// # Views
//
// A View keeps its segments packed in sorted blocks without pointers, some 170
// bytes for each, and shares all blocks but one or two with the View before it.
// Lookups decide on the packed rows and return one segment by value, so they
// neither allocate nor lock.
//
// # Not handled
//
// Nothing here knows of object stores; what drives states is package lifecycle.
package metadata
