package endpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
)

func TestReadFillsPiecesWithOneGet(t *testing.T) {
	data := content(600_000)
	var log lines
	e := open(t, storetest.Log(filled(t, data), log.add), Options{})
	req := read(data, 100, 299_900, 1, 299_999)
	var done []int
	req.Done = func(i int) {
		if !bytes.Equal(bytesOf(req)[:len(req.Pieces[i].Buf)], data[:len(req.Pieces[i].Buf)]) && i == 0 {
			t.Error("piece 0 is done and not filled")
		}
		done = append(done, i)
	}
	info, err := e.Read(t.Context(), req)
	if err != nil || !bytes.Equal(bytesOf(req), data) || info.Size != 600_000 || info.Identity == "" {
		t.Errorf("%+v, %v; or other bytes", info, err)
	}
	if !slices.Equal(done, []int{0, 1, 2, 3}) {
		t.Errorf("done %v", done)
	}
	log.check(t, get(0, 600_000, "600000 bytes"))
	if s := e.Stats(); s.Gets != 1 || s.Bytes != 600_000 || s.Retries+s.Resumes+s.Corrupt+s.Throttles+s.Stalls != 0 {
		t.Errorf("%+v", s)
	}
}

func TestReadOfTheMiddle(t *testing.T) {
	data := content(1000)
	e := open(t, filled(t, data), Options{})
	req := read(data[500:], 10, 90)
	req.Off, req.ObjectSize = 500, 1000
	if _, err := e.Read(t.Context(), req); err != nil || !bytes.Equal(bytesOf(req), data[500:600]) {
		t.Errorf("%v, or other bytes", err)
	}
}

// Pieces are done while the rest still arrives.
func TestPiecesAreDoneWhileTheBodyStreams(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		data := content(300)
		e := open(t, storetest.Inject(filled(t, data), storetest.Rules(rule("get", 1, storetest.Fault{Kind: storetest.Stall, At: 250}))), Options{})
		req := read(data, 100, 100, 100)
		start := time.Now()
		var at []time.Duration
		req.Done = func(int) { at = append(at, time.Since(start)) }
		if _, err := e.Read(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if len(at) != 3 || at[0] != 0 || at[1] != 0 || at[2] < 10*time.Second {
			t.Errorf("done after %v", at)
		}
	})
}

func TestACutBodyIsResumedAtTheLastByte(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		data := content(1000)
		for _, kind := range []storetest.Kind{storetest.Cut, storetest.EarlyEOF} {
			var log lines
			store := storetest.Inject(filled(t, data), storetest.Rules(
				rule("get", 1, storetest.Fault{Kind: kind, At: 450}),
				rule("get", 2, storetest.Fault{Kind: kind, At: 0}),
				rule("get", 3, storetest.Fault{Kind: kind, At: 150}),
			))
			e := open(t, storetest.Log(store, log.add), Options{})
			req := read(data, 400, 200, 400)
			if _, err := e.Read(t.Context(), req); err != nil || !bytes.Equal(bytesOf(req), data) {
				t.Errorf("%v, or other bytes", err)
			}
			then := ", then unexpected EOF"
			if kind == storetest.EarlyEOF {
				then = ""
			}
			log.check(t, get(0, 1000, "450 bytes"+then), get(450, 1000, "0 bytes"+then), get(450, 1000, "150 bytes"+then), get(600, 1000, "400 bytes"))
			if s := e.Stats(); s.Gets != 4 || s.Resumes != 3 || s.Retries != 3 || s.Bytes != 1000 {
				t.Errorf("%+v", s)
			}
		}
	})
}

// A store that ends bodies early as if that were right has failed all the same.
func TestAnEarlyEOFIsNoEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		data := content(100)
		e := open(t, storetest.Inject(filled(t, data), always(storetest.Fault{Kind: storetest.EarlyEOF})), Options{})
		if _, err := e.Read(t.Context(), read(data, 100)); !errors.Is(err, io.ErrUnexpectedEOF) || e.Stats().Gets != 4 {
			t.Errorf("%v after %d gets", err, e.Stats().Gets)
		}
	})
}

