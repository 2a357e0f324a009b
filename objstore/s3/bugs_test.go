package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/s3"
)

// Each test here is a bug that somebody had, in a client or with a service.

const threeParts = 11 * mib // in parts of 5 MiB

func TestCancelAbortsOnceOnAFreshContext(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprint("keep=", keep), func(t *testing.T) {
			inBubble(t, dialect{}, func(o *s3.Options) {
				if keep {
					o.OnCancel = s3.KeepUpload
				}
			}, func(t *testing.T, f *fake, s *s3.Store) {
				data := content(1, threeParts)
				req := upload("a", data, 5*mib)
				ctx, cancel := context.WithCancel(t.Context())
				req.Confirmed = func(objstore.PartEvidence) { cancel() } // after the first part
				begin := time.Now()
				_, err := s.Upload(ctx, req)
				wantError(t, err, "upload", context.Canceled)
				if took := time.Since(begin); took > time.Second {
					t.Errorf("it took %v to leave", took)
				}
				want := 1
				if keep {
					want = 0
				}
				if n := f.count("AbortMultipartUpload"); n != want {
					t.Errorf("%d aborts, want %d", n, want)
				}
				if _, uploads := f.names(); uploads != 1-want || f.object("a") != nil {
					t.Errorf("%d uploads are left, object of %d bytes", uploads, len(f.object("a")))
				}
				mustUpload(t, f, s, upload("a", data, 5*mib), data)
			})
		})
	}
}

func TestFailedAbortNamesTheUploadAndTheCause(t *testing.T) {
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		f.set(func(r request) fault {
			if r.op == "AbortMultipartUpload" && !isProbe(r) {
				return fault{kind: failBefore, status: 503, code: "SlowDown"}
			}
			return fault{}
		})
		ctx, cancel := context.WithCancel(t.Context())
		req := upload("a", content(1, threeParts), 5*mib)
		req.Confirmed = func(objstore.PartEvidence) { cancel() }
		_, err := s.Upload(ctx, req)
		wantError(t, err, "upload", context.Canceled)
		if text := err.Error(); !strings.Contains(text, "upload-00") || !strings.Contains(text, "SlowDown") {
			t.Errorf("neither the upload nor the cause is named: %v", err)
		}
		if errors.Is(err, objstore.ErrThrottled) {
			t.Error("that the abort was throttled is no reason to repeat the upload")
		}
	})
}

func TestFirstErrorCancelsSiblingsAndIsReported(t *testing.T) {
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		f.set(func(r request) fault {
			switch {
			case r.op == "UploadPart" && r.part == 2 && !isProbe(r):
				return fault{kind: failBefore, status: 403, code: "AccessDenied"}
			case r.op == "UploadPart" && !isProbe(r):
				return fault{kind: stallAsked}
			}
			return fault{}
		})
		begin := time.Now()
		_, err := s.Upload(t.Context(), upload("a", content(1, threeParts), 5*mib))
		wantError(t, err, "upload", objstore.ErrRefused)
		if !strings.Contains(err.Error(), "s3:PutObject") {
			t.Errorf("the action that is denied is not named: %v", err)
		}
		var e *objstore.Error
		if errors.As(err, &e); e.Off != 5*mib || e.Len != 5*mib {
			t.Errorf("the part that failed is bytes [%d,%d), named are [%d,%d)", 5*mib, 10*mib, e.Off, e.Off+e.Len)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("slow siblings held it for %v", took)
		}
	})
}

