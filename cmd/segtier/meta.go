package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

func (a *app) metaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "meta",
		Short: "Export metadata, and import it elsewhere",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usagef("a command is missing: export or import")
		},
	}
	cmd.AddCommand(a.metaExportCommand(), a.metaImportCommand())
	return cmd
}

func (a *app) metaExportCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write all metadata as JSON lines",
		Long: `export writes everything that the metadata file holds as JSON lines: first a line
of type "metadata", then for each partition one of type "partition" and one of
type "segment" for each segment in any state, and at last one of type "end" with
their numbers, so that an export that was cut short is noticed.

While a broker or 'segtier copy' has the metadata file open, export one of its
snapshots instead: --meta file:segtier.db.snapshot-20260102T030405.000Z.`,
		Example: `  segtier meta export --out metadata.jsonl`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.metaExport(cmd.Context(), out) },
	}
	cmd.Flags().StringVar(&out, "out", "", "write to `FILE` instead of stdout; it appears when it is complete")
	return cmd
}

// metaFormat is the version of the lines.
const metaFormat = 1

// The types of the lines of an export.
const (
	typeMetadata  = "metadata"
	typePartition = "partition"
	typeSegment   = "segment"
	typeEnd       = "end"
)

// metaHead is the first line of an export.
type metaHead struct {
	Type       string `json:"type"`
	Format     int    `json:"format"`
	MetadataID string `json:"metadataId"`
}

// metaPartition is what an export says of a partition.
type metaPartition struct {
	Type           string             `json:"type"`
	Topic          string             `json:"topic"`
	TopicID        segment.UUID       `json:"topicId"`
	Partition      int32              `json:"partition"`
	LogStartOffset int64              `json:"logStartOffset"`
	DeleteState    string             `json:"deleteState"`
	LeaderEpochs   []highestEpochLine `json:"leaderEpochs"`
}

// highestEpochLine is a leader epoch with its highest tiered offset, -1 if it has
// none.
type highestEpochLine struct {
	LeaderEpoch   int32 `json:"leaderEpoch"`
	Offset        int64 `json:"offset"`
	HighestOffset int64 `json:"highestOffset"`
}

// metaSegment is what an export says of a segment: FINISHED ones come in the
// order in which they became readable, which decides where they overlap.
type metaSegment struct {
	Type string `json:"type"`
	segmentLine

	EventTimestamp    int64  `json:"eventTimestamp"`
	BrokerID          int32  `json:"brokerId"`
	WriterLeaderEpoch int32  `json:"writerLeaderEpoch"`
	TxnIndexEmpty     bool   `json:"txnIndexEmpty"`
	CustomMetadata    []byte `json:"customMetadata"` // base64, or null
}

// metaEnd is the last line of an export.
type metaEnd struct {
	Type       string `json:"type"`
	Partitions int    `json:"partitions"`
	Segments   int    `json:"segments"`
}

func (a *app) metaExport(_ context.Context, file string) (err error) {
	meta, err := a.openMeta()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, meta.Close()) }()
	partitions, err := choose(meta, nil)
	if err != nil {
		return err
	}
	out, err := a.output(file)
	if err != nil {
		return err
	}
	defer out.abort()
	if err := exportTo(out, meta, partitions); err != nil {
		return err
	}
	return out.commit()
}

func exportTo(w io.Writer, meta metadata.Store, partitions []segment.Partition) error {
	enc := jsonLines(w)
	if err := enc.Encode(metaHead{typeMetadata, metaFormat, meta.ID()}); err != nil {
		return err
	}
	segments := 0
	for _, p := range partitions {
		view, err := meta.View(p)
		if err != nil {
			return err
		}
		n, err := exportPartition(enc, view)
		if err != nil {
			return err
		}
		segments += n
	}
	return enc.Encode(metaEnd{typeEnd, len(partitions), segments})
}

func exportPartition(enc *json.Encoder, view *metadata.View) (segments int, err error) {
	p, info := view.Partition(), view.Info()
	line := metaPartition{
		Type: typePartition, Topic: p.Topic, TopicID: p.TopicID, Partition: p.Number,
		LogStartOffset: info.LogStart, DeleteState: info.Deletion.String(), LeaderEpochs: []highestEpochLine{},
	}
	for _, e := range info.Epochs {
		line.LeaderEpochs = append(line.LeaderEpochs, highestEpochLine{e.Epoch, e.Start, e.Highest})
	}
	if err := enc.Encode(line); err != nil {
		return 0, err
	}
	write := func(s *metadata.Segment) {
		if err == nil {
			err = enc.Encode(metaSegment{
				Type: typeSegment, segmentLine: lineOf(s),
				EventTimestamp: s.EventTimestamp, BrokerID: s.BrokerID, WriterLeaderEpoch: s.LeaderEpoch,
				TxnIndexEmpty: s.TxnIndexEmpty, CustomMetadata: s.Custom,
			})
			segments++
		}
	}
	for _, s := range view.Finished() {
		write(s)
	}
	for s := range view.All() {
		if s.State != metadata.CopySegmentFinished {
			write(s)
		}
	}
	for s := range view.Ended() {
		write(s)
	}
	return segments, err
}

// segment is the segment of a line, and its state.
func (l *metaSegment) segment() (*metadata.Segment, metadata.State, error) {
	states := []metadata.State{metadata.CopySegmentStarted, metadata.CopySegmentFinished, metadata.DeleteSegmentStarted, metadata.DeleteSegmentFinished}
	i := slices.IndexFunc(states, func(s metadata.State) bool { return s.String() == l.State })
	if i < 0 {
		return nil, 0, errors.New("state " + l.State + " is not known")
	}
	s := &metadata.Segment{
		Partition:   segment.Partition{Topic: l.Topic, TopicID: l.TopicID, Number: l.Partition},
		ID:          l.SegmentID,
		StartOffset: l.StartOffset, EndOffset: l.EndOffset,
		MaxTimestamp: l.MaxTimestamp, EventTimestamp: l.EventTimestamp,
		BrokerID: l.BrokerID, LeaderEpoch: l.WriterLeaderEpoch, SizeBytes: l.SizeBytes,
		Custom: l.CustomMetadata, TxnIndexEmpty: l.TxnIndexEmpty, State: states[i],
	}
	for _, e := range l.LeaderEpochs {
		s.Epochs = append(s.Epochs, segment.EpochStart{Epoch: e.LeaderEpoch, Start: e.Offset})
	}
	return s, states[i], s.Validate()
}

// info is what the line of a partition says besides its name.
func (l *metaPartition) info() (segment.Partition, metadata.PartitionInfo, error) {
	p := segment.Partition{Topic: l.Topic, TopicID: l.TopicID, Number: l.Partition}
	i := metadata.PartitionInfo{LogStart: l.LogStartOffset}
	for ; i.Deletion.String() != l.DeleteState; i.Deletion++ {
		if i.Deletion > metadata.DeletePartitionFinished {
			return p, i, errors.New("delete state " + l.DeleteState + " is not known")
		}
	}
	for _, e := range l.LeaderEpochs {
		i.Epochs = append(i.Epochs, metadata.EpochInfo{Epoch: e.LeaderEpoch, Start: e.Offset, Highest: e.HighestOffset})
	}
	return p, i, p.Validate()
}
