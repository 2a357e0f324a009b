package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/s3"
)

// A process that is killed at any moment leaves parts; the next one sends at most
// one part per worker a second time.
func TestResumeAfterAKill(t *testing.T) {
	const workers, parts = 2, 7
	data := content(1, parts*5*mib-1000)
	for _, d := range []dialect{{name: "aws"}, {name: "small pages", pageSize: 2}, {name: "versity", noAttributes: true, suffix: true}, {name: "blind", blind: true}} {
		for kill := 1; kill <= parts+1; kill++ {
			t.Run(fmt.Sprint(d.name, "/", kill), func(t *testing.T) {
				shape := func(o *s3.Options) { o.Concurrency, o.OnCancel = workers, s3.KeepUpload }
				inBubble(t, d, shape, func(t *testing.T, f *fake, s *s3.Store) {
					// Death: from the kill-th write on, nothing reaches the service,
					// not even an abort.
					ctx, cancel := context.WithCancel(t.Context())
					writes := 0
					f.set(func(r request) fault {
						if !isProbe(r) && (r.op == "UploadPart" || r.op == "CompleteMultipartUpload") {
							writes++
						}
						if writes >= kill {
							cancel()
							return fault{kind: cutInside, at: 1000}
						}
						return fault{}
					})
					_, err := s.Upload(ctx, upload("a", data, 5*mib))
					wantError(t, err, "upload", nil)
					_ = s.Close()
					f.set(nil)

					next := f.another(t, shape)
					var resumed, confirmed atomic.Int64
					req := upload("a", data, 5*mib)
					req.Confirmed = func(p objstore.PartEvidence) {
						confirmed.Add(1)
						if p.Resumed {
							resumed.Add(1)
						}
					}
					mustUpload(t, f, next, req, data)
					var sent int64
					for _, r := range f.requests("UploadPart") {
						sent += r.bytes
					}
					if twice := sent - int64(len(data)); twice > workers*5*mib {
						t.Errorf("%d bytes were sent twice", twice)
					}
					if confirmed.Load() != parts || resumed.Load() < int64(kill-1-workers) || next.Stats().BytesResumed < (resumed.Load()-1)*5*mib {
						t.Errorf("%d parts confirmed, %d resumed, %d bytes", confirmed.Load(), resumed.Load(), next.Stats().BytesResumed)
					}
					if _, uploads := f.names(); uploads != 0 {
						t.Errorf("%d uploads are left", uploads)
					}
				})
			})
		}
	}
}

// left puts an unfinished upload of an object onto the fake.
func (f *fake) left(key, id string, parts map[int][]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.appears(key, id, parts)
}

// appears is left for a plan, which f calls under its lock.
func (f *fake) appears(key, id string, parts map[int][]byte) {
	f.seq++
	u := &fakeUpload{key: "logs/" + key, meta: map[string]string{"segtier-token": "token-of-" + key}, parts: map[int]fakePart{}, started: f.now(), seq: f.seq}
	for n, b := range parts {
		u.parts[n] = fakePart{number: n, data: b, etag: etagOf(b), crc: crcText(b)}
	}
	f.uploads[id] = u
}

func TestOnlyPartsThatAreOursAreResumed(t *testing.T) {
	data := content(1, threeParts)
	p1, p2, p3 := data[:5*mib], data[5*mib:10*mib], data[10*mib:]
	for name, c := range map[string]struct {
		parts map[int][]byte
		sent  []int
		spoil func(*fakeUpload)
	}{
		"all":                   {parts: map[int][]byte{1: p1, 2: p2, 3: p3}},
		"some":                  {parts: map[int][]byte{2: p2}, sent: []int{1, 3}},
		"none":                  {parts: map[int][]byte{}, sent: []int{1, 2, 3}},
		"other bytes":           {parts: map[int][]byte{1: p1, 2: content(9, 5*mib)}, sent: []int{2, 3}},
		"another place":         {parts: map[int][]byte{1: p2, 3: p3}, sent: []int{1, 2}},
		"another size":          {parts: map[int][]byte{1: p1, 2: p2[:len(p2)-1]}, sent: []int{2, 3}},
		"another size, our sum": {parts: map[int][]byte{1: p1, 2: p2[:len(p2)-1]}, sent: []int{2, 3}},
		"more parts":            {parts: map[int][]byte{1: p1, 4: p2, 9999: p3}, sent: []int{2, 3}},
		"another layout":        {parts: map[int][]byte{1: data[:8*mib], 2: data[8*mib:]}, sent: []int{1, 2, 3}},
		"lying about the sum": {parts: map[int][]byte{1: p1, 2: content(9, 5*mib)}, sent: []int{3}, spoil: func(u *fakeUpload) {
			p := u.parts[2]
			p.crc = crcText(p2)
			u.parts[2] = p
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, dialect{blind: name == "lying about the sum"}, nil, func(t *testing.T, f *fake, s *s3.Store) {
				f.left("a", "old", c.parts)
				f.left("a/b", "other", map[int][]byte{1: p1}) // of another object
				if name == "another size, our sum" {
					p := f.uploads["old"].parts[2]
					p.crc = crcText(p2)
					f.uploads["old"].parts[2] = p
				}
				if c.spoil != nil {
					c.spoil(f.uploads["old"])
					// A service that verifies nothing may hold anything: what is read
					// back says so.
					_, err := s.Upload(t.Context(), upload("a", data, 5*mib))
					wantError(t, err, "upload", objstore.ErrCorrupt)
					if f.object("a") != nil {
						t.Error("the object is there")
					}
					return
				}
				mustUpload(t, f, s, upload("a", data, 5*mib), data)
				if got := f.partNumbers(); !slices.Equal(got, c.sent) {
					t.Errorf("parts %v were sent, want %v", got, c.sent)
				}
				if _, uploads := f.names(); uploads != 1 {
					t.Errorf("%d uploads are left, want that of the other object alone", uploads)
				}
			})
		})
	}
}

