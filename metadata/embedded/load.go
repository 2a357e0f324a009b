package embedded

import (
	"bytes"
	"encoding/binary"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

// load fills s from the file: every record is read and checked, in one pass. It
// needs no more memory than what it leaves behind, twice for the partition it is
// at.
func (s *Store) load() error {
	return s.db.View(func(tx *bolt.Tx) error {
		if info, err := s.file.Stat(); err != nil {
			return err
		} else if info.Size() < tx.Size() {
			return corrupt("file is cut short: %d bytes of %d", info.Size(), tx.Size())
		}
		format, err := s.loadFile(tx)
		if err != nil {
			return err
		}
		ended := 0
		err = eachPartition(tx, func(k []byte, rec partitionRecord, v *metadata.View, gone int) error {
			p := &partition{name: rec.partition}
			p.view.Store(v)
			s.mu.partitions[partitionKey(k)] = p
			ended += gone
			return nil
		})
		if err != nil || format < 2 {
			return err
		}
		return checkEnded(tx, ended)
	})
}

// loadFile checks the format and sets the ID.
func (s *Store) loadFile(tx *bolt.Tx) (format uint32, err error) {
	file := tx.Bucket([]byte(fileBucket))
	if file == nil {
		return 0, corrupt("a bbolt file of another program")
	}
	b := file.Get([]byte(formatKey))
	if len(b) != 4 {
		return 0, corrupt("format version of %d bytes", len(b))
	}
	format = binary.BigEndian.Uint32(b)
	if format < 1 || format > formatVersion {
		return 0, fmt.Errorf("has format version %d, this program knows 1 to %d: open it with the release that wrote it, or a newer one", format, formatVersion)
	}
	id, err := segment.ParseUUID(string(file.Get([]byte(idKey))))
	if err != nil {
		return 0, corrupt("store id: %v", err)
	}
	s.id = id.String()
	return format, nil
}

// eachPartition decodes every record of partitions and segments and calls f with
// each partition's View and how many of its segments have ended.
func eachPartition(tx *bolt.Tx, f func(key []byte, rec partitionRecord, v *metadata.View, ended int) error) error {
	partitions, segments := tx.Bucket([]byte(partitionsBucket)), tx.Bucket([]byte(segmentsBucket))
	if partitions == nil || segments == nil {
		return corrupt("buckets are missing")
	}
	c := segments.Cursor()
	key, value := c.First()
	err := partitions.ForEach(func(k, v []byte) error {
		rec, err := decodePartition(k, v)
		if err != nil {
			return fmt.Errorf("partition record %x: %w", k, err)
		}
		l, ended := metadata.NewLoader(rec.partition), 0
		for ; bytes.HasPrefix(key, k); key, value = c.Next() {
			r, err := decodeSegment(rec.partition, key, value)
			if err != nil {
				return fmt.Errorf("segment record %x of %s: %w", key, rec.partition, err)
			}
			if r.order > rec.finished {
				return corrupt("segment record %x of %s: FINISHED event %d of %d", key, rec.partition, r.order, rec.finished)
			}
			if r.seg.State == metadata.DeleteSegmentFinished {
				ended++
			}
			l.Add(r.seg, r.order)
		}
		return f(k, rec, l.View().WithInfo(rec.info), ended)
	})
	if err == nil && key != nil {
		err = corrupt("segment record %x belongs to no partition", key)
	}
	return err
}

// checkEnded compares the list of segments that have ended with how many there
// are. One that is missing in it would never be forgotten.
func checkEnded(tx *bolt.Tx, want int) error {
	ended, segments := tx.Bucket([]byte(endedBucket)), tx.Bucket([]byte(segmentsBucket))
	if ended == nil {
		return corrupt("buckets are missing")
	}
	n := 0
	err := ended.ForEach(func(k, _ []byte) error {
		n++
		_, sk, err := splitEnded(k)
		if err != nil {
			return err
		}
		if v := segments.Get(sk); len(v) < 2 || metadata.State(v[1]) != metadata.DeleteSegmentFinished {
			return corrupt("segment %x is listed as ended and is not", sk)
		}
		return nil
	})
	if err == nil && n != want {
		err = corrupt("%d segments have ended, %d are listed", want, n)
	}
	return err
}

// upgrade brings a file of the format before to this one, in one transaction: a
// crash leaves either. A file that is opened read-only stays as it is and is read
// all the same.
func (s *Store) upgrade() error {
	if s.o.ReadOnly {
		return nil
	}
	return s.db.Update(func(tx *bolt.Tx) error {
		format, err := s.loadFile(tx)
		if err != nil || format == formatVersion {
			return err
		}
		// Version 1 kept all ended segments for ever, and with them the highest
		// offsets of their epochs; from now on the partition's record keeps those.
		ended, err := tx.CreateBucketIfNotExists([]byte(endedBucket))
		if err != nil {
			return err
		}
		now := s.o.Now().UnixMilli()
		records := map[partitionKey][]byte{}
		err = eachPartition(tx, func(k []byte, rec partitionRecord, v *metadata.View, _ int) error {
			pk := partitionKey(k)
			for seg := range v.Ended() {
				if err := ended.Put(endedKey(now, segmentKey(pk, seg.ID)), nil); err != nil {
					return err
				}
			}
			rec.info = v.Info()
			records[pk] = rec.encode(k)
			return nil
		})
		if err != nil {
			return err
		}
		for pk, b := range records { // a bucket must not be changed while it is walked
			if err := tx.Bucket([]byte(partitionsBucket)).Put(pk[:], b); err != nil {
				return err
			}
		}
		s.log.Info("metadata file upgraded", "path", s.path, "from", format, "to", formatVersion)
		return tx.Bucket([]byte(fileBucket)).Put([]byte(formatKey), binary.BigEndian.AppendUint32(nil, formatVersion))
	})
}
