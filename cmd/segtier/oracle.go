package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/segtier/segtier/segment"
)

// oracle is what the demo knows of a partition without the tier: the log files
// of its closed segments, read whole and taken apart batch by batch.
type oracle struct {
	path    string
	topic   string
	name    string  // topic/partition
	bases   []int64 // of the closed segments
	end     int64   // last offset of the last closed segment
	log     []byte  // the closed log files, one after another
	batches []oracleBatch
}

type oracleBatch struct {
	header  segment.Header
	raw     []byte
	offsets []int64 // of the records
	times   []int64
}

func readOracle(path string) (*oracle, error) {
	dir := segment.Dir{Path: path}
	p, err := dir.Partition()
	if err != nil {
		return nil, err
	}
	bases, err := dir.Segments()
	if err != nil {
		return nil, err
	}
	if len(bases) < 2 {
		return nil, fmt.Errorf("%s: there is no closed segment", path)
	}
	last := len(bases) - 1
	o := &oracle{path: path, topic: p.Topic, name: nameOf(p), bases: bases[:last], end: bases[last] - 1}
	for _, base := range o.bases {
		b, err := os.ReadFile(filepath.Join(path, fmt.Sprintf("%020d.log", base)))
		if err != nil {
			return nil, err
		}
		o.log = append(o.log, b...)
	}
	return o, o.takeApart()
}

func (o *oracle) takeApart() error {
	var decoder segment.Decoder
	for pos := 0; pos < len(o.log); {
		h, err := segment.ParseHeader(o.log[pos:])
		if err != nil {
			return err
		}
		b := oracleBatch{header: h, raw: o.log[pos:min(len(o.log), pos+int(h.Size))]}
		if _, err := segment.VerifyBatch(b.raw); err != nil {
			return err
		}
		err = decoder.Records(b.raw, func(r segment.Record) bool {
			b.offsets = append(b.offsets, r.Offset)
			b.times = append(b.times, r.Timestamp)
			return true
		})
		if err != nil {
			return err
		}
		o.batches = append(o.batches, b)
		pos += len(b.raw)
	}
	return nil
}

// middleTime returns the time of a record in the middle of the log.
func (o *oracle) middleTime() int64 {
	for _, b := range o.batches[len(o.batches)/2:] {
		if len(b.times) > 0 {
			return b.times[len(b.times)/2]
		}
	}
	return 0
}

// firstAtOrAfter returns the offset of the first record whose time is at or
// after ms, -1 if there is none.
func (o *oracle) firstAtOrAfter(ms int64) int64 {
	for _, b := range o.batches {
		for i, t := range b.times {
			if t >= ms {
				return b.offsets[i]
			}
		}
	}
	return -1
}
