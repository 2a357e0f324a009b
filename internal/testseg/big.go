package testseg

import (
	"cmp"
	"math/rand/v2"

	"github.com/segtier/segtier/segment"
)

// Big makes a partition of o.Segments segments (default 1) of at least size bytes
// of log each, in batches of 64 KiB that do not compress: for what depends on size
// alone. Of the other options it heeds Partition. It is a pure function of its
// arguments.
func Big(seed uint64, size int64, o Options) *Log {
	const valueSize, perBatch, epoch = 16 << 10, 4, 3
	r := rand.New(rand.NewPCG(seed, 0xb16))
	log := &Log{Partition: o.Partition, Epochs: segment.Lineage{{Epoch: epoch, Start: 0}}}
	if log.Partition == (segment.Partition{}) {
		log.Partition = DefaultPartition
	}
	offset := int64(0)
	for range cmp.Or(o.Segments, 1) {
		spec := Spec{Partition: log.Partition, Start: offset, Epochs: log.Epochs}
		for done := int64(0); done < size; done += valueSize * perBatch {
			b := Batch{BaseOffset: offset, LeaderEpoch: epoch}
			for range perBatch {
				value := make([]byte, valueSize)
				for i := 0; i < len(value); i += 8 {
					v := r.Uint64()
					for j := range 8 {
						value[i+j] = byte(v >> (8 * j))
					}
				}
				b.Records = append(b.Records, segment.Record{Offset: offset, Timestamp: 1_700_000_000_000 + offset, Value: value})
				offset++
			}
			spec.Batches = append(spec.Batches, b)
		}
		log.Segments = append(log.Segments, Build(spec))
	}
	return log
}
