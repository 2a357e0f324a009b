package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/audit"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

// rebuildOptions are the flags of rebuild.
type rebuildOptions struct {
	apply, doubtful bool

	logStarts string
	rate      byteSize // per second
	parallel  int
}

func (a *app) rebuildCommand() *cobra.Command {
	var o rebuildOptions
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Make metadata from the objects in the store",
		Long: `rebuild makes metadata anew from the headers of the objects, for when the metadata
and its snapshots are lost. The metadata must be new or empty. A segment becomes
readable only after its object was read whole and every byte was confirmed.

Without --apply it reads the headers alone and tells what it would do. With --apply
the prefix, whosever it was, belongs to the new metadata from then on: copies and
collections with any other are refused. Stop everything that writes to the prefix
first. A rebuild that was interrupted is gone on with by running it again.

Objects do not say everything: see docs/operations.md for what is lost (the log
start, deletions, who wrote FINISHED when) and for what is left to you: objects of
one range with other bytes (LEFT_CONFLICT), objects that look as if retention had
deleted them (LEFT_DELETED, LEFT_BELOW_GAP; --doubtful makes them readable too), and
damaged ones (LEFT_DAMAGED). Those that nothing tells from copies that had not
finished are marked as candidates. Exit status 3 says that something was left that
may be needed.

--log-starts names Kafka's log-start-offset-checkpoint file of a broker: what ends
below a partition's log start there is not made readable.`,
		Example: `  segtier rebuild --meta file:new.db
  segtier rebuild --meta file:new.db --log-starts /var/lib/kafka/log-start-offset-checkpoint --apply`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.rebuild(cmd.Context(), o) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.apply, "apply", false, "take the prefix over and write metadata; without it nothing is changed")
	flags.BoolVar(&o.doubtful, "doubtful", false, "make readable too what looks as if retention had deleted it")
	flags.StringVar(&o.logStarts, "log-starts", "", "log starts of partitions, in `FILE`, Kafka's log-start-offset-checkpoint")
	flags.Var(&o.rate, "rate", "bytes that may be read per second (0: no limit)")
	flags.IntVar(&o.parallel, "parallel", 0, "`NUMBER` of objects that are read at a time (0: 4)")
	return cmd
}

// restoredLine is what became of an object, as --json shows it.
type restoredLine struct {
	Reason    string `json:"reason"`
	Candidate bool   `json:"candidate"`
	Object    string `json:"object"`
	Message   string `json:"message"`
	segmentLine
}

func (a *app) rebuild(ctx context.Context, o rebuildOptions) (err error) {
	if o.parallel < 0 {
		return usagef("--parallel %d: write a number from 1 on", o.parallel)
	}
	options := audit.RebuildOptions{Apply: o.apply, Doubtful: o.doubtful, Parallel: o.parallel, BytesPerSecond: int64(o.rate)}
	if o.logStarts != "" {
		starts, err := readLogStarts(o.logStarts)
		if err != nil {
			return err
		}
		options.LogStart = func(p segment.Partition) (int64, bool) {
			offset, ok := starts[fmt.Sprintf("%s %d", p.Topic, p.Number)]
			return offset, ok
		}
	}
	tier, err := a.openRebuild(ctx, o.apply)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tier.Close()) }()
	bar := newProgress(a.stderr, a.terminal, -1, "rebuilding")
	defer bar.clear()
	var printed error
	options.Found = func(f audit.Restored) {
		bar.clear()
		printed = errors.Join(printed, a.printRestored(f))
		bar.begin("rebuilding", f.Size)
		bar.end()
	}
	report, err := tier.Rebuild(ctx, options)
	bar.clear()
	if printed != nil {
		return printed
	}
	if errors.Is(err, audit.ErrNotEmpty) {
		return err
	}
	a.tellRebuild(report, o, tier.meta.ID())
	if err != nil {
		return err
	}
	if report.Damaged+report.Conflicts+report.BelowGap+report.Refused > 0 {
		return &statusError{statusDamage, errTold}
	}
	return nil
}

// tellRebuild sums up for people.
func (a *app) tellRebuild(r audit.RebuildReport, o rebuildOptions, id string) {
	owner := "belonged to nobody"
	switch r.Owner {
	case "":
	case id:
		owner = "belongs to this metadata"
	default:
		owner = "belonged to metadata store " + r.Owner
	}
	a.messagef("%s of %s (%s), %d of others; the prefix %s", plural(r.Objects, "object"), plural(r.Partitions, "partition"), sizeText(r.Bytes), r.Foreign, owner)
	verb := "can be made readable"
	if o.apply {
		verb = "readable"
	}
	a.messagef("%s %s, of them %d candidates; left: %d damaged, %d in conflict, %d duplicates, %d deleted, %d below a gap, %d by metadata", plural(r.Rebuilt, "segment"), verb,
		r.Candidates, r.Damaged, r.Conflicts, r.Duplicates, r.Deleted, r.BelowGap, r.Refused)
	switch {
	case !o.apply:
		a.messagef("  next: stop all that writes to the prefix, and run it again with --apply: the prefix will belong to metadata store %s", id)
	case r.Damaged+r.Conflicts+r.BelowGap+r.Refused > 0:
		a.messagef("  next: see docs/operations.md for what was left; nothing of it was deleted")
	default:
		a.messagef("  next: 'segtier verify --level metadata', and set the log starts of partitions that have one")
	}
}

