package explore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
)

// errFault is a fault of the store that may pass.
var errFault = storetest.ErrInjected

func kindOf(err error) string {
	for _, target := range []error{
		metadata.ErrFenced, metadata.ErrDuplicate, metadata.ErrTransition, metadata.ErrUnavailable, metadata.ErrNotReady,
		objstore.ErrConflict, objstore.ErrNotExist, objstore.ErrChanged, errFault, errDead,
	} {
		if errors.Is(err, target) {
			return target.Error()
		}
	}
	return err.Error()
}

// defeat takes a guard out: it may change what an actor is given, or the truth
// itself.
type defeat struct {
	truth func(metadata.Store) metadata.Store
	store func(*proc, objstore.Store) objstore.Store
	meta  func(*proc, fullMeta) fullMeta
	delay time.Duration // of the Deleter, less than 0: none
	trust bool          // somebody tells the collector that metadata is right
}

// procStore is the object store as a process sees it.
type procStore struct{ p *proc }

func wrapStore(op, key string, err error) error {
	return &objstore.Error{Op: op, Key: key, Err: err}
}

// static says that nothing about an object ever changes: calls on it are no steps.
func (w *world) static(key string) bool {
	return key == object.OwnerKey && !w.sc.unclaimed || key == object.RebuildKey
}

func (s procStore) Get(ctx context.Context, key string, off, n int64, o objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	w := s.p.w
	if !w.static(key) {
		how, err := s.p.step(nil, fmt.Sprintf("get %s %d+%d", w.named(key), off, n), failed)
		if how == failed {
			err = errFault
		}
		if err != nil {
			return objstore.Info{}, nil, wrapStore("get", key, err)
		}
	}
	info, body, err := w.store.Get(ctx, key, off, n, o)
	if !w.static(key) {
		s.p.looked(key, err)
		s.p.answered("", err)
	}
	return info, body, err
}

func (s procStore) Stat(ctx context.Context, key string) (objstore.Info, error) {
	w := s.p.w
	if w.static(key) {
		if s.p.isDead() {
			return objstore.Info{}, wrapStore("stat", key, errDead)
		}
		return w.store.Stat(ctx, key)
	}
	how, err := s.p.step(nil, "stat "+w.named(key), failed)
	if how == failed {
		err = errFault
	}
	if err != nil {
		return objstore.Info{}, wrapStore("stat", key, err)
	}
	info, err := w.store.Stat(ctx, key)
	s.p.looked(key, err)
	s.p.answered("", err)
	return info, err
}

