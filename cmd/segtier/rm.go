package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

// deleteOptions are the flags of commands that delete.
type deleteOptions struct {
	apply       bool
	delay       time.Duration
	leaderEpoch int32
	brokerID    int32
}

func (o *deleteOptions) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&o.apply, "apply", false, "delete; without it only a report is made")
	flags.DurationVar(&o.delay, "delete-delay", time.Minute, "how long readers have before objects go")
	flags.Int32Var(&o.leaderEpoch, "leader-epoch", -1, "leader `EPOCH` to write under (-1: the greatest that metadata knows of)")
	flags.Int32Var(&o.brokerID, "broker-id", 0, "`ID` of the broker that the records name as their writer")
}

func (o *deleteOptions) validate() error {
	switch {
	case o.delay < 0:
		return usagef("--delete-delay %v: it cannot be negative", o.delay)
	case o.leaderEpoch < -1:
		return usagef("--leader-epoch %d: a leader epoch is not negative", o.leaderEpoch)
	case o.brokerID < 0:
		return usagef("--broker-id %d: a broker id is not negative", o.brokerID)
	}
	return nil
}

// tier are the options of a Tier that deletes and tells about it.
func (o *deleteOptions) tier(finished func(*metadata.Segment)) segtier.Options {
	delay := o.delay
	if delay == 0 {
		delay = -1
	}
	return segtier.Options{DeleteDelay: delay, DeleteEvents: lifecycle.DeleteEvents{Finished: finished}}
}

// writer returns who writes the records of a partition: somebody who is no older
// than all who wrote before, and no newer either.
func (o *deleteOptions) writer(view *metadata.View) metadata.Writer {
	epoch := o.leaderEpoch
	if epoch < 0 {
		for seg := range view.All() {
			epoch = max(epoch, seg.LeaderEpoch)
		}
		for seg := range view.Ended() {
			epoch = max(epoch, seg.LeaderEpoch)
		}
	}
	return metadata.Writer{BrokerID: o.brokerID, LeaderEpoch: epoch}
}

// explain adds what to do about a writer that is too old.
func (o *deleteOptions) explain(err error) error {
	if errors.Is(err, metadata.ErrFenced) {
		return fmt.Errorf("%w; give the leader epoch that the partition has now by --leader-epoch", err)
	}
	return err
}

func (a *app) rmCommand() *cobra.Command {
	var o deleteOptions
	cmd := &cobra.Command{
		Use:   "rm PARTITION|TOPIC|SEGMENT-ID…",
		Short: "Delete segments, partitions or topics from the tier",
		Long: `rm deletes what it is given: a partition (topic/partition), all partitions of a
topic, or single segments by the ids that ls shows. It only says what it would
delete, unless --apply is given.

With --apply, segments become unreadable at once, readers have --delete-delay to end
what they have begun, then the objects go. It may be interrupted and run again.

A partition or topic is deleted for good: nothing can be copied to that topic id's
partition any more. A single segment leaves a hole, which a copy of the same
directory fills; so a damaged object is replaced. What readers are told at a hole,
and how to end one, is in docs/operations.md. To delete the oldest data, use
expire --log-start, which leaves none.

With --json there is a line for each segment, with the fields of ls and "applied".`,
		Example: `  segtier rm orders/0
  segtier rm orders --apply
  segtier rm b8YlJ7wLQ0mOZk3PdT1y5w --apply --delete-delay 0s`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completePartitions(1 << 16),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.rm(cmd.Context(), o, args) },
	}
	o.flags(cmd)
	return cmd
}

// doomed is what is deleted of one partition: all of it, or some segments.
type doomed struct {
	partition segment.Partition
	view      *metadata.View
	whole     bool
	segs      []*metadata.Segment // all that have not ended, if whole
}

