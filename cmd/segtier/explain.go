package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/segtier/segtier/fetch"
)

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain PARTITION OFFSET",
		Short: "Show how an offset is found: record, object, chunk, byte range",
		Long: `explain shows the whole chain from an offset to its bytes: the record in metadata,
the object, the chunk under one checksum, the batch in it, and the GETs that a
fetch would make with nothing in memory. Ranges are bytes of the object, the
second number excluded. OFFSET may be "earliest".`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completePartitions(1),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.explain(cmd.Context(), args[0], args[1]) },
	}
}

func (a *app) explain(ctx context.Context, partition, offset string) (err error) {
	tier, req, err := a.openRequest(ctx, partition, offset)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tier.Close()) }()
	req.MaxBytes = 1
	e, err := tier.Explain(ctx, req)
	if err != nil {
		return tier.reading(ctx, req.Partition, err)
	}
	if a.json {
		return jsonLines(a.stdout).Encode(explainLine{e, epochsOf(e)})
	}
	return explainTable(a.stdout, e)
}

// explainLine is an explanation as --json shows it, with leader epochs as ls
// shows them.
type explainLine struct {
	fetch.Explanation

	LeaderEpochs []epochLine `json:"leaderEpochs"`
}

func epochsOf(e fetch.Explanation) []epochLine {
	lines := make([]epochLine, 0, len(e.LeaderEpochs))
	for _, epoch := range e.LeaderEpochs {
		lines = append(lines, epochLine{LeaderEpoch: epoch.Epoch, Offset: epoch.StartOffset})
	}
	return lines
}

func explainTable(out io.Writer, e fetch.Explanation) error {
	t := newTable(out)
	row := func(what, format string, args ...any) { t.rowf("%s\t%s", what, fmt.Sprintf(format, args...)) }
	row("offset", "%d of %s/%d, topic id %s", e.Offset, e.Topic, e.Partition, e.TopicID)
	row("record", "segment %s, %s", e.SegmentID, e.State)
	row("", "offsets %d-%d, readable to %d, max timestamp %s", e.StartOffset, e.EndOffset, e.ReadableUpTo, timeText(e.MaxTimestamp))
	row("", "leader epochs %s, log of %d bytes", epochText(epochsOf(e)), e.SizeBytes)
	row("object", "%s", e.Object.Key)
	row("", "%d bytes, CRC32C %s, tail from byte %d, CRC32C %s", e.Object.Size, e.Object.CRC32C, e.Object.TailOffset, e.Object.TailCRC32C)
	row("chunk", "%d of %d, bytes %s, CRC32C %s", e.Chunk.Number, e.Object.Chunks, rangeText(e.Chunk.Position, e.Chunk.Length), e.Chunk.CRC32C)
	row("batch", "offsets %d-%d, bytes %s, in %s", e.Batch.BaseOffset, e.Batch.LastOffset, rangeText(e.Batch.Position, e.Batch.Size), plural(e.Batch.Chunks, "chunk"))
	row("", "%s, %s, leader epoch %d, max timestamp %s", plural(int(e.Batch.Records), "record"), e.Batch.Compression, e.Batch.LeaderEpoch, timeText(e.Batch.MaxTimestamp))
	for i, get := range e.Gets {
		row(fmt.Sprintf("GET %d", i+1), "%s, bytes %s, %s", get.What, rangeText(get.Offset, get.Length), sizeText(get.Length))
	}
	return t.flush()
}
