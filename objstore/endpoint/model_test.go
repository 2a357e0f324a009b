package endpoint

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
)

// Whatever a store does to its answers, honest faults, lies, hangs and objects
// damaged at rest, a Read returns the right bytes or an error with a type; a
// piece that is done is right even then; and nothing is left behind.
func TestReadUnderAnyFaults(t *testing.T) {
	rounds := 10
	if os.Getenv("SEGTIER_SOAK") == "1" {
		rounds = 1000
	}
	for range rounds {
		rapid.Check(t, func(rt *rapid.T) {
			s := drawScene(rt)
			inBubble(t, rt, s.play)
		})
	}
}

// scene is what happens around some Reads.
type scene struct {
	data, stored []byte
	plan         storetest.Plan
	opts         Options
	readers      []sceneReader
	closeAfter   time.Duration // < 0 when all have read
}

type sceneReader struct {
	req      ReadRequest
	want     []byte
	patience time.Duration // 0 is endless
	late     bool          // memory is bound when it is needed
}

func drawScene(t *rapid.T) *scene {
	s := &scene{data: content(rapid.IntRange(1, 3000).Draw(t, "size")), closeAfter: -1}
	s.stored = bytes.Clone(s.data)
	if rapid.IntRange(0, 9).Draw(t, "damage") == 0 {
		s.stored[rapid.IntRange(0, len(s.stored)-1).Draw(t, "damaged byte")] ^= 0x40
	}
	s.plan = plan(t, int64(len(s.data)))
	s.opts = Options{
		Requests: rapid.IntRange(1, 3).Draw(t, "requests"), BytesInFlight: rapid.Int64Range(1, 4000).Draw(t, "bytes in flight"),
		Attempts: rapid.IntRange(1, 5).Draw(t, "attempts"),
	}
	for range rapid.IntRange(1, 4).Draw(t, "readers") {
		r := sceneReader{patience: rapid.SampledFrom([]time.Duration{0, 0, 0, 1, time.Millisecond, time.Second, 30 * time.Second}).Draw(t, "patience")}
		r.req, r.want = someRead(t, s.data)
		if r.late = rapid.Bool().Draw(t, "late"); r.late {
			bindLate(&r.req)
		}
		s.readers = append(s.readers, r)
	}
	if rapid.IntRange(0, 4).Draw(t, "close") == 0 {
		s.closeAfter = rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Second}).Draw(t, "close after")
	}
	return s
}

func (s *scene) play(fail failFunc) {
	mem := storetest.NewMem()
	if _, err := mem.Upload(context.Background(), upload("key", s.stored, 1000)); err != nil {
		fail("%v", err)
	}
	e, err := New(storetest.Inject(mem, s.plan), s.opts)
	if err != nil {
		fail("%v", err)
		return
	}
	var wg sync.WaitGroup
	for _, r := range s.readers {
		wg.Go(func() { r.read(e, fail) })
	}
	if s.closeAfter >= 0 {
		<-time.After(s.closeAfter)
		if err := e.Close(); err != nil {
			fail("Close: %v", err)
		}
	}
	wg.Wait()
	if err := e.Close(); err != nil {
		fail("Close: %v", err)
	}
	if st := e.Stats(); st.RequestsInFlight != 0 || st.BytesInFlight != 0 {
		fail("%d requests, %d bytes still in flight", st.RequestsInFlight, st.BytesInFlight)
	}
}

func (r sceneReader) read(e *Endpoint, fail failFunc) {
	ctx := context.Background()
	if r.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.patience)
		defer cancel()
	}
	next, pos := 0, 0
	r.req.Done = func(i int) {
		p := r.req.Pieces[i].Buf
		if i != next || !bytes.Equal(p, r.want[pos:pos+len(p)]) {
			fail("piece %d is done, the next was %d; or its bytes are wrong", i, next)
		}
		next, pos = i+1, pos+len(p)
	}
	start := time.Now()
	_, err := e.Read(ctx, r.req)
	if err == nil {
		if next != len(r.req.Pieces) || !bytes.Equal(bytesOf(r.req), r.want) {
			fail("wrong bytes, or %d pieces done of %d", next, len(r.req.Pieces))
		}
		return
	}
	var oe *objstore.Error
	if !errors.As(err, &oe) || oe.Op != "get" || oe.Key != "key" || oe.Err == nil {
		fail("%v (%T)", err, err)
	}
	if r.patience > 0 && time.Since(start) > r.patience {
		fail("%v after %v, patience was %v", err, time.Since(start), r.patience)
	}
}

// plan draws a schedule: a random one, or any faults at all.
func plan(t *rapid.T, size int64) storetest.Plan {
	if rapid.Bool().Draw(t, "random schedule") {
		return storetest.Random(rapid.Uint64().Draw(t, "seed"))
	}
	kinds := []storetest.Kind{
		storetest.None, storetest.None, storetest.FailBefore, storetest.FailAfter, storetest.Hang, storetest.Cut, storetest.Cut,
		storetest.Stall, storetest.Flip, storetest.EarlyEOF, storetest.WrongSize, storetest.WrongIdentity,
	}
	faults := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) storetest.Fault {
		return storetest.Fault{
			Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), At: rapid.Int64Range(0, size).Draw(t, "at"),
			Err: rapid.SampledFrom([]error{nil, objstore.ErrThrottled, objstore.ErrNotExist, context.Canceled, context.DeadlineExceeded}).Draw(t, "err"),
		}
	}), 0, 12).Draw(t, "faults")
	return func(c storetest.Call) storetest.Fault {
		if c.Nth <= len(faults) {
			return faults[c.Nth-1]
		}
		return storetest.Fault{}
	}
}

// someRead draws a request for a part of data, and returns what it should bring.
func someRead(t *rapid.T, data []byte) (ReadRequest, []byte) {
	off := rapid.IntRange(0, len(data)-1).Draw(t, "off")
	n := rapid.IntRange(1, len(data)-off).Draw(t, "length")
	req := ReadRequest{Key: "key", Off: int64(off), ObjectSize: int64(len(data))}
	for left := data[off : off+n]; len(left) > 0; {
		k := rapid.IntRange(1, len(left)).Draw(t, "piece")
		req.Pieces = append(req.Pieces, Piece{Buf: make([]byte, k), CRC32C: checksum.CRC32C(left[:k])})
		left = left[k:]
	}
	return req, data[off : off+n]
}
