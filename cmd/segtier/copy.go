package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

func (a *app) copyCommand() *cobra.Command {
	var o copyOptions
	cmd := &cobra.Command{
		Use:   "copy DIR…",
		Short: "Copy the closed segments of Kafka partition directories",
		Long: `copy reads Kafka partition directories, such as /var/lib/kafka/orders-0, and
copies their closed segments to the store in offset order. A segment becomes
readable when its bytes are proven durable. The newest segment of a directory is
the active one, which the broker still writes to: it stays, unless
--include-active is given.

Copying again is safe at any time: what is in the tier already is only reported,
and what an interrupted copy left is finished. It repairs nothing: what is readable
by metadata is not sent again, even if its object was damaged since; see verify. A segment that cannot be copied
stops its partition, because offsets must not have holes; other partitions go on.

With --json there is a line for each segment, with the fields of ls and "existed".

The topic id comes from the directory's partition.metadata, or from --topic-id.
The leader epoch to write under is the last one in leader-epoch-checkpoint.`,
		Example: `  segtier copy /var/lib/kafka/orders-0 /var/lib/kafka/orders-1
  segtier copy --store file:///mnt/tier --meta file:///var/lib/segtier.db /var/lib/kafka/orders-*
  segtier copy --store 's3://logs/tier?region=eu-west-1' --bandwidth 100MiB /var/lib/kafka/orders-*`,
		Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, dirs []string) error { return a.copy(cmd.Context(), o, dirs) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.topicID, "topic-id", "", "topic `ID` as Kafka prints it, for directories without partition.metadata")
	flags.BoolVar(&o.includeActive, "include-active", false, "copy the newest segment too; only when no broker writes to it")
	flags.Int32Var(&o.brokerID, "broker-id", 0, "`ID` of the broker that the records name as their writer")
	flags.Var(&o.bandwidth, "bandwidth", "bytes that may be sent per second (0: no limit)")
	flags.Var(&o.chunkSize, "chunk-size", "bytes under one checksum in new objects (0: 1MiB)")
	flags.Var(&o.partSize, "part-size", "bytes sent at once (0: 16MiB)")
	for _, f := range []string{"chunk-size", "part-size"} {
		flags.Lookup(f).Hidden = true // for experiments
	}
	return cmd
}

type copyOptions struct {
	topicID       string
	includeActive bool
	brokerID      int32

	bandwidth           byteSize // per second
	chunkSize, partSize byteSize
}

// partitionDir is a directory whose segments are to be copied.
type partitionDir struct {
	dir       segment.Dir
	partition segment.Partition
	writer    metadata.Writer
	bases     []int64 // of the segments to copy, ascending
	active    int64   // base offset of the newest segment
	size      int64   // bytes of the logs to copy
}

// copier is one run of the copy command.
type copier struct {
	a    *app
	o    copyOptions
	id   segment.UUID
	tier *opened
	bar  *progress

	existed bool // what the last copy found
	counts  struct {
		copied, existing, expired, failed int
		bytes                             int64
	}
}

func (a *app) copy(ctx context.Context, o copyOptions, paths []string) (err error) {
	c := &copier{a: a, o: o}
	if o.topicID != "" {
		if c.id, err = segment.ParseUUID(o.topicID); err != nil {
			return usagef("--topic-id: %w", err)
		}
	}
	if o.brokerID < 0 {
		return usagef("--broker-id %d: a broker id is not negative", o.brokerID)
	}
	dirs, err := c.look(paths)
	if err != nil {
		return err
	}
	if len(dirs) > 0 {
		if err := c.open(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.tier.Close()) }()
		if err := c.copyAll(ctx, dirs); err != nil {
			return err
		}
	}
	expired := ""
	if c.counts.expired > 0 {
		expired = fmt.Sprintf(", %d below the log start", c.counts.expired)
	}
	a.messagef("%s copied (%s), %d in the tier before%s", plural(c.counts.copied, "segment"), sizeText(c.counts.bytes), c.counts.existing, expired)
	if c.counts.failed > 0 {
		a.messagef("%d of %s failed", c.counts.failed, plural(len(paths), "directory"))
		return &statusError{statusFailed, errTold}
	}
	return nil
}

