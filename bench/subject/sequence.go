package subject

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/objstore"
)

// fill reads partitions 0 to Streams-1 front to back, one after the other, and
// writes them to the sink.
func fill(ctx context.Context, j job.Job, m *job.Meter) (values map[string]float64, err error) {
	r, err := openRig(ctx, j)
	if err != nil {
		return nil, err
	}
	defer r.done(&err)
	out, err := job.Dial(ctx, j.Sink, j.Label)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	if err := r.warm(ctx); err != nil {
		return nil, err
	}
	m.Start()
	for p := range max(j.Streams, 1) {
		err := r.walk(ctx, p, 0, r.tier.EndOffset(), maxBytes(j), nil, func(res *fetch.Result) error {
			n, err := res.WriteTo(out.TCPConn)
			m.Count(n)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	m.Stop()
	return r.values(), out.Finish()
}

// values are what the read path counted.
func (r *rig) values() map[string]float64 {
	f, c, e := r.reader.Stats(), r.cache.Stats(), r.ep.Stats()
	return map[string]float64{
		"tailGets": float64(f.TailGets), "dataGets": float64(f.DataGets), "dataBytes": float64(f.DataBytes),
		"ahead": float64(f.Ahead), "wasted": float64(f.Wasted), "gapBytes": float64(f.GapBytes),
		"hits": float64(c.Hits), "joins": float64(c.Joins), "leads": float64(c.Leads),
		"gets": float64(e.Gets), "retries": float64(e.Retries), "corrupt": float64(e.Corrupt),
	}
}

// fanout has Streams consumers read partition 0, each Param["lag"] bytes behind
// the one before. The last Param["slow"] of them have no leash: they are slow by
// the sink's doing.
func fanout(ctx context.Context, j job.Job, m *job.Meter) (values map[string]float64, err error) {
	r, err := openRig(ctx, j)
	if err != nil {
		return nil, err
	}
	defer r.done(&err)
	outs := make([]*job.Pipe, j.Streams)
	for i := range outs {
		if outs[i], err = job.Dial(ctx, j.Sink, fmt.Sprintf("%s/%d", j.Label, i)); err != nil {
			return nil, err
		}
		defer outs[i].Close()
	}
	m.Start()
	leash := job.NewLeash(j.Streams, int64(j.Param["lag"]))
	err = all(ctx, len(outs), func(ctx context.Context, i int) error {
		defer leash.Done(i)
		return r.walk(ctx, 0, 0, r.tier.EndOffset(), maxBytes(j),
			func() error { return leash.Wait(ctx, i) },
			func(res *fetch.Result) error {
				n, err := res.WriteTo(outs[i].TCPConn)
				m.Count(n)
				leash.Moved(i, n)
				return err
			})
	})
	if err != nil {
		return nil, err
	}
	m.Stop()
	return r.values(), all(ctx, len(outs), func(_ context.Context, i int) error { return outs[i].Finish() })
}

// all runs n functions at a time and returns the first error, after all of them
// have ended.
func all(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			if err := do(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	running.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return nil
}

// serve reads partition 0, which is in memory, Count times, and writes it to the
// sink.
func serve(ctx context.Context, j job.Job, m *job.Meter) (values map[string]float64, err error) {
	r, err := openRig(ctx, j)
	if err != nil {
		return nil, err
	}
	defer r.done(&err)
	nothing := func(*fetch.Result) error { return nil }
	if err := r.walk(ctx, 0, 0, r.tier.EndOffset(), maxBytes(j), nil, nothing); err != nil {
		return nil, err
	}
	out, err := job.Dial(ctx, j.Sink, j.Label)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	before := r.ep.Stats().Gets
	m.Start()
	for range j.Count {
		err := r.walk(ctx, 0, 0, r.tier.EndOffset(), maxBytes(j), nil, func(res *fetch.Result) error {
			n, err := res.WriteTo(out.TCPConn)
			m.Count(n)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	m.Stop()
	if gets := r.ep.Stats().Gets - before; gets != 0 {
		return nil, fmt.Errorf("%d GETs for what should be in memory: give more of it", gets)
	}
	return nil, out.Finish()
}

// serveBare writes the same bytes from memory in the same pieces, and does
// nothing else.
func serveBare(ctx context.Context, j job.Job, m *job.Meter) (values map[string]float64, err error) {
	tier, err := openTier(j)
	if err != nil {
		return nil, err
	}
	// Chunk by chunk, as a cache has it; a piece is as long as a fetch of whole
	// batches would be.
	var log [][]byte
	for i := range tier.Spec().Segments {
		o, err := tier.Object(0, i)
		if err != nil {
			return nil, err
		}
		for off := int64(0); off < tier.SegmentBytes(); off += tier.Spec().ChunkBytes {
			b := make([]byte, min(tier.Spec().ChunkBytes, tier.SegmentBytes()-off))
			if _, err := o.ReadAt(b, off); err != nil {
				return nil, err
			}
			log = append(log, b)
		}
	}
	out, err := job.Dial(ctx, j.Sink, j.Label)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	batch := int64(tier.Spec().BatchBytes)
	piece := max(int64(maxBytes(j))/batch, 1) * batch
	var bufs net.Buffers
	m.Start()
	for range j.Count {
		for off := int64(0); off < tier.PartitionBytes(); {
			bufs = bufs[:0]
			segmentEnd := (off/tier.SegmentBytes() + 1) * tier.SegmentBytes()
			for end := min(off+piece, segmentEnd); off < end; {
				b := log[chunkOf(off, tier.SegmentBytes(), tier.Spec().ChunkBytes)]
				from := off % tier.SegmentBytes() % tier.Spec().ChunkBytes
				b = b[from:min(int64(len(b)), from+end-off)]
				bufs = append(bufs, b)
				off += int64(len(b))
			}
			w := bufs // WriteTo consumes its headers
			n, err := w.WriteTo(out.TCPConn)
			m.Count(n)
			if err != nil {
				return nil, err
			}
		}
	}
	m.Stop()
	return nil, out.Finish()
}

// chunkOf returns the number of the chunk that holds position off of segments
// laid end to end.
func chunkOf(off, segment, chunk int64) int64 {
	perSegment := (segment + chunk - 1) / chunk
	return off/segment*perSegment + off%segment/chunk
}

// errWrong is a wrong answer, as opposed to none.
var errWrong = errors.New("wrong answer")

// warm opens a connection to the store, as the peers do before they begin.
func (r *rig) warm(ctx context.Context) error {
	o, err := r.tier.Object(0, 0)
	if err != nil {
		return err
	}
	_, body, err := r.store.Get(ctx, o.Key(), 0, 1, objstore.GetOptions{})
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, body)
	return errors.Join(err, body.Close())
}
