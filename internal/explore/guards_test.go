package explore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/segment"
)

// guard is one that is taken out, and what the explorer has to find then.
type guard struct {
	scenario
	finds string
}

// The guards, each taken out by a seam that defeats it: the shipped code asks, and
// is given what it would go by if it did not ask.
func guards() []guard {
	leaders := []actor{copies("leader 1", leader(1), 0), copies("leader 2", leader(2), 0)}
	retention := []actor{retires("retention", leader(1)), reads("reader", 1, 3)}
	return []guard{
		{scenario{
			name: "metadata neither compares nor fences", setup: nothing, copies: 1, actors: leaders,
			defeat: defeat{truth: func(m metadata.Store) metadata.Store {
				return &careless{Mem: m.(*metadatatest.Mem), views: map[segment.Partition]*metadata.View{}}
			}},
		}, "readable twice"},
		{scenario{
			name: "STARTED is written behind", setup: nothing, copies: 1, actors: leaders,
			defeat: defeat{meta: behind(metadata.CopySegmentStarted)},
		}, "before COPY_SEGMENT_STARTED is durable"},
		{scenario{
			name: "nobody ends what an older leader has announced", setup: nothing, copies: 1, actors: leaders,
			defeat: defeat{meta: func(_ *proc, m fullMeta) fullMeta { return &lenient{m} }},
		}, "which an older leader has announced, is left"},
		{scenario{
			name: "a lost answer to FINISHED is not read back", setup: nothing, copies: 1, actors: leaders, faults: 1, turns: []turn{lost},
			defeat: defeat{meta: func(p *proc, m fullMeta) fullMeta { return &discouraged{fullMeta: m, p: p} }},
		}, "is told that its copy failed"},
		{scenario{
			name: "FINISHED does not wait for the upload", setup: nothing, copies: 1, actors: leaders,
			defeat: defeat{store: func(p *proc, s objstore.Store) objstore.Store { return &eager{Store: s, p: p} }},
		}, "is readable and has no object"},
		{scenario{
			name: "an upload is not read back", setup: nothing, copies: 1, actors: leaders, faults: 1, turns: []turn{lie},
			defeat: defeat{store: func(p *proc, s objstore.Store) objstore.Store { return &echo{Store: s} }},
		}, "is readable and has no object"},
		{scenario{
			name: "copies do not wait for lower ones", setup: nothing, copies: 2, actors: []actor{apart("leader 1", leader(1), 0, 1)},
		}, "is FINISHED before the segment at 0"},
		{scenario{
			name: "DELETE_STARTED is written behind", setup: copied(0), copies: 1, retains: true, actors: retention,
			defeat: defeat{meta: behind(metadata.DeleteSegmentStarted)},
		}, "which is in COPY_SEGMENT_FINISHED"},
		{scenario{
			name: "nobody asks whether an object is gone", setup: copied(0), copies: 1, retains: true, actors: retention, faults: 1, turns: []turn{late},
			defeat: defeat{store: func(p *proc, s objstore.Store) objstore.Store { return &trusting{s, p} }},
		}, "has ended, and its object is there"},
		{scenario{
			name: "the log start does not move", setup: copied(0), copies: 1, retains: true, actors: retention,
			defeat: defeat{meta: func(_ *proc, m fullMeta) fullMeta { return &still{fullMeta: m} }},
		}, "is expired while the log starts at 0"},
		{scenario{
			name: "readers have no delay", setup: copied(0), copies: 1, retains: true, actors: retention, patient: true,
			defeat: defeat{delay: -1},
		}, "it had begun before the deletion"},
		{scenario{
			name: "a reader does not read metadata again", setup: copied(0), copies: 1, retains: true, actors: retention,
			defeat: defeat{meta: func(p *proc, m fullMeta) fullMeta {
				if p.retiring {
					return m
				}
				return &frozen{fullMeta: m}
			}},
		}, "nothing is damaged"},
		{scenario{
			name: "metadata that is not ready is what it was", setup: copied(0), copies: 1, retains: true, actors: retention, faults: 1, turns: []turn{blind},
			defeat: defeat{meta: func(_ *proc, m fullMeta) fullMeta { return &hopeful{fullMeta: m} }},
		}, "without knowing"},
		{scenario{
			name: "a collector does not look at metadata again", setup: copied(1), copies: 2,
			actors: []actor{copies("leader", leader(1), 0), collectsAs("collector", leader(1))},
			defeat: defeat{trust: true, meta: func(p *proc, m fullMeta) fullMeta {
				if p.actor.name != "collector" {
					return m
				}
				return &frozen{fullMeta: m}
			}},
		}, "collector deletes"},
		{scenario{
			name: "a collector takes metadata that is not ready for empty", setup: copied(0, 1), copies: 2, faults: 3, turns: []turn{blind},
			actors: []actor{collectsAs("collector", leader(1))},
			defeat: defeat{meta: func(_ *proc, m fullMeta) fullMeta { return &forgetful{fullMeta: m} }, trust: true},
		}, "collector deletes"},
	}
}

