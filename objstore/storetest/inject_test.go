package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore"
)

// small returns a request with many parts of 10 bytes.
func small(key string, data []byte) objstore.UploadRequest {
	c := checksum.NewCutter(10)
	_, _ = c.Write(data)
	return objstore.UploadRequest{Key: key, Body: bytes.NewReader(data), Size: int64(len(data)), PartSize: 10, PartSums: c.Pieces(0)}
}

// get reads through one Get, at most n bytes.
func get(ctx context.Context, s objstore.Store, key string, n int64) ([]byte, objstore.Info, error) {
	info, body, err := s.Get(ctx, key, 0, n, objstore.GetOptions{})
	if err != nil {
		return nil, info, err
	}
	b, err := io.ReadAll(body)
	return b, info, errors.Join(err, body.Close())
}

func TestFaultsOfAGet(t *testing.T) {
	data := []byte("0123456789abcdefghijklmno")
	cause := errors.New("cause")
	for _, c := range []struct {
		fault Fault
		want  string
		err   error
	}{
		{Fault{}, string(data), nil},
		{Fault{Kind: FailBefore}, "", ErrInjected},
		{Fault{Kind: FailAfter, Err: objstore.ErrThrottled}, "", objstore.ErrThrottled},
		{Fault{Kind: Cut, At: 0}, "", io.ErrUnexpectedEOF},
		{Fault{Kind: Cut, At: 7, Err: cause}, "0123456", cause},
		{Fault{Kind: Cut, At: 99}, string(data), nil},
		{Fault{Kind: EarlyEOF, At: 7}, "0123456", nil},
		{Fault{Kind: Flip, At: 1}, "0023456789abcdefghijklmno", nil},
		{Fault{Kind: Flip, At: 24}, "0123456789abcdefghijklmnn", nil},
	} {
		t.Run(fmt.Sprintf("%v at %d", c.fault.Kind, c.fault.At), func(t *testing.T) {
			mem := NewMem()
			if _, err := mem.Upload(t.Context(), small("key", data)); err != nil {
				t.Fatal(err)
			}
			s := Inject(mem, func(Call) Fault { return c.fault })
			got, _, err := get(t.Context(), s, "key", 25)
			if string(got) != c.want || !errors.Is(err, c.err) {
				t.Errorf("got %q, %v, want %q, %v", got, err, c.want, c.err)
			}
			if again := bytesOf(t, mem, "key"); !bytes.Equal(again, data) {
				t.Errorf("the store holds %q now", again)
			}
		})
	}
}

func TestFaultsOfAnUpload(t *testing.T) {
	data := []byte("0123456789abcdefghijklmno")
	for _, c := range []struct {
		fault Fault
		err   error
		left  string // under the key afterwards
	}{
		{Fault{}, nil, string(data)},
		{Fault{Kind: FailBefore}, ErrInjected, ""},
		{Fault{Kind: FailAfter}, ErrInjected, string(data)},
		{Fault{Kind: Cut, At: 15}, ErrInjected, ""},
		{Fault{Kind: Cut, At: 15, Err: io.ErrNoProgress}, io.ErrNoProgress, ""},
		{Fault{Kind: Flip, At: 15}, objstore.ErrCorrupt, ""},
		{Fault{Kind: WrongSum, At: 1}, nil, string(data)},
		{Fault{Kind: DropPart, At: 1}, nil, string(data)},
		{Fault{Kind: WrongSize}, nil, string(data)},
		{Fault{Kind: WrongIdentity}, nil, string(data)},
		{Fault{Kind: ShortObject, At: 15}, nil, "0123456789abcde"},
		{Fault{Kind: FlipStored, At: 1}, nil, "0023456789abcdefghijklmno"},
	} {
		t.Run(fmt.Sprintf("%v at %d", c.fault.Kind, c.fault.At), func(t *testing.T) {
			mem := NewMem()
			s := Inject(mem, func(c2 Call) Fault { return c.fault })
			req, told := small("key", data), confirmations{}
			req.Confirmed = told.add
			ev, err := s.Upload(t.Context(), req)
			if !errors.Is(err, c.err) || (c.err == nil && err != nil) {
				t.Fatalf("Upload: %v, want %v", err, c.err)
			}
			if c.left == "" {
				if _, err := mem.Stat(t.Context(), "key"); !errors.Is(err, objstore.ErrNotExist) {
					t.Errorf("the object is there: %v", err)
				}
				return
			}
			if got := bytesOf(t, mem, "key"); string(got) != c.left {
				t.Errorf("the store holds %q, want %q", got, c.left)
			}
			if err != nil {
				return
			}
			checkLies(t, c.fault, &req, ev, told.parts)
		})
	}
}

