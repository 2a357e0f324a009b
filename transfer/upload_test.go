package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
)

func TestUpload(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s, o := drawSegment(rt)
		p := scan(rt, s, o)
		h := record(p)
		tail, loc := sealed(rt, p)
		store := storetest.NewMem()
		ep, err := endpoint.New(store, endpoint.Options{})
		if err != nil {
			rt.Fatal(err)
		}
		defer ep.Close()

		var mu sync.Mutex
		confirmed := map[int]int{}
		receipt, err := Upload(context.Background(), ep, s, p, h, UploadOptions{Confirmed: func(e objstore.PartEvidence) {
			mu.Lock()
			confirmed[e.Part]++
			mu.Unlock()
		}})
		if err != nil {
			rt.Fatal(err)
		}
		// The object is the files and the tail, byte for byte.
		want := concat(s, tail)
		got := stored(rt, store, h.Key())
		if !bytes.Equal(got, want) {
			rt.Fatal("the object is not the files and the tail")
		}
		if n := (len(want) + int(o.PartSize) - 1) / int(o.PartSize); len(confirmed) != n {
			rt.Fatalf("%d parts were announced, want %d", len(confirmed), n)
		}
		f := receipt.Facts()
		if receipt.IsZero() || f.SegmentID != h.SegmentID || f.Partition != h.Partition || f.Key != h.Key() ||
			f.Object != (checksum.Sum{Len: int64(len(want)), CRC32C: checksum.CRC32C(want)}) || f.Evidence == "" {
			rt.Fatalf("receipt %+v", f)
		}
		// The receipt's location leads to a tail that says what was copied.
		if back, err := object.ParseLocation(f.Location); err != nil || back != loc {
			rt.Fatalf("location %+v (%v), want %+v", back, err, loc)
		}
		parsed, err := object.ParseTail(got[loc.TailOffset:], loc)
		if err != nil {
			rt.Fatal(err)
		}
		if !parsed.Header.Equal(h) || !slices.Equal(parsed.Epochs, s.Info().Epochs) || parsed.Txn.Len() != len(s.Aborted) {
			rt.Fatalf("tail says %+v", parsed)
		}
		checkLookups(rt, s, &parsed.Table)

		// Again: the same bytes, and success.
		again, err := Upload(context.Background(), ep, s, scan(rt, s, o), h, UploadOptions{})
		if err != nil || again.IsZero() || again.Facts().Object != f.Object {
			rt.Fatalf("repeated: %+v, %v", again.Facts(), err)
		}
	})
}

// checkLookups compares the table's answers with a scan over all batches.
func checkLookups(t fataler, s *testseg.Segment, table *object.Table) {
	t.Helper()
	for _, b := range s.Batches {
		for _, offset := range []int64{b.Header.BaseOffset - 1, b.Header.BaseOffset, b.Header.LastOffset, b.Header.LastOffset + 1} {
			from := table.Chunks[table.ForOffset(offset)].FirstBatch
			find := func(from int64) int {
				return slices.IndexFunc(s.Batches, func(b testseg.Placed) bool { return b.Pos >= from && b.Header.LastOffset >= offset })
			}
			if got, want := find(from), find(0); got != want {
				t.Fatalf("offset %d: from position %d on, batch %d answers; of all, %d", offset, from, got, want)
			}
		}
		for _, ts := range []int64{b.Header.MaxTimestamp, b.Header.MaxTimestamp + 1} {
			want := len(table.Chunks)
			if i := slices.IndexFunc(s.Batches, func(b testseg.Placed) bool { return b.Header.MaxTimestamp >= ts }); i >= 0 {
				want = int(s.Batches[i].Pos / table.ChunkSize)
			}
			if got := table.ForTime(ts); got != want {
				t.Fatalf("time %d: chunk %d, want %d", ts, got, want)
			}
		}
	}
}