// forgetful says that there is nothing where nothing is known.
type forgetful struct{ fullMeta }

func (f *forgetful) View(p segment.Partition) (*metadata.View, error) {
	v, err := f.fullMeta.View(p)
	if errors.Is(err, metadata.ErrNotReady) {
		return metadata.NewView(p), nil
	}
	return v, err
}

// TestGuards takes each guard out and sees what breaks; the schedule that shows it
// shows it again.
func TestGuards(t *testing.T) {
	for _, g := range guards() {
		t.Run(g.name, func(t *testing.T) {
			f, bad, _ := explore(t, &g.scenario, 30_000)
			if bad == nil {
				t.Fatalf("nothing was found: %v", f)
			}
			if !strings.Contains(strings.Join(bad.wrong, "\n"), g.finds) {
				t.Errorf("found %q, want %q\n%s", bad.wrong, g.finds, bad.trace)
			}
			again := replay(t, &g.scenario, false, bad.schedule)
			if !slices.Equal(again.wrong, bad.wrong) || again.trace != bad.trace {
				t.Errorf("the schedule %v shows %q the next time", bad.schedule, again.wrong)
			}
			t.Logf("found after %d states and %d runs, in %d steps: %s", f.states, f.runs, bad.steps, bad.wrong[0])
		})
	}
}

// careless applies what it is told, whatever it was decided on and by whom: like a
// topic to which anybody appends.
type careless struct {
	*metadatatest.Mem
	views map[segment.Partition]*metadata.View // with nothing in Mem
}

func (c *careless) View(p segment.Partition) (*metadata.View, error) {
	if v := c.views[p]; v != nil {
		return v, nil
	}
	return metadata.NewView(p), nil
}

func (c *careless) Partitions() ([]segment.Partition, error) {
	return slices.Collect(maps.Keys(c.views)), nil
}

func (c *careless) Publish(_ context.Context, ev metadata.Event) error {
	v, err := c.View(ev.Partition())
	if err != nil {
		return err
	}
	seg := ev.Segment()
	seg.State = ev.To()
	rec, err := metadata.Recorded(seg)
	if err != nil {
		return err
	}
	if v, err = v.Apply(rec); err == nil {
		c.views[ev.Partition()] = v
	}
	return err
}

// lenient acknowledges that a copy is ended, and lets it be.
type lenient struct{ fullMeta }

func (m *lenient) Publish(ctx context.Context, ev metadata.Event) error {
	if ev.To() == metadata.DeleteSegmentStarted {
		return nil
	}
	return m.fullMeta.Publish(ctx, ev)
}

// discouraged sees what was before, once a FINISHED has failed.
type discouraged struct {
	fullMeta
	p    *proc
	view *metadata.View
}

func (m *discouraged) Publish(ctx context.Context, ev metadata.Event) error {
	before := m.p.w.view()
	err := m.fullMeta.Publish(ctx, ev)
	if err != nil && ev.To() == metadata.CopySegmentFinished {
		m.view = before
	}
	return err
}

func (m *discouraged) View(p segment.Partition) (*metadata.View, error) {
	if m.view != nil {
		return m.view, nil
	}
	return m.fullMeta.View(p)
}

// behind acknowledges events to a state, shows them to whoever published them,
// and writes them with the next one.
func behind(to metadata.State) func(*proc, fullMeta) fullMeta {
	return func(p *proc, m fullMeta) fullMeta {
		return &writeBehind{fullMeta: m, to: to}
	}
}

type writeBehind struct {
	fullMeta
	to   metadata.State
	held []metadata.Event
}

func (m *writeBehind) Publish(ctx context.Context, ev metadata.Event) error {
	if ev.To() == m.to {
		m.held = append(m.held, ev)
		return nil
	}
	held := m.held
	m.held = nil
	for _, h := range append(held, ev) {
		if err := m.fullMeta.Publish(ctx, h); err != nil {
			return err
		}
	}
	return nil
}

func (m *writeBehind) View(p segment.Partition) (*metadata.View, error) {
	v, err := m.fullMeta.View(p)
	for _, h := range m.held {
		if err != nil {
			return nil, err
		}
		v, err = v.Apply(h)
	}
	return v, err
}