// The best of several is taken, the others are aborted once the object is there,
// and not before.
func TestBestOfSeveralUploadsIsResumed(t *testing.T) {
	data := content(1, threeParts)
	p1, p2 := data[:5*mib], data[5*mib:10*mib]
	inBubble(t, dialect{pageSize: 2}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		f.left("a", "empty", nil)
		f.left("a", "good", map[int][]byte{1: p1, 2: p2})
		f.left("a", "half", map[int][]byte{1: p1})
		for i := range 5 {
			f.left("a", fmt.Sprint("other-", i), map[int][]byte{1: p2})
		}
		f.left("a0", "zeros", nil)
		f.gate = func(r request) {
			if r.op == "AbortMultipartUpload" && !isProbe(r) && f.object("a") == nil {
				t.Error("something is aborted before the object is there")
			}
		}
		mustUpload(t, f, s, upload("a", data, 5*mib), data)
		if got := f.partNumbers(); !slices.Equal(got, []int{3}) {
			t.Errorf("parts %v were sent, want 3 alone", got)
		}
		if _, uploads := f.names(); uploads != 1 {
			t.Errorf("%d uploads are left", uploads)
		}
	})
}

// SeaweedFS lists a part that was sent twice twice, and would make the object of
// the stale one.
func TestPartListedTwiceIsSentAgain(t *testing.T) {
	data := content(1, threeParts)
	inBubble(t, dialect{listTwice: true}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		f.left("a", "old", map[int][]byte{1: data[:5*mib], 2: data[5*mib : 10*mib]})
		f.uploads["old"].again = []fakePart{f.uploads["old"].parts[1]}
		mustUpload(t, f, s, upload("a", data, 5*mib), data)
		if got := f.partNumbers(); !slices.Equal(got, []int{1, 3}) {
			t.Errorf("parts %v were sent, want 1 and 3", got)
		}
	})
}

// s3cmd saw the first 1000 parts only; MinIO's marker was 0, rclone and others
// paged for ever.
func TestListingsThatDoNotAdvanceEnd(t *testing.T) {
	data := content(1, threeParts)
	inBubble(t, dialect{stuckMarker: true, pageSize: 1}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		for i := range 3 {
			f.left("a", fmt.Sprint("old-", i), map[int][]byte{1: data[:5*mib]})
		}
		mustUpload(t, f, s, upload("a", data, 5*mib), data) // without them, if need be
		mustUpload(t, f, s, upload("b", data[:10], mib), data[:10])
		if n := len(f.requests("")); n > 100 {
			t.Errorf("%d requests", n)
		}
		var err error
		for _, err = range s.List(t.Context(), "", "") {
			if err != nil {
				break
			}
		}
		wantError(t, err, "list", nil)
		for i := range 3 {
			f.left("c", fmt.Sprint("new-", i), nil)
		}
		for _, err = range s.Uploads(t.Context(), "c") {
			if err != nil {
				break
			}
		}
		wantError(t, err, "uploads", nil)
	})
}

func TestUploadsThatCannotBeListedAreNotResumed(t *testing.T) {
	data := content(1, threeParts)
	for _, what := range []fault{{kind: failBefore, status: 501, code: "NotImplemented"}, {kind: failBefore, status: 403, code: "AccessDenied"}} {
		inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
			f.left("a", "old", map[int][]byte{1: data[:5*mib]})
			f.set(only("ListMultipartUploads", 1, what))
			mustUpload(t, f, s, upload("a", data, 5*mib), data)
			if n := f.count("UploadPart"); n != 3 {
				t.Errorf("%d parts were sent", n)
			}
		})
	}
	// But one that fails for a reason that passes is no reason to send all again.
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		f.set(only("ListMultipartUploads", 1, fault{kind: failBefore, status: 503, code: "SlowDown"}))
		_, err := s.Upload(t.Context(), upload("a", data, 5*mib))
		wantError(t, err, "upload", objstore.ErrThrottled)
	})
}

