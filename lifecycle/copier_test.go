package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/header"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var writer = metadata.Writer{BrokerID: 7, LeaderEpoch: 9}

// scan has chunks and parts small enough that every object has several.
var scan = transfer.ScanOptions{ChunkSize: 4096, PartSize: 8192}

// world is what survives a crash: the two stores.
type world struct {
	store objstore.Store
	meta  *metadatatest.Mem
	root  string // of a store in a directory
}

func newWorld() world { return world{store: storetest.NewMem(), meta: metadatatest.NewMem()} }

// process is one run of a program over the world, with faults.
type process struct {
	store  *storetest.Faulty
	meta   *metadatatest.Faulty
	ep     *endpoint.Endpoint
	copier *lifecycle.Copier
	close  func()
}

func (w world) start(t *testing.T, store storetest.Plan, meta metadatatest.Plan, ev lifecycle.Events) *process {
	t.Helper()
	p := &process{store: storetest.Inject(w.store, store)}
	p.meta = metadatatest.Inject(w.meta, p.store.Effects(), meta)
	ep, err := endpoint.New(p.store, endpoint.Options{Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	p.ep = ep
	p.copier, err = lifecycle.NewCopier(p.meta, ep, lifecycle.CopierOptions{
		Scan:   scan,
		Now:    func() time.Time { return time.UnixMilli(1700000000000) },
		Events: ev,
	})
	if err != nil {
		t.Fatal(err)
	}
	p.close = func() { _ = ep.Close() }
	t.Cleanup(p.close)
	return p
}

// copyAll copies the segments in order and stops at the first that fails.
func (p *process) copyAll(ctx context.Context, log *testseg.Log) error {
	for _, s := range log.Segments {
		if _, err := p.copier.Copy(ctx, s, writer); err != nil {
			return err
		}
	}
	return nil
}

// check says what is wrong with the world after everything was copied: every
// segment exactly once readable and equal, nothing readable beside, no object
// that a record does not name, no copy left in flight.
func (w world) check(t *testing.T, log *testseg.Log) {
	t.Helper()
	view, err := w.meta.View(log.Partition)
	if err != nil {
		t.Fatal(err)
	}
	ep, err := endpoint.New(w.store, endpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ep.Close()
	var finished []*metadata.Segment
	named := []string{object.OwnerKey}
	for seg := range view.All() {
		switch seg.State {
		case metadata.CopySegmentFinished:
			finished = append(finished, seg)
			named = append(named, object.Key(seg.Partition, seg.StartOffset, seg.ID))
		case metadata.DeleteSegmentFinished:
		case metadata.DeleteSegmentStarted: // of an id whose key holds bytes that are not ours
			named = append(named, object.Key(seg.Partition, seg.StartOffset, seg.ID))
		default:
			t.Errorf("segment at %d was left in %s", seg.StartOffset, seg.State)
		}
	}
	if len(finished) != len(log.Segments) {
		t.Fatalf("%d segments are readable, want %d", len(finished), len(log.Segments))
	}
	for i, seg := range finished {
		src := log.Segments[i]
		if seg.StartOffset != src.Info().StartOffset || seg.EndOffset != src.Info().EndOffset {
			t.Errorf("segment %d is %d-%d, want %d-%d", i, seg.StartOffset, seg.EndOffset, src.Info().StartOffset, src.Info().EndOffset)
		}
		loc, err := object.ParseLocation(seg.Custom)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := transfer.Confirm(t.Context(), ep, header.Of(seg), loc, transfer.ConfirmOptions{}); err != nil {
			t.Errorf("segment %d: %v", i, err)
		}
		if got := read(t, ep, object.Key(seg.Partition, seg.StartOffset, seg.ID), len(src.Log)); string(got) != string(src.Log) {
			t.Errorf("segment %d: the log in the object differs from its source", i)
		}
	}
	var keys []string
	for info, err := range w.store.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	slices.Sort(keys)
	slices.Sort(named)
	if !slices.Equal(keys, named) {
		t.Errorf("objects %v, records name %v", keys, named)
	}
}

func read(t *testing.T, ep *endpoint.Endpoint, key string, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := ep.Read(t.Context(), endpoint.ReadRequest{Key: key, Pieces: []endpoint.Piece{{Buf: b, NoVerify: true}}}); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestCrashAfterEveryEffect stops the program after each single effect it has
// on store or metadata, starts it again on what is left, and wants the same end.
func TestCrashAfterEveryEffect(t *testing.T) {
	log := testseg.Random(1, testseg.Options{Segments: 3, Batches: 40})
	w := newWorld()
	p := w.start(t, nil, nil, lifecycle.Events{})
	if err := p.copyAll(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	w.check(t, log)
	total := p.store.Effects().Count()
	if total < 3*3+1 {
		t.Fatalf("only %d effects: %v", total, p.store.Effects().Names())
	}
	for k := range total {
		t.Run(fmt.Sprintf("after=%d", k), func(t *testing.T) {
			w := newWorld()
			p := w.start(t, nil, nil, lifecycle.Events{})
			p.store.Effects().StopAfter(k)
			if err := p.copyAll(t.Context(), log); !errors.Is(err, storetest.ErrStopped) {
				t.Fatalf("stopped after %d effects of %d: %v", k, total, err)
			}
			p.close()
			if err := w.start(t, nil, nil, lifecycle.Events{}).copyAll(t.Context(), log); err != nil {
				t.Fatalf("run again: %v", err)
			}
			w.check(t, log)
		})
	}
}

// TestEveryCallFailing fails each single call once, before its effect and after
// it, and wants copying again to end well.
func TestEveryCallFailing(t *testing.T) {
	log := testseg.Random(2, testseg.Options{Segments: 2, Batches: 30})
	for _, kind := range []storetest.Kind{storetest.FailBefore, storetest.FailAfter} {
		for n := 1; ; n++ {
			w := newWorld()
			hit := false
			p := w.start(t, func(c storetest.Call) storetest.Fault {
				if c.Seq != n {
					return storetest.Fault{}
				}
				hit = true
				return storetest.Fault{Kind: kind}
			}, nil, lifecycle.Events{})
			err := p.copyAll(t.Context(), log)
			if !hit {
				break
			}
			if err != nil {
				err = w.start(t, nil, nil, lifecycle.Events{}).copyAll(t.Context(), log)
			}
			if err != nil {
				t.Fatalf("%v of store call %d, then again: %v", kind, n, err)
			}
			w.check(t, log)
		}
	}
	for _, kind := range []metadatatest.Kind{metadatatest.FailBefore, metadatatest.FailAfter} {
		for n := 1; ; n++ {
			w := newWorld()
			hit := false
			p := w.start(t, nil, func(c metadatatest.Call) metadatatest.Fault {
				if c.Seq != n {
					return metadatatest.Fault{}
				}
				hit = true
				return metadatatest.Fault{Kind: kind}
			}, lifecycle.Events{})
			err := p.copyAll(t.Context(), log)
			if !hit {
				break
			}
			if err != nil {
				err = w.start(t, nil, nil, lifecycle.Events{}).copyAll(t.Context(), log)
			}
			if err != nil {
				t.Fatalf("fault %v of metadata call %d, then again: %v", kind, n, err)
			}
			w.check(t, log)
		}
	}
}

// TestLostFinishedIsReadBack: the answer to FINISHED is lost, the copy has
// happened all the same, and Copy says so at once.
func TestLostFinishedIsReadBack(t *testing.T) {
	log := testseg.Random(3, testseg.Options{Segments: 1})
	w := newWorld()
	p := w.start(t, nil, func(c metadatatest.Call) metadatatest.Fault {
		if c.Op == "publish" && c.Event.To() == metadata.CopySegmentFinished {
			return metadatatest.Fault{Kind: metadatatest.FailAfter}
		}
		return metadatatest.Fault{}
	}, lifecycle.Events{})
	if err := p.copyAll(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	w.check(t, log)
}

func TestCopyTwiceDoesNothing(t *testing.T) {
	log := testseg.Random(4, testseg.Options{Segments: 3})
	w := newWorld()
	p := w.start(t, nil, nil, lifecycle.Events{})
	if err := p.copyAll(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	existed := 0
	p = w.start(t, nil, nil, lifecycle.Events{Finished: func(_ *metadata.Segment, e bool) {
		if e {
			existed++
		}
	}})
	if err := p.copyAll(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	if n := p.store.Effects().Count(); n != 0 || existed != 3 {
		t.Errorf("%d effects (%v), %d of 3 said to exist", n, p.store.Effects().Names(), existed)
	}
	w.check(t, log)
}

// TestLyingStores: a store that confirms what is not so never leads to FINISHED.
func TestLyingStores(t *testing.T) {
	log := testseg.Random(5, testseg.Options{Segments: 1, Batches: 40})
	lies := []storetest.Fault{
		{Kind: storetest.WrongSum, At: 0},
		{Kind: storetest.WrongSum, At: 1},
		{Kind: storetest.DropPart, At: 0},
		{Kind: storetest.DropPart, At: 1},
		{Kind: storetest.WrongSize},
		{Kind: storetest.ShortObject, At: 100},
		{Kind: storetest.ShortObject, At: 8192},
	}
	for _, lie := range lies {
		t.Run(fmt.Sprintf("%v at %d", lie.Kind, lie.At), func(t *testing.T) {
			w := newWorld()
			p := w.start(t, func(c storetest.Call) storetest.Fault {
				if c.Op == "upload" && strings.HasSuffix(c.Key, ".seg") {
					return lie
				}
				return storetest.Fault{}
			}, nil, lifecycle.Events{})
			err := p.copyAll(t.Context(), log)
			if err == nil {
				t.Fatal("the lie was believed")
			}
			t.Log(err)
			view, err := w.meta.View(log.Partition)
			if err != nil {
				t.Fatal(err)
			}
			for seg := range view.All() {
				if seg.State == metadata.CopySegmentFinished {
					t.Error("FINISHED was written")
				}
			}
		})
	}
}

// TestOtherSourceTakesANewID: a STARTED record whose source has changed since is
// ended, its object deleted, and the segment copied under a new id.
func TestOtherSourceTakesANewID(t *testing.T) {
	before := testseg.Random(6, testseg.Options{Segments: 1, Plain: true})
	after := testseg.Random(6, testseg.Options{Segments: 1, Plain: true})
	after.Segments[0].Snapshot = nil // another fingerprint, the same range
	w := newWorld()
	p := w.start(t, nil, func(c metadatatest.Call) metadatatest.Fault {
		if c.Op == "publish" && c.Event.To() == metadata.CopySegmentFinished {
			return metadatatest.Fault{Kind: metadatatest.FailBefore}
		}
		return metadatatest.Fault{}
	}, lifecycle.Events{})
	if err := p.copyAll(t.Context(), before); !errors.Is(err, metadata.ErrUnavailable) {
		t.Fatal(err)
	}
	if err := w.start(t, nil, nil, lifecycle.Events{}).copyAll(t.Context(), after); err != nil {
		t.Fatal(err)
	}
	w.check(t, after)
}

// TestForeignObjectUnderTheKey: other bytes under the id's own key end the id.
// They are neither overwritten nor deleted, and the next attempt succeeds.
func TestForeignObjectUnderTheKey(t *testing.T) {
	log := testseg.Random(7, testseg.Options{Segments: 1})
	w := newWorld()
	var key string
	p := w.start(t, func(c storetest.Call) storetest.Fault {
		if c.Op == "upload" && c.Key != object.OwnerKey && key == "" {
			key = c.Key
			w.put(t, key, "not ours")
		}
		return storetest.Fault{}
	}, nil, lifecycle.Events{})
	if err := p.copyAll(t.Context(), log); !errors.Is(err, objstore.ErrConflict) {
		t.Fatal(err)
	}
	if err := p.copyAll(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	w.check(t, log)
	ep, err := endpoint.New(w.store, endpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ep.Close()
	if got := read(t, ep, key, len("not ours")); string(got) != "not ours" {
		t.Errorf("the foreign object is now %q", got)
	}
}

// put creates an object behind everybody's back.
func (w world) put(t *testing.T, key, content string) {
	t.Helper()
	if err := put(w.store, key, content); err != nil {
		t.Error(err)
	}
}

func put(store objstore.Store, key, content string) error {
	_, err := store.Upload(context.Background(), uploadOf(key, content))
	return err
}

func uploadOf(key, content string) objstore.UploadRequest {
	sum := checksum.Sum{Len: int64(len(content)), CRC32C: checksum.CRC32C([]byte(content))}
	return objstore.UploadRequest{Key: key, Body: strings.NewReader(content), Size: sum.Len, PartSize: sum.Len, PartSums: []checksum.Sum{sum}}
}

// TestStoreThatIsNotTheMetadatas: metadata with readable segments is not used
// with an empty store, neither to copy more nor to say that a segment is there.
// TestDamagedOwnerMarker: one clear error, which no conflict of a copy can be
// taken for.
// TestCloseEndsCopies: Close cancels a copy whose store hangs, waits for it, and
// lets no later one in.
func TestCloseEndsCopies(t *testing.T) {
	log := testseg.Random(18, testseg.Options{Segments: 1})
	w := newWorld()
	reached := make(chan struct{})
	p := w.start(t, func(c storetest.Call) storetest.Fault {
		if c.Op == "upload" && c.Key != object.OwnerKey {
			close(reached)
			return storetest.Fault{Kind: storetest.Hang}
		}
		return storetest.Fault{}
	}, nil, lifecycle.Events{})
	ended := make(chan error, 1)
	go func() {
		_, err := p.copier.Copy(t.Context(), log.Segments[0], writer)
		ended <- err
	}()
	<-reached
	p.copier.Close()
	if err := <-ended; !errors.Is(err, lifecycle.ErrClosed) {
		t.Errorf("the copy that ran ended with %v", err)
	}
	before := p.store.Effects().Count()
	if _, err := p.copier.Copy(t.Context(), log.Segments[0], writer); !errors.Is(err, lifecycle.ErrClosed) {
		t.Errorf("a later copy: %v", err)
	}
	if p.store.Effects().Count() != before {
		t.Error("a later copy had an effect")
	}
	p.copier.Close()
}

// TestACallerThatLeaves: the lower copy was cancelled by its own caller. The
// higher one is refused, before it sends anything, and not with the other
// caller's context error.
// TestFinishedInOffsetOrder uploads three segments at once, lets the uploads
// end in every order, and sees FINISHED written in offset order.
// TestFrontierStopsAtAFailure: a segment above one that failed is not made
// readable until that one was copied.
// TestFrontierGoesOnWhenAnotherCopied: what failed here was copied by another
// process, so it holds nothing back.
// TestWaitingForTheTurnEndsWithTheContext: a copy whose turn does not come is
// cancelled by its own context and leaves the lower one alone.
// TestFencedWriter: a deposed leader cannot finish what it began.
func TestFencedWriter(t *testing.T) {
	log := testseg.Random(13, testseg.Options{Segments: 2, Batches: 10, Plain: true})
	w := newWorld()
	p := w.start(t, nil, nil, lifecycle.Events{})
	newer := metadata.Writer{BrokerID: 8, LeaderEpoch: writer.LeaderEpoch + 1}
	if _, err := p.copier.Copy(t.Context(), log.Segments[0], newer); err != nil {
		t.Fatal(err)
	}
	if _, err := p.copier.Copy(t.Context(), log.Segments[1], writer); !errors.Is(err, metadata.ErrFenced) {
		t.Fatalf("error %v, want ErrFenced", err)
	}
}

// TestEventsTellTheStory: what a host can show of a copy, counted on confirmed bytes.
func TestEventsTellTheStory(t *testing.T) {
	log := testseg.Random(14, testseg.Options{Segments: 1, Batches: 40})
	w := newWorld()
	var mu sync.Mutex
	var story []string
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		story = append(story, fmt.Sprintf(format, args...))
	}
	var confirmed, size int64
	p := w.start(t, nil, nil, lifecycle.Events{
		Started: func(_ *metadata.Segment, n int64) { size = n; say("started") },
		PartConfirmed: func(_ *metadata.Segment, e objstore.PartEvidence) {
			mu.Lock()
			confirmed += e.Sum.Len
			mu.Unlock()
		},
		Finished: func(_ *metadata.Segment, existed bool) { say("finished existed=%v", existed) },
		Failed:   func(_ segment.Info, err error) { say("failed") },
	})
	if err := p.copyAll(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	if err := p.copyAll(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	if want := []string{"started", "finished existed=false", "finished existed=true"}; !slices.Equal(story, want) {
		t.Errorf("events %v, want %v", story, want)
	}
	if confirmed < size || size == 0 {
		t.Errorf("%d bytes confirmed of %d announced", confirmed, size)
	}
}

// TestStartedComesFirst has the order of effects of one copy as golden text:
// STARTED before the first byte, FINISHED after the last.
func TestStartedComesFirst(t *testing.T) {
	log := testseg.Random(15, testseg.Options{Segments: 1, Batches: 40})
	w := newWorld()
	p := w.start(t, nil, nil, lifecycle.Events{})
	if err := p.copyAll(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	var story []string
	for _, name := range p.store.Effects().Names() {
		switch {
		case strings.Contains(name, object.OwnerKey):
			name = "owner marker"
		case strings.Contains(name, " part "):
			name = "part"
		case strings.HasPrefix(name, "upload "):
			name = "object"
		case strings.Contains(name, metadata.CopySegmentStarted.String()):
			name = "STARTED"
		case strings.Contains(name, metadata.CopySegmentFinished.String()):
			name = "FINISHED"
		}
		story = append(story, name)
	}
	if got, want := slices.Compact(story), []string{"owner marker", "STARTED", "part", "object", "FINISHED"}; !slices.Equal(got, want) {
		t.Errorf("effects %v, want %v", got, want)
	}
}