// Upload takes two steps: the first byte is sent, and the object becomes visible.
func (s procStore) Upload(ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
	w, key := s.p.w, req.Key
	if w.static(key) {
		if s.p.isDead() {
			return objstore.Evidence{}, wrapStore("upload", key, errDead)
		}
		return w.store.Upload(ctx, req)
	}
	how, err := s.p.step(nil, "upload "+w.named(key), failed, lie)
	if how == failed {
		err = errFault
	}
	if err != nil {
		return objstore.Evidence{}, wrapStore("upload", key, err)
	}
	w.uploads(key)
	if how == lie {
		ev := objstore.Evidence{Size: req.Size, Identity: "w0"}
		for i, sum := range req.PartSums {
			ev.Parts = append(ev.Parts, objstore.PartEvidence{Part: i, Sum: sum, Level: objstore.Echoed})
		}
		s.p.answered("", nil)
		return ev, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	inner := req
	inner.Confirmed = func(e objstore.PartEvidence) {
		if e.Part == 0 {
			how, err = s.p.step(nil, "complete "+w.named(key), failed, lost)
		}
		if err != nil || how == failed {
			cancel() // what was sent stays on the store, unfinished
		} else if req.Confirmed != nil {
			req.Confirmed(e)
		}
	}
	ev, uerr := w.store.Upload(ctx, inner)
	switch {
	case err != nil:
		return objstore.Evidence{}, wrapStore("upload", key, err)
	case how == failed || how == lost && uerr == nil:
		uerr = wrapStore("upload", key, errFault)
	}
	s.p.answered(fmt.Sprint(ev.Existed), uerr)
	return ev, uerr
}

func (s procStore) Delete(ctx context.Context, keys ...string) error {
	w := s.p.w
	for _, key := range keys {
		how, err := s.p.step(nil, "delete "+w.named(key), failed, lost, late)
		if how == failed {
			err = errFault
		}
		if err != nil {
			return wrapStore("delete", key, err)
		}
		w.deletes(s.p, key)
		if how == late {
			w.limbo = append(w.limbo, key)
			continue
		}
		if err = w.store.Delete(ctx, key); err == nil && how == lost {
			err = wrapStore("delete", key, errFault)
		}
		s.p.answered("", err)
		if err != nil {
			return err
		}
	}
	return nil
}

func (s procStore) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		w := s.p.w
		how, err := s.p.step(nil, "list", failed, stale, ancient)
		if how == failed {
			err = errFault
		}
		if err != nil {
			yield(objstore.Info{}, wrapStore("list", prefix, err))
			return
		}
		shown := w.present
		switch how {
		case stale:
			shown = w.previous
		case ancient:
			shown = w.first
		case fine, failed, lost, late, lie, blind:
		}
		var infos []objstore.Info
		for key := range shown {
			info := objstore.Info{Key: key, Size: int64(len(w.contents[key].bytes)), Modified: time.Now(), Now: time.Now(), Identity: "listed"}
			if real, err := w.store.Stat(ctx, key); err == nil {
				info = real
			}
			if strings.HasPrefix(key, prefix) && key > after {
				infos = append(infos, info)
			}
		}
		sortInfos(infos)
		var names []string
		for _, info := range infos {
			names = append(names, w.named(info.Key))
		}
		s.p.answered(strings.Join(names, " "), nil)
		for _, info := range infos {
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (s procStore) Uploads(ctx context.Context, prefix string) iter.Seq2[objstore.Pending, error] {
	return func(yield func(objstore.Pending, error) bool) {
		w := s.p.w
		how, err := s.p.step(nil, "uploads", failed)
		if how == failed {
			err = errFault
		}
		if err != nil {
			yield(objstore.Pending{}, wrapStore("uploads", prefix, err))
			return
		}
		var found []objstore.Pending
		var names []string
		for up, err := range w.store.(objstore.UploadLister).Uploads(ctx, prefix) {
			if err != nil {
				yield(objstore.Pending{}, err)
				return
			}
			found, names = append(found, up), append(names, w.named(up.Key))
		}
		s.p.answered(strings.Join(names, " "), nil)
		for _, up := range found {
			if !yield(up, nil) {
				return
			}
		}
	}
}

func (s procStore) Abort(ctx context.Context, up objstore.Pending) error {
	w := s.p.w
	how, err := s.p.step(nil, "abort "+w.named(up.Key), failed)
	if how == failed {
		err = errFault
	}
	if err != nil {
		return wrapStore("abort", up.Key, err)
	}
	err = w.store.(objstore.UploadLister).Abort(ctx, up)
	s.p.answered("", err)
	return err
}

func (procStore) Close() error { return nil }

// fullMeta is a metadata store that keeps the log start.
type fullMeta interface {
	metadata.Store
	metadata.LogStarts
}

// procMeta is the metadata store as a process sees it.
type procMeta struct{ p *proc }

func (m procMeta) ID() string { return m.p.w.meta.ID() }

func (m procMeta) Publish(ctx context.Context, ev metadata.Event) error {
	w, p := m.p.w, m.p
	what := "publish partition"
	if _, _, ok := ev.Deletion(); !ok {
		s := ev.Segment()
		w.baptize(s.ID, fmt.Sprintf("%s.%d", p.actor.name, p.life))
		what = fmt.Sprintf("publish %s %d-%s", ev.To(), s.StartOffset, w.names[s.ID])
	}
	how, err := p.step(nil, what, failed, lost)
	if err != nil {
		return err
	}
	if how == failed {
		p.answered("", metadata.ErrUnavailable)
		return fmt.Errorf("%w: %w", metadata.ErrUnavailable, errFault)
	}
	before := w.view()
	err = w.meta.Publish(ctx, ev)
	if err == nil {
		w.published(p, ev, before)
	}
	if err == nil && how == lost {
		if ev.To() == metadata.CopySegmentFinished {
			p.unheard = ev.Segment().ID
		}
		err = fmt.Errorf("%w: %w", metadata.ErrUnavailable, errFault)
	}
	if err == nil {
		p.know.published(ev)
	}
	p.answered("", err)
	return err
}

func (m procMeta) View(part segment.Partition) (*metadata.View, error) {
	w := m.p.w
	how, err := m.p.step(nil, "view", blind)
	if err != nil {
		return nil, err
	}
	if how == blind {
		m.p.know.viewed(nil)
		return nil, metadata.ErrNotReady
	}
	v, err := w.meta.View(part)
	if err != nil {
		return nil, err
	}
	m.p.know.viewed(v)
	m.p.reading.viewed()
	m.p.answered(w.describeView(v), nil)
	return v, nil
}

func (m procMeta) Partitions() ([]segment.Partition, error) {
	if _, err := m.p.step(nil, "partitions"); err != nil {
		return nil, err
	}
	all, err := m.p.w.meta.Partitions()
	m.p.answered(fmt.Sprint(len(all)), err)
	return all, err
}

func (m procMeta) LogStart(part segment.Partition) (int64, bool) {
	if _, err := m.p.step(nil, "log start"); err != nil {
		return 0, false
	}
	at, ok := m.p.w.meta.(metadata.LogStarts).LogStart(part)
	m.p.answered(fmt.Sprint(at, ok), nil)
	return at, ok
}

func (m procMeta) SetLogStart(ctx context.Context, part segment.Partition, offset int64, wr metadata.Writer) error {
	how, err := m.p.step(nil, fmt.Sprint("set log start ", offset), failed, lost)
	if err != nil {
		return err
	}
	if how == failed {
		return fmt.Errorf("%w: %w", metadata.ErrUnavailable, errFault)
	}
	err = m.p.w.meta.(metadata.LogStarts).SetLogStart(ctx, part, offset, wr)
	if err == nil && how == lost {
		err = fmt.Errorf("%w: %w", metadata.ErrUnavailable, errFault)
	}
	m.p.answered("", err)
	return err
}

func (m procMeta) Assign(ctx context.Context, add, remove []segment.Partition) error {
	if m.p.isDead() {
		return errDead
	}
	return m.p.w.meta.Assign(ctx, add, remove)
}

func (m procMeta) Watch(part segment.Partition) <-chan struct{} { return m.p.w.meta.Watch(part) }

func (procMeta) Close() error { return nil }

func sortInfos(infos []objstore.Info) {
	slices.SortFunc(infos, func(a, b objstore.Info) int { return cmp.Compare(a.Key, b.Key) })
}
