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
//   - A range is readable once in each history of leader epochs: the second copy
//     is metadata.ErrDuplicate.
//   - A segment that has ended stays known for 30 days on the store's clock, and
//     with it the proof that its object may go. Then its record is removed, a few
//     with each event. The highest offsets of its leader epochs stay for ever.
//   - With Options.SnapshotEvery a copy of the file is written beside it, read back
//     whole before it gets its name: FILE.snapshot-TIME. A crash leaves at worst a
//     FILE.snapshot.new-NUMBER, which the next one removes.
//   - A file of format version 1 is upgraded when it is opened for writing, in one
//     transaction; read-only it is read as it is.
//
// # A second reader
//
// Another process reads a snapshot, read-only, or metadata of its own that was
// made of an export (segtier meta export, segtier meta import): there nothing
// becomes readable before its object was read whole.
//
// # The file
//
// Numbers are big-endian, checksums CRC-32C (Castagnoli). Four buckets:
//
//	bucket      key                              value
//	segtier     "format"                         u32: 2
//	            "id"                             the store's ID, 22 characters
//	partitions  partition (20 bytes)             partition record
//	segments    partition, segment id (16 bytes) segment record
//	ended       u64 when it ended, ms; then      nothing
//	            its key in segments
//
// A partition as key is its topic id (16 bytes) and its number (i32). A partition
// record, version 2:
//
//	offset  size  field
//	     0     1  version: 2
//	     1     4  i32 greatest leader epoch of a writer
//	     5     8  u64 number of FINISHED events so far
//	    13     8  i64 log start, 0 if nobody has moved it
//	    21     1  state of its deletion: Kafka's id of it + 1, 0 if nobody deletes it
//	    22     1  u8  length n of the topic name
//	    23     n  topic name
//	  23+n     4  u32 number m of leader epochs
//	  27+n  20·m  each: i32 epoch, i64 least start offset, i64 highest offset that
//	              was ever FINISHED, -1 if none
//	           4  u32 checksum of key and all bytes before
//
// Version 1, of format version 1, ended with the topic name, which followed the
// number of FINISHED events; format version 1 had no bucket ended.
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
// A segment that has ended (DELETE_SEGMENT_FINISHED) keeps its record, without
// the custom metadata, for those 30 days.
//
// # Not handled
//
// Network file systems without flock(2), and file systems without hard links.
package embedded
