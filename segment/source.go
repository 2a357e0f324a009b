package segment

import (
	"fmt"
	"io"
)

// FileKind names one of the files that travel with a segment's log.
type FileKind uint8

// The files of a segment, in the order in which an object holds them.
const (
	Log FileKind = iota
	OffsetIndex
	TimeIndex
	ProducerSnapshot
	TxnIndex
	numFileKinds
)

// String returns what Kafka calls the file, for messages.
func (k FileKind) String() string {
	switch k {
	case Log:
		return "log"
	case OffsetIndex:
		return "offset index"
	case TimeIndex:
		return "time index"
	case ProducerSnapshot:
		return "producer snapshot"
	case TxnIndex:
		return "transaction index"
	default:
		return fmt.Sprintf("file kind %d", uint8(k))
	}
}

// Info is what is known of a closed segment before its log is read.
type Info struct {
	Partition Partition

	// StartOffset is the base offset. EndOffset is the last offset that belongs
	// to the segment, inclusive: the next segment's base offset minus one, which
	// may lie beyond the last record that is still there.
	StartOffset, EndOffset int64

	// Epochs is the partition's whole history of leader epochs up to EndOffset,
	// from its beginning: the content of the LEADER_EPOCH index. Not empty; the
	// first entry starts at or before StartOffset.
	Epochs Lineage

	// ModTimestamp is the log file's time of modification in ms, which Kafka
	// takes as the greatest timestamp of a segment whose batches carry none.
	ModTimestamp int64
}

// Source is one closed segment to be copied. The bytes of its files must not
// change while it is open; Unchanged is how a copy finds out that they did.
// Methods may be called concurrently.
type Source interface {
	// Info returns what is known without reading the log. It does no I/O.
	Info() Info

	// File returns a file of the segment and its size in bytes. A file that the
	// segment does not have (TxnIndex when nothing was aborted, ProducerSnapshot
	// of an old broker) is nil and 0. Log is always there. The reader is valid
	// until Close, and its ReadAt may be called concurrently.
	File(FileKind) (io.ReaderAt, int64)

	// Unchanged returns an error unless the files are still the ones that were
	// opened: same sizes, times and identity, and still in place. It is asked
	// again before a copy is sealed.
	Unchanged() error

	// Close releases the files. It may be called more than once.
	Close() error
}