// tryUpload uploads someSegment to a store on which faults happen.
// Its retries wait in a bubble, that is, not at all.
func tryUpload(t *testing.T, src segment.Source, plan storetest.Plan) (r Receipt, err error) {
	t.Helper()
	s := someSegment(t)
	p := scan(t, s, layout)
	if src == nil {
		src = s
	}
	bubble.Test(t, func(t *testing.T) {
		ep := newEndpoint(t, storetest.Inject(storetest.NewMem(), plan))
		r, err = Upload(t.Context(), ep, src, p, record(p), UploadOptions{})
	})
	return r, err
}

func TestUploadMistrustsTheStore(t *testing.T) {
	p := scan(t, someSegment(t), layout)
	tail, loc := sealed(t, p)
	parts := int64(len(p.partSums(tail)))
	rule := func(op string, times int, f storetest.Fault) storetest.Plan {
		return storetest.Rules(storetest.Rule{Op: op, Times: times, Fault: f})
	}
	for _, at := range []int64{0, 1, parts / 2, parts - 1} {
		for _, kind := range []storetest.Kind{storetest.WrongSum, storetest.DropPart} {
			t.Run(fmt.Sprintf("%v %d", kind, at), func(t *testing.T) {
				r, err := tryUpload(t, nil, rule("upload", -1, storetest.Fault{Kind: kind, At: at}))
				if !r.IsZero() || !errors.Is(err, ErrUnconfirmed) || !strings.Contains(err.Error(), fmt.Sprintf("part %d ", at)) {
					t.Errorf("receipt %+v, error %v", r.Facts(), err)
				}
			})
		}
	}
	for name, plan := range map[string]storetest.Plan{
		"size told at upload":   rule("upload", -1, storetest.Fault{Kind: storetest.WrongSize}),
		"size told by stat":     rule("stat", -1, storetest.Fault{Kind: storetest.WrongSize}),
		"another identity":      rule("stat", -1, storetest.Fault{Kind: storetest.WrongIdentity}),
		"cut by one byte":       rule("upload", -1, storetest.Fault{Kind: storetest.ShortObject, At: loc.ObjectSize - 1}),
		"cut in the log":        rule("upload", -1, storetest.Fault{Kind: storetest.ShortObject, At: 1}),
		"identity at upload":    rule("upload", -1, storetest.Fault{Kind: storetest.WrongIdentity}),
		"flip in the log":       rule("upload", -1, storetest.Fault{Kind: storetest.FlipStored, At: 5}),
		"flip in the tail":      rule("upload", -1, storetest.Fault{Kind: storetest.FlipStored, At: loc.TailOffset}),
		"flip in the last byte": rule("upload", -1, storetest.Fault{Kind: storetest.FlipStored, At: loc.ObjectSize - 1}),
		"flip while sending":    rule("upload", -1, storetest.Fault{Kind: storetest.Flip, At: 5}),
		"flip while read back":  rule("get", -1, storetest.Fault{Kind: storetest.Flip, At: 7}),
		"early end":             rule("get", -1, storetest.Fault{Kind: storetest.EarlyEOF, At: 7}),
		"gone":                  rule("stat", -1, storetest.Fault{Kind: storetest.FailBefore, Err: objstore.ErrNotExist}),
		"gone later":            rule("get", -1, storetest.Fault{Kind: storetest.FailBefore, Err: objstore.ErrNotExist}),
		"upload fails":          rule("upload", -1, storetest.Fault{Kind: storetest.FailBefore}),
		"answer lost for good":  rule("upload", -1, storetest.Fault{Kind: storetest.FailAfter}),
		"full":                  rule("upload", -1, storetest.Fault{Kind: storetest.FailBefore, Err: objstore.ErrFull}),
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := tryUpload(t, nil, plan); !r.IsZero() || err == nil {
				t.Errorf("receipt %+v, error %v", r.Facts(), err)
			}
		})
	}
	// What passes once is overcome.
	for name, plan := range map[string]storetest.Plan{
		"no fault":             nil,
		"answer lost once":     rule("upload", 1, storetest.Fault{Kind: storetest.FailAfter}),
		"flip once, read back": rule("get", 1, storetest.Fault{Kind: storetest.Flip, At: 7}),
		"cut once, read back":  rule("get", 1, storetest.Fault{Kind: storetest.Cut, At: 7}),
		"stat fails once":      rule("stat", 1, storetest.Fault{Kind: storetest.FailBefore}),
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := tryUpload(t, nil, plan); r.IsZero() || err != nil {
				t.Error(err)
			}
		})
	}
}