// look finds out what there is to copy, before anything is created. A directory
// that will not do is told and counted; the others go on.
func (c *copier) look(paths []string) ([]partitionDir, error) {
	var dirs []partitionDir
	topic := ""
	for _, path := range paths {
		d, err := c.lookAt(path)
		switch {
		case err != nil:
			c.fail(err)
			continue
		case c.o.topicID != "" && topic != "" && topic != d.partition.Topic:
			return nil, usagef("--topic-id names one topic, but %s and %s are two: copy them one after another", topic, d.partition.Topic)
		}
		topic = d.partition.Topic
		dirs = append(dirs, d)
	}
	return dirs, nil
}

func (c *copier) lookAt(path string) (partitionDir, error) {
	d := partitionDir{dir: segment.Dir{Path: path, TopicID: c.id}}
	var err error
	if d.partition, err = d.dir.Partition(); err != nil {
		return d, c.explain(path, err)
	}
	if d.bases, err = d.dir.Segments(); err != nil {
		return d, err
	}
	if len(d.bases) == 0 {
		return d, fmt.Errorf("%s: there is no segment (no .log file) in it", path)
	}
	epoch, err := leaderEpoch(path)
	if err != nil {
		return d, err
	}
	d.writer = metadata.Writer{BrokerID: c.o.brokerID, LeaderEpoch: epoch}
	d.active = d.bases[len(d.bases)-1]
	if !c.o.includeActive {
		d.bases = d.bases[:len(d.bases)-1]
	}
	for _, base := range d.bases {
		if fi, err := os.Stat(filepath.Join(path, fmt.Sprintf("%020d.log", base))); err == nil {
			d.size += fi.Size()
		}
	}
	return d, nil
}

// explain adds to the error of a directory that will not do what to do instead.
func (c *copier) explain(path string, err error) error {
	if inside := partitionDirsIn(path); inside != "" {
		return fmt.Errorf("%w; it holds partition directories: give those, for example %s", err, inside)
	}
	if _, other := (segment.Dir{Path: path, TopicID: segment.UUID{1}}).Partition(); c.id.IsZero() && other == nil {
		return fmt.Errorf("%w with --topic-id", err) // nothing else is wrong with it
	}
	return err
}

// partitionDirsIn returns a partition directory inside a directory that is none
// itself, "" if there is none.
func partitionDirsIn(path string) string {
	found, err := filepath.Glob(filepath.Join(path, "*-*", "*.log"))
	if err != nil || len(found) == 0 {
		return ""
	}
	return filepath.Dir(found[0])
}

// maxCheckpoint bounds what is read of a leader-epoch-checkpoint in bytes.
const maxCheckpoint = 64 << 20

// leaderEpoch returns the partition's last leader epoch.
func leaderEpoch(path string) (int32, error) {
	name := filepath.Join(path, "leader-epoch-checkpoint")
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%s is missing: a broker writes it for every partition; copy the whole directory", name)
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCheckpoint))
	if err != nil {
		return 0, err
	}
	epochs, err := segment.ParseLineage(b)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	if len(epochs) == 0 {
		return 0, fmt.Errorf("%s: it names no leader epoch", name)
	}
	return epochs[len(epochs)-1].Epoch, nil
}

func (c *copier) open(ctx context.Context) (err error) {
	c.tier, err = c.a.openWriter(ctx, segtier.Options{
		ChunkSize: int64(c.o.chunkSize),
		PartSize:  int64(c.o.partSize),

		UploadBytesPerSecond: int64(c.o.bandwidth),

		Events: lifecycle.Events{
			PartConfirmed: func(_ *metadata.Segment, part objstore.PartEvidence) { c.bar.add(part.Sum.Len) },
			Finished:      func(_ *metadata.Segment, existed bool) { c.existed = existed },
			Noticed: func(info segment.Info, text string) {
				c.bar.clear()
				c.a.messagef("note: %s, offsets %d-%d: %s", nameOf(info.Partition), info.StartOffset, info.EndOffset, text)
			},
		},
	})
	return err
}