// checkLies checks that an answer is wrong exactly where the fault says.
func checkLies(t *testing.T, f Fault, req *objstore.UploadRequest, ev objstore.Evidence, told []objstore.PartEvidence) {
	t.Helper()
	var want []objstore.PartEvidence
	for i, sum := range req.PartSums {
		if f.Kind == WrongSum && f.At == int64(i) {
			sum.CRC32C ^= 1
		}
		if f.Kind != DropPart || f.At != int64(i) {
			want = append(want, objstore.PartEvidence{Part: i, Sum: sum, Level: objstore.ReadBack})
		}
	}
	if !slices.Equal(ev.Parts, want) {
		t.Errorf("evidence %v, want %v", ev.Parts, want)
	}
	if f.Kind != ShortObject && !slices.Equal(told, want) {
		t.Errorf("confirmed %v, want %v", told, want)
	}
	if lied := ev.Size != req.Size; lied != (f.Kind == WrongSize) {
		t.Errorf("size %d of %d", ev.Size, req.Size)
	}
	if lied := ev.Identity != "w2"; lied != (f.Kind == WrongIdentity) {
		t.Errorf("identity %q", ev.Identity)
	}
}

func TestFaultsThatTakeTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		mem := NewMem()
		if _, err := mem.Upload(t.Context(), small("key", content(1, 25))); err != nil {
			t.Fatal(err)
		}
		gate := make(chan struct{})
		s := Inject(mem, Rules(
			Rule{Op: "stat", Fault: Fault{Kind: Hang}},
			Rule{Op: "get", Fault: Fault{Kind: Stall, At: 7}},
			Rule{Op: "get", Nth: 2, Fault: Fault{Kind: Wait, Gate: gate}},
			Rule{Op: "get", Nth: 3, Fault: Fault{Kind: Stall, At: 7}},
			Rule{Op: "upload", Fault: Fault{Kind: Stall, At: 7}},
		))
		start := time.Now()
		within := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			t.Cleanup(cancel)
			return ctx
		}
		if _, err := s.Stat(within(), "key"); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("hanging Stat: %v after %v", err, time.Since(start))
		}
		if got, _, err := get(within(), s, "key", 25); !errors.Is(err, context.DeadlineExceeded) || len(got) != 7 || time.Since(start) != 2*time.Minute {
			t.Errorf("stalled Get: %d bytes, %v after %v", len(got), err, time.Since(start))
		}
		time.AfterFunc(time.Hour, func() { close(gate) })
		if got, _, err := get(t.Context(), s, "key", 25); err != nil || len(got) != 25 || time.Since(start) != time.Hour+2*time.Minute {
			t.Errorf("waiting Get: %d bytes, %v after %v", len(got), err, time.Since(start))
		}
		_, body, err := s.Get(t.Context(), "key", 0, 25, objstore.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { _ = body.Close() })
		if got, err := io.ReadAll(body); err == nil || len(got) != 7 {
			t.Errorf("stalled and closed Get: %d bytes, %v", len(got), err)
		}
		if _, err := s.Upload(within(), small("new", content(1, 25))); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stalled Upload: %v", err)
		}
	})
}

func TestFaultsOfAList(t *testing.T) {
	mem := NewMem()
	for i := range 5 {
		if _, err := mem.Upload(t.Context(), small(fmt.Sprintf("key-%d", i), content(1, 5))); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		fault Fault
		n     int
		err   error
	}{
		{Fault{}, 5, nil},
		{Fault{Kind: FailBefore}, 0, ErrInjected},
		{Fault{Kind: Cut, At: 3}, 3, ErrInjected},
		{Fault{Kind: FailAfter}, 5, ErrInjected},
		{Fault{Kind: Cut, At: 5}, 5, nil},
	} {
		n := 0
		var last error
		for _, err := range Inject(mem, func(Call) Fault { return c.fault }).List(t.Context(), "key", "") {
			if last = err; err == nil {
				n++
			}
		}
		if n != c.n || !errors.Is(last, c.err) {
			t.Errorf("%v at %d: %d objects, %v, want %d, %v", c.fault.Kind, c.fault.At, n, last, c.n, c.err)
		}
	}
}

func TestRulesPickCalls(t *testing.T) {
	call := func(op, key string) Call { return Call{Op: op, Key: key} }
	plan := Rules(
		Rule{Op: "get", Key: "a/*", Nth: 2, Times: 2, Fault: Fault{Kind: Cut}},
		Rule{Key: "b", Times: -1, Fault: Fault{Kind: Flip}},
		Rule{Nth: 7, Fault: Fault{Kind: Hang}},
	)
	var got []Kind
	for _, c := range []Call{
		call("get", "a/x"), call("stat", "a/x"), call("get", "a/y"), call("get", "a/x"), call("get", "a/x/z"),
		call("get", "b"), call("stat", "b"), call("get", "a/x"),
	} {
		got = append(got, plan(c).Kind)
	}
	// The seventh call is the second rule's; rules count what others decide.
	want := []Kind{None, None, Cut, Cut, None, Flip, Flip, None}
	if !slices.Equal(got, want) {
		t.Errorf("faults %v, want %v", got, want)
	}
}