// Evidence that no store at hand gives.
func TestCheckEvidence(t *testing.T) {
	sums := []checksum.Sum{{Len: 10, CRC32C: 1}, {Len: 10, CRC32C: 2}, {Len: 3, CRC32C: 3}}
	req := &objstore.UploadRequest{Key: "k", Size: 23, PartSize: 10, PartSums: sums}
	good := func() objstore.Evidence {
		ev := objstore.Evidence{Size: 23}
		for i, s := range sums {
			ev.Parts = append(ev.Parts, objstore.PartEvidence{Part: i, Sum: s, Level: objstore.Listed})
		}
		return ev
	}
	if level, err := checkEvidence(req, sums, good()); err != nil || level != objstore.Listed {
		t.Errorf("level %v, error %v", level, err)
	}
	for name, change := range map[string]func(*objstore.Evidence){
		"none":       func(ev *objstore.Evidence) { *ev = objstore.Evidence{} },
		"no parts":   func(ev *objstore.Evidence) { ev.Parts = nil },
		"first gone": func(ev *objstore.Evidence) { ev.Parts = ev.Parts[1:] },
		"last gone":  func(ev *objstore.Evidence) { ev.Parts = ev.Parts[:2] },
		"twice":      func(ev *objstore.Evidence) { ev.Parts = slices.Insert(ev.Parts, 1, ev.Parts[0]) },
		"last twice": func(ev *objstore.Evidence) { ev.Parts = append(ev.Parts, ev.Parts[2]) },
		"one more": func(ev *objstore.Evidence) {
			ev.Parts = append(ev.Parts, objstore.PartEvidence{Part: 3, Level: objstore.Echoed})
		},
		"swapped":     func(ev *objstore.Evidence) { ev.Parts[0], ev.Parts[1] = ev.Parts[1], ev.Parts[0] },
		"renumbered":  func(ev *objstore.Evidence) { ev.Parts[0].Part, ev.Parts[1].Part = 1, 0 },
		"negative":    func(ev *objstore.Evidence) { ev.Parts[0].Part = -1 },
		"sum":         func(ev *objstore.Evidence) { ev.Parts[2].Sum.CRC32C = 0 },
		"length":      func(ev *objstore.Evidence) { ev.Parts[1].Sum.Len++ },
		"unconfirmed": func(ev *objstore.Evidence) { ev.Parts[1].Level = objstore.Unconfirmed },
		"size":        func(ev *objstore.Evidence) { ev.Size = 22 },
	} {
		ev := good()
		change(&ev)
		if _, err := checkEvidence(req, sums, ev); !errors.Is(err, ErrUnconfirmed) || !strings.Contains(err.Error(), "object k") {
			t.Errorf("%s: %v", name, err)
		}
	}
	weakest := good()
	weakest.Parts[1].Level = objstore.Echoed
	if level, err := checkEvidence(req, sums, weakest); err != nil || level != objstore.Echoed {
		t.Errorf("level %v, error %v", level, err)
	}
}

// A store that shows what the caller wrote into the request, not what it has.
func TestUploadKeepsItsOwnSums(t *testing.T) {
	s := someSegment(t)
	p := scan(t, s, layout)
	tail, _ := sealed(t, p)
	ep := newEndpoint(t, scribbler{storetest.NewMem()})
	r, err := Upload(context.Background(), ep, s, p, record(p), UploadOptions{})
	if !r.IsZero() || !errors.Is(err, ErrUnconfirmed) {
		t.Errorf("receipt %+v, error %v", r.Facts(), err)
	}
	if sums := p.partSums(tail); !slices.Equal(sums, brutePieces(concat(s, tail), layout.PartSize)) {
		t.Error("the plan's sums were overwritten")
	}
}

