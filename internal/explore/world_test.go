package explore_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// world is what the actors share in one run, and what is known of it from outside.
type world struct {
	t       *testing.T
	sc      *scenario
	verbose bool

	store objstore.Store // what is really there
	meta  metadata.Store // the truth
	p     segment.Partition
	logs  []*testseg.Segment // what may be copied

	procs   []*proc
	running sync.WaitGroup
	last    int // actor that has gone last, -1: none

	limbo    []string            // objects whose deletion the store has put off
	first    map[string]bool     // objects at the beginning
	previous map[string]bool     // before the last change
	present  map[string]bool     // now
	contents map[string]*content // of objects, by key and identity
	created  map[string]int      // step at which the object under a key appeared

	names     map[segment.UUID]string // of the segments, by who announced them
	announced []segment.UUID          // in the order of the names
	readable  map[segment.UUID]bool   // was FINISHED once

	steps, faults, crashes, hours, switched, reads int
	schedule                                       []int
	trace                                          []string
	wrong                                          []string
}

// content is what is known of an object's bytes, which never change.
type content struct {
	bytes []byte
	crc   uint32
}

// epochs is the history of the partition: three leaders, of which the later ones
// have not written yet.
func epochs() segment.Lineage { return segment.Lineage{{Epoch: 0, Start: 0}} }

func newWorld(t *testing.T, sc *scenario, verbose bool) *world {
	w := &world{
		t: t, sc: sc, verbose: verbose,
		store: storetest.NewMem(), meta: metadatatest.NewMem(), p: testseg.DefaultPartition,
		present: map[string]bool{}, contents: map[string]*content{}, created: map[string]int{},
		names: map[segment.UUID]string{}, readable: map[segment.UUID]bool{},
		logs: sources(),
	}
	if sc.defeat.truth != nil {
		w.meta = sc.defeat.truth(w.meta)
	}
	if sc.unclaimed {
		w.first, w.previous = w.present, w.present
		return w
	}
	ep := w.endpoint(w.store)
	defer ep.Close()
	if err := transfer.ClaimOwner(t.Context(), ep, w.meta.ID()); err != nil {
		t.Fatal(err)
	}
	w.look()
	w.first, w.previous = w.present, w.present
	return w
}

func (w *world) endpoint(s objstore.Store) *endpoint.Endpoint {
	ep, err := endpoint.New(s, endpoint.Options{Attempts: 1})
	if err != nil {
		w.t.Fatal(err)
	}
	return ep
}

func (w *world) close() {
	_ = w.store.Close()
	_ = w.meta.Close()
}

// sources are the segments of the partition: offsets 0 to 9, 10 to 19, and 20 to
// 29, each of two batches. They are never written to, so all runs share them.
var sources = sync.OnceValue(func() (all []*testseg.Segment) {
	for base := int64(0); base < 30; base += 10 {
		spec := testseg.Spec{Partition: testseg.DefaultPartition, Start: base, End: base + 9, Epochs: epochs()}
		for at := base; at < base+10; at += 5 {
			var records []segment.Record
			for o := at; o < at+5; o++ {
				records = append(records, segment.Record{Offset: o, Timestamp: 5, Value: []byte(fmt.Sprint("value ", o))})
			}
			spec.Batches = append(spec.Batches, testseg.Batch{BaseOffset: at, LastOffset: at + 4, Records: records})
		}
		all = append(all, testseg.Build(spec))
	}
	return all
})

// view is the partition as it really is.
func (w *world) view() *metadata.View {
	v, err := w.meta.View(w.p)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

func (w *world) fail(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// baptize names the segment that a process is about to announce.
func (w *world) baptize(id segment.UUID, who string) {
	if w.names[id] == "" {
		w.names[id] = fmt.Sprintf("%s#%d", who, len(w.names))
		w.announced = append(w.announced, id)
	}
}

// named is a key with the name of its segment.
func (w *world) named(key string) string {
	if _, start, id, err := object.ParseKey(key); err == nil {
		return fmt.Sprintf("%d-%s", start, cmp.Or(w.names[id], "?"))
	}
	return key
}

// describeView is a View with names in place of ids.
func (w *world) describeView(v *metadata.View) string {
	var b strings.Builder
	for _, seq := range []iter.Seq[*metadata.Segment]{v.All(), v.Ended()} {
		for s := range seq {
			fmt.Fprintf(&b, "%d-%s %s by %d/%d; ", s.StartOffset, w.names[s.ID], s.State, s.BrokerID, s.LeaderEpoch)
		}
	}
	fmt.Fprintf(&b, "log start %d", v.LogStart())
	return b.String()
}

// describe is all that is really there, in the order of the ids.
func (w *world) describe() string {
	var b strings.Builder
	b.WriteString(w.describeView(w.view()))
	ids := slices.Clone(w.announced)
	slices.SortFunc(ids, func(a, b segment.UUID) int { return cmp.Compare(a.String(), b.String()) })
	for _, id := range ids {
		fmt.Fprint(&b, " ", w.names[id], w.readable[id])
	}
	for _, set := range []map[string]bool{w.present, w.previous, w.first} {
		b.WriteString("\n")
		for _, key := range slices.Sorted(maps.Keys(set)) {
			fmt.Fprint(&b, " ", w.named(key))
		}
	}
	for _, up := range w.pending() {
		fmt.Fprint(&b, " upload ", w.named(up.Key))
	}
	return b.String()
}

// look takes in which objects there are, and their bytes. It reports whether that
// is something else than before.
func (w *world) look() bool {
	now := map[string]bool{}
	for info, err := range w.store.List(w.t.Context(), "", "") {
		if err != nil {
			w.t.Fatal(err)
		}
		now[info.Key] = true
		if w.contents[info.Key+info.Identity] == nil {
			_, body, err := w.store.Get(w.t.Context(), info.Key, 0, info.Size, objstore.GetOptions{})
			if err != nil {
				w.t.Fatal(err)
			}
			b, err := io.ReadAll(body)
			if err = errors.Join(err, body.Close()); err != nil {
				w.t.Fatal(err)
			}
			w.contents[info.Key+info.Identity] = &content{bytes: b, crc: info.CRC32C}
			w.created[info.Key] = w.steps
		}
		w.contents[info.Key] = w.contents[info.Key+info.Identity]
	}
	if maps.Equal(now, w.present) {
		return false
	}
	w.previous, w.present = w.present, now
	return true
}

func (w *world) pending() (all []objstore.Pending) {
	for up, err := range w.store.(objstore.UploadLister).Uploads(w.t.Context(), "") {
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, up)
	}
	return all
}

// catchUp has the store delete what it has put off.
func (w *world) catchUp(key string) {
	if i := slices.Index(w.limbo, key); i >= 0 {
		w.limbo = slices.Delete(w.limbo, i, i+1)
	}
	if err := w.store.Delete(w.t.Context(), key); err != nil {
		w.t.Fatal(err)
	}
}
