package audit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"testing"
	"time"

	"github.com/segtier/segtier/audit"
	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/segment"
)

// aged is a store whose clock has gone on: everything in it is older.
type aged struct {
	objstore.Store
	by time.Duration
}

func (a aged) Stat(ctx context.Context, key string) (objstore.Info, error) {
	info, err := a.Store.Stat(ctx, key)
	info.Now = info.Now.Add(a.by)
	return info, err
}

func (a aged) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		for info, err := range a.Store.List(ctx, prefix, after) {
			info.Now = info.Now.Add(a.by)
			if !yield(info, err) {
				return
			}
		}
	}
}

func (a aged) Uploads(ctx context.Context, prefix string) iter.Seq2[objstore.Pending, error] {
	return a.Store.(objstore.UploadLister).Uploads(ctx, prefix)
}

func (a aged) Abort(ctx context.Context, p objstore.Pending) error {
	return a.Store.(objstore.UploadLister).Abort(ctx, p)
}

const (
	days  = 24 * time.Hour
	later = 40 * days // than any age in question
)

// put creates an object.
func put(t *testing.T, store objstore.Store, key string, b []byte) {
	t.Helper()
	sum := checksum.Sum{Len: int64(len(b)), CRC32C: checksum.CRC32C(b)}
	_, err := store.Upload(t.Context(), objstore.UploadRequest{Key: key, Body: bytes.NewReader(b), Size: sum.Len, PartSize: sum.Len, PartSums: []checksum.Sum{sum}})
	if err != nil {
		t.Fatal(err)
	}
}

