package job_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServe(t *testing.T) {
	works := map[string]job.Work{
		"us/spin": func(_ context.Context, j job.Job, m *job.Meter) (map[string]float64, error) {
			m.Start()
			// When this process has worked for 20 ms is up to others.
			began, before := time.Now(), job.CPU()
			for time.Since(began) < 30*time.Millisecond || job.CPU()-before < .02 && time.Since(began) < 5*time.Minute {
			}
			m.Count(int64(j.Count))
			m.Wrote("b")
			m.Wrote("a")
			m.Stop()
			return map[string]float64{"x": 1}, nil
		},
		"*/fail": func(context.Context, job.Job, *job.Meter) (map[string]float64, error) {
			return nil, errors.New("broken")
		},
		"us/forget": func(context.Context, job.Job, *job.Meter) (map[string]float64, error) { return nil, nil },
		"us/later": func(context.Context, job.Job, *job.Meter) (map[string]float64, error) {
			return nil, fmt.Errorf("%w: not before spring", job.ErrMissing)
		},
	}
	var in, out bytes.Buffer
	for _, j := range []job.Job{
		{Subject: "us", Work: "spin", Count: 7},
		{Subject: "them", Work: "fail"},
		{Subject: "us", Work: "forget"},
		{Subject: "us", Work: "later"},
		{Subject: "them", Work: "spin"},
	} {
		if err := json.NewEncoder(&in).Encode(j); err != nil {
			t.Fatal(err)
		}
	}
	if err := job.Serve(t.Context(), &in, &out, works); err != nil {
		t.Fatal(err)
	}
	var got []job.Result
	for dec := json.NewDecoder(&out); dec.More(); {
		var r job.Result
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		got = append(got, r)
	}
	if len(got) != 5 {
		t.Fatalf("%d results of 5 jobs", len(got))
	}
	spin := got[0]
	if spin.Error != "" || spin.Bytes != 7 || spin.Wall < .03 || spin.CPU() < .02 || spin.Values["x"] != 1 || fmt.Sprint(spin.Keys) != "[a b]" {
		t.Errorf("%+v", spin)
	}
	if got[1].Error != "broken" || got[2].Error == "" || got[3].Missing != "not before spring" || got[4].Missing == "" {
		t.Errorf("%+v", got[1:])
	}
	if err := job.Serve(t.Context(), strings.NewReader("{"), io.Discard, works); err == nil {
		t.Error("half a job is a job")
	}
}

func TestSinkSumsWhatCame(t *testing.T) {
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	done := make(chan error)
	go func() { done <- job.ServeSink(ctx, ln, &out) }()
	data := bytes.Repeat([]byte("0123456789"), 100_000)
	for i := range 3 {
		p, err := job.Dial(ctx, ln.Addr().String(), fmt.Sprint("label-", i))
		if err != nil {
			t.Fatal(err)
		}
		for b := data; len(b) > 0; b = b[min(len(b), 70_001):] {
			if _, err := p.Write(b[:min(len(b), 70_001)]); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Finish(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(&out)
	for i := range 3 {
		var r job.Received
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		if want := (job.Received{Label: fmt.Sprint("label-", i), Bytes: int64(len(data)), CRC32C: checksum.CRC32C(data)}); r != want {
			t.Errorf("%+v, want %+v", r, want)
		}
	}
}

func TestReadSummed(t *testing.T) {
	data := make([]byte, 2500)
	for i := range data {
		data[i] = byte(i * 7)
	}
	o := &job.Object{Key: "k", LogSize: int64(len(data)), Chunk: 1000}
	for off := 0; off < len(data); off += 1000 {
		o.Sums = append(o.Sums, checksum.CRC32C(data[off:min(off+1000, len(data))]))
	}
	b := make([]byte, 1500)
	if err := job.ReadSummed(bytes.NewReader(data[1000:]), b, o, 1000); err != nil {
		t.Error(err)
	}
	bad := bytes.Clone(data)
	bad[1700] ^= 1
	if err := job.ReadSummed(bytes.NewReader(bad[1000:]), b, o, 1000); err == nil {
		t.Error("a flipped bit passes")
	}
	if err := job.ReadSummed(bytes.NewReader(data[1000:1100]), b, o, 1000); err == nil {
		t.Error("half of the bytes pass")
	}
}

// In an open loop a slow call delays nobody, and the wait of who comes behind it
// would count.
func TestOpenLoopOmitsNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		began := time.Now()
		took, err := job.OpenLoop(t.Context(), 10, 10, func(_ context.Context, i int) error {
			if i == 0 {
				time.Sleep(5 * time.Second)
			}
			return nil
		})
		if err != nil || len(took) != 10 || took[8] != 0 || took[9] != 5 {
			t.Errorf("%v %v", took, err)
		}
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("took %v", d)
		}
		took, err = job.Loop(t.Context(), 3, 0, func(context.Context, int) error { time.Sleep(time.Second); return nil })
		if err != nil || len(took) != 3 || took[0] != 1 || took[2] != 1 {
			t.Errorf("closed: %v %v", took, err)
		}
		broken := errors.New("broken")
		if _, err := job.OpenLoop(t.Context(), 3, 1, func(context.Context, int) error { return broken }); !errors.Is(err, broken) {
			t.Error(err)
		}
	})
}

func TestQuantile(t *testing.T) {
	v := make([]float64, 100)
	for i := range v {
		v[i] = float64(i + 1)
	}
	if job.Quantile(v, .5) != 50 || job.Quantile(v, .99) != 99 || job.Quantile(v, 1) != 100 || job.Quantile(v, 0) != 1 || !math.IsNaN(job.Quantile(nil, .5)) {
		t.Error("wrong quantiles")
	}
}

// Readers on a leash are never closer than their lag while the one before reads.
func TestLeashKeepsReadersApart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const n, lag, total = 4, 10, 200
		l := job.NewLeash(n, lag)
		var at [n]atomic.Int64
		done := make(chan error, n)
		for i := range n {
			go func() {
				defer l.Done(i)
				for range total {
					if err := l.Wait(t.Context(), i); err != nil {
						done <- err
						return
					}
					if i > 0 && at[i-1].Load() < total && at[i-1].Load()-at[i].Load() <= lag {
						done <- fmt.Errorf("reader %d is at %d, the one before at %d", i, at[i].Load(), at[i-1].Load())
						return
					}
					at[i].Add(1)
					l.Moved(i, 1)
				}
				done <- nil
			}()
		}
		for range n {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