func (a *app) rm(ctx context.Context, o deleteOptions, args []string) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	out := deletionOutput{a: a, applied: o.apply}
	var tier *opened
	if o.apply {
		tier, err = a.openExisting(ctx, o.tier(func(seg *metadata.Segment) { out.print("deleted", seg, "") }))
	} else {
		tier, err = a.openReport()
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tier.Close()) }()
	all, err := a.doom(tier.meta, args)
	if err != nil {
		return err
	}
	if o.apply && len(all) > 0 {
		if err := tier.CheckOwner(ctx); err != nil {
			return err // of all partitions, so it is told once, and first
		}
	}
	segments, bytes := 0, int64(0)
	for _, d := range all {
		segments += len(d.segs)
		for _, seg := range d.segs {
			bytes += seg.SizeBytes
			if !o.apply {
				out.print("would delete", seg, "")
			}
		}
	}
	for _, d := range all {
		if d.whole {
			verb := "deletes"
			if !o.apply {
				verb = "would delete"
			}
			a.messagef("this %s %s for good: nothing can be copied to partition %d of topic id %s any more; a topic made anew has another id",
				verb, nameOf(d.partition), d.partition.Number, d.partition.TopicID)
		}
	}
	if !o.apply {
		a.messagef("%s (%s) would be deleted; nothing was changed: --apply deletes", plural(segments, "segment"), sizeText(bytes))
		return out.err
	}
	a.messagef("deleting %s (%s); readers have %v", plural(segments, "segment"), sizeText(bytes), o.delay)
	failed := out.each(len(all), func(i int) error {
		d := all[i]
		w := o.writer(d.view)
		var err error
		if d.whole {
			err = tier.DeletePartition(ctx, d.partition, w)
		} else {
			err = tier.Delete(ctx, w, d.segs...)
		}
		if now, verr := tier.View(d.partition); verr == nil {
			out.look(now)
		}
		return o.explain(err)
	})
	a.messagef("%s deleted (%s)", plural(out.n, "segment"), sizeText(out.bytes))
	return out.end(ctx, failed)
}

// doom finds what the arguments name.
func (a *app) doom(meta metadata.Store, args []string) ([]*doomed, error) {
	known, err := meta.Partitions()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(known, comparePartitions)
	views := map[segment.Partition]*metadata.View{}
	for _, p := range known {
		if views[p], err = meta.View(p); err != nil {
			return nil, err
		}
	}
	found := map[segment.Partition]*doomed{}
	take := func(p segment.Partition) *doomed {
		if found[p] == nil {
			found[p] = &doomed{partition: p, view: views[p]}
		}
		return found[p]
	}
	for _, arg := range args {
		if strings.Contains(arg, "/") {
			pa, err := parsePartition(arg)
			if err != nil {
				return nil, err
			}
			p, err := resolve(known, pa)
			if err != nil {
				return nil, err
			}
			take(p).whole = true
			continue
		}
		topic, err := topicOf(known, arg)
		if err != nil {
			return nil, err
		}
		for _, p := range topic {
			take(p).whole = true
		}
		if len(topic) > 0 {
			continue
		}
		seg, err := segmentOf(views, arg)
		if err != nil {
			return nil, err
		}
		if d := take(seg.Partition); !slices.ContainsFunc(d.segs, func(s *metadata.Segment) bool { return s.ID == seg.ID }) {
			d.segs = append(d.segs, seg)
		}
	}
	var all []*doomed
	for _, p := range known {
		d := found[p]
		if d == nil {
			continue
		}
		if d.whole {
			d.segs = slices.Collect(d.view.All())
		}
		slices.SortFunc(d.segs, func(x, y *metadata.Segment) int { return cmp.Compare(x.StartOffset, y.StartOffset) })
		all = append(all, d)
	}
	return all, nil
}

// topicOf returns the partitions of a topic, by its name or its id.
func topicOf(known []segment.Partition, arg string) (found []segment.Partition, err error) {
	var ids []string
	for _, p := range known {
		if p.Topic == arg {
			found = append(found, p)
			ids = append(ids, p.TopicID.String())
		}
	}
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) > 1 {
		return nil, usagef("topic %s: %d topics share this name; write %s", arg, len(ids), strings.Join(ids, " or "))
	}
	if id, err := segment.ParseUUID(arg); err == nil && len(found) == 0 {
		for _, p := range known {
			if p.TopicID == id {
				found = append(found, p)
			}
		}
	}
	return found, nil
}

