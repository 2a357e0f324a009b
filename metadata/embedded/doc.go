// Package embedded keeps metadata durably in one file: the default store for a
// host that has no Kafka topic to share, and for the command.
//
// The file is a bbolt database. It belongs to one writing process at a time, or to any number of reading ones; views are
// served from memory, where everything is held.
//
// # Guarantees
//
//   - Publish compares with the state in the file inside the transaction that
//     writes it, and returns nil only after fsync. A kill at any instant loses
//     nothing that was acknowledged and leaves nothing half done; the directory
//     entry of the file is made durable before the first event is.
//   - The file appears in one step, complete: there is no moment at which a crash
//     leaves an unusable file behind, at worst a FILE.new-NUMBER beside it that
//     can be removed.
//   - Fencing is exact. The greatest leader epoch of a partition's writers is kept
//     for ever, and an event of a lower one is metadata.ErrFenced. A writer
//     without an epoch (-1) is lower than all others: it may write where nobody
//     with an epoch ever has.
//   - When the disk is full, Publish is metadata.ErrUnavailable, the event has
//     not happened, and the next one may succeed. When a write or fsync fails
//     otherwise, nobody can tell what is on disk: all further publishing is
//     refused until the file was closed and opened again, and views stay as last
//     acknowledged.
//   - A file that is damaged, or something else altogether, is refused as a whole
//     (metadata.ErrCorrupt): every record carries a checksum over its key and
//     value.
//
// # The file
//
// Numbers are big-endian, checksums CRC-32C (Castagnoli). Three buckets:
//
//	bucket      key                              value
//	segtier     "format"                         u32: 1
//	            "id"                             the store's ID, 22 characters
//	partitions  partition (20 bytes)             partition record
//	segments    partition, segment id (16 bytes) segment record
//
// A partition as key is its topic id (16 bytes) and its number (i32). A partition
// record, version 1:
//
//	offset  size  field
//	     0     1  version: 1
//	     1     4  i32 greatest leader epoch of a writer
//	     5     8  u64 number of FINISHED events so far
//	    13     1  u8  length n of the topic name
//	    14     n  topic name
//	  14+n     4  u32 checksum of key and bytes [0,14+n)
//
// A segment record, version 1:
//
//	offset  size  field
//	     0     1  version: 1
//	     1     1  state, Kafka's id of it
//	     2     1  bit 0: known to have no aborted transaction; others 0
//	     3     8  u64 number of its FINISHED event in the partition, 0 if there was none
//	    11     8  i64 start offset
//	    19     8  i64 end offset, inclusive
//	    27     8  i64 greatest timestamp, ms
//	    35     8  i64 time of the last event, ms
//	    43     4  i32 broker of the last event
//	    47     4  i32 greatest leader epoch of an event's writer
//	    51     4  u32 size of the log, bytes
//	    55     1  u8  length of the custom metadata + 1, 0 if there is none
//	    56     n  custom metadata
//	  56+n     4  u32 number m of leader epochs
//	  60+n  12·m  each: i32 epoch, i64 start offset in the segment
//	           4  u32 checksum of key and all bytes before
//
// A segment that has ended (DELETE_SEGMENT_FINISHED) keeps its record without the
// custom metadata: the proof that its id has ended, for the collection of
// orphans, and for late repetitions of its events.
//
// # Not handled
//
// Network file systems without flock(2), and file systems without hard links.
package embedded
