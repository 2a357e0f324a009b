package fetch

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Stream reads one partition in sequence, from an offset on. It announces itself:
// what it is about to need is fetched from the first read on, within its share of
// memory. It holds nothing itself, but counts as a reader until it is closed, also
// when the Reader is. One call of Next, SeekTo or Offset at a time; Close may be called at
// any time.
type Stream struct {
	r   *Reader
	req Request

	mu     sync.Mutex
	own    *stream
	closed bool // guarded by mu
}

// Stream begins to read where req says, MaxBytes at a time. Its Hint is Sequential
// unless it says Scan or Tail. Lineage and log start stay what they are in req: with
// others begin another Stream.
func (r *Reader) Stream(req Request) *Stream {
	if req.Hint == Detect || req.Hint == TimeQuery {
		req.Hint = Sequential
	}
	log := logOf(req.Partition)
	req.Lineage = slices.Clone(req.Lineage)
	own := r.single(log, req.Offset)
	if req.Cursor == nil {
		own.lane.cursor = r.cache.Announce(log, req.Offset)
	}
	req.stream = own
	return &Stream{r: r, req: req, own: own}
}

// Next reads the next batches into res and moves on behind them. It ends as Fetch
// does, and does not move then: an EndOfTierError is the end for now, after a
// SkippedError go on with SeekTo.
func (s *Stream) Next(ctx context.Context, res *Result) error {
	if res == nil {
		return errNoResult
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		res.Release()
		return fmt.Errorf("stream of %s: %w", s.req.Partition, ErrClosed)
	}
	if err := s.r.Fetch(ctx, s.req, res); err != nil {
		return err
	}
	s.req.Offset = res.NextOffset()
	return nil
}

// Offset returns where the next read begins.
func (s *Stream) Offset() int64 { return s.req.Offset }

// SeekTo goes on at another offset. What is on its way for where it was is called
// off, unless somebody else waits for it: at once, or with the next read, if that may
// be of a segment that it is fetched from.
func (s *Stream) SeekTo(offset int64) {
	s.req.Offset = offset
	s.own.mu.Lock()
	defer s.own.mu.Unlock()
	for _, l := range s.own.way {
		if h := &l.t.Header; h.StartOffset <= offset && offset <= h.EndOffset {
			return
		}
	}
	s.r.elsewhere(s.own)
}

// Close ends the stream: its share of memory is for others, and what is on its way
// and nobody else's is called off. It may be called more than once.
func (s *Stream) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.r.finish(s.own)
}
