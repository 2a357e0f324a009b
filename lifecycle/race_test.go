package lifecycle_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/embedded"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// Leaders that race: shipped Copiers, each in a goroutine that stops before each
// of its calls on store and metadata. A scheduler lets one of them go on at a
// time, and tries every order of their calls to its end.
//
// A Copier is a function of what its calls return. So two runs in which each
// leader has seen the same answers, and in which store and metadata are the same
// now, go on alike: only the first of them is followed. That is what makes it
// possible to be exhaustive.

// leader is one Copier and its place in the race.
type leader struct {
	writer metadata.Writer
	source segment.Source

	parked chan struct{} // it wants to make a call, or has ended
	resume chan struct{}
	ended  bool
	stop   bool     // every further call fails
	seen   []string // its calls and what they returned

	seg *metadata.Segment
	err error
}

var errRaceOver = errors.New("the scheduler has seen enough")

// call waits for the leader's turn, makes a call and notes the answer.
func (l *leader) call(what string, f func() (string, error)) error {
	l.parked <- struct{}{}
	<-l.resume
	if l.stop {
		return errRaceOver
	}
	answer, err := f()
	if err != nil {
		answer = "error " + kindOf(err)
	}
	l.seen = append(l.seen, what+" = "+answer)
	return err
}

func kindOf(err error) string {
	for _, target := range []error{metadata.ErrFenced, metadata.ErrDuplicate, metadata.ErrTransition, objstore.ErrConflict, objstore.ErrNotExist} {
		if errors.Is(err, target) {
			return target.Error()
		}
	}
	return err.Error()
}

// race is what the leaders share in one run.
type race struct {
	meta    metadata.Store
	store   objstore.Store
	p       segment.Partition
	leaders []*leader
	names   map[segment.UUID]string // of the segments, by who announced them
}

// name returns the name of a segment: the leader that announced it and a number.
func (r *race) name(id segment.UUID) string {
	if n, ok := r.names[id]; ok {
		return n
	}
	return "?"
}

