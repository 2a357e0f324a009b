package fetch

import (
	"errors"
	"testing"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
)

// Somebody joins a chunk that is to be fetched ahead between the moment it is led and the
// one when its flight can be found: the flight is as urgent as if he had found it.
func TestJoinedBeforeItDeparts(t *testing.T) {
	r, x := aloft(t)
	for name, test := range map[string]struct {
		join  int // the chunk; -1: none
		class endpoint.Class
	}{"nobody": {-1, endpoint.Prefetch}, "first": {0, endpoint.TailDemand}, "last": {2, endpoint.TailDemand}} {
		t.Run(name, func(t *testing.T) {
			var fills []cache.Fill
			for i := range x.Table.Chunks {
				fill, led, ok := r.lead(x, i, 1)
				if !led || !ok {
					t.Fatalf("chunk %d was not led", i)
				}
				fills = append(fills, fill)
			}
			var p pins
			p.open(x)
			if test.join >= 0 {
				p.first = test.join
				if _, outcome := r.lease(&p, nil); outcome != cache.Joined {
					t.Fatalf("outcome %d, want joined", outcome)
				}
			}
			flights := r.start(t.Context(), x, fills, order{planner{unit: 3, grid: true}, whose{class: endpoint.Prefetch}}, nil)
			if len(flights) != 1 || flights[0].urgency.Class() != test.class {
				t.Errorf("%d flights, %v, want one of %v", len(flights), flights[0].urgency.Class(), test.class)
			}
			for i := range x.Table.Chunks { // the object is not there
				var l cache.Lease
				if outcome, _ := r.cache.Acquire(cache.Key{Chunk: uint32(i)}, 1000, nil, &l); outcome == cache.Joined {
					_ = l.Wait(t.Context())
				}
			}
			p.release()
		})
	}
}

// A stream that comes upon its own run on its way does not share it with itself: when it
// goes elsewhere the run is called off.
func TestOwnRunIsNotShared(t *testing.T) {
	for name, test := range map[string]struct {
		by        uint64
		calledOff int64
	}{"itself": {1, 3000}, "another": {2, 0}} {
		t.Run(name, func(t *testing.T) {
			r, x := aloft(t)
			var fills []cache.Fill
			for i := range x.Table.Chunks {
				fill, _, _ := r.lead(x, i, 1)
				fills = append(fills, fill)
			}
			f := r.newFlight(x, span{0, 3}, fills, whose{class: endpoint.Prefetch, stream: 1})
			f.depart()
			if _, led, ok := r.lead(x, 1, test.by); led || !ok {
				t.Fatal("the chunk is not on its way")
			}
			if n := f.callOff(); n != test.calledOff {
				t.Errorf("%d bytes called off, want %d", n, test.calledOff)
			}
			f.arrive()
			release(fills)
		})
	}
}

// A chunk that was called off, or has come and has gone again, may be on its way anew while
// the run that it was of still goes on. Who waits for it then has the new run hurry, and who
// counts on it that one stay.
func TestOnItsWayAnew(t *testing.T) {
	for name, leave := range map[string]func(old *flight){
		"called off": func(old *flight) {
			if n := old.callOff(); n != 3000 {
				t.Fatalf("%d bytes called off", n)
			}
		},
		"come and gone": func(old *flight) {
			old.done = 3
			for _, fill := range old.fills {
				fill.Fail(errSought)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, x := aloft(t)
			lead := func() *flight {
				var fills []cache.Fill
				for i := range x.Table.Chunks {
					fill, led, ok := r.lead(x, i, 1)
					if !led || !ok {
						t.Fatalf("chunk %d is here, or on its way", i)
					}
					fills = append(fills, fill)
				}
				f := r.newFlight(x, span{0, 3}, fills, whose{class: endpoint.Prefetch, stream: 1})
				f.depart()
				return f
			}
			old := lead()
			leave(old)
			anew := lead()
			x.hurry(2, whose{class: endpoint.TailDemand})
			if was, is := old.urgency.Class(), anew.urgency.Class(); was != endpoint.Prefetch || is != endpoint.TailDemand {
				t.Errorf("who waits hurries what is over, to %v; what is to come is %v", was, is)
			}
			if x.share(2, 2); old.shared || !anew.shared {
				t.Errorf("who counts on it shares what is over: %v; what is to come: %v", old.shared, anew.shared)
			}
			for _, f := range []*flight{old, anew} {
				f.arrive()
				release(f.fills)
			}
		})
	}
}

// A tail may be evicted under a stream and read anew. What is fetched ahead from then on
// is noted with the new one, where who waits for it looks.
func TestTailReadAnew(t *testing.T) {
	_, old := aloft(t)
	anew := &tail{Tail: old.Tail, id: old.id, key: old.key}
	var a ahead
	a.enter(old, 3, 3, 0, 1)
	a.enter(anew, 3, 3, 1, 2)
	if len(a.way) != 1 || a.way[0].t != anew || a.at != 2000 {
		t.Errorf("%d segments on its way, at %d, the new tail: %v", len(a.way), a.at, a.way[0].t == anew)
	}
}

// aloft is a Reader and a tail of three chunks, whose object is not there.
func aloft(t *testing.T) (*Reader, *tail) {
	t.Helper()
	ep, err := endpoint.New(storetest.NewMem(), endpoint.Options{Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	c, err := cache.New(cache.Options{MemoryBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(metadatatest.NewMem(), ep, c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.Close(), ep.Close()); err != nil {
			t.Error(err)
		}
		c.Close()
	})
	x := &tail{Tail: &object.Tail{Table: object.Table{ChunkSize: 1000}}, key: "not there"}
	for range 3 {
		x.Table.Chunks = append(x.Table.Chunks, object.Chunk{Len: 1000, FirstBatch: -1})
	}
	return r, x
}

// A store that ignores that a read was called off goes on sending: what comes then is
// nobody's, and those who share the GET still find their way in it.
func TestWhatComesAfterACallOffIsNobodys(t *testing.T) {
	r, x := aloft(t)
	var fills []cache.Fill
	for i := range x.Table.Chunks {
		fill, _, _ := r.lead(x, i, 1)
		fills = append(fills, fill)
	}
	f := r.newFlight(x, span{0, 3}, fills, whose{class: endpoint.Prefetch, stream: 1})
	f.depart()
	f.cancel = func(error) {}
	x.mu.Lock()
	f.lay()
	x.mu.Unlock()
	come := func(i int) {
		f.bind(i)
		f.landed(i)
	}
	come(0)
	if n := f.callOff(); n != 2000 {
		t.Fatalf("%d bytes called off, want the two chunks that have not come", n)
	}
	come(1)
	come(2)
	x.mu.Lock()
	if f.done != 1 || f.limit != 1 {
		t.Errorf("%d of %d chunks have come, want the one that is wanted", f.done, f.limit)
	}
	_, more := f.reach()
	x.mu.Unlock()
	if more {
		t.Error("there is something still to come")
	}
	for i := range x.Table.Chunks {
		if here := r.cache.Has(cache.Key{Chunk: uint32(i)}); here != (i == 0) {
			t.Errorf("chunk %d is here: %v", i, here)
		}
	}
	f.arrive()
	release(fills)
}