// What may pass does not throw away what is on its way: the other parts finish
// and are there for the next try.
func TestPassingFaultLetsSiblingsFinish(t *testing.T) {
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		data := content(1, threeParts)
		f.set(only("UploadPart", 1, fault{kind: failBefore, status: 503, code: "SlowDown", retryAfter: "7000"}))
		// The others are on their way when the first is refused, and answered only
		// after it: parts that were not begun would not be sent any more.
		f.gate = func(r request) {
			switch {
			case r.op == "UploadPart" && r.nth == 1 && !isProbe(r):
				<-time.After(100 * time.Millisecond)
			case r.op == "UploadPart" && !isProbe(r):
				<-time.After(time.Second)
			}
		}
		_, err := s.Upload(t.Context(), upload("a", data, 5*mib))
		wantError(t, err, "upload", objstore.ErrThrottled)
		var e *objstore.Error
		if errors.As(err, &e); e.RetryAfter != 7*time.Second {
			t.Errorf("retry after %v, the service said 7s", e.RetryAfter)
		}
		sent := f.count("UploadPart")
		mustUpload(t, f, s, upload("a", data, 5*mib), data)
		if n, begun := f.count("UploadPart"), f.count("CreateMultipartUpload"); sent != 3 || n != 4 || begun != 1 {
			t.Errorf("%d parts sent at first, %d in all, 3 there are; %d uploads begun, 1 is enough", sent, n, begun)
		}
	})
}

// ClickHouse, SeaweedFS, MinIO: that something lies under the key is no proof.
func TestAmbiguousOutcomes(t *testing.T) {
	data, foreign := content(1, threeParts), content(2, threeParts)
	for _, d := range dialects()[:soak(3, len(dialects()))] {
		for _, c := range []struct {
			name string
			what fault
		}{
			{"lost answer", fault{kind: cutAfter}},
			{"late answer", fault{kind: stallAfter}},
			{"error after the effect", fault{kind: failAfter, status: 500, code: "InternalError"}},
			{"throttled after the effect", fault{kind: failAfter, status: 503, code: "SlowDown"}},
			{"no such upload after the effect", fault{kind: failAfter, status: 404, code: "NoSuchUpload"}},
			{"exists after the effect", fault{kind: failAfter, status: 412, code: "PreconditionFailed"}},
			{"conflict after the effect", fault{kind: failAfter, status: 409, code: "ConditionalRequestConflict"}},
			{"error inside 200 after the effect", fault{kind: okErrorDone}},
			{"broken answer", fault{kind: cutAnswer, at: 20}},
		} {
			for size, op := range map[int]string{threeParts: "CompleteMultipartUpload", mib: "PutObject"} {
				t.Run(d.name+"/"+c.name+"/"+op, func(t *testing.T) {
					inBubble(t, d, nil, func(t *testing.T, f *fake, s *s3.Store) {
						f.set(only(op, 1, c.what))
						ev := mustUpload(t, f, s, upload("a", data[:size], 5*mib), data[:size])
						if ev.Existed && !d.noMeta {
							t.Error("it says that the object was there before")
						}
						if n := f.count("AbortMultipartUpload"); n > 0 {
							for _, r := range f.requests("AbortMultipartUpload") {
								if r.status == 204 {
									t.Error("a live upload was aborted")
								}
							}
						}
					})
					if d.noCondition || d.refuseIfNone {
						return
					}
					// The same, but somebody else's object appears in its place.
					inBubble(t, d, nil, func(t *testing.T, f *fake, s *s3.Store) {
						f.gate = func(r request) {
							if r.op == op && !isProbe(r) {
								f.mu.Lock()
								f.objects["logs/a"] = &fakeObject{data: foreign[:size], etag: `"foreign"`, meta: map[string]string{"segtier-token": "another"}}
								f.mu.Unlock()
							}
						}
						f.set(only(op, 1, c.what))
						_, err := s.Upload(t.Context(), upload("a", data[:size], 5*mib))
						wantError(t, err, "upload", objstore.ErrConflict)
						if _, uploads := f.names(); uploads != 0 || !bytes.Equal(f.object("a"), foreign[:size]) {
							t.Errorf("%d uploads are left, or the other object is not", uploads)
						}
					})
				})
			}
		}
	}
}

// A write that did not take effect is an error, and what was sent stays for the
// next try.
func TestFailedCompleteKeepsTheParts(t *testing.T) {
	for _, what := range []fault{
		{kind: okError},
		{kind: failBefore, status: 500, code: "InternalError"},
		{kind: cutBefore},
		{kind: stallAsked},
	} {
		inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
			f.set(only("CompleteMultipartUpload", 1, what))
			data := content(1, threeParts)
			_, err := s.Upload(t.Context(), upload("a", data, 5*mib))
			wantError(t, err, "upload", nil)
			if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("nobody has cancelled anything: %v", err)
			}
			if f.object("a") != nil || f.count("AbortMultipartUpload") > 0 {
				t.Error("there is an object, or an abort")
			}
			mustUpload(t, f, s, upload("a", data, 5*mib), data)
			if got := f.partNumbers(); !slices.Equal(got, []int{1, 2, 3}) {
				t.Errorf("parts %v were sent, each once is enough", got)
			}
		})
	}
}

