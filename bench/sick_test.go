package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segtier/segtier/bench/subject"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
)

// ward is a store in which the objects of some partitions are sick, as a kind of fault
// of package weather has it.
type ward struct {
	objstore.Store
	kind    weather.Kind
	healthy int32     // partitions from there on are sick
	from    time.Time // when they become so

	gets atomic.Int64 // of sick objects
}

// Kinds that package weather has not, or has with options.
const (
	throttleAfter weather.Kind = "throttle, retry after"
	hang          weather.Kind = "hang"
	hangInBody    weather.Kind = "hang in the body"
	trickle       weather.Kind = "trickle"
)

// longer is how long what is late or stalls takes: longer than anybody waits.
const longer = 8 * time.Second

// Get implements objstore.Store.
func (s *ward) Get(ctx context.Context, key string, off, n int64, o objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	if p, _, _, err := object.ParseKey(key); err != nil || p.Number < s.healthy || time.Now().Before(s.from) {
		return s.Store.Get(ctx, key, off, n, o)
	}
	s.gets.Add(1)
	fail := func(err error, after time.Duration) (objstore.Info, io.ReadCloser, error) {
		return objstore.Info{}, nil, &objstore.Error{Op: "get", Key: key, Off: off, Len: n, Err: err, RetryAfter: after}
	}
	switch s.kind {
	case "":
	case weather.Throttle:
		return fail(objstore.ErrThrottled, 0)
	case throttleAfter:
		return fail(objstore.ErrThrottled, 3*time.Second)
	case weather.Internal:
		return fail(errors.New("an internal error"), 0)
	case weather.Refuse:
		return fail(objstore.ErrRefused, 0)
	case weather.Missing:
		return fail(objstore.ErrNotExist, 0)
	case weather.WrongETag:
		return fail(objstore.ErrChanged, 0)
	case hang:
		<-ctx.Done()
		return fail(ctx.Err(), 0)
	case weather.Late:
		select {
		case <-time.After(longer):
		case <-ctx.Done():
			return fail(ctx.Err(), 0)
		}
	}
	info, body, err := s.Store.Get(ctx, key, off, n, o)
	if err == nil {
		body = &sickBody{ReadCloser: body, ctx: ctx, kind: s.kind}
	}
	return info, body, err
}

// sickBody is a body that is cut, wrong, or stops, after its first bytes.
type sickBody struct {
	io.ReadCloser
	ctx  context.Context
	kind weather.Kind
	n    int
}

func (b *sickBody) Read(p []byte) (int, error) {
	const at = 1000
	before := b.n
	if before < at {
		p = p[:min(len(p), at-before)]
	}
	wait := time.Duration(0)
	switch {
	case before < at:
	case b.kind == weather.Cut:
		return 0, io.ErrUnexpectedEOF
	case b.kind == hangInBody:
		<-b.ctx.Done()
		return 0, b.ctx.Err()
	case b.kind == weather.Stall && before == at:
		wait = longer
	case b.kind == trickle:
		wait, p = time.Second, p[:min(len(p), 64<<10)]
	}
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		}
	}
	n, err := b.ReadCloser.Read(p)
	if b.n += n; b.kind == weather.Flip && before == 0 && n > 0 {
		p[0] ^= 1
	}
	return n, err
}

