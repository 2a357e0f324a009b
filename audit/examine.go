package audit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/segtier/segtier/internal/header"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// maxFindings bounds what is kept of one object's damage; a destroyed object
// would otherwise list every chunk.
const maxFindings = 64

// examine looks at one segment, as deep as the level says. An error says nothing
// about it.
func (v *verifier) examine(ctx context.Context, seg *metadata.Segment) (findings []Finding, size int64, err error) {
	key := object.Key(seg.Partition, seg.StartOffset, seg.ID)
	found := func(r Reason, off, n int64, err error) {
		if len(findings) < maxFindings {
			f := findingOf(r, seg, key, err)
			f.Off, f.Len = off, n
			findings = append(findings, f)
		}
	}
	if !object.IsLocation(seg.Custom) {
		found(ForeignSegment, 0, 0, metadata.ErrForeignSegment)
		return findings, 0, nil
	}
	loc, err := object.ParseLocation(seg.Custom)
	if err != nil {
		found(LocationInvalid, 0, 0, err)
		return findings, 0, nil
	}
	if loc.TailOffset < seg.SizeBytes {
		found(RecordSize, 0, 0, fmt.Errorf("a log of %d bytes does not fit before the tail of its object, at byte %d", seg.SizeBytes, loc.TailOffset))
		return findings, loc.ObjectSize, nil
	}
	damage := func(d *transfer.DamageError) { found(reasonOf(d), d.Off, d.Len, d) }
	switch v.o.Level {
	case LevelMetadata:
	case LevelHead:
		err = v.head(ctx, key, loc, damage)
	case LevelSample:
		err = transfer.SpotCheck(ctx, v.ep, header.Of(seg), loc, transfer.SpotOptions{
			Chunk: v.sampled(seg.ID), Found: damage, Pace: v.pace.Wait,
		})
	default:
		_, err = transfer.Confirm(ctx, v.ep, header.Of(seg), loc, transfer.ConfirmOptions{Found: damage, Pace: v.pace.Wait})
	}
	switch {
	case err == nil:
	case errors.Is(err, transfer.ErrDamaged), errors.Is(err, objstore.ErrNotExist):
		if len(findings) == 0 {
			found(ObjectMissing, 0, 0, err)
		}
	default:
		return nil, 0, err
	}
	return findings, loc.ObjectSize, nil
}

// head asks the store for an object's size, and its sum if it has one.
func (v *verifier) head(ctx context.Context, key string, loc object.Location, found func(*transfer.DamageError)) error {
	info, err := v.ep.Stat(ctx, key)
	switch {
	case errors.Is(err, objstore.ErrNotExist):
		found(&transfer.DamageError{Reason: transfer.Missing, Key: key, What: "object", Err: err})
	case err != nil:
		return err
	case info.Size != loc.ObjectSize:
		found(&transfer.DamageError{
			Reason: transfer.WrongSize, Key: key, What: "object",
			Err: fmt.Errorf("it has %d bytes, recorded are %d", info.Size, loc.ObjectSize),
		})
	case info.HasCRC32C && info.CRC32C != loc.ObjectCRC32C:
		found(&transfer.DamageError{
			Reason: transfer.Corrupt, Key: key, What: "object",
			Err: fmt.Errorf("the store says that its CRC32C is %08x, recorded is %08x", info.CRC32C, loc.ObjectCRC32C),
		})
	}
	return nil
}

// sampled decides, by the seed and the segment alone, which chunks are read.
func (v *verifier) sampled(id segment.UUID) func(i, n int) bool {
	base := mix(v.o.SampleSeed ^ binary.BigEndian.Uint64(id[:8]) ^ mix(binary.BigEndian.Uint64(id[8:])))
	limit := v.o.SampleFraction * math.MaxUint64
	return func(i, n int) bool {
		return i == int(base%uint64(n)) || float64(mix(base+uint64(i)+1)) < limit
	}
}

// mix scatters the bits of x (splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// checkRecords holds the records of a partition against each other.
func checkRecords(view *metadata.View) (findings []Finding) {
	p := view.Partition()
	note := func(r Reason, seg *metadata.Segment, from, to int64, err error) {
		findings = append(findings, Finding{Reason: r, Partition: p, Segment: seg, StartOffset: from, EndOffset: to, Err: err})
	}
	if n := view.Incomplete(); n > 0 {
		note(Incomplete, nil, -1, -1, fmt.Errorf("%d records could not be understood: %w", n, metadata.ErrIncomplete))
		return findings // what is missing may be in them
	}
	lineage := view.Lineage()
	var last *metadata.Segment // of those before, the one that reaches furthest: to reach
	reach := int64(-1)
	for seg := range view.All() {
		if seg.State != metadata.CopySegmentFinished {
			continue
		}
		first, end, ok := seg.Along(lineage, 0)
		if !ok {
			note(LineageMismatch, seg, seg.StartOffset, seg.EndOffset,
				fmt.Errorf("its leader epochs %v are not in the newest history of the partition: only a reader with another history finds it", seg.Epochs))
			continue
		}
		if first <= reach {
			to := min(reach, end)
			note(OffsetOverlap, seg, first, to, fmt.Errorf("segment %s has offsets %d to %d too; the one that was FINISHED last counts", last.ID, first, to))
		}
		if end > reach {
			last, reach = seg, end
		}
	}
	if view.Info().Deletion == metadata.PartitionKept {
		checkGaps(view, lineage, func(from, to int64) {
			note(OffsetGap, nil, from, to, fmt.Errorf("no segment has offsets %d to %d, there are some before and behind", from, to))
		})
	}
	return findings
}

// checkGaps finds the offsets between the earliest and the latest that no segment
// covers. Those that are being deleted are none: readers skip them.
func checkGaps(view *metadata.View, lineage segment.Lineage, gap func(from, to int64)) {
	at := view.LogStart()
	for first := true; ; first = false {
		seg, ok := view.Next(lineage, at)
		if !ok {
			return
		}
		from, last, _ := seg.Along(lineage, at)
		if !first && from > at {
			eachUndeleted(view, lineage, at, from-1, gap)
		}
		if last == math.MaxInt64 {
			return
		}
		at = last + 1
	}
}

// eachUndeleted calls gap with the runs of [from, to] that are not being deleted.
func eachUndeleted(view *metadata.View, lineage segment.Lineage, from, to int64, gap func(from, to int64)) {
	for at := from; at <= to; {
		if seg, ok := view.Deleting(lineage, at, nil); ok {
			_, last, _ := seg.Along(lineage, at)
			if at > from {
				gap(from, at-1)
			}
			if last >= to {
				return
			}
			at, from = last+1, last+1
			continue
		}
		next := to + 1
		for seg := range view.All() {
			if seg.State == metadata.DeleteSegmentStarted && seg.StartOffset > at {
				next = min(next, seg.StartOffset)
				break // they ascend
			}
		}
		if at = next; at > to {
			gap(from, to)
		}
	}
}
