package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/segtier/segtier/audit"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// verifyOptions are the flags of verify.
type verifyOptions struct {
	level    string
	sample   float64
	seed     uint64
	rate     byteSize // per second
	parallel int
	cursor   string
}

var verifyLevels = []audit.Level{audit.LevelFull, audit.LevelSample, audit.LevelHead, audit.LevelMetadata}

func (a *app) verifyCommand() *cobra.Command {
	var o verifyOptions
	cmd := &cobra.Command{
		Use:   "verify [PARTITION…]",
		Short: "Read every byte of every readable segment and check it",
		Long: `verify reads every object that metadata calls readable, of the partitions given
or of all, and checks every byte against the sums recorded when it was copied,
every record batch against its own CRC, the indexes against the log, the object's
header against metadata, and the records of a partition against each other. It
changes nothing. Each finding is one line on stdout: reason, object, range of bytes
and evidence. Exit status 3 says that there was damage.

--level says how much is read:

  full      every byte (the default)
  sample    the tail of each object and some of its chunks (--sample, --seed)
  head      nothing: is each object there, and as long as recorded?
  metadata  nothing, and the store is not asked: gaps, overlaps, order, sizes

A long run can be interrupted and gone on with: --cursor FILE keeps where it
stands, and is removed when everything was verified. It is written within 5 s of each
segment, so a kill costs that and the segments that were being read, --parallel of them.

Reasons: OBJECT_MISSING, OBJECT_SIZE, OBJECT_CORRUPT, INDEX_MISMATCH,
RECORD_MISMATCH, RECORD_SIZE, LOCATION_INVALID; OFFSET_GAP and METADATA_INCOMPLETE
of a partition; OWNER_MISSING of the whole store: it lacks the marker that says
whose it is. A store that is another metadata's is an error and no damage. No
damage either, but told: OFFSET_OVERLAP, LINEAGE_MISMATCH, FOREIGN_SEGMENT.
docs/operations.md says what to do about each.`,
		Example: `  segtier verify
  segtier verify --level head
  segtier verify --level sample --sample 0.02 --seed 7 orders/0
  segtier verify --rate 50MiB --cursor verify.json`,
		ValidArgsFunction: a.completePartitions(1 << 16),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.verify(cmd.Context(), o, args) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.level, "level", "full", "how much is read: `LEVEL` full, sample, head or metadata")
	flags.Float64Var(&o.sample, "sample", 0.01, "`FRACTION` of an object's chunks that --level sample reads, at least one")
	flags.Uint64Var(&o.seed, "seed", 0, "which chunks those are: the same seed reads the same")
	flags.Var(&o.rate, "rate", "bytes that may be read per second (0: no limit)")
	flags.IntVar(&o.parallel, "parallel", 0, "`NUMBER` of objects that are read at a time (0: 4)")
	flags.StringVar(&o.cursor, "cursor", "", "go on where `FILE` says, and keep it up to date")
	return cmd
}

// options are the library's.
func (o *verifyOptions) options() (audit.Options, error) {
	i := slices.IndexFunc(verifyLevels, func(l audit.Level) bool { return l.String() == o.level })
	switch {
	case i < 0:
		return audit.Options{}, usagef("--level %q: write full, sample, head or metadata", o.level)
	case !(o.sample > 0 && o.sample <= 1):
		return audit.Options{}, usagef("--sample %v: write a fraction above 0, at most 1", o.sample)
	case o.parallel < 0:
		return audit.Options{}, usagef("--parallel %d: write a number from 1 on", o.parallel)
	}
	return audit.Options{
		Level: verifyLevels[i], SampleFraction: o.sample, SampleSeed: o.seed,
		BytesPerSecond: int64(o.rate), Parallel: o.parallel,
	}, nil
}

