package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/spf13/cobra"

	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

type expireOptions struct {
	deleteOptions

	retentionMs    int64
	retentionBytes byteLimit
	logStart       int64
	beyondTier     bool
}

func (a *app) expireCommand() *cobra.Command {
	var o expireOptions
	cmd := &cobra.Command{
		Use:   "expire [PARTITION…]",
		Short: "Delete what retention lets go of",
		Long: `expire applies Kafka's retention to the partitions given, or to all: segments older
than --retention-ms, those that make a partition larger than --retention-bytes, the
oldest first, those that end below the log start, those of leader epochs that are no
more, and those whose deletion was begun before. It only says what it would delete,
unless --apply is given.

With --apply the log start moves first; from then on offsets below it are out of
range for readers, for good, and what ends below it is not copied again. Then the
segments are deleted as by rm. A --log-start above the end of what is tiered is
refused, unless --beyond-tier says that the broker's log starts there.

It knows the tier alone: the leader epochs are those that metadata tells, and what a
broker has that is not tiered does not count for --retention-bytes. Where a broker
leads the partitions, leave retention to it.

With --json there is a line for each segment, with the fields of ls, "cause" and
"applied". Causes: RETENTION_MS, RETENTION_BYTES, LOG_START_OFFSET, DEAD_EPOCHS,
DELETE_STARTED.`,
		Example: `  segtier expire --retention-ms 604800000
  segtier expire orders/0 --retention-bytes 10GiB --apply
  segtier expire orders/0 --log-start 120000 --apply --delete-delay 5m`,
		ValidArgsFunction: a.completePartitions(1 << 16),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.expire(cmd.Context(), o, args) },
	}
	flags := cmd.Flags()
	flags.Int64Var(&o.retentionMs, "retention-ms", -1, "Kafka's retention.ms: greatest age in `MS` (-1: any)")
	o.retentionBytes = -1
	flags.Var(&o.retentionBytes, "retention-bytes", "Kafka's retention.bytes: greatest `SIZE` of log in the tier (-1: any)")
	flags.Int64Var(&o.logStart, "log-start", -1, "first `OFFSET` that may be read, of one partition (-1: as it is)")
	flags.BoolVar(&o.beyondTier, "beyond-tier", false, "--log-start may be above all that is tiered: the broker's log starts there")
	o.flags(cmd)
	return cmd
}

func (o *expireOptions) validate(partitions int) error {
	switch {
	case o.retentionMs < -1 || o.retentionMs == 0:
		return usagef("--retention-ms %d: write 1 or more, or -1 for no limit", o.retentionMs)
	case o.retentionBytes < -1 || o.retentionBytes == 0:
		return usagef("--retention-bytes %d: write 1 or more, or -1 for no limit", o.retentionBytes)
	case o.logStart < -1:
		return usagef("--log-start %d: an offset is not negative", o.logStart)
	case o.logStart >= 0 && partitions != 1:
		return usagef("--log-start is of one partition: name it")
	case o.logStart < 0 && o.beyondTier:
		return usagef("--beyond-tier is for --log-start: give that too")
	}
	return o.deleteOptions.validate()
}

func (a *app) expire(ctx context.Context, o expireOptions, args []string) (err error) {
	if err := o.validate(len(args)); err != nil {
		return err
	}
	wanted, err := parsePartitions(args)
	if err != nil {
		return err
	}
	e := &expiring{o: o, causes: map[segment.UUID]lifecycle.Cause{}, out: deletionOutput{a: a, applied: o.apply}}
	if o.apply {
		e.tier, err = a.openExisting(ctx, o.tier(func(seg *metadata.Segment) { e.out.print("expired", seg, e.cause(seg.ID)) }))
	} else {
		e.tier, err = a.openReader(ctx)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.tier.Close()) }()
	partitions, err := choose(e.tier, wanted)
	if err != nil {
		return err
	}
	if o.logStart >= 0 {
		if err := e.checkLogStart(partitions[0]); err != nil {
			return err
		}
	}
	if o.apply && len(partitions) > 0 {
		if err := e.tier.CheckOwner(ctx); err != nil {
			return err // of all partitions, so it is told once, and first
		}
	}
	failed := e.out.each(len(partitions), func(i int) error { return e.one(ctx, partitions[i]) })
	what := "would expire; nothing was changed: --apply deletes"
	if o.apply {
		what = "expired"
	}
	a.messagef("%s (%s) %s", plural(e.out.n, "segment"), sizeText(e.out.bytes), what)
	return e.out.end(ctx, failed)
}