// A caller that leaves while Complete is under way: what is done is found out, and
// what is not is aborted.
func TestLeavingDuringComplete(t *testing.T) {
	for _, kind := range []faultKind{stallAfter, stallAsked} {
		inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
			ctx, cancel := context.WithCancel(t.Context())
			f.set(func(r request) fault {
				if r.op == "CompleteMultipartUpload" && !isProbe(r) {
					time.AfterFunc(time.Second, cancel)
					return fault{kind: kind}
				}
				return fault{}
			})
			data := content(1, threeParts)
			ev, err := s.Upload(ctx, upload("a", data, 5*mib))
			_, uploads := f.names()
			switch {
			case uploads != 0:
				t.Errorf("%d uploads are left", uploads)
			case kind == stallAfter && (err != nil || ev.Size != threeParts || !bytes.Equal(f.object("a"), data)):
				t.Errorf("it is done, but %v", err)
			case kind == stallAsked:
				wantError(t, err, "upload", context.Canceled)
			}
		})
	}
}

// Parts that wait for a slot give up when another part has failed, however long
// the slots are taken.
func TestFailedPartWakesThoseThatWaitForSlots(t *testing.T) {
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		f.set(only("UploadPart", 1, fault{kind: failBefore, status: 500, code: "InternalError"}))
		req := upload("a", content(1, threeParts), 5*mib)
		free := make(chan struct{}, 1)
		free <- struct{}{}
		req.Slots = func(ctx context.Context, _ int64) (func(), error) {
			select {
			case <-free:
				return func() {}, nil // others have taken it since
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		_, err := s.Upload(t.Context(), req)
		wantError(t, err, "upload", nil)
		if errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "InternalError") {
			t.Errorf("the first error is not the one reported: %v", err)
		}
	})
}

// That an object just written is not there is no answer to "does it exist": the
// write may be repeated.
func TestWrittenObjectThatIsNotThere(t *testing.T) {
	for size, nth := range map[int]int{mib: 2, threeParts: 2} {
		inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
			f.set(only("HeadObject", nth, fault{kind: failBefore, status: 404}))
			_, err := s.Upload(t.Context(), upload("a", content(1, size), 5*mib))
			wantError(t, err, "upload", nil)
			if errors.Is(err, objstore.ErrNotExist) {
				t.Errorf("nobody would try again: %v", err)
			}
			mustUpload(t, f, s, upload("a", content(1, size), 5*mib), content(1, size))
		})
	}
}

// While the outcome cannot be found out, nothing is aborted.
func TestUnresolvedOutcomeAbortsNothing(t *testing.T) {
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		completed := false // under the fake's lock
		f.set(func(r request) fault {
			switch {
			case r.op == "CompleteMultipartUpload" && !isProbe(r):
				completed = true
				cancel()
				return fault{kind: stallAfter}
			case completed && r.op == "HeadObject":
				return fault{kind: stallAsked}
			}
			return fault{}
		})
		begin := time.Now()
		_, err := s.Upload(ctx, upload("a", content(1, threeParts), 5*mib))
		wantError(t, err, "upload", context.Canceled)
		if n := f.count("AbortMultipartUpload"); n > 0 {
			t.Errorf("%d aborts although the outcome is unknown", n)
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("it took %v to leave a service that hangs", took)
		}
	})
}

