// Package segment says what a closed Kafka log segment is: the partition it
// belongs to, the identifiers Kafka gives it, its files, and the record batches
// in its log.
//
// A segment with base offset B of partition orders-0 is this set of files in
// the directory orders-0:
//
//	B.log                    record batches, one after another
//	B.index                  offset index        (package index)
//	B.timeindex              time index          (package index)
//	B.txnindex               aborted transactions; only if there were any
//	N.snapshot               producer state as of N, the next segment's base offset
//	leader-epoch-checkpoint  the partition's leader epochs, as text
//	partition.metadata       the topic id, as text
//
// A [Source] is such a segment to be copied; [Dir] finds the closed segments of
// a Kafka partition directory and opens them. The newest segment of a directory
// is the active one: the broker still writes to it.
//
// # Record batches
//
// [ParseHeader] decodes one batch header; [Walker] walks a stream of batches
// handed to it in arbitrary pieces, checks every length and every CRC, and
// allocates nothing. Magic 2 is understood in full, down to the records
// ([Decoder]); magic 0 and 1 (message sets of brokers before 0.11) are
// recognised, checked and stepped over, and decoded for exact time lookups.
//
// Every length comes from disk or network and is bounded before it is used: a
// batch is at least its header and at most [MaxBatchSize] long. Decompression
// streams, and its memory grows with the bytes that have come out, not with what
// a frame says will come out; [Decoder.MaxBytes] ends it.
//
// What bytes are no batch is always a *[BatchError], which says where they are.
// A batch that is cut short wraps io.ErrUnexpectedEOF, a wrong CRC-32C a
// *checksum.MismatchError.
//
// # Leader epochs
//
// A [Lineage] says in which leader epoch each offset was written. A segment's
// own epochs are those of its offsets ([Lineage.Range]); what travels with it as
// its LEADER_EPOCH index is the whole history up to its end ([Lineage.UpTo]).
//
// # Not handled
//
// Segments are never written or repaired here. The `.deleted`, `.cleaned`,
// `.swap` and `.tmp` files that a broker leaves behind are ignored. The records
// of KRaft's control batches are handed out as they are. LZ4 frames with blocks
// that depend on each other or on a dictionary are refused, as by Kafka.
package segment