// segmentOf returns the segment with an id, in whatever state it is.
func segmentOf(views map[segment.Partition]*metadata.View, arg string) (*metadata.Segment, error) {
	id, err := segment.ParseUUID(arg)
	if err != nil {
		return nil, notInTierf("%s is no topic that is in the tier, and no segment id; 'segtier ls --all' shows both, and a partition is written topic/partition", arg)
	}
	for _, view := range views {
		if seg, ok := view.Get(id); ok {
			if seg.State == metadata.DeleteSegmentFinished {
				return nil, notInTierf("segment %s of %s was deleted before", arg, nameOf(seg.Partition))
			}
			return seg, nil
		}
	}
	return nil, notInTierf("%s is neither a topic nor a segment that is in the tier; 'segtier ls --all' shows what is", arg)
}

// each runs f for 0 to n-1, many at once, since all of them mostly wait, tells
// their errors and returns how many there were.
func (o *deletionOutput) each(n int, f func(i int) error) (failed int) {
	var g errgroup.Group
	g.SetLimit(64)
	for i := range n {
		g.Go(func() error {
			if err := f(i); err != nil {
				o.mu.Lock()
				defer o.mu.Unlock()
				failed++
				o.a.tell(err)
			}
			return nil
		})
	}
	_ = g.Wait() // always nil
	return failed
}

// deletionOutput writes a line for each segment that goes. Its methods but end may
// be called from several goroutines.
type deletionOutput struct {
	a       *app
	applied bool

	mu    sync.Mutex // held while anything is written
	n     int
	bytes int64
	begun bool  // a deletion was begun and has not ended
	err   error // the first
}

// goingLine is a segment that goes, as --json shows it.
type goingLine struct {
	segmentLine
	Cause   string `json:"cause,omitempty"` // why it expires
	Applied bool   `json:"applied"`         // it is gone
}

func (o *deletionOutput) messagef(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.a.messagef(format, args...)
}

// look finds out whether a partition has deletions that were begun and have not
// ended.
func (o *deletionOutput) look(view *metadata.View) {
	begun := view.Info().Deletion == metadata.DeletePartitionMarked || view.Info().Deletion == metadata.DeletePartitionStarted
	for seg := range view.All() {
		begun = begun || seg.State == metadata.DeleteSegmentStarted
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begun = o.begun || begun
}

func (o *deletionOutput) print(what string, seg *metadata.Segment, cause lifecycle.Cause) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
	o.bytes += seg.SizeBytes
	var err error
	if o.a.json {
		err = jsonLines(o.a.stdout).Encode(goingLine{segmentLine: lineOf(seg), Cause: string(cause), Applied: o.applied})
	} else {
		_, err = fmt.Fprintln(o.a.stdout, strings.TrimRight(fmt.Sprintf("%s  %s  offsets %d-%d  %s  %s  %s  %s", what,
			nameOf(seg.Partition), seg.StartOffset, seg.EndOffset, sizeText(seg.SizeBytes), seg.State, seg.ID, cause), " "))
	}
	if o.err == nil && err != nil {
		o.err = fmt.Errorf("%w: %w", errOutput, err)
	}
}

// end returns the error of a command some of whose parts failed.
func (o *deletionOutput) end(ctx context.Context, failed int) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case o.err != nil:
		return o.err
	case failed > 0:
		begun := "nothing was begun"
		if o.begun {
			begun = "what was begun is DELETE_SEGMENT_STARTED and goes on when the same command is run again"
		}
		o.a.messagef("%s failed; %s", plural(failed, "partition"), begun)
		return &statusError{statusFailed, errTold}
	}
	return nil
}
