package audit

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

// Cursor says how far a verification is: behind a segment, in the order of
// partitions and offsets. It can be kept as JSON and given to another process
// ([Options].Resume), which must verify the same: metadata, partitions, level and
// sample.
type Cursor struct {
	MetadataID     string  `json:"metadataId"`
	Scope          string  `json:"scope"` // which partitions were asked for
	Level          string  `json:"level"`
	SampleFraction float64 `json:"sampleFraction"`
	SampleSeed     uint64  `json:"sampleSeed"`

	Topic       string       `json:"topic"`
	TopicID     segment.UUID `json:"topicId"`
	Partition   int32        `json:"partition"`
	StartOffset int64        `json:"startOffset"`
	SegmentID   segment.UUID `json:"segmentId"`

	Report       Report `json:"report"`                 // so far
	OwnerMissing bool   `json:"ownerMissing,omitempty"` // that was found, and is in the Report
}

// ErrOtherCursor: a cursor is of another verification than the one that is to be
// resumed. Name the same partitions, level and sample, or begin anew without it.
var ErrOtherCursor = errors.New("cursor of another verification")

// resume takes up what the cursor says.
func (v *verifier) resume() error {
	v.base = v.cursor()
	c, mine := v.o.Resume, v.base
	if c == nil {
		return nil
	}
	switch {
	case c.MetadataID != mine.MetadataID:
		return fmt.Errorf("%w: of metadata %q, not of %q", ErrOtherCursor, c.MetadataID, mine.MetadataID)
	case c.Scope != mine.Scope:
		return fmt.Errorf("%w: of other partitions", ErrOtherCursor)
	case c.Level != mine.Level || c.SampleFraction != mine.SampleFraction || c.SampleSeed != mine.SampleSeed:
		return fmt.Errorf("%w: level %s, sample %v with seed %d", ErrOtherCursor, c.Level, c.SampleFraction, c.SampleSeed)
	}
	v.report, v.base.OwnerMissing = c.Report, c.OwnerMissing
	return nil
}

// cursor is one that stands nowhere yet.
func (v *verifier) cursor() Cursor {
	c := Cursor{MetadataID: v.meta.ID(), Scope: "all", Level: v.o.Level.String()}
	if v.o.Level == LevelSample {
		c.SampleFraction, c.SampleSeed = v.o.SampleFraction, v.o.SampleSeed
	}
	if v.o.Partitions != nil {
		partitions, _ := v.partitions() // no error: they are given
		h := fnv.New64a()
		for _, p := range partitions {
			_, _ = fmt.Fprintf(h, "%s/%s/%d\n", p.Topic, p.TopicID, p.Number) // never fails
		}
		c.Scope = fmt.Sprintf("%016x", h.Sum64())
	}
	return c
}

// checkpoint tells where the verification stands: behind seg.
func (v *verifier) checkpoint(seg *metadata.Segment) {
	if v.o.Checkpoint == nil {
		return
	}
	c := v.base
	c.Topic, c.TopicID, c.Partition = seg.Partition.Topic, seg.Partition.TopicID, seg.Partition.Number
	c.StartOffset, c.SegmentID, c.Report = seg.StartOffset, seg.ID, v.report
	v.o.Checkpoint(c)
}

func (c *Cursor) partition() segment.Partition {
	return segment.Partition{Topic: c.Topic, TopicID: c.TopicID, Number: c.Partition}
}

// before reports whether the whole partition lies before the cursor.
func (v *verifier) before(p segment.Partition) bool {
	return v.o.Resume != nil && comparePartitions(p, v.o.Resume.partition()) < 0
}

// within reports whether the cursor stands in the partition.
func (v *verifier) within(p segment.Partition) bool {
	return v.o.Resume != nil && v.o.Resume.partition() == p
}

// beforeSegment reports whether the segment was verified before the cursor was
// written.
func (v *verifier) beforeSegment(seg *metadata.Segment) bool {
	c := v.o.Resume
	if !v.within(seg.Partition) {
		return false
	}
	order := cmp.Or(cmp.Compare(seg.StartOffset, c.StartOffset), strings.Compare(string(seg.ID[:]), string(c.SegmentID[:])))
	return order <= 0
}