// A body that is resumed must be of the same object.
func TestAResumedBodyHasTheSameIdentity(t *testing.T) {
	data := content(1000)
	var mem objstore.Store
	asked := 0
	store := stub{get: func(ctx context.Context, off, n int64, opts objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
		if asked++; asked == 2 { // replaced meanwhile
			if err := mem.Delete(ctx, "key"); err != nil {
				t.Error(err)
			}
			if _, err := mem.Upload(ctx, upload("key", data[:900], 500)); err != nil {
				t.Error(err)
			}
		}
		info, body, err := mem.Get(ctx, "key", off, min(n, 900-off), opts)
		if asked == 1 && err == nil {
			return info, bodyFunc(func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }), nil
		}
		return info, body, err
	}}
	mem = filled(t, data)
	e := open(t, store, Options{})
	req := read(data, 900)
	req.ObjectSize = 0
	_, err := e.Read(t.Context(), req)
	if !errors.Is(err, objstore.ErrChanged) || asked != 2 {
		t.Errorf("%v after %d gets", err, asked)
	}
}

func TestAWrongChecksumIsFetchedOnceMore(t *testing.T) {
	data := content(1000)
	var log lines
	store := storetest.Inject(filled(t, data), storetest.Rules(
		rule("get", 1, storetest.Fault{Kind: storetest.Flip, At: 450}),
		rule("get", 2, storetest.Fault{Kind: storetest.Flip, At: 599}), // another piece
	))
	e := open(t, storetest.Log(store, log.add), Options{Attempts: 1})
	req := read(data, 400, 200, 400)
	var done []int
	req.Done = func(i int) { done = append(done, i) }
	if _, err := e.Read(t.Context(), req); err != nil || !bytes.Equal(bytesOf(req), data) || !slices.Equal(done, []int{0, 1, 2}) {
		t.Errorf("%v, done %v; or other bytes", err, done)
	}
	log.check(t, get(0, 1000, "600 bytes"), get(400, 1000, "600 bytes"), get(600, 1000, "400 bytes"))
}

func TestAWrongChecksumTwiceIsCorrupt(t *testing.T) {
	data := content(1000)
	bad := bytes.Clone(data)
	bad[450] ^= 0x10
	var log lines
	e := open(t, storetest.Log(filled(t, bad), log.add), Options{})
	req := read(data[100:], 300, 200, 400)
	req.Off, req.ObjectSize = 100, 1000
	var done []int
	req.Done = func(i int) { done = append(done, i) }
	_, err := e.Read(t.Context(), req)
	var oe *objstore.Error
	var m *checksum.MismatchError
	if !errors.Is(err, objstore.ErrCorrupt) || !errors.As(err, &oe) || oe.Op != "get" || oe.Key != "key" || oe.Off != 400 || oe.Len != 200 {
		t.Fatalf("%v", err)
	}
	if !errors.As(err, &m) || m.Off != 400 || m.Len != 200 || m.Want != checksum.CRC32C(data[400:600]) || m.Got != checksum.CRC32C(bad[400:600]) {
		t.Errorf("%+v", m)
	}
	if strings.Count(err.Error(), "key") != 1 {
		t.Errorf("%v: names the key more than once", err)
	}
	if !slices.Equal(done, []int{0}) {
		t.Errorf("done %v", done)
	}
	// In the middle of an answer, then twice at the beginning of one.
	log.check(t, get(100, 1000, "500 bytes"), get(400, 1000, "200 bytes"), get(400, 1000, "200 bytes"))
	if s := e.Stats(); s.Corrupt != 3 {
		t.Errorf("%+v", s)
	}
}

func TestNoVerify(t *testing.T) {
	data := content(1000)
	e := open(t, filled(t, data), Options{})
	req := read(data, 400, 600)
	req.Pieces[0].CRC32C++
	req.Pieces[0].NoVerify = true
	if _, err := e.Read(t.Context(), req); err != nil || !bytes.Equal(bytesOf(req), data) {
		t.Errorf("%v, or other bytes", err)
	}
}