func (a *app) printRestored(f audit.Restored) error {
	message := f.Note
	if f.Err != nil {
		message = evidence(f.Err)
	}
	if a.json {
		line := restoredLine{Reason: string(f.Reason), Candidate: f.Candidate, Object: f.Key, Message: message}
		seg := f.Segment
		if seg == nil {
			seg = &metadata.Segment{StartOffset: -1, EndOffset: -1, State: metadata.None}
		}
		line.segmentLine = lineOf(seg)
		return jsonLines(a.stdout).Encode(line)
	}
	where := ""
	if f.Segment != nil {
		where = fmt.Sprintf("  offsets %d-%d", f.Segment.StartOffset, f.Segment.EndOffset)
	}
	if f.Candidate {
		where += "  candidate"
	}
	if message != "" {
		where += ": " + message
	}
	_, err := fmt.Fprintf(a.stdout, "%s  %s%s\n", f.Reason, f.Key, where)
	return err
}

// openRebuild opens a store that is there, and metadata that may be new. What is
// only looked at is not created: then it is a metadata file beside, which goes.
func (a *app) openRebuild(ctx context.Context, apply bool) (*opened, error) {
	storeAt, err := a.storeLocation()
	if err != nil {
		return nil, err
	}
	if err := presentStore(storeAt); err != nil {
		return nil, err
	}
	if apply {
		return a.openWriter(ctx, segtier.Options{})
	}
	metaAt, err := a.metaLocation()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(metaAt.path); err == nil {
		return a.openReader(ctx)
	}
	store, err := a.openStore(ctx, storeAt, true)
	if err != nil {
		return nil, err
	}
	return a.wire(ctx, segtier.Options{Store: store, Metadata: newMetadata{}})
}

// newMetadata stands for a metadata file that will be made.
type newMetadata struct{}

func (newMetadata) ID() string                                       { return "(new)" }
func (newMetadata) Publish(context.Context, metadata.Event) error    { return metadata.ErrReadOnly }
func (newMetadata) Partitions() ([]segment.Partition, error)         { return nil, nil }
func (newMetadata) Close() error                                     { return nil }
func (newMetadata) Watch(segment.Partition) <-chan struct{}          { return nil }
func (newMetadata) View(p segment.Partition) (*metadata.View, error) { return metadata.NewView(p), nil }

func (newMetadata) Assign(context.Context, []segment.Partition, []segment.Partition) error {
	return nil
}

// maxLogStarts bounds a log-start-offset-checkpoint in bytes.
const maxLogStarts = 256 << 20

// readLogStarts reads Kafka's log-start-offset-checkpoint: a version, a number of
// lines, and lines of topic, partition and offset.
func readLogStarts(name string) (map[string]int64, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("log starts: %w", err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("log starts: %w", err)
	}
	if fi.Size() > maxLogStarts {
		return nil, fmt.Errorf("log starts %s: %d bytes, the limit is %d", name, fi.Size(), maxLogStarts)
	}
	starts, err := parseLogStarts(bufio.NewScanner(f))
	if err != nil {
		return nil, fmt.Errorf("log starts %s: %w", name, err)
	}
	return starts, nil
}

func parseLogStarts(lines *bufio.Scanner) (map[string]int64, error) {
	starts := map[string]int64{}
	want := -1
	for n := 1; lines.Scan(); n++ {
		f := strings.Fields(lines.Text())
		switch n {
		case 1:
			if len(f) != 1 || f[0] != "0" {
				return nil, errors.New("line 1 is not the version 0: is it a log-start-offset-checkpoint?")
			}
		case 2:
			count, err := strconv.Atoi(lines.Text())
			if err != nil || count < 0 {
				return nil, errors.New("line 2 is no number of lines")
			}
			want = count
		default:
			if len(f) != 3 {
				return nil, fmt.Errorf("line %d is not a topic, a partition and an offset", n)
			}
			number, err1 := strconv.ParseInt(f[1], 10, 32)
			offset, err2 := strconv.ParseInt(f[2], 10, 64)
			if err1 != nil || err2 != nil || number < 0 || offset < 0 {
				return nil, fmt.Errorf("line %d is not a topic, a partition and an offset", n)
			}
			starts[fmt.Sprintf("%s %d", f[0], number)] = offset
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if want != len(starts) {
		return nil, fmt.Errorf("line 2 says %d partitions, %d are there", want, len(starts))
	}
	return starts, nil
}
