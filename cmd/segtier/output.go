package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

// jsonLines returns an encoder that writes one line a value.
func jsonLines(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}

// segmentLine is a segment as --json shows it.
type segmentLine struct {
	Topic        string       `json:"topic"`
	TopicID      segment.UUID `json:"topicId"`
	Partition    int32        `json:"partition"`
	SegmentID    segment.UUID `json:"segmentId"`
	StartOffset  int64        `json:"startOffset"`
	EndOffset    int64        `json:"endOffset"`
	MaxTimestamp int64        `json:"maxTimestamp"`
	State        string       `json:"state"`
	SizeBytes    int64        `json:"sizeBytes"`
	LeaderEpochs []epochLine  `json:"leaderEpochs"`
}

// epochLine is a leader epoch and the offset at which it began.
type epochLine struct {
	LeaderEpoch int32 `json:"leaderEpoch"`
	Offset      int64 `json:"offset"`
}

func lineOf(seg *metadata.Segment) segmentLine {
	return segmentLine{
		Topic:        seg.Partition.Topic,
		TopicID:      seg.Partition.TopicID,
		Partition:    seg.Partition.Number,
		SegmentID:    seg.ID,
		StartOffset:  seg.StartOffset,
		EndOffset:    seg.EndOffset,
		MaxTimestamp: seg.MaxTimestamp,
		State:        seg.State.String(),
		SizeBytes:    seg.SizeBytes,
		LeaderEpochs: epochLines(seg.Epochs),
	}
}

func epochLines(epochs segment.Lineage) []epochLine {
	lines := make([]epochLine, 0, len(epochs))
	for _, e := range epochs {
		lines = append(lines, epochLine{LeaderEpoch: e.Epoch, Offset: e.Start})
	}
	return lines
}

// epochText is the leader epochs for a table: epoch@offset.
func epochText(epochs []epochLine) string {
	var parts []string
	for _, e := range epochs {
		parts = append(parts, fmt.Sprintf("%d@%d", e.LeaderEpoch, e.Offset))
	}
	return strings.Join(parts, ",")
}

// rangeText is n bytes from off on.
func rangeText(off, n int64) string { return fmt.Sprintf("[%d,%d)", off, off+n) }

// table writes aligned columns.
type table struct {
	w   *tabwriter.Writer
	err error // the first
}

func newTable(w io.Writer) *table { return &table{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

// rowf writes a row, with tabs between its cells.
func (t *table) rowf(format string, args ...any) {
	if _, err := fmt.Fprintf(t.w, format+"\n", args...); t.err == nil {
		t.err = err
	}
}

// flush writes what is held back to align it, and returns the first error.
func (t *table) flush() error { return errors.Join(t.err, t.w.Flush()) }

// nameOf is a partition as the user writes it.
func nameOf(p segment.Partition) string { return fmt.Sprintf("%s/%d", p.Topic, p.Number) }

// timeText is a Kafka timestamp for a table.
func timeText(ms int64) string {
	if ms < 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// sizeText is a number of bytes for people.
func sizeText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/unit, 0
	for v >= unit && i < 3 {
		v, i = v/unit, i+1
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGT"[i])
}

// plural is "1 segment" or "2 segments".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	if strings.HasSuffix(noun, "ch") {
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