// describe is a view in which ids have names.
func (r *race) describe(v *metadata.View) string {
	var lines []string
	for _, seq := range []iter.Seq[*metadata.Segment]{v.All(), v.Ended()} {
		for s := range seq {
			lines = append(lines, fmt.Sprintf("%s %s %d-%d %v by %d/%d", r.name(s.ID), s.State, s.StartOffset, s.EndOffset, s.Epochs, s.BrokerID, s.LeaderEpoch))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

// state tells two moments apart if anything may go on differently from them.
func (r *race) state(t *testing.T) string {
	t.Helper()
	v, err := r.meta.View(r.p)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintln(&b, r.describe(v))
	for _, key := range slices.Sorted(maps.Keys(r.objects(t))) {
		fmt.Fprintln(&b, key)
	}
	for _, l := range r.leaders {
		fmt.Fprintln(&b, l.ended, strings.Join(l.seen, "\n"))
	}
	return b.String()
}

// objects returns the objects of the partition by the names of their segments.
func (r *race) objects(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for info, err := range r.store.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if p, _, id, err := object.ParseKey(info.Key); err == nil && p == r.p {
			found[r.name(id)] = info.Key
		}
	}
	return found
}

// racingMeta is a leader's metadata store.
type racingMeta struct {
	metadata.Store
	r *race
	l *leader
}

func (m racingMeta) Publish(ctx context.Context, ev metadata.Event) error {
	s := ev.Segment()
	if m.r.name(s.ID) == "?" {
		m.r.names[s.ID] = fmt.Sprintf("%d/%d#%d", m.l.writer.BrokerID, m.l.writer.LeaderEpoch, len(m.l.seen))
	}
	return m.l.call("publish "+ev.To().String()+" "+m.r.name(s.ID), func() (string, error) {
		return "ok", m.Store.Publish(ctx, ev)
	})
}

func (m racingMeta) View(p segment.Partition) (v *metadata.View, err error) {
	err = m.l.call("view", func() (string, error) {
		if v, err = m.Store.View(p); err != nil {
			return "", err
		}
		return m.r.describe(v), nil
	})
	return v, err
}

// racingStore is a leader's object store.
type racingStore struct {
	objstore.Store
	r *race
	l *leader
}

func (s racingStore) named(key string) string {
	if _, _, id, err := object.ParseKey(key); err == nil {
		return s.r.name(id)
	}
	return key
}

func (s racingStore) Get(ctx context.Context, key string, off, n int64, o objstore.GetOptions) (info objstore.Info, body io.ReadCloser, err error) {
	if key == object.OwnerKey {
		return s.Store.Get(ctx, key, off, n, o) // the same for both: no interleaving of it tells them apart
	}
	err = s.l.call(fmt.Sprintf("get %s %d+%d", s.named(key), off, n), func() (string, error) {
		info, body, err = s.Store.Get(ctx, key, off, n, o)
		return "ok", err
	})
	return info, body, err
}

func (s racingStore) Stat(ctx context.Context, key string) (info objstore.Info, err error) {
	err = s.l.call("stat "+s.named(key), func() (string, error) {
		info, err = s.Store.Stat(ctx, key)
		return "ok", err
	})
	return info, err
}

func (s racingStore) Upload(ctx context.Context, req objstore.UploadRequest) (ev objstore.Evidence, err error) {
	err = s.l.call("upload "+s.named(req.Key), func() (string, error) {
		ev, err = s.Store.Upload(ctx, req)
		return "ok", err
	})
	return ev, err
}

func (s racingStore) Delete(ctx context.Context, keys ...string) error {
	return s.l.call("delete "+s.named(keys[0]), func() (string, error) { return "ok", s.Store.Delete(ctx, keys...) })
}

// run lets the leaders race: choices says who goes first, second and so on, and
// from there on the first one that can. At every state from there on it calls
// visit, which ends the run by returning false. It returns whether the race came
// to its end.
func (r *race) run(t *testing.T, choices []int, visit func(choices, open []int) bool) bool {
	t.Helper()
	var closers []func()
	for _, l := range r.leaders {
		l.parked, l.resume = make(chan struct{}), make(chan struct{})
		ep, err := endpoint.New(racingStore{r.store, r, l}, endpoint.Options{Attempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		copier, err := lifecycle.NewCopier(racingMeta{r.meta, r, l}, ep, lifecycle.CopierOptions{
			Scan: scan, Now: func() time.Time { return time.UnixMilli(1700000000000) },
		})
		if err != nil {
			t.Fatal(err)
		}
		closers = append(closers, func() { _ = ep.Close() })
		go func() {
			l.seg, l.err = copier.Copy(t.Context(), l.source, l.writer)
			l.ended = true
			l.parked <- struct{}{}
		}()
		<-l.parked
	}
	over := func(done bool) bool {
		for _, l := range r.leaders {
			l.stop = true
			for !l.ended {
				l.resume <- struct{}{}
				<-l.parked
			}
		}
		for _, c := range closers {
			c()
		}
		return done
	}
	for taken := []int{}; ; {
		var open []int
		for i, l := range r.leaders {
			if !l.ended {
				open = append(open, i)
			}
		}
		if len(taken) >= len(choices) && !visit(slices.Clone(taken), open) {
			return over(false)
		}
		if len(open) == 0 {
			return over(true)
		}
		next := open[0]
		if len(taken) < len(choices) {
			next = choices[len(taken)]
		}
		taken = append(taken, next)
		r.leaders[next].resume <- struct{}{}
		<-r.leaders[next].parked
	}
}

// explore tries every order and returns how many states and ends it has seen. If
// merge is false it follows runs from states that it has seen, too.
func explore(t *testing.T, meta metadata.Store, merge bool, leaders func(p segment.Partition) []*leader, always, end func(*race)) (states, ends int) {
	t.Helper()
	visited := map[[sha256.Size]byte]bool{}
	for stack := [][]int{{}}; len(stack) > 0 && !t.Failed(); {
		choices := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		p := testseg.DefaultPartition
		p.TopicID = segment.NewUUID()
		r := &race{meta: meta, store: storetest.NewMem(), p: p, leaders: leaders(p), names: map[segment.UUID]string{}}
		own(t, r) // the metadata has readable segments of earlier runs
		done := r.run(t, choices, func(taken, open []int) bool {
			always(r)
			state := sha256.Sum256([]byte(r.state(t)))
			if merge && visited[state] || t.Failed() {
				return false
			}
			visited[state] = true
			for _, other := range open[min(1, len(open)):] {
				stack = append(stack, append(slices.Clone(taken), other))
			}
			return true
		})
		if done {
			ends++
			end(r)
		}
		if t.Failed() {
			for _, l := range r.leaders {
				t.Logf("broker %d, leader epoch %d: %v\n  %s", l.writer.BrokerID, l.writer.LeaderEpoch, l.err, strings.Join(l.seen, "\n  "))
			}
		}
	}
	return len(visited), ends
}

// own makes the run's store the metadata's.
func own(t *testing.T, r *race) {
	t.Helper()
	ep, err := endpoint.New(r.store, endpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ep.Close()
	if err := transfer.ClaimOwner(t.Context(), ep, r.meta.ID()); err != nil {
		t.Fatal(err)
	}
}

// TestLeadersRace lets leaders race through every step of a copy, on the embedded
// store and on the one in memory.
func TestLeadersRace(t *testing.T) {
	type scenario struct {
		name     string
		writers  []metadata.Writer
		lineages []segment.Lineage // of each; nil is one for all
		readable int               // at the end
		// errs says what may become of each leader's Copy besides success.
		errs []error
	}
	scenarios := []scenario{
		{"an older and a newer one", []metadata.Writer{{BrokerID: 1, LeaderEpoch: 5}, {BrokerID: 2, LeaderEpoch: 6}}, nil, 1, []error{metadata.ErrFenced, nil}},
		{"the same leader epoch", []metadata.Writer{{BrokerID: 1, LeaderEpoch: 5}, {BrokerID: 2, LeaderEpoch: 5}}, nil, 1, []error{nil, nil}},
		{"the same writer twice", []metadata.Writer{{BrokerID: 1, LeaderEpoch: 5}, {BrokerID: 1, LeaderEpoch: 5}}, nil, 1, []error{nil, nil}},
		{
			"two histories",
			[]metadata.Writer{{BrokerID: 1, LeaderEpoch: 5}, {BrokerID: 2, LeaderEpoch: 6}},
			[]segment.Lineage{{{Epoch: 0, Start: 0}}, {{Epoch: 0, Start: 0}, {Epoch: 6, Start: 3}}},
			-1,
			[]error{metadata.ErrFenced, nil},
		},
	}
	soak := os.Getenv("SEGTIER_SOAK") != "" // where it repeats all without merging states, and has a third leader
	if soak {
		scenarios = append(scenarios, scenario{
			"three",
			[]metadata.Writer{{BrokerID: 1, LeaderEpoch: 5}, {BrokerID: 2, LeaderEpoch: 6}, {BrokerID: 3, LeaderEpoch: 6}},
			nil, 1,
			[]error{metadata.ErrFenced, nil, nil},
		})
	}
	path := filepath.Join(t.TempDir(), "m.db")
	file, err := embedded.Open(path, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for name, meta := range map[string]metadata.Store{"embedded": file, "in memory": metadatatest.NewMem()} {
		for _, sc := range scenarios {
			if len(sc.writers) > 2 && meta == file {
				continue // each run waits for the disk
			}
			t.Run(name+", "+sc.name, func(t *testing.T) {
				leaders := func(p segment.Partition) (ls []*leader) {
					for i, w := range sc.writers {
						var l segment.Lineage
						if sc.lineages != nil {
							l = sc.lineages[i]
						}
						ls = append(ls, &leader{writer: w, source: tiny(p, l)})
					}
					return ls
				}
				states, ends := explore(t, meta, true, leaders,
					func(r *race) { onceReadable(t, r) },
					func(r *race) { settled(t, r, sc.readable, sc.errs) })
				t.Logf("%d states, %d ends", states, ends)
				if states < 50 || ends < 2 {
					t.Errorf("only %d states and %d ends", states, ends)
				}
				if soak && meta != file && sc.name == "an older and a newer one" {
					all, orders := explore(t, metadatatest.NewMem(), false, leaders, func(*race) {}, func(r *race) { settled(t, r, sc.readable, sc.errs) })
					t.Logf("%d orders", orders)
					if all != states {
						t.Errorf("%d states, of which only %d were seen", all, states)
					}
				}
			})
		}
	}
}

// tiny is a segment of one batch, offsets 0 to 9.
func tiny(p segment.Partition, l segment.Lineage) *testseg.Segment {
	if l == nil {
		l = segment.Lineage{{Epoch: 0, Start: 0}}
	}
	return testseg.Build(testseg.Spec{Partition: p, Start: 0, End: 9, Epochs: l, Batches: []testseg.Batch{{
		BaseOffset: 0, LastOffset: 9, Records: []segment.Record{{Offset: 0, Timestamp: 5, Value: []byte("x")}},
	}}})
}

// onceReadable checks what must hold at every moment: a range is readable once in
// each history, and every readable segment has its object.
func onceReadable(t *testing.T, r *race) {
	t.Helper()
	v, err := r.meta.View(r.p)
	if err != nil {
		t.Fatal(err)
	}
	objects := r.objects(t)
	seen := map[string]bool{}
	for s := range v.All() {
		if s.State != metadata.CopySegmentFinished {
			continue
		}
		key := fmt.Sprint(s.StartOffset, s.EndOffset, s.Epochs)
		if seen[key] {
			t.Errorf("offsets %d to %d of %v are readable twice: %s", s.StartOffset, s.EndOffset, s.Epochs, r.describe(v))
		}
		seen[key] = true
		if objects[r.name(s.ID)] == "" {
			t.Errorf("%s is readable and has no object", r.name(s.ID))
		}
	}
}

// settled checks how a race ends: the leaders were told the truth, and nothing is
// left that nobody will come back for.
func settled(t *testing.T, r *race, readable int, errs []error) {
	t.Helper()
	v, err := r.meta.View(r.p)
	if err != nil {
		t.Fatal(err)
	}
	finished := 0
	for s := range v.All() {
		switch s.State {
		case metadata.CopySegmentFinished:
			finished++
		case metadata.DeleteSegmentStarted: // for the collector
		default:
			t.Errorf("%s was left in %s", r.name(s.ID), s.State)
		}
	}
	if finished == 0 || readable >= 0 && finished != readable {
		t.Errorf("%d segments are readable: %s", finished, r.describe(v))
	}
	for i, l := range r.leaders {
		switch {
		case l.err != nil && (errs[i] == nil || !errors.Is(l.err, errs[i])):
			t.Errorf("leader epoch %d: %v", l.writer.LeaderEpoch, l.err)
		case l.err == nil:
			if s, ok := v.Get(l.seg.ID); !ok || s.State != metadata.CopySegmentFinished {
				t.Errorf("leader epoch %d was given %s, which is not readable", l.writer.LeaderEpoch, r.name(l.seg.ID))
			}
		}
	}
}
