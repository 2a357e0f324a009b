package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/segtier/segtier/fetch"
)

func (a *app) offsetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "offset PARTITION TIME",
		Short: "Find the earliest offset at or after a time",
		Long: `offset prints the earliest offset in the tier whose record's time is at or after
TIME, which is RFC 3339 or milliseconds since 1970; -1 if there is none. Records
need not be in order of time: the first by offset counts.`,
		Example: `  segtier offset orders/0 2026-01-31T08:00:00Z
  segtier offset orders/0 1769846400000 --json`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completePartitions(1),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.offset(cmd.Context(), args[0], args[1]) },
	}
}

// offsetLine is the answer as --json shows it: Kafka's, with -1 for none.
type offsetLine struct {
	Offset      int64 `json:"offset"`
	Timestamp   int64 `json:"timestamp"`
	LeaderEpoch int32 `json:"leaderEpoch"`
}

func (a *app) offset(ctx context.Context, partition, when string) (err error) {
	ms, err := parseTime(when)
	if err != nil {
		return err
	}
	tier, p, err := a.openPartition(ctx, partition)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tier.Close()) }()
	pos, err := tier.OffsetForTime(ctx, fetch.TimeRequest{Partition: p, Time: ms})
	if err != nil {
		return tier.reading(ctx, p, err)
	}
	line := offsetLine{Offset: pos.Offset, Timestamp: pos.Timestamp, LeaderEpoch: pos.LeaderEpoch}
	if pos.Offset < 0 {
		line = offsetLine{Offset: -1, Timestamp: -1, LeaderEpoch: -1}
		a.messagef("no record at or after %s in the tier", timeText(ms))
	}
	if a.json {
		return jsonLines(a.stdout).Encode(line)
	}
	_, err = fmt.Fprintln(a.stdout, line.Offset)
	return err
}
