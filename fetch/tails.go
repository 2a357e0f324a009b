package fetch

import (
	"container/list"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/segment"
)

// tail is what is known of one segment's object: all that a fetch needs before
// it asks for data. It is immutable once loaded, but for the identity.
type tail struct {
	*object.Tail
	id  segment.UUID
	key string
	loc object.Location

	done   chan struct{} // closed when loaded or failed
	loaded bool          // guarded by tails.mu
	ended  bool          // done is closed; guarded by tails.mu
	err    error         // why it failed; constant after done
	size   int64         // memory, in bytes
	elem   *list.Element // in tails.order once loaded; guarded by tails.mu

	quiet   atomic.Pointer[quiet] // see reading.quiet
	urgency *endpoint.Urgency     // of its own read
	guessed atomic.Bool           // its first chunk was asked for before it was here
	lanes   atomic.Pointer[lanes] // of the partition, as last seen

	used atomic.Bool // found without tails.mu since it was last in front there

	mu       sync.Mutex
	identity string           // of the object as last seen; guarded by mu
	flights  []*flight        // of its chunks; guarded by mu
	failed   map[int]struct{} // chunks whose flight failed, until they are asked for again; guarded by mu
}

func (t *tail) seen(identity string) {
	t.mu.Lock()
	t.identity = identity
	t.mu.Unlock()
}

func (t *tail) lastSeen() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.identity
}

// chunk returns the number of the chunk that holds a position of the log.
func (t *tail) chunk(pos int64) int { return int(pos / t.Table.ChunkSize) }

// from returns the chunk from which on to look for the first batch with
// LastOffset ≥ offset, one in which a batch starts; the one behind the last if there
// is none.
func (t *tail) from(offset int64) int {
	chunks := t.Table.Chunks
	if len(chunks) == 0 {
		return 0
	}
	c := t.Table.ForOffset(offset)
	for c < len(chunks) && chunks[c].FirstBatch < 0 {
		c++
	}
	return c
}

// tails keeps the tails of segments, the least recently used go first, and
// loads each once whoever asks.
type tails struct {
	mu    sync.Mutex
	byID  map[segment.UUID]*tail // loaded and loading
	order *list.List             // of *tail, loaded, the latest in front
	bytes int64
	limit int64

	// recent has loaded tails by their ids, for who finds one there without mu. It is
	// written under mu: what is evicted is not in it any more.
	recent [recentTails]atomic.Pointer[tail]
}

// recentTails is how many tails are found without a lock, at most; a power of two.
const recentTails = 1024

func (ts *tails) place(id *segment.UUID) *atomic.Pointer[tail] {
	return &ts.recent[binary.LittleEndian.Uint64(id[8:])*0x9E3779B97F4A7C15>>(64-10)]
}

// find returns a loaded tail if it was lately joined. It takes no lock, and notes that
// the tail is used once between two evictions only.
func (ts *tails) find(id *segment.UUID) *tail {
	t := ts.place(id).Load()
	if t == nil || t.id != *id {
		return nil
	}
	if !t.used.Load() {
		t.used.Store(true)
	}
	return t
}

// evict takes a loaded tail out. The caller holds mu.
func (ts *tails) evict(t *tail) {
	ts.order.Remove(t.elem)
	delete(ts.byID, t.id)
	ts.place(&t.id).CompareAndSwap(t, nil)
	ts.bytes -= t.size
}

func (ts *tails) init(limit int64) {
	ts.byID, ts.order, ts.limit = make(map[segment.UUID]*tail), list.New(), limit
}

func (ts *tails) stats() (n int, bytes int64) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.order.Len(), ts.bytes
}

// join returns the tail of a segment, loaded or not. If it is new, the caller
// must have it loaded.
func (ts *tails) join(id segment.UUID) (t *tail, loaded, isNew bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t = ts.byID[id]; t == nil {
		t = &tail{id: id, done: make(chan struct{}), urgency: endpoint.NewUrgency(endpoint.TailDemand)}
		ts.byID[id] = t
		return t, false, true
	}
	if t.loaded {
		ts.order.MoveToFront(t.elem)
		ts.place(&id).Store(t)
	}
	return t, t.loaded, false
}

// has reports whether the tail of a segment is here or on its way.
func (ts *tails) has(id segment.UUID) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.byID[id] != nil
}

// settle ends the loading of t, once; a failed one is forgotten first, so that
// nobody joins it. got may be nil if err is not.
func (ts *tails) settle(t *tail, got *loaded, err error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t.ended {
		return
	}
	t.ended = true
	defer close(t.done)
	if err != nil {
		t.err = err
		delete(ts.byID, t.id)
		return
	}
	t.Tail, t.key, t.loc = got.tail, got.key, got.loc
	t.seen(got.identity)
	t.loaded = true
	// What it takes in memory, nearly: a table entry is 4 bytes longer there.
	t.size = got.loc.TailSize() + int64(len(got.tail.Table.Chunks))*4 + 1<<10
	t.elem = ts.order.PushFront(t)
	ts.bytes += t.size
	ts.shrink(func(t *tail) bool { return t.used.Swap(false) })
}