// An answer that contradicts the record is asked for once more; then it is
// damage, or another object.
func TestAnswersAreChecked(t *testing.T) {
	data := content(1000)
	for _, c := range []struct {
		name string
		kind storetest.Kind
		want error
		gets int64
	}{
		{"size", storetest.WrongSize, objstore.ErrCorrupt, 2},
		{"identity", storetest.WrongIdentity, objstore.ErrChanged, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := filled(t, data)
			info, err := mem.Stat(t.Context(), "key")
			if err != nil {
				t.Fatal(err)
			}
			e := open(t, storetest.Inject(mem, always(storetest.Fault{Kind: c.kind})), Options{})
			req := read(data, 1000)
			req.IfMatch = info.Identity
			if _, err := e.Read(t.Context(), req); !errors.Is(err, c.want) || e.Stats().Gets != c.gets {
				t.Errorf("%v after %d gets", err, e.Stats().Gets)
			}
		})
	}
	t.Run("size, once", func(t *testing.T) {
		store := storetest.Inject(filled(t, data), storetest.Rules(rule("get", 1, storetest.Fault{Kind: storetest.WrongSize})))
		e := open(t, store, Options{})
		req := read(data, 1000)
		if _, err := e.Read(t.Context(), req); err != nil || !bytes.Equal(bytesOf(req), data) {
			t.Errorf("%v, or other bytes", err)
		}
	})
	t.Run("shorter than recorded", func(t *testing.T) {
		e := open(t, filled(t, data[:900]), Options{})
		_, err := e.Read(t.Context(), read(data, 1000))
		if !errors.Is(err, objstore.ErrCorrupt) || !errors.Is(err, objstore.ErrRange) || e.Stats().Gets != 1 {
			t.Errorf("%v after %d gets", err, e.Stats().Gets)
		}
	})
}

func TestPermanentErrorsAreNotRetried(t *testing.T) {
	for _, cause := range []error{
		objstore.ErrNotExist, objstore.ErrRange, objstore.ErrChanged, objstore.ErrConflict, objstore.ErrClosed,
		objstore.ErrReadOnly, objstore.ErrFull,
	} {
		e := open(t, storetest.Inject(storetest.NewMem(), always(storetest.Fault{Kind: storetest.FailBefore, Err: cause})), Options{})
		req := read(content(10), 10)
		req.ObjectSize = 0
		_, rerr := e.Read(t.Context(), req)
		_, serr := e.Stat(t.Context(), "key")
		_, uerr := e.Upload(t.Context(), upload("key", content(10), 5))
		derr := e.Delete(t.Context(), "key")
		for op, err := range map[string]error{"get": rerr, "stat": serr, "upload": uerr, "delete": derr} {
			var oe *objstore.Error
			if !errors.Is(err, cause) || !errors.As(err, &oe) || oe.Op != op || oe.Key != "key" || strings.Contains(err.Error(), "tries") {
				t.Errorf("%s: %v, want %v", op, err, cause)
			}
		}
		if s := e.Stats(); s.Retries != 0 || s.Gets+s.Stats+s.Uploads+s.Deletes != 4 {
			t.Errorf("%v: %+v", cause, s)
		}
	}
}

func TestRetriesAreBoundedAndWait(t *testing.T) {
	for _, attempts := range []int{1, 4, 9} {
		bubble.Test(t, func(t *testing.T) {
			e := open(t, storetest.Inject(storetest.NewMem(), always(storetest.Fault{Kind: storetest.FailAfter})), Options{Attempts: attempts})
			start := time.Now()
			mem := filled(t, content(10))
			e.store = storetest.Inject(mem, always(storetest.Fault{Kind: storetest.FailAfter}))
			_, err := e.Read(t.Context(), read(content(10), 10))
			if !errors.Is(err, storetest.ErrInjected) || e.Stats().Gets != int64(attempts) {
				t.Errorf("%v after %d gets", err, e.Stats().Gets)
			}
			if attempts > 1 && !strings.Contains(err.Error(), fmt.Sprintf("after %d tries", attempts)) {
				t.Errorf("%v", err)
			}
			var most time.Duration
			for n := range attempts - 1 {
				most += min(faultBase<<n, faultCap)
			}
			if took := time.Since(start); took > most+time.Microsecond || (attempts > 1 && took == 0) {
				t.Errorf("took %v, most is %v", took, most)
			}
		})
	}
}