type scribbler struct{ objstore.Store }

func (s scribbler) Upload(ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
	req.PartSums[0].CRC32C++
	ev := objstore.Evidence{Size: req.Size}
	for i, sum := range req.PartSums {
		ev.Parts = append(ev.Parts, objstore.PartEvidence{Part: i, Sum: sum, Level: objstore.Echoed})
	}
	return ev, nil
}

// A tail with other bytes and the same sums is another tail.
func TestUploadComparesTheTail(t *testing.T) {
	s := someSegment(t)
	p := scan(t, s, layout)
	tail, loc := sealed(t, p)
	// The event timestamp is 60 bytes into the header.
	parsed, err := object.ParseTail(tail, loc)
	if err != nil {
		t.Fatal(err)
	}
	at := parsed.Sections[object.HeaderSection].Off + 60
	// Adding a multiple of the polynomial changes no CRC: the polynomial itself,
	// highest power first, which is the lowest bit of the first byte.
	forged := []byte{1, 0, 0, 0, 0}
	for i := range 32 {
		if 0x1EDC6F41>>(31-i)&1 == 1 {
			forged[(i+1)/8] |= 1 << ((i + 1) % 8)
		}
	}
	ep := newEndpoint(t, forger{storetest.NewMem(), at, forged})
	r, err := Upload(context.Background(), ep, s, p, record(p), UploadOptions{})
	var d *DamageError
	if !r.IsZero() || !errors.As(err, &d) || d.What != "tail" || errors.Is(err, objstore.ErrCorrupt) {
		t.Errorf("receipt %+v, error %v", r.Facts(), err)
	}
}

// forger adds bytes to what is read at a position.
type forger struct {
	objstore.Store
	at  int64
	xor []byte
}