// AutoMQ retried NoSuchUpload for ever; S3's 409 never succeeds with the same
// upload. One call gives up, the next begins anew, and package endpoint bounds
// how many there are.
func TestLostUploadBeginsAnew(t *testing.T) {
	t.Run("no such upload on a part", func(t *testing.T) {
		inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
			f.gate = func(r request) {
				if r.op == "UploadPart" && r.part == 3 && r.nth <= 3 && !isProbe(r) {
					f.mu.Lock()
					clear(f.uploads)
					f.mu.Unlock()
				}
			}
			throughEndpoint(t, f, s)
			if n := f.count("CreateMultipartUpload"); n != 2 {
				t.Errorf("%d uploads were created, want 2", n)
			}
		})
	})
	t.Run("conflict on complete", func(t *testing.T) {
		inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
			first := ""
			f.set(func(r request) fault {
				if r.op != "CompleteMultipartUpload" || isProbe(r) {
					return fault{}
				}
				if first == "" {
					first = r.query.Get("uploadId")
				}
				if r.query.Get("uploadId") == first {
					return fault{kind: failBefore, status: 409, code: "ConditionalRequestConflict"}
				}
				return fault{}
			})
			throughEndpoint(t, f, s)
			if creates, parts := f.count("CreateMultipartUpload"), f.count("UploadPart"); creates != 2 || parts != 6 {
				t.Errorf("%d uploads with %d parts, want 2 with 6", creates, parts)
			}
		})
	})
	t.Run("for ever", func(t *testing.T) {
		inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
			f.set(func(r request) fault {
				if r.op == "UploadPart" && !isProbe(r) {
					return fault{kind: failBefore, status: 404, code: "NoSuchUpload"}
				}
				return fault{}
			})
			ep := newEndpoint(t, s)
			_, err := ep.Upload(t.Context(), upload("a", content(1, threeParts), 5*mib))
			wantError(t, err, "upload", nil)
			if n := f.count("CreateMultipartUpload"); n > 4 {
				t.Errorf("%d uploads were created", n)
			}
		})
	})
}

func newEndpoint(t *testing.T, s objstore.Store) *endpoint.Endpoint {
	t.Helper()
	ep, err := endpoint.New(s, endpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ep.Close() })
	return ep
}

func throughEndpoint(t *testing.T, f *fake, s *s3.Store) {
	t.Helper()
	data := content(1, threeParts)
	if _, err := newEndpoint(t, s).Upload(t.Context(), upload("a", data, 5*mib)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(f.object("a"), data) {
		t.Error("the object has other bytes")
	}
}

// The SDK's retry budget ends after 35 failures of all requests together.
func TestTotalOutageIsSurvived(t *testing.T) {
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		data := content(1, 1000)
		mustUpload(t, f, s, upload("first", data, mib), data)
		until := time.Now().Add(5 * time.Second)
		f.set(func(request) fault {
			if time.Now().Before(until) {
				return fault{kind: failBefore, status: 503, code: "SlowDown"}
			}
			return fault{}
		})
		ep := newEndpoint(t, s)
		errs := make(chan error, 64)
		for i := range 64 {
			go func() {
				_, err := ep.Upload(t.Context(), upload(fmt.Sprintf("w/%d", i), data, mib))
				errs <- err
			}()
		}
		for range 64 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestResetInsideABodyIsSentAgain(t *testing.T) {
	for _, op := range []string{"UploadPart", "PutObject"} {
		inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
			f.set(only(op, 1, fault{kind: cutInside, at: 100_000}))
			data := content(1, threeParts)
			if op == "PutObject" {
				data = data[:mib]
			}
			if _, err := newEndpoint(t, s).Upload(t.Context(), upload("a", data, 5*mib)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(f.object("a"), data) {
				t.Error("the object has other bytes")
			}
		})
	}
}

// A source that is not what was summed, that ends early, or cannot be read, makes
// no object, whatever the service checks; one that goes on behind its end is cut
// there.
func TestSourceThatChanges(t *testing.T) {
	data := content(1, threeParts)
	broken := errors.New("the disk is gone")
	for _, d := range []dialect{{name: "aws"}, {name: "trusting", blind: true, noSize: true}} {
		for _, size := range []int{threeParts, mib} {
			for name, c := range map[string]struct {
				body io.ReaderAt
				want error
			}{
				"shrinks":    {bytes.NewReader(data[:size-1000]), io.ErrUnexpectedEOF},
				"is emptied": {bytes.NewReader(nil), io.ErrUnexpectedEOF},
				"changes": {readerAt(func(p []byte, off int64) (int, error) {
					n, err := bytes.NewReader(data).ReadAt(p, off)
					p[0] ^= 1
					return n, err
				}), objstore.ErrCorrupt},
				"breaks": {readerAt(func([]byte, int64) (int, error) { return 0, broken }), broken},
			} {
				t.Run(fmt.Sprint(d.name, "/", size, "/", name), func(t *testing.T) {
					inBubble(t, d, nil, func(t *testing.T, f *fake, s *s3.Store) {
						req := upload("a", data[:size], 5*mib)
						req.Body = c.body
						_, err := s.Upload(t.Context(), req)
						wantError(t, err, "upload", c.want)
						if _, uploads := f.names(); f.object("a") != nil || uploads > 0 {
							t.Errorf("an object of %d bytes, %d uploads", len(f.object("a")), uploads)
						}
						req.Body = bytes.NewReader(append(bytes.Clone(data[:size]), "and more"...))
						mustUpload(t, f, s, req, data[:size])
					})
				})
			}
		}
	}
}

// manager takes a body's position for 0; SectionReaders have a base of their own.
func TestBodyOfALargerFile(t *testing.T) {
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		file := content(1, threeParts)
		data := file[1000 : 1000+7*mib]
		section := io.NewSectionReader(bytes.NewReader(file), 1000, 7*mib)
		if _, err := section.Seek(3*mib, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		req := upload("a", data, 5*mib)
		req.Body = section
		mustUpload(t, f, s, req, data)
	})
}