// Uploads of one key take turns within a Store, however many ask.
func TestUploadsOfOneKeyTakeTurns(t *testing.T) {
	data := content(1, threeParts)
	inBubble(t, dialect{noCondition: true}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		errs := make(chan error, 5)
		for i := range 5 {
			go func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i == 4 {
					cancel()
				}
				_, err := s.Upload(ctx, upload("a", data, 5*mib))
				errs <- err
			}()
		}
		failures := 0
		for range 5 {
			if err := <-errs; err != nil {
				failures++
				wantError(t, err, "upload", context.Canceled)
			}
		}
		if n := f.count("UploadPart"); failures != 1 || n != 3 {
			t.Errorf("%d failed, %d parts were sent", failures, n)
		}
	})
}

// Another process finishes the object, or aborts the upload, while we send.
func TestSomebodyElseMeanwhile(t *testing.T) {
	data := content(1, threeParts)
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		var done atomic.Bool
		f.gate = func(r request) {
			if r.op != "UploadPart" || r.part != 3 || isProbe(r) || !done.CompareAndSwap(false, true) {
				return
			}
			other := f.another(t, nil)
			if _, err := other.Upload(t.Context(), upload("a", data, 5*mib)); err != nil {
				t.Error(err)
			}
		}
		mustUpload(t, f, s, upload("a", data, 5*mib), data)
	})
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		f.gate = func(r request) {
			if r.op == "UploadPart" && r.part == 3 && !isProbe(r) {
				for p, err := range s.Uploads(t.Context(), "") {
					if err != nil || p.Key != "a" {
						t.Errorf("%+v, %v", p, err)
					}
					if err := s.Abort(t.Context(), p); err != nil {
						t.Error(err)
					}
				}
			}
		}
		_, err := s.Upload(t.Context(), upload("a", data, 5*mib))
		wantError(t, err, "upload", nil)
		if !strings.Contains(err.Error(), "NoSuchUpload") || errors.Is(err, objstore.ErrNotExist) || f.object("a") != nil {
			t.Errorf("an aborted upload: %v", err)
		}
	})
}

// What earlier tries left, and the service cannot complete, is not resumed for
// ever, however many there are: versitygw makes an upload anew, without what it
// was created with, when a part arrives after it was aborted.
func TestUploadsThatCannotBeCompleted(t *testing.T) {
	for _, c := range []struct {
		name         string
		fault        fault
		failed, sent int // Uploads that fail before one succeeds; parts sent by them all
	}{
		{"refused", fault{kind: failBefore, status: 400, code: "InvalidPart"}, 0, 2 + 3},
		// The first time a failure may pass.
		{"failing", fault{kind: failBefore}, 1, 2 + 3},
		{"ghosts", fault{}, 0, 2 + 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
				data := content(1, threeParts)
				ghosts := []string{"upload-ghost-1", "upload-ghost-2", "upload-ghost-3", "upload-ghost-4"}
				for _, id := range ghosts {
					f.left("a", id, map[int][]byte{1: data[:5*mib]})
					f.uploads[id].ghost = c.name == "ghosts"
				}
				f.set(func(r request) fault {
					if r.op == "CompleteMultipartUpload" && slices.Contains(ghosts, r.query.Get("uploadId")) {
						return c.fault
					}
					return fault{}
				})
				for range c.failed {
					_, err := s.Upload(t.Context(), upload("a", data, 5*mib))
					wantError(t, err, "upload", nil)
				}
				mustUpload(t, f, s, upload("a", data, 5*mib), data)
				if parts := len(f.requests("UploadPart")); parts != c.sent {
					t.Errorf("%d parts were sent, want %d", parts, c.sent)
				}
				if _, uploads := f.names(); uploads != 0 {
					t.Errorf("%d uploads are left", uploads)
				}
			})
		})
	}
}

// A part that arrives after its upload was aborted keeps the upload alive: it is
// aborted once more.
func TestPartBehindAbort(t *testing.T) {
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		data := content(1, threeParts)
		var once sync.Once
		f.set(func(r request) fault {
			if r.op == "ListParts" { // the first thing behind the abort
				once.Do(func() { f.appears("a", r.query.Get("uploadId"), map[int][]byte{1: data[:5*mib]}) })
			}
			return fault{}
		})
		req := upload("a", data, 5*mib)
		cause := errors.New("the disk is on fire")
		req.Body = readerAt(func(p []byte, off int64) (int, error) {
			if off > 5*mib {
				return 0, cause
			}
			return bytes.NewReader(data).ReadAt(p, off)
		})
		_, err := s.Upload(t.Context(), req)
		wantError(t, err, "upload", cause)
		if _, uploads := f.names(); uploads != 0 {
			t.Errorf("%d uploads are left", uploads)
		}
		if n := len(f.requests("AbortMultipartUpload")); n != 2 {
			t.Errorf("%d aborts, want 2", n)
		}
	})
}