// cycle is some work on a store, to be stopped after each of its effects.
func cycle(ctx context.Context, s objstore.Store, data []byte) error {
	if _, err := s.Upload(ctx, small("a", data)); err != nil {
		return err
	}
	if _, err := s.Upload(ctx, small("b", data[:5])); err != nil {
		return err
	}
	if _, _, err := get(ctx, s, "a", int64(len(data))); err != nil {
		return err
	}
	return s.Delete(ctx, "a", "b")
}

func TestStopAfterEveryEffect(t *testing.T) {
	data := content(1, 25)
	whole := Inject(NewMem(), nil)
	if err := cycle(t.Context(), whole, data); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"upload a part 0", "upload a part 1", "upload a part 2", "upload a",
		"upload b part 0", "upload b", "delete a", "delete b",
	}
	if got := whole.Effects().Names(); !slices.Equal(got, want) {
		t.Fatalf("effects %q, want %q", got, want)
	}
	for k := range whole.Effects().Count() + 1 {
		mem := NewMem()
		s := Inject(mem, nil)
		s.Effects().StopAfter(k)
		if err := cycle(t.Context(), s, data); !errors.Is(err, ErrStopped) {
			t.Errorf("stop after %d: %v", k, err)
		}
		if got := s.Effects().Names(); !slices.Equal(got, want[:k]) {
			t.Errorf("stop after %d: effects %q", k, got)
		}
		if _, err := s.Stat(t.Context(), "a"); !errors.Is(err, ErrStopped) {
			t.Errorf("stop after %d: a later call: %v", k, err)
		}
		_, errA := mem.Stat(t.Context(), "a")
		_, errB := mem.Stat(t.Context(), "b")
		if a, b := errA == nil, errB == nil; a != (k >= 4 && k < 7) || b != (k >= 6 && k < 8) {
			t.Errorf("stop after %d: a there %v, b there %v", k, a, b)
		}
		if err := cycle(t.Context(), Inject(mem, nil), data); err != nil {
			t.Errorf("stop after %d, once more: %v", k, err)
		}
	}
}

func TestEffectsAreShared(t *testing.T) {
	var e Effects
	e.StopAfter(2)
	done := 0
	effect := func() error { done++; return nil }
	if err := e.Do("one", effect); err != nil {
		t.Error(err)
	}
	if err := e.Do("failed", func() error { return io.EOF }); err != io.EOF {
		t.Error(err)
	}
	for range 2 { // the second takes effect, and its answer is lost
		if err := e.Do("two", effect); !errors.Is(err, ErrStopped) {
			t.Error(err)
		}
	}
	if done != 2 || !slices.Equal(e.Names(), []string{"one", "two"}) {
		t.Errorf("%d done, names %q", done, e.Names())
	}
}

func TestRandomIsDeterministicAndCutsWhereItHurts(t *testing.T) {
	count := make(map[string]int)
	for seed := range uint64(50) {
		a, b := Random(seed), Random(seed)
		for i := range 400 {
			op := []string{"get", "get", "get", "upload", "list", "delete", "stat", "abort"}[i%8]
			c := Call{Op: op, Key: "key", Nth: i/8 + 1, Seq: i, Len: 1000}
			f := a(c)
			c.Seq = 7 // must not matter
			g := b(c)
			if f.Kind != g.Kind || f.At != g.At {
				t.Fatalf("seed %d, %v: %v and %v", seed, c, f, g)
			}
			switch f.Kind {
			case None:
				count["none"]++
			case Cut, Flip, FailAfter:
				count["inside or after"]++
			case FailBefore:
				count["before"]++
			default:
				t.Fatalf("seed %d, %v: %v is not honest", seed, c, f.Kind)
			}
		}
	}
	if faults := count["inside or after"] + count["before"]; count["inside or after"]*2 < faults || faults < 5000 || faults > 8500 {
		t.Errorf("of 20000 calls: %v", count)
	}
}

func TestInjectIsSafeForConcurrentUse(t *testing.T) {
	s := Inject(NewMem(), Random(1))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			key, data := fmt.Sprintf("key-%d", i), content(uint64(i), 100)
			for range 50 {
				_, _ = s.Upload(t.Context(), small(key, data))
				if got, _, err := get(t.Context(), s, key, 100); err == nil && len(got) != 100 {
					t.Errorf("%d bytes without an error", len(got))
				}
				_ = s.Delete(t.Context(), key)
			}
		})
	}
	wg.Wait()
	if s.Effects().Count() == 0 {
		t.Error("nothing has happened")
	}
}