// Every piece verified gives a new count.
func TestProgressRenewsTheCount(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		data := content(1000)
		e := open(t, storetest.Inject(filled(t, data), always(storetest.Fault{Kind: storetest.Cut, At: 100})), Options{Attempts: 2})
		req := read(data, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100)
		if _, err := e.Read(t.Context(), req); err != nil || !bytes.Equal(bytesOf(req), data) || e.Stats().Gets != 10 {
			t.Errorf("%v after %d gets; or other bytes", err, e.Stats().Gets)
		}
		e.store = storetest.Inject(filled(t, data), always(storetest.Fault{Kind: storetest.Cut, At: 10}))
		if _, err := e.Read(t.Context(), req); !errors.Is(err, io.ErrUnexpectedEOF) || e.Stats().Gets != 12 {
			t.Errorf("%v after %d gets", err, e.Stats().Gets)
		}
	})
}

func TestAStalledStoreIsLeft(t *testing.T) {
	for name, f := range map[string]storetest.Fault{
		"before the answer": {Kind: storetest.Hang}, "in the body": {Kind: storetest.Stall, At: 450}, "at its start": {Kind: storetest.Stall},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				data := content(1000)
				var log lines
				e := open(t, storetest.Inject(storetest.Log(filled(t, data), log.add), storetest.Rules(rule("get", 1, f))), Options{})
				req := read(data, 400, 600)
				start := time.Now()
				if _, err := e.Read(t.Context(), req); err != nil || !bytes.Equal(bytesOf(req), data) {
					t.Errorf("%v, or other bytes", err)
				}
				if took := time.Since(start); took < 10*time.Second || took > 10*time.Second+faultBase {
					t.Errorf("took %v", took)
				}
				if s := e.Stats(); s.Stalls != 1 || s.Bytes != 1000 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

func TestAStoreThatAlwaysStallsIsATimeout(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := open(t, storetest.Inject(storetest.NewMem(), always(storetest.Fault{Kind: storetest.Hang})), Options{ProgressTimeout: time.Second, Attempts: 3})
		_, rerr := e.Read(t.Context(), read(content(10), 10))
		_, serr := e.Stat(t.Context(), "key")
		for _, err := range []error{rerr, serr} {
			if !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
				!strings.Contains(err.Error(), "nothing from the store for 1s") {
				t.Errorf("%v", err)
			}
		}
		if s := e.Stats(); s.Stalls != 6 || s.Gets != 3 || s.Stats != 3 {
			t.Errorf("%+v", s)
		}
	})
}

// It is a progress timeout, none of the whole.
func TestASlowStoreIsLeftAlone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		data := content(100)
		store := stub{get: func(ctx context.Context, off, n int64, _ objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
			return objstore.Info{Size: 100}, bodyFunc(func(p []byte) (int, error) {
				select {
				case <-time.After(9 * time.Second):
				case <-ctx.Done():
					return 0, ctx.Err()
				}
				if off == 100 {
					return 0, io.EOF
				}
				p[0] = data[off]
				off++
				return 1, nil
			}), nil
		}}
		e := open(t, store, Options{})
		req := read(data, 100)
		if _, err := e.Read(t.Context(), req); err != nil || !bytes.Equal(bytesOf(req), data) || e.Stats().Gets != 1 {
			t.Errorf("%v after %d gets; or other bytes", err, e.Stats().Gets)
		}
	})
}

