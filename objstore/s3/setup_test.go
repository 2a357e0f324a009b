package s3_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/s3"
)

// everyCall calls each method once and returns the errors by operation.
func everyCall(ctx context.Context, s *s3.Store) map[string]error {
	errs := map[string]error{}
	_, errs["stat"] = s.Stat(ctx, "a")
	_, body, err := s.Get(ctx, "a", 0, 1, objstore.GetOptions{})
	if err == nil {
		_ = body.Close()
	}
	errs["get"] = err
	_, errs["upload"] = s.Upload(ctx, upload("a", content(1, 100), mib))
	errs["delete"] = s.Delete(ctx, "a")
	errs["delete several"] = s.Delete(ctx, "a", "b")
	for _, err := range s.List(ctx, "", "") {
		errs["list"] = err
	}
	for _, err := range s.Uploads(ctx, "") {
		errs["uploads"] = err
	}
	errs["abort"] = s.Abort(ctx, objstore.Pending{Key: "a", ID: "x"})
	return errs
}

// What is set up wrongly is said at the first call, whichever it is: with what to
// do about it, without a credential, and in a way that nobody tries again.
func TestWrongSetups(t *testing.T) {
	f := newFake(dialect{region: "eu-test-1"})
	plain := f.serve(t)
	secure := httptest.NewUnstartedServer(f)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // it hears what it should not
	secure.StartTLS()
	t.Cleanup(secure.Close)
	for says, shape := range map[string]func(*s3.Options){
		"the access key or the secret key is wrong":  func(o *s3.Options) { o.AccessKeyID = "AKIAOTHER" },
		"the access key or the secret key is wrong ": func(o *s3.Options) { o.SecretAccessKey = sessionToken },
		"no bucket nobody":                           func(o *s3.Options) { o.Bucket = "nobody" },
		"in region eu-test-1":                        func(o *s3.Options) { o.Region = "us-east-1" },
		"the clock of this machine is off by 20m0s":  nil, // below
		"speaks plain HTTP":                          func(o *s3.Options) { o.Endpoint = strings.Replace(plain, "http://", "https://", 1) },
		"speaks TLS":                                 func(o *s3.Options) { o.Endpoint = strings.Replace(secure.URL, "https://", "http://", 1) },
		"name the authority that signed it":          func(o *s3.Options) { o.Endpoint = secure.URL },
	} {
		t.Run(says, func(t *testing.T) {
			var logged bytes.Buffer
			o := f.options(plain)
			o.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
			if shape == nil {
				f.now = func() time.Time { return time.Now().Add(-20 * time.Minute) }
				defer func() { f.now = time.Now }()
			} else {
				shape(&o)
			}
			s := open(t, o)
			for op, err := range everyCall(t.Context(), s) {
				if says == "speaks TLS" && err != nil && strings.Contains(err.Error(), "https://") {
					continue // it may cut the connection before it is understood
				}
				wantError(t, err, strings.TrimSuffix(op, " several"), objstore.ErrRefused)
				if err == nil {
					continue
				}
				noSecret(t, "error of "+op, fmt.Sprintf("%v %+v %#v", err, err, err))
				// HEAD has no body, so no code: the hint is less exact there.
				if op != "stat" && op != "upload" && !strings.Contains(err.Error(), strings.TrimSpace(says)) {
					t.Errorf("%s: %v, which does not say %q", op, err, says)
				}
			}
			noSecret(t, "log", logged.String())
		})
	}
}

func TestTrustedAuthorities(t *testing.T) {
	f := newFake(dialect{})
	server := httptest.NewTLSServer(f)
	t.Cleanup(server.Close)
	o := f.options(server.URL)
	o.RootCAs = x509.NewCertPool()
	o.RootCAs.AddCert(server.Certificate())
	s := open(t, o)
	data := content(1, threeParts)
	mustUpload(t, f, s, upload("a", data, 5*mib), data)
	for _, r := range f.requests("UploadPart") {
		if r.header.Get("X-Amz-Content-Sha256") != "UNSIGNED-PAYLOAD" || r.header.Get("X-Amz-Trailer") != "" {
			t.Errorf("over TLS: %v", r.header)
		}
	}
	_ = s.Close()
}

