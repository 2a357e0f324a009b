// Package object is the format of the one object that holds a segment: its key,
// its bytes, and the few bytes of metadata that locate them.
//
//	log │ offset index │ time index │ producer snapshot ║ txn index │ leader epochs │ chunk table │ header │ trailer
//	◄───────────────────── head ──────────────────────► ║ ◄──────────────────────── tail ──────────────────────────►
//
// The head is Kafka's files, unchanged: the first bytes of the object are the
// log, so a position in the log is a position in the object. The tail is what a
// reader needs before it can ask for data; it is small, and [Location], which
// metadata keeps in the record of the segment, says where it is and what it
// sums to. A cold read is one GET for the tail and one for data.
//
// docs/format.md is the truth about every stored byte; a test holds this
// package to it.
//
// # Finding a batch
//
// The log is cut into chunks of equal length, the unit of checksum and of cache.
// Batches straddle chunks, so the chunk table ([Table]) keeps for each chunk the
// first batch that starts in it, and the greatest timestamp so far. It answers
// by offset and by time with the chunk where a walk over batch headers begins.
//
// # Guarantees
//
//   - An object's bytes are a pure function of the segment's files and its STARTED
//     record. There is no clock and no randomness in them.
//   - [ParseTail] is total: any bytes give a Tail in which every length, sum and
//     offset agrees with every other, or an error; nothing is allocated on the word
//     of a length that was not checked against the bytes at hand.
//   - [AppendTail] writes nothing that ParseTail would refuse.
//   - There is one spelling: what parses, encodes to the same bytes again.
//   - Versions that are not known are refused ([ErrVersion]), never guessed at.
//
// # Not handled
//
// Nothing here does I/O or looks at the log's bytes: that is transfer (writing,
// full reads) and fetch (reading). Chunks are stored as they are; the codec byte
// is reserved for compressed ones.
package object