// shrink evicts what is above the limit. Once round those that were used are spared, and no
// longer, lest those who use them keep us here. The caller holds mu.
func (ts *tails) shrink(used func(*tail) bool) {
	for spared := ts.order.Len(); ts.bytes > ts.limit; spared-- {
		last := ts.order.Back().Value.(*tail)
		if used(last) && spared > 0 {
			ts.order.MoveToFront(last.elem)
			continue
		}
		ts.evict(last) // who uses it keeps it alive
	}
}

// drop forgets a loaded tail.
func (ts *tails) drop(id segment.UUID) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t := ts.byID[id]; t != nil && t.loaded {
		ts.evict(t)
	}
}

// tail is tailFor of where the walk is.
func (rd *reading) tail(ctx context.Context, at *place, offset int64, guessed *cache.Lease) (*tail, error) {
	if t := rd.r.tails.find(&at.id); t != nil {
		return t, nil
	}
	seg := rd.segment(at)
	return rd.r.tailFor(ctx, &seg, rd.tenant, offset, guessed)
}

// tail returns the tail of a segment, waiting for it with the caller's context.
// The error is as it came from below; see Reader.blame.
func (r *Reader) tail(ctx context.Context, seg *metadata.Segment, tenant string) (*tail, error) {
	return r.tailFor(ctx, seg, tenant, -1, nil) // of no offset there is nothing to guess
}

// tailFor is tail for a read of offset, which has the data asked for too if it
// is known without a tail where that is, and leased into guessed.
func (r *Reader) tailFor(ctx context.Context, seg *metadata.Segment, tenant string, offset int64, guessed *cache.Lease) (*tail, error) {
	t, ready, isNew := r.tails.join(seg.ID)
	if ready {
		return t, nil
	}
	chunkSize := r.chunkSize.Load()
	if isNew {
		begun := false
		defer func() {
			if !begun { // a panic of this caller's must not leave the others waiting
				r.tails.settle(t, nil, errors.New("fetch: the caller who was to load the tail panicked"))
			}
		}()
		r.load(ctx, t, *seg, tenant)
		begun = true
	}
	t.urgency.RaiseFor(endpoint.TailDemand, tenant)
	r.guess(ctx, t, seg, tenant, offset, chunkSize, guessed)
	select {
	case <-t.done:
		if t.err != nil {
			return nil, t.err
		}
		return t, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// loaded is a tail and where it came from.
type loaded struct {
	tail     *object.Tail
	key      string
	loc      object.Location
	identity string
}

// load has t loaded in the background, for a tenant.
func (r *Reader) load(ctx context.Context, t *tail, seg metadata.Segment, tenant string) {
	abort := func(err error) { r.tails.settle(t, nil, err) }
	r.spawn(ctx, tailActivity, abort, func(ctx context.Context) {
		got, err := r.readTail(ctx, &seg, tenant, t.urgency)
		if err == nil {
			r.chunkSize.Store(got.tail.Table.ChunkSize)
		}
		r.tails.settle(t, got, err)
	})
}

// location says where the object of a segment is, by its record.
func location(seg *metadata.Segment) (key string, loc object.Location, err error) {
	key = object.Key(seg.Partition, seg.StartOffset, seg.ID)
	if !object.IsLocation(seg.Custom) {
		return key, loc, &damage{key: key, err: metadata.ErrForeignSegment}
	}
	if loc, err = object.ParseLocation(seg.Custom); err != nil {
		return key, loc, &damage{key: key, err: err}
	}
	return key, loc, nil
}

// readTail fetches and parses a tail, with one GET.
func (r *Reader) readTail(ctx context.Context, seg *metadata.Segment, tenant string, u *endpoint.Urgency) (*loaded, error) {
	key, loc, err := location(seg)
	if err != nil {
		return nil, err
	}
	r.stats.tailGets.Add(1)
	b := make([]byte, loc.TailSize()) // bounded by ParseLocation
	fail := func(err error) (*loaded, error) {
		return nil, &damage{key: key, off: loc.TailOffset, n: loc.TailSize(), err: err}
	}
	info, err := r.ep.Read(ctx, endpoint.ReadRequest{
		Key: key, Off: loc.TailOffset, ObjectSize: loc.ObjectSize, Tenant: tenant, Urgency: u,
		Pieces: []endpoint.Piece{{Buf: b, CRC32C: loc.TailCRC32C}},
	})
	if err != nil {
		return fail(err)
	}
	parsed, err := object.ParseTail(b, loc)
	if err != nil {
		return fail(err)
	}
	if err := sameSegment(seg, &parsed.Header); err != nil {
		return fail(err)
	}
	return &loaded{tail: parsed, key: key, loc: loc, identity: info.Identity}, nil
}

// sameSegment compares an object's header with the record that led to it.
// Broker and event time are not compared: later events change them in the
// record.
func sameSegment(seg *metadata.Segment, h *object.Header) error {
	if h.Partition == seg.Partition && h.SegmentID == seg.ID &&
		h.StartOffset == seg.StartOffset && h.EndOffset == seg.EndOffset &&
		h.MaxTimestamp == seg.MaxTimestamp && h.SizeBytes == seg.SizeBytes &&
		h.TxnIndexEmpty == seg.TxnIndexEmpty && slices.Equal(h.Epochs, seg.Epochs) {
		return nil
	}
	return fmt.Errorf("%w: the object's header is of segment %v of %v, offsets %d to %d, not of the record that names it",
		object.ErrCorrupt, h.SegmentID, h.Partition, h.StartOffset, h.EndOffset)
}