// No credentials anywhere: the chain is asked when the first request is made.
func TestNoCredentials(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir()+"/none")
	s := open(t, s3.Options{Bucket: "tier", Endpoint: "http://127.0.0.1:1", PathStyle: true})
	for op, err := range everyCall(t.Context(), s) {
		wantError(t, err, strings.TrimSuffix(op, " several"), objstore.ErrRefused)
		if err != nil && !strings.Contains(err.Error(), "no AWS credentials") {
			t.Errorf("%s: %v", op, err)
		}
	}
	if _, err := s3.Open(t.Context(), s3.Options{Bucket: "tier"}); err == nil || !strings.Contains(err.Error(), "no region") {
		t.Errorf("no region: %v", err)
	}
}

// Denied actions are named.
func TestDeniedActionsAreNamed(t *testing.T) {
	for op, action := range map[string]string{
		"GetObject": "s3:GetObject", "HeadObject": "s3:GetObject", "PutObject": "s3:PutObject", "DeleteObject": "s3:DeleteObject", "DeleteObjects": "s3:DeleteObject",
		"ListObjectsV2": "s3:ListBucket", "ListMultipartUploads": "s3:ListBucketMultipartUploads", "AbortMultipartUpload": "s3:AbortMultipartUpload",
	} {
		inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
			f.set(func(r request) fault {
				if r.op == op {
					return fault{kind: failBefore, status: 403, code: "AccessDenied"}
				}
				return fault{}
			})
			found := false
			for _, err := range everyCall(t.Context(), s) {
				var e *s3.ServiceError
				if errors.As(err, &e) && e.Operation == op {
					found = true
					if !errors.Is(err, objstore.ErrRefused) || !strings.Contains(err.Error(), action) || e.Status != 403 || e.RequestID == "" {
						t.Errorf("%s: %v", op, err)
					}
				}
			}
			if !found {
				t.Errorf("no call says that %s is denied", op)
			}
		})
	}
}

func TestReadOnly(t *testing.T) {
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		data := content(1, 100)
		mustUpload(t, f, s, upload("a", data, mib), data)
		before := len(f.requests(""))
		ro := f.another(t, func(o *s3.Options) { o.ReadOnly = true })
		for op, err := range everyCall(t.Context(), ro) {
			switch op {
			case "upload", "delete", "delete several", "abort":
				wantError(t, err, strings.TrimSuffix(op, " several"), objstore.ErrReadOnly)
			default:
				if err != nil {
					t.Errorf("%s: %v", op, err)
				}
			}
		}
		for _, r := range f.requests("")[before:] {
			if method := r.op; !strings.HasPrefix(method, "Get") && !strings.HasPrefix(method, "Head") && !strings.HasPrefix(method, "List") {
				t.Errorf("%s was asked for", r.op)
			}
		}
	})
}

// A bucket that is missing shows at HEAD too, which cannot say so itself, and
// costs one more request, once.
func TestMissingBucketShowsAtStat(t *testing.T) {
	inBubble(t, dialect{}, func(o *s3.Options) { o.Bucket = "nobody" }, func(t *testing.T, f *fake, s *s3.Store) {
		_, err := s.Stat(t.Context(), "a")
		wantError(t, err, "stat", objstore.ErrRefused)
		if err != nil && !strings.Contains(err.Error(), "no bucket nobody") {
			t.Error(err)
		}
	})
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		for range 3 {
			_, err := s.Stat(t.Context(), "a")
			wantError(t, err, "stat", objstore.ErrNotExist)
		}
		if n := f.count("HeadBucket"); n != 1 {
			t.Errorf("HeadBucket was asked %d times", n)
		}
	})
}