// findingLine is a damage as --json shows it.
type findingLine struct {
	Reason      string       `json:"reason"`
	Severity    string       `json:"severity"` // damage, or notice
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

func (a *app) verify(ctx context.Context, o verifyOptions, args []string) (err error) {
	options, err := o.options()
	if err != nil {
		return err
	}
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
	cursor, err := openCursor(o.cursor)
	if err != nil {
		return err
	}
	bar := newProgress(a.stderr, a.terminal, total, "verifying")
	defer bar.clear()
	var printed error
	if len(wanted) > 0 {
		options.Partitions = partitions
	}
	options.Resume = cursor.resume
	options.Checkpoint = cursor.checkpoint
	noOwner := cursor.resume != nil && cursor.resume.OwnerMissing
	options.Found = func(f audit.Finding) {
		noOwner = noOwner || f.Reason == audit.OwnerMissing
		bar.clear()
		printed = errors.Join(printed, a.printFinding(f))
	}
	options.Verified = func(seg *metadata.Segment, _ bool) {
		bar.begin("verifying "+nameOf(seg.Partition), seg.SizeBytes)
		bar.end()
	}
	report, err := tier.Verify(ctx, options)
	bar.clear()
	cerr := cursor.close(ctx.Err() == nil && (err == nil || report.Unread > 0))
	notices := ""
	if report.Notices > 0 {
		notices = ", " + plural(report.Notices, "notice")
	}
	a.messagef("%s verified (%s): %d damaged%s", plural(report.Segments, "segment"), sizeText(report.Bytes), report.Damaged, notices)
	if printed != nil {
		return errors.Join(printed, cerr)
	}
	if report.Findings > 0 {
		if err != nil {
			a.tell(fmt.Errorf("the verification is incomplete: %w", err))
		}
		if cerr != nil {
			a.tell(cerr)
		}
		if noOwner {
			a.messagef("  next: %s; only if this is the store that was copied to, bring back what is missing from a copy of it (docs/operations.md)", ownStore)
			return &statusError{statusDamage, errTold}
		}
		a.messagef("  next: bring the objects named above back from a copy of the store; fetch refuses their damaged ranges until then (docs/operations.md)")
		return &statusError{statusDamage, errTold}
	}
	return errors.Join(err, cerr)
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
	var id segment.UUID
	if f.Segment != nil {
		id = f.Segment.ID
	}
	severity := "damage"
	if f.Reason.Notice() {
		severity = "notice"
	}
	if a.json {
		return jsonLines(a.stdout).Encode(findingLine{
			Reason:      string(f.Reason),
			Severity:    severity,
			Topic:       f.Partition.Topic,
			TopicID:     f.Partition.TopicID,
			Partition:   f.Partition.Number,
			SegmentID:   id,
			StartOffset: f.StartOffset,
			EndOffset:   f.EndOffset,
			Object:      f.Key,
			Position:    f.Off,
			SizeBytes:   f.Len,
			Message:     evidence(f.Err),
		})
	}
	what, where := f.Key, "whole object"
	switch {
	case f.Len > 0:
		where = "bytes " + rangeText(f.Off, f.Len)
	case f.Key == "" && f.StartOffset >= 0:
		what, where = nameOf(f.Partition), fmt.Sprintf("offsets %d-%d", f.StartOffset, f.EndOffset)
	case f.Key == "":
		what, where = nameOf(f.Partition), "whole partition"
	}
	_, err := fmt.Fprintf(a.stdout, "%s  %s  %s: %s\n", f.Reason, what, where, evidence(f.Err))
	return err
}

// evidence is the error of a finding without the object and the range, which the
// finding has already.
func evidence(err error) string {
	what := ""
	var damage *transfer.DamageError
	if errors.As(err, &damage) && damage.Err != nil {
		if err = damage.Err; damage.What != "object" { // which has been named
			what = damage.What + ": "
		}
	}
	var store *objstore.Error
	if errors.As(err, &store) {
		err = store.Err
	}
	return what + err.Error()
}