// interrupted leaves an unfinished upload.
func interrupted(t *testing.T, store objstore.Store, key string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body := readerAt(func(p []byte, _ int64) (int, error) { cancel(); return len(p), nil })
	sum := checksum.Sum{Len: 10, CRC32C: checksum.CRC32C(make([]byte, 10))}
	_, err := store.Upload(ctx, objstore.UploadRequest{Key: key, Body: body, Size: 10, PartSize: 10, PartSums: []checksum.Sum{sum}})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

type readerAt func(p []byte, off int64) (int, error)

func (f readerAt) ReadAt(p []byte, off int64) (int, error) { return f(p, off) }

var _ io.ReaderAt = readerAt(nil)

// drive takes a segment to a state by events alone; its object stays.
func drive(t *testing.T, meta metadata.Store, seg *metadata.Segment, to metadata.State) *metadata.Segment {
	t.Helper()
	for seg.State < to {
		var ev metadata.Event
		var err error
		if seg.State == metadata.DeleteSegmentStarted {
			ev, err = metadata.DeleteFinished(seg, writer, time.Now().UnixMilli())
		} else {
			ev, err = metadata.DeleteStarted(seg, writer, time.Now().UnixMilli())
		}
		if err == nil {
			err = meta.Publish(t.Context(), ev)
		}
		if err != nil {
			t.Fatal(err)
		}
		seg = ev.Segment()
	}
	return seg
}

// started announces a copy that never went on.
func started(t *testing.T, meta metadata.Store, like *metadata.Segment, w metadata.Writer) *metadata.Segment {
	t.Helper()
	seg := like.Clone()
	seg.ID = segment.NewUUID()
	seg.EndOffset += 1000 // another range: the like's is readable
	seg.Custom = fingerprint
	ev, err := metadata.Started(seg, w, time.Now().UnixMilli())
	if err == nil {
		err = meta.Publish(t.Context(), ev)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ev.Segment()
}

// fingerprint is one of a plan.
var fingerprint = append([]byte{'P', 1}, make([]byte, 42)...)

// ender ends records as lifecycle.Deleter does.
func ender(meta metadata.Store, ep *endpoint.Endpoint) func(context.Context, *metadata.Segment) error {
	return func(ctx context.Context, seg *metadata.Segment) error {
		ev, err := metadata.DeleteStarted(seg, writer, time.Now().UnixMilli())
		if err == nil {
			err = meta.Publish(ctx, ev)
		}
		if err != nil {
			return err
		}
		seg = ev.Segment()
		key := object.Key(seg.Partition, seg.StartOffset, seg.ID)
		for u, err := range ep.Uploads(ctx, key) {
			if err == nil {
				err = ep.Abort(ctx, u)
			}
			if err != nil {
				return err
			}
		}
		if err := ep.Delete(ctx, key); err != nil {
			return err
		}
		if ev, err = metadata.DeleteFinished(seg, writer, time.Now().UnixMilli()); err == nil {
			err = meta.Publish(ctx, ev)
		}
		return err
	}
}

// atticSegments is how many segments an attic's log has: two of them are deleted.
const atticSegments = 7

// attic is a tier with one of everything that can lie about.
type attic struct {
	*tier
	want map[string]audit.Reason // by key, and upload id or "record"
	keys map[string]string       // by a name
}

// furnish makes one. Its clock is `later` ahead of what lies there.
func furnish(t *testing.T) *attic {
	t.Helper()
	w := newTier(t, later)
	w.log = testseg.Random(77, testseg.Options{Segments: atticSegments, Batches: 3})
	w.copy(t, small, w.log.Segments...)
	a := &attic{tier: w, want: map[string]audit.Reason{}, keys: map[string]string{}}
	put := func(name, key string, b []byte, r audit.Reason) {
		put(t, w.store, key, b)
		a.keys[name] = key
		if r != "" {
			a.want[key] = r
		}
	}
	upload := func(key string, r audit.Reason) {
		interrupted(t, w.store, key)
		if r != "" {
			a.want[key+" upload"] = r
		}
	}
	p := w.log.Partition
	seg := w.segs[3]

	// Ended, and its object is still there, or came after.
	ended := drive(t, w.meta, w.segs[0], metadata.DeleteSegmentFinished)
	a.want[key(ended)] = audit.OrphanEnded
	a.keys["ended"] = key(ended)
	upload(key(ended), audit.UploadEnded)
	// Being deleted: somebody else's task, and here one that has not gone on.
	deleting := drive(t, w.meta, w.segs[1], metadata.DeleteSegmentStarted)
	a.keys["deleting"] = key(deleting)
	a.want[key(deleting)+" record"] = audit.RecordDeleting
	upload(key(deleting), audit.UploadEnded)
	// Readable: an upload beside it is nobody's any more.
	upload(key(seg), audit.UploadEnded)
	// Announced and given up, with an upload that goes with it.
	alone := started(t, w.meta, seg, writer)
	a.want[key(alone)+" record"] = audit.RecordAbandoned
	upload(key(alone), "")
	// Not known: no object of ours, and a copy of one under another id.
	put("garbage", object.Key(p, 7, segment.NewUUID()), []byte("no object"), audit.OrphanUnknown)
	put("copy", object.Key(p, seg.StartOffset, segment.NewUUID()), w.content(t, key(seg)), audit.OrphanUnknown)
	upload(object.Key(p, 9, segment.NewUUID()), audit.UploadUnknown)
	// Somebody else's.
	for i, key := range []string{"README.txt", "a/b/c.seg", key(seg) + ".bak", "orders/0/00000000000000000000.log", "segtier.json.old"} {
		put(fmt.Sprint("foreign", i), key, []byte("not ours"), audit.ForeignObject)
	}
	upload("foreign/upload", audit.ForeignObject)
	// Of a rebuild that was killed as it began.
	upload(object.RebuildKey, audit.UploadEnded)
	// Under the id of a record, and of another topic's id.
	put("misplaced", object.Key(p, seg.StartOffset+1, seg.ID), []byte("x"), audit.OrphanMisplaced)
	other := p
	other.Topic += "x"
	put("topic", object.Key(other, 0, segment.NewUUID()), []byte("x"), audit.OrphanMisplaced)
	return a
}

func (a *attic) options() audit.OrphanOptions {
	return audit.OrphanOptions{Exclusive: true, MaxFraction: 1, PerSecond: -1, End: ender(a.meta, a.ep)}
}

func name(o audit.Orphan) string {
	switch {
	case o.UploadID != "":
		return o.Key + " upload"
	case o.Reason == audit.RecordAbandoned || o.Reason == audit.RecordComplete || o.Reason == audit.RecordDeleting:
		return o.Key + " record"
	}
	return o.Key
}

// listing is everything in a store, with its uploads.
func listing(t *testing.T, store objstore.Store) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for info, err := range store.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		all[info.Key] = true
	}
	for u, err := range store.(objstore.UploadLister).Uploads(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		all[u.Key+" upload"] = true
	}
	return all
}

func same(t *testing.T, what string, got, want map[string]bool) {
	t.Helper()
	for k := range got {
		if !want[k] {
			t.Errorf("%s: %s is there", what, k)
		}
	}
	for k := range want {
		if !got[k] {
			t.Errorf("%s: %s is gone", what, k)
		}
	}
}
