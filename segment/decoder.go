package segment

import "errors"

// Record is one record of a batch.
type Record struct {
	Offset    int64
	Timestamp int64 // ms since 1970, -1 for none
	Key       []byte
	Value     []byte // nil is Kafka's null, a tombstone; empty is empty
	Headers   []RecordHeader
}

// RecordHeader is one header of a record. Keys may repeat.
type RecordHeader struct {
	Key   string
	Value []byte // nil is Kafka's null
}

// DefaultMaxBytes bounds what one batch may decompress to.
const DefaultMaxBytes = 512 << 20

// Decoder decodes the records of batches.
type Decoder struct {
	// MaxBytes bounds the decompressed size of one batch, in bytes; 0 is
	// DefaultMaxBytes.
	MaxBytes int64
}

// Records calls yield for each record of the batch.
func (d *Decoder) Records(raw []byte, yield func(Record) bool) error { return errors.New("not yet") }