// expiring is one run of the expire command.
type expiring struct {
	o    expireOptions
	tier *opened
	out  deletionOutput

	mu     sync.Mutex
	causes map[segment.UUID]lifecycle.Cause // guarded by mu
}

func (e *expiring) cause(id segment.UUID) lifecycle.Cause {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.causes[id]
}

// checkLogStart refuses a log start that only a broker could know to be right, and
// says when one is of no effect.
func (e *expiring) checkLogStart(p segment.Partition) error {
	view, err := e.tier.View(p)
	if err != nil {
		return err
	}
	to, at, last := e.o.logStart, view.LogStart(), int64(-1)
	for seg := range view.All() {
		if seg.State == metadata.CopySegmentFinished {
			last = max(last, seg.EndOffset)
		}
	}
	const means = "nothing that ends below --log-start could be read or copied any more, for good; if the broker's log does start there, say so with --beyond-tier"
	switch {
	case to < at:
		e.out.messagef("%s: the log start is already %d: it does not move back", nameOf(p), at)
	case to == at || to <= last+1 && last >= 0 || e.o.beyondTier:
	case last < 0:
		return usagef("--log-start %d: %s has no readable segment in the tier, and %s", to, nameOf(p), means)
	default:
		return usagef("--log-start %d: of %s the tier ends at offset %d, so write %d at most; %s", to, nameOf(p), last, last+1, means)
	}
	return nil
}

// one expires what there is to expire of a partition.
func (e *expiring) one(ctx context.Context, p segment.Partition) error {
	for {
		view, err := e.tier.View(p)
		if err != nil {
			return err
		}
		req := e.request(view)
		if len(req.Lineage) == 0 {
			return nil // nothing was ever copied to it
		}
		req.ReportOnly = true
		x, err := e.tier.Expire(ctx, req)
		if err != nil {
			return fmt.Errorf("%s: %w", nameOf(p), err)
		}
		if len(x.Expired) == 0 {
			if e.o.logStart > view.LogStart() {
				e.out.messagef("%s: the log start stays at %d: it moves when a segment goes, and none ends below %d",
					nameOf(p), view.LogStart(), e.o.logStart)
			}
			return nil
		}
		e.mu.Lock()
		for _, seg := range x.Expired {
			e.causes[seg.Segment.ID] = seg.Cause
		}
		e.mu.Unlock()
		if !e.o.apply {
			if x.LogStart > view.LogStart() {
				e.out.messagef("%s: the log start would move from %d to %d", nameOf(p), view.LogStart(), x.LogStart)
			}
			for _, seg := range x.Expired {
				e.out.print("would expire", seg.Segment, seg.Cause)
			}
			if x.More {
				e.out.messagef("%s: and more, which are looked for once these are gone", nameOf(p))
			}
			return nil
		}
		req.ReportOnly = false
		x, err = e.tier.Expire(ctx, req)
		if now, verr := e.tier.View(p); verr == nil {
			if now.LogStart() > view.LogStart() {
				e.out.messagef("%s: the log start moved from %d to %d", nameOf(p), view.LogStart(), now.LogStart())
			}
			e.out.look(now)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", nameOf(p), e.o.explain(err))
		}
		if !x.More {
			return nil
		}
	}
}

// request asks as somebody who knows the tier alone.
func (e *expiring) request(view *metadata.View) lifecycle.ExpireRequest {
	req := lifecycle.ExpireRequest{
		Partition: view.Partition(), Writer: e.o.writer(view), LogEnd: math.MaxInt64,
		LogStart:    max(e.o.logStart, view.LogStart()),
		RetentionMs: e.o.retentionMs, RetentionBytes: int64(e.o.retentionBytes),
		LocalBytes: func(int64) (int64, error) { return 0, nil },
	}
	// What was never copied belongs to the first epoch that is known: metadata has
	// no segment there that it could take for dead.
	req.Lineage = append(req.Lineage, view.Lineage()...)
	if len(req.Lineage) > 0 {
		req.Lineage[0].Start = min(req.Lineage[0].Start, req.LogStart)
	}
	return req
}