// Close ends what is under way, also where the service hangs, and waits for it.
func TestCloseWhileTheServiceHangs(t *testing.T) {
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		data := content(1, 100)
		mustUpload(t, f, s, upload("a", data, mib), data)
		_, body, err := s.Get(t.Context(), "a", 0, 100, objstore.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		f.set(func(request) fault { return fault{kind: stallAsked} })
		done := make(chan error, 3)
		go func() { _, err := s.Stat(context.WithoutCancel(t.Context()), "a"); done <- err }()
		go func() { done <- s.Delete(context.WithoutCancel(t.Context()), "a") }()
		go func() {
			_, err := s.Upload(context.WithoutCancel(t.Context()), upload("b", content(1, threeParts), 5*mib))
			done <- err
		}()
		time.AfterFunc(time.Second, func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		begin := time.Now()
		for range 3 {
			if err := <-done; !errors.Is(err, objstore.ErrClosed) {
				t.Errorf("%v, want %v", err, objstore.ErrClosed)
			}
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		if _, err := io.ReadAll(body); !errors.Is(err, objstore.ErrClosed) {
			t.Errorf("a body open at Close reads on: %v", err)
		}
		_ = body.Close()
	})
}

// A service that hangs is given up after a while, and that is no cancellation.
func TestStalls(t *testing.T) {
	for _, op := range []string{"HeadObject", "PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "ListMultipartUploads"} {
		inBubble(t, dialect{}, func(o *s3.Options) { o.StallTimeout = 10 * time.Second }, func(t *testing.T, f *fake, s *s3.Store) {
			f.set(func(r request) fault {
				if r.op == op {
					return fault{kind: stallAsked}
				}
				return fault{}
			})
			begin := time.Now()
			_, err := s.Upload(t.Context(), upload("a", content(1, threeParts), 5*mib))
			wantError(t, err, "upload", nil)
			if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || err != nil && !strings.Contains(err.Error(), "no progress") {
				t.Errorf("%s: %v", op, err)
			}
			if took := time.Since(begin); took > 2*time.Minute {
				t.Errorf("%s: it took %v", op, took)
			}
		})
	}
}

// A slow body is no stall, however long it takes in all.
func TestSlowIsNoStall(t *testing.T) {
	for _, size := range []int{mib, threeParts} {
		inBubble(t, dialect{}, func(o *s3.Options) { o.StallTimeout = 10 * time.Second }, func(t *testing.T, f *fake, s *s3.Store) {
			data := content(1, size)
			req := upload("a", data, 5*mib)
			req.Body = readerAt(func(p []byte, off int64) (int, error) {
				<-time.After(4 * time.Second)
				return bytes.NewReader(data).ReadAt(p, off)
			})
			begin := time.Now()
			mustUpload(t, f, s, req, data)
			if took := time.Since(begin); took < 20*time.Second {
				t.Errorf("it took %v: too quick to tell anything", took)
			}
		})
	}
}

// The transport is for parallel ranges of bytes as they are stored.
func TestTransport(t *testing.T) {
	const wave = 16
	opened := make(chan net.Conn, 1000)
	f := newFake(dialect{})
	// All reads of a wave are at the server before one is answered: each holds a
	// connection of its own, none gets another's. (One that does leaves the
	// connection it had begun to dial to nobody, and how many do depends on how
	// quickly the machine dials.)
	var arrived, others atomic.Int64
	var waves [3]chan struct{}
	for i := range waves {
		waves[i] = make(chan struct{})
	}
	f.gate = func(r request) {
		if r.op != "GetObject" || strings.Contains(r.key, ".segtier-probe/") {
			others.Add(1)
			return
		}
		n := int(arrived.Add(1)) - 1
		if n >= wave*len(waves) {
			return // reads were repeated, and the test has failed
		}
		if n%wave == wave-1 {
			close(waves[n/wave])
		}
		<-waves[n/wave]
	}
	server := httptest.NewUnstartedServer(f)
	server.EnableHTTP2 = true
	server.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened <- c
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	o := f.options(server.URL)
	o.RootCAs = x509.NewCertPool()
	o.RootCAs.AddCert(server.Certificate())
	s := open(t, o)
	data := content(1, 3*mib)
	mustUpload(t, f, s, upload("a", data, mib), data)
	first := 0
	for i := range waves {
		errs := make(chan error, wave)
		for i := range wave {
			go func() {
				_, body, err := s.Get(context.Background(), "a", int64(i)*1000, mib, objstore.GetOptions{})
				if err == nil {
					_, err = io.Copy(io.Discard, body)
					_ = body.Close()
				}
				errs <- err
			}()
		}
		for range wave {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if i == 0 {
			first = len(opened)
		}
	}
	// What the probe and the upload have begun to dial may come late.
	late := int(others.Load())
	if n := len(opened); n > wave+late {
		t.Errorf("%d connections for three waves of %d requests, %d of them for the first; %d requests before them", n, wave, first, late)
	}
	if n := arrived.Load(); n != int64(wave*len(waves)) {
		t.Errorf("%d reads for %d", n, wave*len(waves))
	}
	for _, r := range f.requests("GetObject") {
		if r.proto != "HTTP/1.1" || r.header.Get("Accept-Encoding") != "identity" {
			t.Errorf("%s, accepting %q", r.proto, r.header.Get("Accept-Encoding"))
		}
	}
	_ = s.Close()
}