// What goes over the wire, header by header.
func TestWire(t *testing.T) {
	shape := func(o *s3.Options) {
		o.StorageClass, o.SSE, o.KMSKeyID, o.ExpectedBucketOwner = "STANDARD_IA", "aws:kms", "key-1", "123456789012"
		o.Tags = map[string]string{"team": "data & logs"}
	}
	inBubble(t, dialect{}, shape, func(t *testing.T, f *fake, s *s3.Store) {
		data := content(1, threeParts)
		mustUpload(t, f, s, upload("a", data, 5*mib), data)
		mustUpload(t, f, s, upload("b", data[:10], 5*mib), data[:10])
		if _, err := s.Stat(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		if err := s.Delete(t.Context(), "a", "b", "c"); err != nil {
			t.Error(err)
		}
		for _, r := range f.requests("") {
			want := map[string]string{"X-Amz-Expected-Bucket-Owner": "123456789012", "Expect": "", "Content-Encoding": "", "X-Amz-Trailer": "", "X-Amz-Sdk-Checksum-Algorithm": ""}
			created := map[string]string{
				"X-Amz-Storage-Class": "STANDARD_IA", "X-Amz-Server-Side-Encryption": "aws:kms", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "key-1",
				"X-Amz-Tagging": "team=data+%26+logs", "X-Amz-Meta-Segtier-Token": "token-of-" + strings.TrimPrefix(r.key, "logs/"),
			}
			switch r.op {
			case "CreateMultipartUpload":
				created["X-Amz-Checksum-Algorithm"] = "CRC32C"
			case "PutObject":
				created["If-None-Match"], created["X-Amz-Content-Sha256"] = "*", "UNSIGNED-PAYLOAD"
			case "UploadPart":
				want["X-Amz-Content-Sha256"] = "UNSIGNED-PAYLOAD"
				created = nil
			case "CompleteMultipartUpload":
				want["If-None-Match"], want["X-Amz-Mp-Object-Size"] = "*", fmt.Sprint(threeParts)
				created = nil
			case "DeleteObjects":
				delete(want, "X-Amz-Sdk-Checksum-Algorithm")
				created = nil
			default:
				created = nil
			}
			for name, value := range created {
				want[name] = value
			}
			for name, value := range want {
				if got := r.header.Get(name); got != value {
					t.Errorf("%s: header %s is %q, want %q", r.op, name, got, value)
				}
			}
		}
		if n := f.count("CompleteMultipartUpload") + f.count("PutObject"); n != 2 {
			t.Errorf("%d objects were written", n)
		}
	})
}