// copyAll copies partition by partition. What concerns the whole store or its
// metadata ends it, for it would only be met again.
func (c *copier) copyAll(ctx context.Context, dirs []partitionDir) error {
	var total int64
	for _, d := range dirs {
		total += d.size
	}
	c.bar = newProgress(c.a.stderr, c.a.terminal, total, "copying")
	defer c.bar.clear()
	for _, d := range dirs {
		if len(d.bases) == 0 {
			c.bar.clear()
			c.a.messagef("%s: nothing to copy: its only segment, at offset %d, is the active one", nameOf(d.partition), d.active)
		}
		err := c.copyDir(ctx, d)
		if err == nil {
			continue
		}
		if ctx.Err() != nil || wholeStore(err) {
			return err
		}
		c.bar.clear()
		c.fail(err)
	}
	return nil
}

// copyDir copies the segments of a directory in offset order, up to the first
// that fails.
func (c *copier) copyDir(ctx context.Context, d partitionDir) error {
	for _, base := range d.bases {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.copySegment(ctx, d, base); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) copySegment(ctx context.Context, d partitionDir, base int64) error {
	src, err := d.dir.Open(base)
	if errors.Is(err, segment.ErrEmptySegment) && base == d.active {
		c.bar.clear()
		c.a.messagef("%s: the active segment, at offset %d, is empty", nameOf(d.partition), base)
		return nil
	}
	if err != nil {
		return err
	}
	defer src.Close()
	_, size := src.File(segment.Log)
	c.bar.begin(fmt.Sprintf("copying %s at %d", nameOf(d.partition), base), size)
	seg, err := c.tier.Copy(ctx, src, d.writer)
	if errors.Is(err, lifecycle.ErrBelowLogStart) {
		c.bar.end()
		c.bar.clear()
		c.counts.expired++
		start := int64(0)
		if view, err := c.tier.View(d.partition); err == nil {
			start = view.LogStart()
		}
		c.a.messagef("%s: the segment at offset %d is below the log start, %d, so it is not copied", nameOf(d.partition), base, start)
		return nil
	}
	if errors.Is(err, metadata.ErrTransition) {
		return c.deleted(d.partition, err)
	}
	if err != nil {
		return inDir(d, err)
	}
	c.bar.end()
	c.bar.clear()
	if c.existed {
		c.counts.existing++
	} else {
		c.counts.copied++
		c.counts.bytes += seg.SizeBytes
	}
	if err := c.print(seg); err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}

// deleted says of a partition that takes no copies because it was deleted that it was.
func (c *copier) deleted(p segment.Partition, err error) error {
	view, verr := c.tier.View(p)
	if verr != nil || view.Info().Deletion == metadata.PartitionKept {
		return err
	}
	return fmt.Errorf("partition %s was deleted for good, and nothing can be copied to its topic id, %s, any more; a topic made anew has another id (%w)",
		nameOf(p), p.TopicID, err)
}

// inDir names the file that a source was refused for, as the user knows it.
func inDir(d partitionDir, err error) error {
	var scan *transfer.ScanError
	if !errors.As(err, &scan) {
		return err
	}
	return fmt.Errorf("%s, %s of the segment at offset %d: %w", d.dir.Path, scan.File, scan.StartOffset, err)
}

// errOutput: stdout cannot be written to.
var errOutput = errors.New("output")

// print writes the line of a segment that is readable now.
func (c *copier) print(seg *metadata.Segment) error {
	if c.a.json {
		return jsonLines(c.a.stdout).Encode(struct {
			segmentLine
			Existed bool `json:"existed"` // it was in the tier before
		}{lineOf(seg), c.existed})
	}
	what := "copied"
	if c.existed {
		what = "exists"
	}
	_, err := fmt.Fprintf(c.a.stdout, "%s  %s  offsets %d-%d  %s  %s\n", what,
		nameOf(seg.Partition), seg.StartOffset, seg.EndOffset, sizeText(seg.SizeBytes), seg.ID)
	return err
}

// fail tells an error and goes on; the exit status will say that there was one.
func (c *copier) fail(err error) {
	c.counts.failed++
	c.a.tell(err)
}

// wholeStore reports whether an error would be met by every partition.
func wholeStore(err error) bool {
	var owner *transfer.OwnerError
	return errors.As(err, &owner) || errors.Is(err, errOutput) || errors.Is(err, objstore.ErrFull) || errors.Is(err, objstore.ErrReadOnly) || errors.Is(err, objstore.ErrRefused) ||
		errors.Is(err, metadata.ErrUnavailable) || errors.Is(err, metadata.ErrClosed) || errors.Is(err, metadata.ErrCorrupt)
}
