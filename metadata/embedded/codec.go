package embedded

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

const (
	formatVersion    = 2 // of the file
	partitionVersion = 2 // of partition records
	segmentVersion   = 1 // of segment records

	partitionKeySize = 16 + 4
	segmentKeySize   = partitionKeySize + 16
	endedKeySize     = 8 + segmentKeySize

	partitionFixedV1 = 14 // bytes of a partition record of version 1 before the topic name
	partitionFixed   = 23 // the same of version 2
	epochInfoSize    = 20
	segmentFixed     = 56 // bytes of a segment record before the custom metadata
	epochSize        = 12
	sumSize          = 4

	flagTxnIndexEmpty = 1 << 0
)

// partitionKey identifies a partition in the file; the topic's name is data.
type partitionKey [partitionKeySize]byte

func keyOf(p segment.Partition) (k partitionKey) {
	copy(k[:], p.TopicID[:])
	binary.BigEndian.PutUint32(k[16:], uint32(p.Number))
	return k
}

func segmentKey(p partitionKey, id segment.UUID) []byte {
	return append(append(make([]byte, 0, segmentKeySize), p[:]...), id[:]...)
}

// endedKey orders segments that have ended by when they did, on the store's
// clock in ms.
func endedKey(at int64, segmentKey []byte) []byte {
	return append(binary.BigEndian.AppendUint64(make([]byte, 0, endedKeySize), uint64(max(at, 0))), segmentKey...)
}

// splitEnded is the opposite of endedKey.
func splitEnded(key []byte) (at int64, segmentKey []byte, err error) {
	if len(key) != endedKeySize {
		return 0, nil, corrupt("key of an ended segment of %d bytes", len(key))
	}
	return int64(binary.BigEndian.Uint64(key)), key[8:], nil
}

// partitionRecord is what the file keeps of a partition.
type partitionRecord struct {
	partition segment.Partition
	epoch     int32  // greatest leader epoch of a writer
	finished  uint64 // FINISHED events so far
	info      metadata.PartitionInfo
}

func (r *partitionRecord) encode(key []byte) []byte {
	b := make([]byte, 0, partitionFixed+len(r.partition.Topic)+4+epochInfoSize*len(r.info.Epochs)+sumSize)
	b = append(b, partitionVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(r.epoch))
	b = binary.BigEndian.AppendUint64(b, r.finished)
	b = binary.BigEndian.AppendUint64(b, uint64(r.info.LogStart))
	b = append(b, byte(r.info.Deletion))
	b = append(b, byte(len(r.partition.Topic))) // at most segment.MaxTopicLen
	b = append(b, r.partition.Topic...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(r.info.Epochs)))
	for _, e := range r.info.Epochs {
		b = binary.BigEndian.AppendUint32(b, uint32(e.Epoch))
		b = binary.BigEndian.AppendUint64(b, uint64(e.Start))
		b = binary.BigEndian.AppendUint64(b, uint64(e.Highest))
	}
	return seal(key, b)
}

// decodePartition reads records of this version and of the one before.
func decodePartition(key, b []byte) (r partitionRecord, err error) {
	if len(key) != partitionKeySize {
		return r, corrupt("partition key of %d bytes", len(key))
	}
	if b, err = unseal(key, b, partitionFixedV1, 1, partitionVersion); err != nil {
		return r, err
	}
	r.epoch = int32(binary.BigEndian.Uint32(b[1:]))
	r.finished = binary.BigEndian.Uint64(b[5:])
	rest := b[13:]
	if b[0] == partitionVersion {
		if len(b) < partitionFixed+4 {
			return r, corrupt("partition record of %d bytes", len(b))
		}
		r.info.LogStart = int64(binary.BigEndian.Uint64(b[13:]))
		r.info.Deletion = metadata.PartitionState(b[21])
		rest = b[22:]
	}
	topic, rest := int(rest[0]), rest[1:]
	if len(rest) < topic {
		return r, corrupt("partition record of %d bytes with a topic name of %d", len(b), topic)
	}
	r.partition.Topic, rest = string(rest[:topic]), rest[topic:]
	copy(r.partition.TopicID[:], key)
	r.partition.Number = int32(binary.BigEndian.Uint32(key[16:]))
	if b[0] == partitionVersion {
		if r.info.Epochs, rest, err = decodeEpochInfos(rest); err != nil {
			return r, err
		}
	}
	if len(rest) != 0 {
		return r, corrupt("partition record has %d bytes too many", len(rest))
	}
	return r, r.validate()
}

func decodeEpochInfos(b []byte) (infos []metadata.EpochInfo, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, corrupt("partition record ends in its leader epochs")
	}
	n, b := uint64(binary.BigEndian.Uint32(b)), b[4:]
	if uint64(len(b)) < n*epochInfoSize {
		return nil, nil, corrupt("partition record: %d leader epochs in %d bytes", n, len(b))
	}
	for i := range n {
		e := b[i*epochInfoSize:]
		infos = append(infos, metadata.EpochInfo{
			Epoch:   int32(binary.BigEndian.Uint32(e)),
			Start:   int64(binary.BigEndian.Uint64(e[4:])),
			Highest: int64(binary.BigEndian.Uint64(e[12:])),
		})
	}
	return infos, b[n*epochInfoSize:], nil
}

func (r *partitionRecord) validate() error {
	if err := r.partition.Validate(); err != nil {
		return corrupt("partition record: %v", err)
	}
	switch {
	case r.epoch < -1:
		return corrupt("partition record: leader epoch %d", r.epoch)
	case r.info.LogStart < 0:
		return corrupt("partition record: log start %d", r.info.LogStart)
	case r.info.Deletion < metadata.PartitionKept || r.info.Deletion > metadata.DeletePartitionFinished:
		return corrupt("partition record: state %d of its deletion", r.info.Deletion)
	}
	for i, e := range r.info.Epochs {
		if e.Epoch < 0 || e.Start < 0 || e.Highest < -1 || i > 0 && e.Epoch <= r.info.Epochs[i-1].Epoch {
			return corrupt("partition record: leader epoch %d from %d to %d", e.Epoch, e.Start, e.Highest)
		}
	}
	return nil
}

