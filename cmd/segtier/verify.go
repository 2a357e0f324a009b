package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/segtier/segtier/audit"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

func (a *app) verifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify [PARTITION…]",
		Short: "Read every byte of every readable segment and check it",
		Long: `verify reads every object that metadata calls readable, of the partitions given
or of all, and checks every byte against the sums recorded when it was copied,
every record batch against its own CRC, and the object's header against metadata.
It changes nothing. Each damage is one line on stdout: reason, object, range of
bytes and evidence. Exit status 3 says that there was damage.

Reasons: OBJECT_MISSING, OBJECT_SIZE, OBJECT_CORRUPT, RECORD_MISMATCH,
LOCATION_INVALID; and OWNER_MISSING, of the whole store: it lacks the marker that
says whose it is. A store that is another metadata's is an error and no damage.`,
		ValidArgsFunction: a.completePartitions(1 << 16),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.verify(cmd.Context(), args) },
	}
}

// findingLine is a damage as --json shows it.
type findingLine struct {
	Reason      string       `json:"reason"`
	Topic       string       `json:"topic"`
	TopicID     segment.UUID `json:"topicId"`
	Partition   int32        `json:"partition"`
	SegmentID   segment.UUID `json:"segmentId"`
	StartOffset int64        `json:"startOffset"`
	EndOffset   int64        `json:"endOffset"`
	Object      string       `json:"object"`
	Position    int64        `json:"position"`  // first byte of the damaged range
	SizeBytes   int64        `json:"sizeBytes"` // of the range; 0 is the whole object
	Message     string       `json:"message"`
}

func (a *app) verify(ctx context.Context, args []string) (err error) {
	wanted, err := parsePartitions(args)
	if err != nil {
		return err
	}
	tier, err := a.openReader(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tier.Close()) }()
	partitions, err := choose(tier, wanted)
	if err != nil {
		return err
	}
	total, err := readableBytes(tier, partitions)
	if err != nil {
		return err
	}
	bar := newProgress(a.stderr, a.terminal, total, "verifying")
	defer bar.clear()
	var printed error
	report, err := tier.Verify(ctx, audit.Options{
		Partitions: partitions,
		Found: func(f audit.Finding) {
			bar.clear()
			printed = errors.Join(printed, a.printFinding(f))
		},
		Verified: func(seg *metadata.Segment, _ bool) {
			bar.begin("verifying "+nameOf(seg.Partition), seg.SizeBytes)
			bar.end()
		},
	})
	bar.clear()
	if printed != nil {
		return printed
	}
	a.messagef("%s verified (%s): %d damaged", plural(report.Segments, "segment"), sizeText(report.Bytes), report.Damaged)
	if report.Findings > 0 {
		if err != nil {
			a.tell(fmt.Errorf("the verification is incomplete: %w", err))
		}
		a.messagef("  next: bring the objects named above back from a copy of the store; fetch refuses their damaged ranges until then")
		return &statusError{statusDamage, errTold}
	}
	return err
}

func readableBytes(tier *opened, partitions []segment.Partition) (total int64, err error) {
	for _, p := range partitions {
		view, err := tier.View(p)
		if err != nil {
			return 0, err
		}
		for seg := range view.All() {
			if seg.State == metadata.CopySegmentFinished {
				total += seg.SizeBytes
			}
		}
	}
	return total, nil
}

func (a *app) printFinding(f audit.Finding) error {
	seg := f.Segment
	if seg == nil {
		seg = &metadata.Segment{StartOffset: -1, EndOffset: -1} // it is of the whole prefix
	}
	if a.json {
		return jsonLines(a.stdout).Encode(findingLine{
			Reason:      string(f.Reason),
			Topic:       seg.Partition.Topic,
			TopicID:     seg.Partition.TopicID,
			Partition:   seg.Partition.Number,
			SegmentID:   seg.ID,
			StartOffset: seg.StartOffset,
			EndOffset:   seg.EndOffset,
			Object:      f.Key,
			Position:    f.Off,
			SizeBytes:   f.Len,
			Message:     evidence(f.Err),
		})
	}
	where := "whole object"
	if f.Len > 0 {
		where = "bytes " + rangeText(f.Off, f.Len)
	}
	_, err := fmt.Fprintf(a.stdout, "%s  %s  %s: %s\n", f.Reason, f.Key, where, evidence(f.Err))
	return err
}

// evidence is the error of a finding without the object and the range, which the
// finding has already.
func evidence(err error) string {
	what := ""
	var damage *transfer.DamageError
	if errors.As(err, &damage) && damage.Err != nil {
		what, err = damage.What+": ", damage.Err
	}
	var store *objstore.Error
	if errors.As(err, &store) {
		err = store.Err
	}
	return what + err.Error()
}
