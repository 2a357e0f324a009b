package endpoint_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
)

func paced(t *testing.T, o endpoint.Options) *endpoint.Endpoint {
	t.Helper()
	ep, err := endpoint.New(storetest.NewMem(), o)
	if err != nil {
		t.Fatal(err)
	}
	return ep
}

// partsOf is an upload of n parts of 1,000 bytes.
func partsOf(key string, n int) objstore.UploadRequest {
	data := bytes.Repeat([]byte{7}, n*1000)
	c := checksum.NewCutter(1000)
	_, _ = c.Write(data) // never fails
	return objstore.UploadRequest{Key: key, Body: bytes.NewReader(data), Size: int64(len(data)), PartSize: 1000, PartSums: c.Pieces(0)}
}

// All uploads together keep to the rate, from the second part on; reads do not
// wait.
func TestUploadBytesPerSecond(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ep := paced(t, endpoint.Options{UploadBytesPerSecond: 1000})
		defer ep.Close()
		begin := time.Now()
		var all sync.WaitGroup
		for _, key := range []string{"a", "b", "c"} {
			all.Go(func() {
				if _, err := ep.Upload(t.Context(), partsOf(key, 5)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(begin); took != 14*time.Second {
			t.Errorf("15 parts of a second each, the first at once, took %v", took)
		}
		begin = time.Now()
		if _, err := ep.Read(t.Context(), endpoint.ReadRequest{Key: "a", Pieces: []endpoint.Piece{{Buf: make([]byte, 5000), NoVerify: true}}}); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("a read waited %v", took)
		}
	})
}

// What waits for its turn holds no slot, and leaves at once when its context
// ends, without having used anything up.
func TestPaceHoldsNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ep := paced(t, endpoint.Options{UploadBytesPerSecond: 10, Requests: 1})
		defer ep.Close()
		if _, err := ep.Upload(t.Context(), partsOf("a", 1)); err != nil { // pays for 100 s
			t.Fatal(err)
		}
		begin := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := ep.Upload(ctx, partsOf("b", 1))
			left <- err
		}()
		synctest.Wait()
		if s := ep.Stats(); s.RequestsInFlight != 0 || s.BytesInFlight != 0 {
			t.Errorf("it holds %d requests and %d bytes", s.RequestsInFlight, s.BytesInFlight)
		}
		if _, err := ep.Stat(t.Context(), "a"); err != nil { // needs the only slot
			t.Error(err)
		}
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("it left after %v", took)
		}
		if _, err := ep.Upload(t.Context(), partsOf("c", 1)); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != 100*time.Second {
			t.Errorf("the next upload was sent after %v, want 100 s", took)
		}
	})
}

// Unused time is not saved up for a burst.
func TestPaceSavesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ep := paced(t, endpoint.Options{UploadBytesPerSecond: 1000})
		defer ep.Close()
		<-time.After(time.Hour)
		begin := time.Now()
		if _, err := ep.Upload(t.Context(), partsOf("a", 3)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("3 parts after an hour's silence took %v", took)
		}
	})
}

func TestPaceIsNotNegative(t *testing.T) {
	if _, err := endpoint.New(storetest.NewMem(), endpoint.Options{UploadBytesPerSecond: -1}); err == nil {
		t.Error("a negative rate was accepted")
	}
}

// An upload whose every try gets another part through is not given up, however
// many it needs; every failure is told.
func TestUploadThatGainsGoesOn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const parts = 12
		broken := errors.New("connection reset")
		store := &onePartATry{Store: storetest.NewMem(), err: broken}
		ep, err := endpoint.New(store, endpoint.Options{Attempts: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer ep.Close()
		req := partsOf("a", parts)
		var told []error
		req.Retried = func(cause error) { told = append(told, cause) }
		if _, err := ep.Upload(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if len(told) != parts-1 {
			t.Errorf("%d retries told of %d", len(told), parts-1)
		}
		for _, cause := range told {
			if !errors.Is(cause, broken) {
				t.Errorf("told cause %v", cause)
			}
		}
		store.done, store.stuck = 0, true
		if _, err := ep.Upload(t.Context(), partsOf("b", parts)); !errors.Is(err, broken) {
			t.Errorf("without gain: %v", err)
		}
		if store.tries != 2 {
			t.Errorf("%d tries without gain, want 2", store.tries)
		}
	})
}

// What the store refuses until somebody acts is not asked for again.
func TestRefusedIsFinal(t *testing.T) {
	store := &onePartATry{Store: storetest.NewMem(), err: objstore.ErrRefused, stuck: true}
	ep, err := endpoint.New(store, endpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ep.Close()
	if _, err := ep.Upload(t.Context(), partsOf("a", 1)); !errors.Is(err, objstore.ErrRefused) || store.tries != 1 {
		t.Errorf("%v after %d tries", err, store.tries)
	}
}

// onePartATry confirms one more part with every try and then fails, until all
// are there.
type onePartATry struct {
	objstore.Store

	err   error
	done  int
	stuck bool
	tries int // while stuck
}

func (s *onePartATry) Upload(ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
	if s.stuck {
		s.tries++
		return objstore.Evidence{}, s.err
	}
	s.done++
	if s.done == len(req.PartSums) {
		return s.Store.Upload(ctx, req)
	}
	for i := range s.done {
		req.Confirmed(objstore.PartEvidence{Part: i, Sum: req.PartSums[i], Level: objstore.Listed})
	}
	return objstore.Evidence{}, s.err
}
