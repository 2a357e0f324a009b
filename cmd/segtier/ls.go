package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

func (a *app) lsCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "ls [PARTITION]",
		Short: "List segments with state, offsets, times and size",
		Long: `ls lists the readable segments of one partition or of all, in offset order, as
metadata knows them; it does not ask the store. --all shows every state, also
copies in flight and deletions.

LEADER EPOCHS are written epoch@offset: where each epoch began in the segment.`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completePartitions(1),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.ls(cmd.Context(), args, all) },
	}
	cmd.Flags().BoolVar(&all, "all", false, "show segments in every state, not only the readable ones")
	return cmd
}

func (a *app) ls(_ context.Context, args []string, all bool) (err error) {
	wanted, err := parsePartitions(args)
	if err != nil {
		return err
	}
	if _, err := a.storeLocation(); err != nil {
		return err // not asked, but wrong is wrong
	}
	meta, err := a.openMeta()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, meta.Close()) }()
	partitions, err := choose(meta, wanted)
	if err != nil {
		return err
	}
	var segs []*metadata.Segment
	var starts []string // of partitions whose log start has moved
	for _, p := range partitions {
		view, err := meta.View(p)
		if err != nil {
			return err
		}
		if start := view.LogStart(); start > 0 {
			starts = append(starts, fmt.Sprintf("the log start of %s is %d: what ends below it has expired", nameOf(p), start))
		}
		for seg := range view.All() {
			if all || seg.State == metadata.CopySegmentFinished {
				segs = append(segs, seg)
			}
		}
	}
	if a.json {
		enc := jsonLines(a.stdout)
		for _, seg := range segs {
			if err := enc.Encode(lineOf(seg)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(segs) == 0 {
		a.messagef("no segments")
	} else if err := a.segmentTable(segs); err != nil {
		return err
	}
	for _, s := range starts {
		a.messagef("%s", s)
	}
	return nil
}

func (a *app) segmentTable(segs []*metadata.Segment) error {
	t := newTable(a.stdout)
	t.rowf("TOPIC\tPARTITION\tOFFSETS\tMAX TIMESTAMP\tSIZE\tLEADER EPOCHS\tSTATE\tTOPIC ID\tSEGMENT ID")
	for _, s := range segs {
		t.rowf("%s\t%d\t%d-%d\t%s\t%d\t%s\t%s\t%s\t%s", s.Partition.Topic, s.Partition.Number, s.StartOffset, s.EndOffset,
			timeText(s.MaxTimestamp), s.SizeBytes, epochText(epochLines(s.Epochs)), s.State, s.Partition.TopicID, s.ID)
	}
	return t.flush()
}

func parsePartitions(args []string) ([]partitionArg, error) {
	var wanted []partitionArg
	for _, arg := range args {
		p, err := parsePartition(arg)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, p)
	}
	return wanted, nil
}

// choose returns the wanted partitions, or all of them in order.
func choose(meta interface {
	Partitions() ([]segment.Partition, error)
}, wanted []partitionArg,
) ([]segment.Partition, error) {
	known, err := meta.Partitions()
	if err != nil {
		return nil, err
	}
	if len(wanted) == 0 {
		return slices.SortedFunc(slices.Values(known), comparePartitions), nil
	}
	var chosen []segment.Partition
	for _, arg := range wanted {
		p, err := resolve(known, arg)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(chosen, p) {
			chosen = append(chosen, p)
		}
	}
	return chosen, nil
}

// completePartitions completes the first n arguments with the partitions in
// metadata. It is silent about errors: there is no place for them.
func (a *app) completePartitions(n int) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		meta, err := a.openMeta()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer meta.Close()
		known, err := meta.Partitions()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, p := range slices.SortedFunc(slices.Values(known), comparePartitions) {
			names = append(names, nameOf(p))
		}
		return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
	}
}
