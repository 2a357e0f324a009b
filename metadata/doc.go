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
// [Step] is that table as a pure function; repeating an event is legal, so that
// every writer may retry. A segment is readable if and only if it is in
// COPY_SEGMENT_FINISHED, and the only way to the event that says so is
// [Finished], which wants a receipt: proof, made by package transfer alone, that
// the bytes are durable and equal to their source.
//
// A [Store] keeps the events durably, in one total order per partition, and
// serves a [View]: an immutable, lock-free snapshot of a partition that answers
// by lineage and offset. Two stores come with the module, metadata/embedded (a
// file) and metadata/kafkatopic (Kafka's own topic); metadata/metadatatest holds
// any other to the same law.
//
// # Guarantees
//
//   - Publish returns nil only when the event is durable and visible in the own
//     View.
//   - Any offset covered by a FINISHED segment of the lineage asked for is found,
//     in whatever order events came, where Kafka's own cache loses some.
//   - Missing knowledge is an error of its own (ErrNotReady, ErrUnavailable),
//     never "out of range": a consumer told that resets its position.
//
// # Not handled
//
// Nothing here knows of object stores; what drives states is package lifecycle.
package metadata
