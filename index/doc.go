// Package index reads the files that Kafka keeps beside a segment's log, and
// checks that they belong to it.
//
//	file                 view      entry                                    bytes  ascending in
//	B.index              [Offset]  relative offset, position in the log     8      both
//	B.timeindex          [Time]    timestamp, relative offset               12     timestamp (offset may repeat)
//	B.txnindex           [Txn]     one aborted transaction                  34     offset of its marker
//	N.snapshot           []Producer, behind a version and a CRC-32C         46     nothing
//
// All numbers are big-endian; relative offsets count from the segment's base
// offset B.
//
// # What entries promise
//
// An offset index maps an offset O to a position P where a batch begins, such
// that every batch before P ends before O: a search for O or anything greater
// can begin at P. O usually is the last offset of the batch at P or of a later
// one, for brokers index what they append at once. A time index entry (T, O)
// says that T is the greatest timestamp of any batch up to the one with offset
// O. How many entries there are says nothing: brokers write them every few KiB,
// each version at its own places.
//
// # Views
//
// A view lies over the bytes of the file, which must not change while it is
// used. Parsing validates every entry once and copies nothing; lookups neither
// allocate nor fail. Views are values and safe for concurrent use.
//
// The active segment's index files are preallocated, and a broker that dies
// leaves them so: zeros behind the last entry. These are not entries. Anything
// else that does not ascend, or that no log could have given rise to, is an
// *[Error].
//
// # Checker
//
// Whether an index agrees with its log cannot be seen from the index alone. A
// [Checker] is handed every batch of the log and reads the index files in step,
// in memory that does not grow with them.
//
// # Not handled
//
// Indexes are not built or repaired here: a broker rebuilds them from the log.
package index
