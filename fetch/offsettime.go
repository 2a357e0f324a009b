package fetch

import (
	"context"
	"fmt"
	"math"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

// TimeRequest asks for an offset by time.
type TimeRequest struct {
	Partition segment.Partition
	Lineage   segment.Lineage // as in Request
	LogStart  int64           // records below it do not count
	Time      int64           // ms since 1970, ≥ 0; Kafka's -1 (latest), -2 (earliest) and so on are the host's to answer
	Tenant    string          // as in Request
}

// TimePosition is the answer to a TimeRequest.
type TimePosition struct {
	Offset      int64 // of the record; -1: there is none in the tier
	Timestamp   int64 // of the record, in ms
	LeaderEpoch int32 // of its batch; -1 unknown (batches before magic 2)
}

// OffsetForTime returns the first record in offset order, at or after LogStart,
// whose timestamp is at least Time. Control records count, as in Kafka.
//
// The answer is exact, whatever timestamps do: where a segment or a batch
// promises a time that none of its records has any more, because compaction took
// them, the search goes on behind it. Without such a record in the tier the
// Offset is -1: go on in the local log. A tier with a hole in it is searched up
// to the hole, where it ends for Fetch too.
func (r *Reader) OffsetForTime(ctx context.Context, req TimeRequest) (TimePosition, error) {
	none := TimePosition{Offset: -1, Timestamp: -1, LeaderEpoch: -1}
	if req.Time < 0 {
		return none, fmt.Errorf("fetch: an offset of %v for time %d: times are milliseconds since 1970; Kafka's special ones, such as -1 for the latest, are the host's to answer", req.Partition, req.Time)
	}
	rd := reading{r: r, p: req.Partition, lineage: req.Lineage, logStart: req.LogStart, tenant: req.Tenant}
	if err := rd.look(); err != nil {
		return none, err
	}
	offset := max(rd.logStart, 0)
	for first := true; ; first = false {
		seg, ok := rd.view.Next(rd.lineage, offset)
		if !ok || offset == math.MaxInt64 { // see at
			return none, rd.complete(offset)
		}
		from, _, _ := seg.Along(rd.lineage, offset)
		if from > offset && !first {
			return none, rd.complete(offset)
		}
		upper := rd.upper(&seg, from)
		if seg.MaxTimestamp >= req.Time {
			found, ok, err := rd.search(ctx, &seg, from, upper, req.Time)
			if err != nil {
				return none, rd.blame(ctx, seg, from, err)
			}
			if ok {
				return found, nil
			}
		}
		offset = upper
	}
}

// search looks for the first record of a segment with an offset in [from, upper)
// and a timestamp of at least time.
func (rd *reading) search(ctx context.Context, seg *metadata.Segment, from, upper, time int64) (found TimePosition, ok bool, err error) {
	r := rd.r
	t, err := r.tail(ctx, seg, rd.tenant)
	if err != nil {
		return found, false, err
	}
	c := t.Table.ForTime(time)
	if c == len(t.Table.Chunks) {
		return found, false, nil // the log's mtime stood in for times it has not
	}
	c = max(c, t.Table.ForOffset(from))
	for c < len(t.Table.Chunks) && t.Table.Chunks[c].FirstBatch < 0 {
		c++
	}
	if c == len(t.Table.Chunks) {
		return found, false, nil
	}
	s := scan{r: r, end: t.Table.LogSize()}
	s.pins.open(t)
	s.pins.whose.tenant = rd.tenant
	defer s.pins.release()
	for pos := t.Table.Chunks[c].FirstBatch; pos < s.end; {
		h, err := s.header(ctx, pos)
		if err != nil {
			return found, false, err
		}
		if h.LastOffset >= upper {
			break // of another lineage
		}
		if h.LastOffset >= from && h.MaxTimestamp >= time {
			raw, err := s.batch(ctx, pos, h)
			if err != nil {
				return found, false, err
			}
			if found, ok, err = s.first(raw, h, from, time); err != nil {
				return found, false, &damage{key: t.key, off: pos, n: int64(h.Size), err: err}
			}
			if ok {
				return found, true, nil
			}
		}
		pos += int64(h.Size)
	}
	return found, false, nil
}

// scan reads batches in sequence, a few chunks at a time.
type scan struct {
	r       *Reader
	pins    pins
	end     int64 // of the log
	ahead   int64 // bytes to ask for at once
	scratch []byte
	decoder segment.Decoder
}

// header returns the header of the batch at pos.
func (s *scan) header(ctx context.Context, pos int64) (segment.Header, error) {
	p := &s.pins
	c := p.t.chunk(pos)
	p.restart(c)
	if p.ready == 0 && len(p.leases) == 0 {
		// The first GET is for one chunk, which mostly is enough; who goes on
		// reads more at a time.
		if err := s.r.need(ctx, p, c, p.t.chunk(min(pos+s.ahead, s.end-1)), true); err != nil {
			return segment.Header{}, err
		}
		s.ahead = min(max(2*s.ahead, p.t.Table.ChunkSize), s.r.o.RunBytes/4-p.t.Table.ChunkSize)
	}
	if err := s.r.need(ctx, p, c, c, true); err != nil {
		return segment.Header{}, err
	}
	return s.r.header(ctx, p, pos, true)
}

// batch returns the whole batch at pos.
func (s *scan) batch(ctx context.Context, pos int64, h segment.Header) ([]byte, error) {
	p := &s.pins
	n := int(h.Size)
	last := p.t.chunk(pos + int64(n) - 1)
	if err := s.r.need(ctx, p, last, last, true); err != nil {
		return nil, err
	}
	if last > p.first && cap(s.scratch) < n {
		s.scratch = make([]byte, n)
	}
	return p.bytes(pos, n, s.scratch[:cap(s.scratch)]), nil
}

// first returns the first record of a batch with an offset from `from` on and a
// timestamp of at least time.
func (s *scan) first(raw []byte, h segment.Header, from, time int64) (found TimePosition, ok bool, err error) {
	err = s.decoder.Times(raw, func(offset, timestamp int64) bool {
		if timestamp >= time && offset >= from {
			found, ok = TimePosition{Offset: offset, Timestamp: timestamp, LeaderEpoch: h.LeaderEpoch}, true
		}
		return !ok
	})
	if ok {
		err = nil
	}
	return found, ok, err
}
