package weather

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/s3"
)

// readsOf is an object whose bytes and sums are known, in pieces of 64 KiB.
type readsOf struct {
	key  string
	data []byte
	size int64 // of the object
	id   string
}

const readPiece = 64 << 10

func someObject(t *testing.T, tier *Tier) readsOf {
	t.Helper()
	o, err := tier.Object(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := readsOf{key: o.Key(), size: o.Size(), data: make([]byte, tier.SegmentBytes())}
	if _, err := o.ReadAt(r.data, 0); err != nil {
		t.Fatal(err)
	}
	return r
}

// request asks for n pieces from the i-th one on.
func (r readsOf) request(i, n int) endpoint.ReadRequest {
	req := endpoint.ReadRequest{Key: r.key, Off: int64(i) * readPiece, ObjectSize: r.size, IfMatch: r.id, Stream: uint64(i)}
	for ; n > 0; n-- {
		req.Pieces = append(req.Pieces, endpoint.Piece{Buf: make([]byte, readPiece), CRC32C: checksum.CRC32C(r.data[i*readPiece : (i+1)*readPiece])})
		i++
	}
	return req
}

// check compares what Read came to, and what it said was done.
func (r readsOf) check(t *testing.T, req endpoint.ReadRequest, done int, err error) {
	t.Helper()
	if err == nil && done != len(req.Pieces) {
		t.Errorf("%d of %d pieces are done, and no error", done, len(req.Pieces))
	}
	for i, p := range req.Pieces[:done] {
		off := req.Off + int64(i)*readPiece
		if !bytes.Equal(p.Buf, r.data[off:off+readPiece]) {
			t.Errorf("wrong bytes at %d", off)
		}
	}
	var oe *objstore.Error
	if err != nil && (!errors.As(err, &oe) || oe.Op != "get" || oe.Key != r.key) {
		t.Errorf("%v (%T)", err, err)
	}
}

// readWeathers are each fault of a GET alone, rare and at every try, and all of
// them mixed.
func readWeathers() map[string]Schedule {
	kinds := map[Kind]Fault{
		Stall: {At: -1, For: Duration(time.Minute)}, Reset: {At: -1}, Cut: {At: -1}, Short: {At: -1}, Whole: {}, WrongRange: {}, WrongETag: {}, Encoded: {},
		Flip: {At: -1}, Throttle: {}, Internal: {}, Refuse: {}, Missing: {}, Late: {For: Duration(time.Minute)},
	}
	out := map[string]Schedule{"calm": {}}
	var mixed []Fault
	for kind, f := range kinds {
		f.Kind, f.Operation = kind, "GetObject"
		f.Share = .2
		rare := f
		rare.Attempts = 2
		out[string(kind)+" now and then"] = Schedule{Seed: 1, Faults: []Fault{rare}}
		f.Share = 1
		out[string(kind)+" always"] = Schedule{Seed: 1, Faults: []Fault{f}}
		f.Share = .04
		mixed = append(mixed, f)
	}
	slices.SortFunc(mixed, func(a, b Fault) int { return bytes.Compare([]byte(a.Kind), []byte(b.Kind)) })
	for seed := range uint64(3) {
		out["mixed "+string(rune('a'+seed))] = Schedule{Seed: seed, Faults: mixed}
	}
	return out
}

// identity reads a little of an object, which may take as long as it takes.
func identity(t *testing.T, store objstore.Store, key string) string {
	t.Helper()
	info, body, err := store.Get(t.Context(), key, 0, 1000, objstore.GetOptions{})
	if err == nil {
		_, err = io.Copy(io.Discard, body)
		err = errors.Join(err, body.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return info.Identity
}

// silent reports whether it is up to the client to notice that nothing comes. Where it is
// not, nobody is to take a busy machine for that.
func silent(s Schedule) bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Kind == Stall || f.Kind == Late })
}

// outcome is what a store that always answers in one way comes to.
func outcome(name string) error {
	return map[string]error{
		"calm": nil, "reset always": errEither, "cut always": errEither, // it goes on while pieces come
		"stall always": os.ErrDeadlineExceeded, "late always": os.ErrDeadlineExceeded,
		"short always": objstore.ErrBadAnswer, "whole always": objstore.ErrBadAnswer, "wrongrange always": objstore.ErrBadAnswer,
		"wrongetag always": objstore.ErrChanged, "encoded always": objstore.ErrBadAnswer, "flip always": objstore.ErrCorrupt, "throttle always": objstore.ErrThrottled,
		"internal always": errAny, "refuse always": objstore.ErrRefused, "missing always": objstore.ErrNotExist,
	}[name]
}

var (
	errAny    = errors.New("any error")
	errEither = errors.New("an error or none")
)

// Whatever goes wrong with GETs on the way, each fault alone and all of them
// mixed, a Read brings the right bytes or an error with a type, in time, and
// leaves nothing behind. Hedged or not.
func TestReadsInEveryWeather(t *testing.T) {
	tier := mustTier(t, Spec{SegmentBytes: 3 << 20, BatchBytes: 10_000})
	object := someObject(t, tier)
	for name, schedule := range readWeathers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time passes in waiting
			hedges := []int64{0}
			if strings.HasPrefix(name, "mixed") || strings.HasSuffix(name, "now and then") {
				hedges = append(hedges, 1<<20)
			}
			for _, hedge := range hedges {
				p := newPlace(t, Options{Schedule: Schedule{}})
				progress := hangs
				if silent(schedule) {
					progress = 300 * time.Millisecond
				}
				store := s3Store(t, p.Addresses, false, s3.Options{})
				ep := newEndpoint(t, store, endpoint.Options{
					Requests: 8, BytesInFlight: 2 << 20, ProgressTimeout: progress, HedgeBytes: hedge, RetryBudget: 1000,
				})
				r := object
				r.id = identity(t, store, r.key)
				if err := p.SetSchedule(schedule); err != nil {
					t.Fatal(err)
				}
				readAllAtOnce(t, ep, r, outcome(name), name)
				if s := ep.Stats(); s.RequestsInFlight != 0 || s.BytesInFlight != 0 || s.Waiting != 0 {
					t.Errorf("left behind: %+v", s)
				}
			}
		})
	}
}

func readAllAtOnce(t *testing.T, ep *endpoint.Endpoint, r readsOf, want error, name string) {
	t.Helper()
	always := len(name) > 7 && name[len(name)-6:] == "always" || name == "calm"
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			req := r.request(4*i, 4)
			req.Class = endpoint.Class(i % 3)
			done := 0
			req.Done = func(int) { done++ }
			patience := 5 * time.Second
			if want == nil && always {
				patience = hangs // who has it calm gets it all, on whatever machine
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			start := time.Now()
			_, err := ep.Read(ctx, req)
			// That nobody comes back later than his deadline is shown in virtual time.
			if took := time.Since(start); took > patience+hangs {
				t.Errorf("%v after %v, patience was %v", err, took, patience)
			}
			r.check(t, req, done, err)
			if want != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)) {
				return // it was still trying; or the machine was too busy to send anything
			}
			if errors.Is(want, errEither) {
				return
			}
			if always && (want == nil) != (err == nil) {
				t.Errorf("%v, want %v", err, want)
			}
			if always && want != nil && !errors.Is(want, errAny) && !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		})
	}
	wg.Wait()
}