// Where the objects of some partitions are sick, whatever it is that they have, who reads
// others keeps four fifths of the rate that he has beside healthy ones, and of the one that
// he has alone where those who read the sick ones are few. Who reads those gets an
// error, or bytes, by his deadline. Every kind is tried in one way, every fourth under the
// race detector, and each in all ways under SEGTIER_SOAK.
func TestSickNeighbours(t *testing.T) {
	kinds := []weather.Kind{
		weather.Throttle, throttleAfter, weather.Internal, weather.Refuse, weather.Missing, weather.WrongETag,
		hang, weather.Late, weather.Cut, hangInBody, weather.Stall, trickle, weather.Flip,
	}
	all := os.Getenv("SEGTIER_SOAK") != ""
	const mib = 1 << 20
	for _, onset := range []time.Duration{0, 3 * time.Second} {
		for _, readers := range []int{1, 8} {
			known := make(map[string]float64) // rates beside no sick ones
			measure := func(t *testing.T, kind weather.Kind, readers int, lasts time.Duration) (rate float64) {
				key := fmt.Sprint(readers, lasts)
				if rate, ok := known[key]; ok && kind == "" {
					return rate
				}
				bubble.Test(t, func(t *testing.T) { rate = besideSick(t, kind, readers, onset, lasts) })
				if kind == "" {
					known[key] = rate
				}
				return rate
			}
			for i, kind := range kinds {
				few := readers == 1
				if !all && (few == (onset == 0) || few == (i%2 == 0) || bubble.RaceDetector && i%4 > 1) {
					continue
				}
				t.Run(fmt.Sprintf("%s, %d readers each, after %v", kind, readers, onset), func(t *testing.T) {
					lasts := 12 * time.Second
					if kind == trickle && onset == 0 {
						// It is found out late if nothing is known yet, and what is fetched then comes
						// in runs that take a connection 8 s each: 12 s show one of them or two.
						lasts = 36 * time.Second
					}
					beside, usual := measure(t, kind, readers, lasts), measure(t, "", readers, lasts)
					t.Logf("%.1f MiB/s, beside healthy ones %.1f", beside/mib, usual/mib)
					if beside < .8*usual {
						t.Errorf("%.2f of its rate beside healthy ones", beside/usual)
					}
					if !few {
						return
					}
					alone := measure(t, "", 0, lasts)
					t.Logf("%.1f MiB/s alone", alone/mib)
					if beside < .8*alone {
						t.Errorf("beside sick ones %.2f of what it has alone", beside/alone)
					}
				})
			}
		}
	}
}

// besideSick is the rate, in bytes/s, of the readers of two partitions beside four
// partitions whose objects become sick after a while, with so many readers each, while it
// lasts.
func besideSick(t *testing.T, kind weather.Kind, readers int, onset, lasts time.Duration) float64 {
	const mib, patience, healthy, sick = 1 << 20, 5 * time.Second, 2, 4
	l := &line{first: 30 * time.Millisecond, connection: 2 * mib, link: 1000 * mib}
	ward := &ward{Store: subject.NewStore(), kind: kind, healthy: healthy, from: time.Now().Add(onset)}
	l.Store = ward
	tier, r, done := l.open(t, 1024*mib, weather.Spec{Partitions: healthy + sick, SegmentBytes: 64 * mib, Segments: 40})
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	var running sync.WaitGroup
	for i := range sick * readers {
		running.Go(func() {
			var res fetch.Result
			defer res.Release()
			for offset := tier.EndOffset() / int64(readers) * int64(i/sick); ctx.Err() == nil; {
				ctx, cancel := context.WithTimeout(ctx, patience)
				began := time.Now()
				err := r.Fetch(ctx, fetch.Request{Partition: tier.Partition(healthy + i%sick), Offset: offset, MaxBytes: mib, Hint: fetch.Scan}, &res)
				cancel()
				switch {
				case time.Since(began) > patience:
					t.Errorf("%v after a deadline of %v", time.Since(began), patience)
				case err == nil:
					offset = res.NextOffset() % tier.EndOffset()
				case ctx.Err() != nil, errors.Is(err, fetch.ErrUnavailable), errors.Is(err, fetch.ErrCorruption), errors.Is(err, objstore.ErrRefused):
				default:
					t.Error(err)
				}
				select { // nobody asks for ever without a pause
				case <-time.After(10 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	var read [healthy]atomic.Int64
	for p := range healthy {
		running.Go(func() {
			var res fetch.Result
			defer res.Release()
			for offset := int64(0); ; offset = res.NextOffset() % tier.EndOffset() {
				if err := r.Fetch(ctx, fetch.Request{Partition: tier.Partition(p), Offset: offset, MaxBytes: mib, Hint: fetch.Scan}, &res); err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				if _, err := res.WriteTo(tier.Verifier(p, res.FirstOffset())); err != nil {
					t.Error(err)
				}
				read[p].Add(int64(res.Size()))
			}
		})
	}
	<-time.After(onset)
	before := total(&read)
	<-time.After(lasts)
	all := total(&read) - before
	stop(errors.New("enough"))
	running.Wait()
	done()
	t.Logf("%d GETs of sick objects", ward.gets.Load())
	return float64(all) / lasts.Seconds()
}

func total(read *[2]atomic.Int64) int64 { return read[0].Load() + read[1].Load() }