// echo answers reads of what it has been given from memory.
type echo struct {
	objstore.Store
	sent map[string]sent
}

type sent struct {
	bytes []byte
	ev    objstore.Evidence
	token string
}

func (e *echo) remember(req objstore.UploadRequest, ev objstore.Evidence) {
	b := make([]byte, req.Size)
	_, _ = req.Body.ReadAt(b, 0) // a short body fails elsewhere
	if e.sent == nil {
		e.sent = map[string]sent{}
	}
	e.sent[req.Key] = sent{b, ev, req.Token}
}

func (e *echo) Upload(ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
	ev, err := e.Store.Upload(ctx, req)
	if err == nil && req.Key != object.OwnerKey {
		e.remember(req, ev)
	}
	return ev, err
}

func (e *echo) info(key string) (objstore.Info, bool) {
	s, ok := e.sent[key]
	return objstore.Info{Key: key, Size: s.ev.Size, Identity: s.ev.Identity, Token: s.token}, ok
}

func (e *echo) Stat(ctx context.Context, key string) (objstore.Info, error) {
	if info, ok := e.info(key); ok {
		return info, nil
	}
	return e.Store.Stat(ctx, key)
}

func (e *echo) Get(ctx context.Context, key string, off, n int64, o objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	if info, ok := e.info(key); ok {
		return info, io.NopCloser(bytes.NewReader(e.sent[key].bytes[off : off+n])), nil
	}
	return e.Store.Get(ctx, key, off, n, o)
}

// eager says that an upload is done before it begins.
type eager struct {
	objstore.Store
	p    *proc
	echo echo
}

func (e *eager) Upload(ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
	if req.Key == object.OwnerKey {
		return e.Store.Upload(ctx, req)
	}
	ev := objstore.Evidence{Size: req.Size, Identity: "w0"}
	for i, sum := range req.PartSums {
		ev.Parts = append(ev.Parts, objstore.PartEvidence{Part: i, Sum: sum, Level: objstore.Echoed})
	}
	e.echo.remember(req, ev)
	return ev, nil
}

func (e *eager) Stat(ctx context.Context, key string) (objstore.Info, error) {
	e.echo.Store = e.Store
	return e.echo.Stat(ctx, key)
}

func (e *eager) Get(ctx context.Context, key string, off, n int64, o objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	e.echo.Store = e.Store
	return e.echo.Get(ctx, key, off, n, o)
}

// trusting takes the store's word that what it was told to delete is gone.
type trusting struct {
	objstore.Store
	p *proc
}

func (s *trusting) Stat(ctx context.Context, key string) (objstore.Info, error) {
	if slices.Contains(s.p.w.limbo, key) {
		return objstore.Info{}, wrapStore("stat", key, objstore.ErrNotExist)
	}
	return s.Store.Stat(ctx, key)
}

// still moves no log start, and says that it has.
type still struct {
	fullMeta
	at int64
}

func (s *still) SetLogStart(_ context.Context, _ segment.Partition, offset int64, _ metadata.Writer) error {
	s.at = offset
	return nil
}

func (s *still) LogStart(segment.Partition) (int64, bool) { return s.at, true }

// frozen shows what it has shown first.
type frozen struct {
	fullMeta
	view *metadata.View
}

func (f *frozen) View(p segment.Partition) (*metadata.View, error) {
	var err error
	if f.view == nil {
		f.view, err = f.fullMeta.View(p)
	}
	return f.view, err
}

// hopeful goes by the last it has seen where nothing is known.
type hopeful struct {
	fullMeta
	view *metadata.View
}

func (h *hopeful) View(p segment.Partition) (*metadata.View, error) {
	v, err := h.fullMeta.View(p)
	if err != nil && errors.Is(err, metadata.ErrNotReady) && h.view != nil {
		return h.view, nil
	}
	h.view = v
	return v, err
}

// apart copies as copies does, each segment with a Copier of its own.
func apart(name string, w metadata.Writer, which ...int) actor {
	return actor{name: name, run: func(ctx context.Context, p *proc) error {
		var g errgroup.Group
		for _, i := range which {
			src := p.w.logs[i]
			p.copies = append(p.copies, &copying{base: src.Info().StartOffset})
			meta, ep := p.seams()
			defer ep.Close()
			c, err := lifecycle.NewCopier(meta, ep, lifecycle.CopierOptions{})
			if err != nil {
				return err
			}
			defer c.Close()
			if _, err := p.step(nil, "begin copy"); err != nil {
				break
			}
			g.Go(func() error {
				_, err := c.Copy(ctx, src, w)
				return err
			})
		}
		return g.Wait()
	}}
}
