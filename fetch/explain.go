package fetch

import (
	"context"
	"fmt"

	"github.com/segtier/segtier/segment"
)

// Explanation is the way from an offset to its bytes, with the names that
// `segtier explain --json` prints.
type Explanation struct {
	Topic     string       `json:"topic"`
	TopicID   segment.UUID `json:"topicId"`
	Partition int32        `json:"partition"`
	Offset    int64        `json:"offset"` // asked for

	// The record in metadata.
	SegmentID     segment.UUID     `json:"segmentId"`
	State         string           `json:"state"`
	StartOffset   int64            `json:"startOffset"`
	EndOffset     int64            `json:"endOffset"`
	MaxTimestamp  int64            `json:"maxTimestamp"` // ms
	SizeBytes     int64            `json:"sizeBytes"`    // of the log
	LeaderEpochs  []ExplainedEpoch `json:"leaderEpochs"`
	ReadableUpTo  int64            `json:"readableUpTo"` // last offset of the segment that the lineage shares
	TxnIndexEmpty bool             `json:"txnIndexEmpty"`
	Object        ExplainedObject  `json:"object"`
	Chunk         ExplainedChunk   `json:"chunk"` // where the batch starts
	Batch         ExplainedBatch   `json:"batch"` // the first with lastOffset ≥ offset
	Gets          []ExplainedGet   `json:"gets"`  // that a fetch makes with nothing in memory
}

// ExplainedEpoch is a leader epoch of a segment.
type ExplainedEpoch struct {
	Epoch       int32 `json:"epoch"`
	StartOffset int64 `json:"startOffset"`
}

// ExplainedObject is the object of a segment, as its location says.
type ExplainedObject struct {
	Key        string `json:"key"`
	Size       int64  `json:"size"`   // bytes
	CRC32C     string `json:"crc32c"` // hexadecimal
	TailOffset int64  `json:"tailOffset"`
	TailCRC32C string `json:"tailCrc32c"`
	ChunkSize  int64  `json:"chunkSize"`
	Chunks     int    `json:"chunks"`
}

// ExplainedChunk is a chunk: bytes [Position, Position+Length) of the object.
type ExplainedChunk struct {
	Number   int    `json:"number"`
	Position int64  `json:"position"`
	Length   int64  `json:"length"`
	CRC32C   string `json:"crc32c"`
}

// ExplainedBatch is a batch: bytes [Position, Position+Size) of the object, in
// as many chunks from the explained one on.
type ExplainedBatch struct {
	Position     int64  `json:"position"`
	Size         int64  `json:"size"`
	Chunks       int    `json:"chunks"`
	BaseOffset   int64  `json:"baseOffset"`
	LastOffset   int64  `json:"lastOffset"`
	Magic        int8   `json:"magic"`
	Compression  string `json:"compression"`
	LeaderEpoch  int32  `json:"leaderEpoch"`
	MaxTimestamp int64  `json:"maxTimestamp"`
	Records      int32  `json:"records"`
}

// ExplainedGet is one ranged GET.
type ExplainedGet struct {
	What   string `json:"what"` // "tail" or "data"
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
}

// Explain tells how a Fetch of req finds its first batch, and what it costs when
// nothing is in memory. It reads as much as that and fails as Fetch does.
func (r *Reader) Explain(ctx context.Context, req Request) (Explanation, error) {
	rd := reading{r: r, p: req.Partition, lineage: req.Lineage, logStart: req.LogStart, local: req.LocalLogStart, tenant: req.Tenant}
	if err := req.validate(); err != nil {
		return Explanation{}, err
	}
	if err := rd.look(); err != nil {
		return Explanation{}, err
	}
	limit := req.limit()
	for offset := req.Offset; ; {
		var at place
		if err := rd.locate(offset, &at); err != nil {
			return Explanation{}, err
		}
		e, found, err := rd.explain(ctx, at, offset, limit)
		if err != nil {
			return Explanation{}, rd.blame(ctx, rd.segment(&at), offset, err)
		}
		if found {
			e.Offset = req.Offset
			return e, nil
		}
		offset = at.upper
	}
}

func (rd *reading) explain(ctx context.Context, at place, offset, limit int64) (e Explanation, found bool, err error) {
	r, seg := rd.r, rd.segment(&at)
	t, err := r.tail(ctx, &seg, rd.tenant)
	if err != nil {
		return e, false, err
	}
	var p pins
	p.open(t)
	p.whose.tenant = rd.tenant
	defer p.release()
	pos, h, found, err := r.find(ctx, &p, t.from(offset), offset, 1, true)
	if err != nil || !found || h.LastOffset >= at.upper {
		return e, false, err
	}
	if h.BaseOffset < 0 { // found in the notes
		if h, err = r.header(ctx, &p, pos, true); err != nil {
			return e, false, err
		}
	}
	c, end := t.chunk(pos), pos+int64(h.Size)
	e = Explanation{
		Topic: rd.p.Topic, TopicID: rd.p.TopicID, Partition: rd.p.Number,
		SegmentID: seg.ID, State: seg.State.String(), StartOffset: seg.StartOffset, EndOffset: seg.EndOffset,
		MaxTimestamp: seg.MaxTimestamp, SizeBytes: seg.SizeBytes, ReadableUpTo: at.upper - 1, TxnIndexEmpty: seg.TxnIndexEmpty,
		Object: ExplainedObject{
			Key: t.key, Size: t.loc.ObjectSize, CRC32C: hex(t.loc.ObjectCRC32C),
			TailOffset: t.loc.TailOffset, TailCRC32C: hex(t.loc.TailCRC32C),
			ChunkSize: t.Table.ChunkSize, Chunks: len(t.Table.Chunks),
		},
		Chunk: ExplainedChunk{Number: c, Position: t.Table.Start(c), Length: t.Table.Len(c), CRC32C: hex(t.Table.Chunks[c].CRC32C)},
		Batch: ExplainedBatch{
			Position: pos, Size: int64(h.Size), Chunks: t.chunk(end-1) - c + 1, BaseOffset: h.BaseOffset, LastOffset: h.LastOffset,
			Magic: h.Magic, Compression: h.Codec().String(), LeaderEpoch: h.LeaderEpoch, MaxTimestamp: h.MaxTimestamp, Records: h.Count,
		},
		Gets: []ExplainedGet{{What: "tail", Offset: t.loc.TailOffset, Length: t.loc.TailSize()}},
	}
	for _, epoch := range seg.Epochs {
		e.LeaderEpochs = append(e.LeaderEpochs, ExplainedEpoch{Epoch: epoch.Epoch, StartOffset: epoch.Start})
	}
	to := min(max(end, pos+limit), t.Table.LogSize())
	to = min(t.Table.Start(t.chunk(to-1)+1), t.Table.LogSize())
	var chunks []int
	for i := c; i < len(t.Table.Chunks) && t.Table.Start(i) < to; i++ {
		chunks = append(chunks, i)
	}
	for _, run := range r.demand(t, whose{}).runs(nil, chunks) {
		off := t.Table.Start(run.from)
		e.Gets = append(e.Gets, ExplainedGet{What: "data", Offset: off, Length: min(t.Table.Start(run.to), to) - off})
	}
	return e, true, nil
}

func hex(crc uint32) string { return fmt.Sprintf("%08x", crc) }
