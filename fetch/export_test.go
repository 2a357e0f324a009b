package fetch

import (
	"context"
	"time"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/segment"
)

// SetNoteEvery sets how far apart in bytes noted batches are at least, for chunks
// fetched from now on.
func (r *Reader) SetNoteEvery(n int) { r.noteEvery = n }

// TailAt has the tail of the segment loaded that begins with offset, and its first chunk
// guessed, as a Fetch of that offset does before it leases what it needs. It returns what ends that.
func (r *Reader) TailAt(ctx context.Context, p segment.Partition, offset int64) (release func(), err error) {
	rd := reading{r: r, p: p}
	if err := rd.look(); err != nil {
		return nil, err
	}
	seg, ok := rd.view.Lookup(rd.lineage, offset)
	if !ok {
		return nil, ErrUnavailable
	}
	l := new(cache.Lease)
	_, err = r.tailFor(ctx, &seg, "", offset, l)
	return l.Release, err
}

// Found reports whether the cache was told of the reader of res because of its reads.
func (res *Result) Found() bool {
	s := res.in.stream
	if s == nil {
		return false
	}
	s.lanes.mu.Lock()
	defer s.lanes.mu.Unlock()
	return s.lane.cursor != nil
}

// Planned returns when it was last thought of what to fetch ahead of whom.
func (r *Reader) Planned() (last time.Time) {
	r.streams.mu.Lock()
	defer r.streams.mu.Unlock()
	for _, at := range r.streams.active {
		if at.After(last) {
			last = at
		}
	}
	return last
}