func TestStrangeBodies(t *testing.T) {
	data := content(1000)
	serve := func(read func(pos *int64, p []byte) (int, error)) objstore.Store {
		return stub{get: func(_ context.Context, off, n int64, _ objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
			pos := off
			return objstore.Info{Size: 1000, Identity: "x"}, bodyFunc(func(p []byte) (int, error) { return read(&pos, p) }), nil
		}}
	}
	for _, c := range []struct {
		name string
		read func(pos *int64, p []byte) (int, error)
		want error
	}{
		{"the last bytes come with EOF", func(pos *int64, p []byte) (int, error) {
			n := copy(p, data[*pos:])
			if *pos += int64(n); *pos == 1000 {
				return n, io.EOF
			}
			return n, nil
		}, nil},
		{"the last bytes come with a fault", func(pos *int64, p []byte) (int, error) {
			n := copy(p, data[*pos:])
			if *pos += int64(n); *pos == 1000 {
				return n, io.ErrClosedPipe
			}
			return n, nil
		}, nil},
		{"bytes come with a fault", func(pos *int64, p []byte) (int, error) {
			n := copy(p[:min(len(p), 100)], data[*pos:])
			*pos += int64(n)
			return n, io.ErrClosedPipe
		}, io.ErrClosedPipe},
		{"nothing and no error", func(*int64, []byte) (int, error) { return 0, nil }, io.ErrNoProgress},
		{"now and then nothing", func(pos *int64, p []byte) (int, error) {
			if *pos++; *pos%2 == 1 {
				return 0, nil
			}
			return copy(p[:1], data[*pos/2-1:]), nil
		}, nil},
		{"more than asked for", func(pos *int64, p []byte) (int, error) {
			n := copy(p, data[min(*pos, 999):])
			*pos += int64(n)
			return n, nil
		}, errTooLong},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				e := open(t, serve(c.read), Options{})
				req := read(data, 1000)
				if _, err := e.Read(t.Context(), req); !errors.Is(err, c.want) || (c.want == nil && (err != nil || !bytes.Equal(bytesOf(req), data))) {
					t.Errorf("%v, want %v; or other bytes", err, c.want)
				}
			})
		})
	}
}

func TestReadRefusesNonsense(t *testing.T) {
	data := content(100)
	for name, spoil := range map[string]func(*ReadRequest){
		"no key": func(r *ReadRequest) { r.Key = "" }, "no pieces": func(r *ReadRequest) { r.Pieces = nil },
		"an empty piece": func(r *ReadRequest) { r.Pieces[1].Buf = nil }, "before the start": func(r *ReadRequest) { r.Off = -1 },
		"behind the end": func(r *ReadRequest) { r.Off = 1 }, "negative size": func(r *ReadRequest) { r.ObjectSize = -1 },
	} {
		e := open(t, filled(t, data), Options{})
		req := read(data, 50, 50)
		spoil(&req)
		var oe *objstore.Error
		if _, err := e.Read(t.Context(), req); !errors.As(err, &oe) || oe.Op != "get" || e.Stats().Gets != 0 {
			t.Errorf("%s: %v after %d gets", name, err, e.Stats().Gets)
		}
	}
}

// What a Read costs beside the store is in the package comment.
func TestAllocationsOfARead(t *testing.T) {
	data := content(2 << 20)
	var body constBody
	store := stub{get: func(_ context.Context, off, _ int64, _ objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
		body.rest = data[off:]
		return objstore.Info{Size: int64(len(data)), Identity: "x"}, &body, nil
	}}
	e := open(t, store, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	one, many := read(data, 2<<20), read(data, slices.Repeat([]int{1 << 16}, 32)...)
	for _, req := range []ReadRequest{one, many} {
		req.IfMatch = "x"
		n := testing.AllocsPerRun(50, func() {
			if _, err := e.Read(ctx, req); err != nil {
				t.Error(err)
			}
		})
		if n > 7 {
			t.Errorf("a read of %d pieces makes %v allocations", len(req.Pieces), n)
		}
	}
}

// constBody serves bytes without allocating.
type constBody struct{ rest []byte }

func (b *constBody) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *constBody) Close() error { return nil }

func BenchmarkRead(b *testing.B) {
	for _, size := range []int{1 << 20, 8 << 20} {
		b.Run(fmt.Sprintf("size=%dMiB/piece=1MiB", size>>20), func(b *testing.B) {
			data := content(size)
			var body constBody
			e, err := New(stub{get: func(_ context.Context, off, _ int64, _ objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
				body.rest = data[off:]
				return objstore.Info{Size: int64(size), Identity: "x"}, &body, nil
			}}, Options{})
			if err != nil {
				b.Fatal(err)
			}
			req := read(data, slices.Repeat([]int{1 << 20}, size>>20)...)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Read(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
			if err := e.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