func (f forger) Get(ctx context.Context, key string, off, n int64, o objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	info, body, err := f.Store.Get(ctx, key, off, n, o)
	if err != nil {
		return info, nil, err
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	for i, x := range f.xor {
		b[f.at-off+int64(i)] ^= x
	}
	return info, io.NopCloser(bytes.NewReader(b)), err
}

// A source that is no longer what was scanned never gets a receipt, whether it
// says so or not.
func TestUploadOfAChangedSource(t *testing.T) {
	fail := func(t *testing.T, src segment.Source, want error) {
		t.Helper()
		r, err := tryUpload(t, src, nil)
		if !r.IsZero() || !errors.Is(err, want) {
			t.Errorf("receipt %+v, error %v", r.Facts(), err)
		}
	}
	for kind := segment.Log; kind <= segment.ProducerSnapshot; kind++ {
		_, size := someSegment(t).File(kind)
		for _, at := range []int64{0, size / 2, size - 1} {
			t.Run(fmt.Sprintf("flip in %v at %d", kind, at), func(t *testing.T) {
				src := &faultySource{Segment: someSegment(t), kind: kind}
				src.read = func(_ int64, r io.ReaderAt, p []byte, off int64) (int, error) {
					n, err := r.ReadAt(p, off)
					if off <= at && at < off+int64(n) {
						p[at-off] ^= 1
					}
					return n, err
				}
				fail(t, src, objstore.ErrCorrupt)
			})
			t.Run(fmt.Sprintf("%v cut at %d", kind, at), func(t *testing.T) {
				src := &faultySource{Segment: someSegment(t), kind: kind}
				src.read = func(_ int64, r io.ReaderAt, p []byte, off int64) (int, error) {
					return io.NewSectionReader(r, 0, at).ReadAt(p, off)
				}
				fail(t, src, ErrSourceChanged)
			})
		}
	}
	t.Run("says so before", func(t *testing.T) {
		src := &changing{Segment: someSegment(t), from: 1}
		fail(t, src, ErrSourceChanged)
		if src.asked != 1 {
			t.Errorf("asked %d times", src.asked)
		}
	})
	t.Run("says so before sealing", func(t *testing.T) {
		fail(t, &changing{Segment: someSegment(t), from: 2}, ErrSourceChanged)
	})
	t.Run("another segment", func(t *testing.T) {
		other := testseg.Random(999, testseg.Options{Segments: 1}).Segments[0]
		if r, err := tryUpload(t, other, nil); !r.IsZero() || err == nil {
			t.Errorf("receipt %+v, error %v", r.Facts(), err)
		}
	})
}

// changing is a source that changes between two questions.
type changing struct {
	*testseg.Segment
	from, asked int
}

func (s *changing) Unchanged() error {
	if s.asked++; s.asked >= s.from {
		return errors.New("modified")
	}
	return nil
}

// Nothing is sent of a source that has changed, or under a record of another
// segment.
func TestUploadSendsNothing(t *testing.T) {
	s := someSegment(t)
	p := scan(t, s, layout)
	store := storetest.Inject(storetest.NewMem(), func(c storetest.Call) storetest.Fault {
		t.Errorf("the store was asked: %v", c)
		return storetest.Fault{}
	})
	ep := newEndpoint(t, store)
	upload := func(name string, src segment.Source, h object.Header) {
		if r, err := Upload(context.Background(), ep, src, p, h, UploadOptions{}); !r.IsZero() || err == nil {
			t.Errorf("%s: receipt %+v, error %v", name, r.Facts(), err)
		}
	}
	upload("changed", &changing{Segment: s, from: 1}, record(p))
	for name, change := range map[string]func(*object.Header){
		"partition":     func(h *object.Header) { h.Partition.Number++ },
		"start":         func(h *object.Header) { h.StartOffset++ },
		"end":           func(h *object.Header) { h.EndOffset++ },
		"max timestamp": func(h *object.Header) { h.MaxTimestamp++ },
		"size":          func(h *object.Header) { h.SizeBytes++ },
		"id":            func(h *object.Header) { h.SegmentID = segment.UUID{} },
		"epochs":        func(h *object.Header) { h.Epochs = nil },
		"aborts":        func(h *object.Header) { h.TxnIndexEmpty = true },
	} {
		h := record(p)
		change(&h)
		upload(name, s, h)
	}
}

func TestUploadConflict(t *testing.T) {
	s := someSegment(t)
	p := scan(t, s, layout)
	h := record(p)
	store := storetest.NewMem()
	put(t, store, h.Key(), []byte("somebody else's"))
	r, err := Upload(context.Background(), newEndpoint(t, store), s, p, h, UploadOptions{})
	if !r.IsZero() || !errors.Is(err, objstore.ErrConflict) {
		t.Errorf("receipt %+v, error %v", r.Facts(), err)
	}
	if got := stored(t, store, h.Key()); string(got) != "somebody else's" {
		t.Error("overwritten")
	}
}

// A caller that leaves at any step gets its context's error and no receipt.
func TestUploadCancel(t *testing.T) {
	s := someSegment(t)
	p := scan(t, s, layout)
	for _, fault := range []storetest.Fault{{Kind: storetest.Hang}, {Kind: storetest.Stall, At: 100}} {
		for _, op := range []string{"upload", "stat", "get"} {
			if op == "stat" && fault.Kind == storetest.Stall {
				continue // it has no body
			}
			ctx, cancel := context.WithCancel(context.Background())
			store := storetest.Inject(storetest.NewMem(), func(c storetest.Call) storetest.Fault {
				if c.Op != op {
					return storetest.Fault{}
				}
				cancel()
				return fault
			})
			r, err := Upload(ctx, newEndpoint(t, store), s, p, record(p), UploadOptions{})
			if !r.IsZero() || !errors.Is(err, context.Canceled) {
				t.Errorf("%v in %s: receipt %+v, error %v", fault.Kind, op, r.Facts(), err)
			}
			cancel()
		}
	}
}

// The token tells this copy from any other, and is the same at every try.
func TestToken(t *testing.T) {
	s := someSegment(t)
	p := scan(t, s, layout)
	id := segment.UUID{1}
	token := Token(id, p.Fingerprint())
	if len(token) != 32 || token != Token(id, scan(t, s, layout).Fingerprint()) {
		t.Errorf("token %q", token)
	}
	if token == Token(segment.UUID{2}, p.Fingerprint()) || token == Token(id, scan(t, s, ScanOptions{ChunkSize: 4096, PartSize: 6001}).Fingerprint()) {
		t.Error("the same token for another copy")
	}
}

// Whatever makes a plan another one changes its fingerprint.
func TestFingerprint(t *testing.T) {
	base := *scan(t, someSegment(t), layout)
	if n := len(base.Fingerprint()); n != 44 {
		t.Errorf("%d bytes", n)
	}
	for name, change := range map[string]func(*Plan){
		"start": func(p *Plan) { p.info.StartOffset++ },
		"end":   func(p *Plan) { p.info.EndOffset++ },
		"epochs": func(p *Plan) {
			p.info.Epochs = append(slices.Clone(p.info.Epochs), segment.EpochStart{Epoch: math.MaxInt32})
		},
		"time":       func(p *Plan) { p.maxTime++ },
		"part size":  func(p *Plan) { p.partSize++ },
		"chunk size": func(p *Plan) { p.table.ChunkSize++ },
		"chunk": func(p *Plan) {
			p.table.Chunks = slices.Clone(p.table.Chunks)
			p.table.Chunks[1].CRC32C++
		},
		"time index": func(p *Plan) { p.head[2].CRC32C++ },
		"head":       func(p *Plan) { p.parts.total.CRC32C++ },
		"txn":        func(p *Plan) { p.txn = p.txn[1:] },
	} {
		p := base
		change(&p)
		if bytes.Equal(p.Fingerprint(), base.Fingerprint()) {
			t.Errorf("another %s, the same fingerprint", name)
		}
	}
}

// The body is read in any pieces, by several readers at once.
func TestBody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, o := drawSegment(t)
		p := scan(t, s, o)
		tail, _ := sealed(t, p)
		want := bytes.NewReader(concat(s, tail))
		body := p.body(s, tail)
		size := want.Size()
		for range 20 {
			off := rapid.Int64Range(0, size+10).Draw(t, "off")
			n := rapid.Int64Range(0, size/2+10).Draw(t, "n")
			a, b := make([]byte, n), make([]byte, n)
			na, ea := body.ReadAt(a, off)
			nb, eb := want.ReadAt(b, off)
			if n == 0 {
				ea, eb = nil, nil // bytes.Reader says io.EOF behind the end
			}
			if na != nb || !bytes.Equal(a, b) || (ea == nil) != (eb == nil) {
				t.Fatalf("[%d,+%d): %d bytes (%v), want %d (%v)", off, n, na, ea, nb, eb)
			}
		}
		if _, err := body.ReadAt(nil, -1); err == nil {
			t.Fatal("negative offset accepted")
		}
	})
}

func BenchmarkUploadMem(b *testing.B) {
	s := largeSegment(64 << 20)
	p := scan(b, s, ScanOptions{})
	ep, err := endpoint.New(discard{storetest.NewMem()}, endpoint.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer ep.Close()
	b.SetBytes(p.Size())
	b.ReportAllocs()
	for b.Loop() {
		h := record(p)
		h.SegmentID = segment.NewUUID()
		if _, err := Upload(context.Background(), ep, s, p, h, UploadOptions{}); err != nil {
			b.Fatal(err)
		}
		if err := ep.Delete(context.Background(), h.Key()); err != nil {
			b.Fatal(err)
		}
	}
}

// discard is a store without an UploadLister.
type discard struct{ objstore.Store }