// segmentRecord is what the file keeps of a segment.
type segmentRecord struct {
	seg   *metadata.Segment
	order uint64 // number of its FINISHED event in the partition, 0 if there was none
}

func (r *segmentRecord) encode(key []byte) []byte {
	s := r.seg
	b := make([]byte, 0, segmentFixed+len(s.Custom)+4+epochSize*len(s.Epochs)+sumSize)
	var flags byte
	if s.TxnIndexEmpty {
		flags |= flagTxnIndexEmpty
	}
	b = append(b, segmentVersion, byte(s.State), flags)
	b = binary.BigEndian.AppendUint64(b, r.order)
	b = binary.BigEndian.AppendUint64(b, uint64(s.StartOffset))
	b = binary.BigEndian.AppendUint64(b, uint64(s.EndOffset))
	b = binary.BigEndian.AppendUint64(b, uint64(s.MaxTimestamp))
	b = binary.BigEndian.AppendUint64(b, uint64(s.EventTimestamp))
	b = binary.BigEndian.AppendUint32(b, uint32(s.BrokerID))
	b = binary.BigEndian.AppendUint32(b, uint32(s.LeaderEpoch))
	b = binary.BigEndian.AppendUint32(b, uint32(s.SizeBytes))
	if s.Custom == nil {
		b = append(b, 0)
	} else {
		b = append(b, byte(len(s.Custom)+1)) // at most metadata.MaxCustomSize
		b = append(b, s.Custom...)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.Epochs)))
	for _, e := range s.Epochs {
		b = binary.BigEndian.AppendUint32(b, uint32(e.Epoch))
		b = binary.BigEndian.AppendUint64(b, uint64(e.Start))
	}
	return seal(key, b)
}

// decodeSegment copies out of b. The key's partition must be p.
func decodeSegment(p segment.Partition, key, b []byte) (r segmentRecord, err error) {
	if len(key) != segmentKeySize {
		return r, corrupt("segment key of %d bytes", len(key))
	}
	if b, err = unseal(key, b, segmentFixed+4, segmentVersion); err != nil {
		return r, err
	}
	s := &metadata.Segment{
		Partition:      p,
		ID:             segment.UUID(key[partitionKeySize:]),
		State:          metadata.State(b[1]),
		TxnIndexEmpty:  b[2]&flagTxnIndexEmpty != 0,
		StartOffset:    int64(binary.BigEndian.Uint64(b[11:])),
		EndOffset:      int64(binary.BigEndian.Uint64(b[19:])),
		MaxTimestamp:   int64(binary.BigEndian.Uint64(b[27:])),
		EventTimestamp: int64(binary.BigEndian.Uint64(b[35:])),
		BrokerID:       int32(binary.BigEndian.Uint32(b[43:])),
		LeaderEpoch:    int32(binary.BigEndian.Uint32(b[47:])),
		SizeBytes:      int64(binary.BigEndian.Uint32(b[51:])),
	}
	if b[2]&^flagTxnIndexEmpty != 0 {
		return r, corrupt("segment %s: unknown flags %#x", s.ID, b[2])
	}
	r.order = binary.BigEndian.Uint64(b[3:])
	custom, rest := int(b[55])-1, b[segmentFixed:]
	if custom >= 0 {
		if len(rest) < custom+4 {
			return r, corrupt("segment %s: custom metadata of %d bytes does not fit its record", s.ID, custom)
		}
		s.Custom = append([]byte{}, rest[:custom]...)
		rest = rest[custom:]
	}
	epochs, rest := uint64(binary.BigEndian.Uint32(rest)), rest[4:]
	if uint64(len(rest)) != epochs*epochSize {
		return r, corrupt("segment %s: %d leader epochs in %d bytes", s.ID, epochs, len(rest))
	}
	s.Epochs = make(segment.Lineage, epochs)
	for i := range s.Epochs {
		s.Epochs[i].Epoch = int32(binary.BigEndian.Uint32(rest[i*epochSize:]))
		s.Epochs[i].Start = int64(binary.BigEndian.Uint64(rest[i*epochSize+4:]))
	}
	if err := s.Validate(); err != nil {
		return r, corrupt("%v", err)
	}
	if s.State == metadata.CopySegmentStarted && r.order != 0 || s.State == metadata.CopySegmentFinished && r.order == 0 {
		return r, corrupt("segment %s: in %s with FINISHED event %d", s.ID, s.State, r.order)
	}
	r.seg = s
	return r, nil
}

// seal appends the checksum, which covers the key too: a value under another
// key is as wrong as a changed one.
func seal(key, b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, checksum.Update(checksum.CRC32C(key), b))
}

// unseal returns b without its checksum, at least size bytes of it, if it is of a
// version that is known.
func unseal(key, b []byte, size int, versions ...byte) ([]byte, error) {
	if len(b) < size+sumSize {
		return nil, corrupt("record of %d bytes", len(b))
	}
	body, sum := b[:len(b)-sumSize], binary.BigEndian.Uint32(b[len(b)-sumSize:])
	if checksum.Update(checksum.CRC32C(key), body) != sum {
		return nil, corrupt("record of %d bytes does not have its checksum", len(b))
	}
	if !slices.Contains(versions, body[0]) {
		return nil, corrupt("record of version %d, known is %d", body[0], versions)
	}
	return body, nil
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, metadata.ErrCorrupt)...)
}
