package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Request is one that a Proxy was sent.
type Request struct {
	Op   string // S3's name of it: UploadPart, CompleteMultipartUpload and so on
	Key  string // in the bucket, with the store's prefix
	Part int    // from 1, for UploadPart
	Size int64  // of its body in bytes
}

// operation tells the S3 operation of a request from its form.
func operation(r *http.Request) Request {
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q := r.URL.Query()
	part, _ := strconv.Atoi(q.Get("partNumber")) // 0 if there is none
	req := Request{Key: key, Part: part, Size: r.ContentLength}
	switch {
	case r.Method == http.MethodPut && q.Has("partNumber"):
		req.Op = "UploadPart"
	case r.Method == http.MethodPut:
		req.Op = "PutObject"
	case r.Method == http.MethodPost && q.Has("uploads"):
		req.Op = "CreateMultipartUpload"
	case r.Method == http.MethodPost && q.Has("uploadId"):
		req.Op = "CompleteMultipartUpload"
	case r.Method == http.MethodPost && q.Has("delete"):
		req.Op = "DeleteObjects"
	case r.Method == http.MethodDelete && q.Has("uploadId"):
		req.Op = "AbortMultipartUpload"
	case r.Method == http.MethodDelete:
		req.Op = "DeleteObject"
	case r.Method == http.MethodHead:
		req.Op = "HeadObject"
	case q.Has("uploadId"):
		req.Op = "ListParts"
	case q.Has("uploads"):
		req.Op = "ListMultipartUploads"
	case q.Has("list-type"):
		req.Op = "ListObjectsV2"
	case q.Has("attributes"):
		req.Op = "GetObjectAttributes"
	default:
		req.Op = "GetObject"
	}
	return req
}

// Moment is when a fault strikes a request.
type Moment int

const (
	// Never: the request is passed on unhurt.
	Never Moment = iota
	// Before a byte of it reaches the server.
	Before
	// Inside its body, behind the first half.
	Inside
	// After the server has answered; the client does not hear of it.
	After
)

// Action is what a Proxy does with a request. The zero Action passes it on.
type Action struct {
	// When Do, if not nil, is called; then the client's connection is cut. A
	// request that ends before that moment comes is not struck.
	When Moment
	Do   func()

	// End, if not nil, is called last, when the request has been dealt with.
	End func(struck bool)

	// Answer, if not nil, answers in the server's place.
	Answer http.HandlerFunc
}

// Proxy stands before a server, at an address of its own.
type Proxy struct {
	server *httptest.Server
	back   *httputil.ReverseProxy

	mu   sync.Mutex
	hook func(Request) Action // guarded by mu
	sent map[string]int64     // guarded by mu
	ops  map[string]int       // guarded by mu
}

// Front starts a proxy before a server, with the same scheme and certificate.
func Front(t testing.TB, s *Server) *Proxy {
	t.Helper()
	target, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	if s.secure {
		transport.TLSClientConfig = &tls.Config{RootCAs: s.cert.pool}
	}
	p := &Proxy{sent: map[string]int64{}, ops: map[string]int{}}
	p.back = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // it is signed
		},
		Transport: transport,
		ModifyResponse: func(r *http.Response) error {
			if s, ok := r.Request.Context().Value(strikeKey{}).(*strike); ok && s.action.When == After {
				s.do()
				return errStruck
			}
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     log.New(io.Discard, "", 0),
	}
	p.server = httptest.NewUnstartedServer(p)
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if s.secure {
		p.server.TLS = &tls.Config{Certificates: []tls.Certificate{s.cert.load(t)}}
		p.server.StartTLS()
	} else {
		p.server.Start()
	}
	t.Cleanup(func() {
		p.server.CloseClientConnections()
		p.server.Close()
		transport.CloseIdleConnections()
	})
	return p
}

// URL is the proxy's endpoint.
func (p *Proxy) URL() string { return p.server.URL }

// Hook has every request from now on shown to f, which says what to do with it;
// nil passes all on. f is called from many goroutines.
func (p *Proxy) Hook(f func(Request) Action) {
	p.mu.Lock()
	p.hook = f
	p.mu.Unlock()
}

// Sent returns how many bytes of objects were sent to keys that end with suffix,
// by PutObject and UploadPart, whether or not they were stored.
func (p *Proxy) Sent(suffix string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	var n int64
	for key, sent := range p.sent {
		if strings.HasSuffix(key, suffix) {
			n += sent
		}
	}
	return n
}

// Count returns how many requests of an operation there were.
func (p *Proxy) Count(op string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ops[op]
}

// strikeKey is the key under which a request's context has its strike.
type strikeKey struct{}

// strike is the action for one request.
type strike struct {
	action Action
	once   sync.Once
	struck atomic.Bool
}

func (s *strike) do() {
	s.once.Do(func() {
		s.struck.Store(true)
		if s.action.Do != nil {
			s.action.Do()
		}
	})
}

var errStruck = errors.New("struck by a test")

// ServeHTTP passes a request on, or does what the hook says.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req := operation(r)
	p.mu.Lock()
	p.ops[req.Op]++
	hook := p.hook
	p.mu.Unlock()
	s := &strike{}
	if hook != nil {
		s.action = hook(req)
	}
	if s.action.End != nil {
		defer func() { s.action.End(s.struck.Load()) }()
	}
	if s.action.Answer != nil {
		_, _ = io.Copy(io.Discard, r.Body) // the client may have gone
		s.action.Answer(w, r)
		return
	}
	if s.action.When == Before {
		s.do()
		panic(http.ErrAbortHandler)
	}
	body := &countedBody{ReadCloser: r.Body, limit: -1, strike: s}
	if req.Op == "UploadPart" || req.Op == "PutObject" {
		body.count = func(n int) {
			p.mu.Lock()
			p.sent[req.Key] += int64(n)
			p.mu.Unlock()
		}
	}
	if s.action.When == Inside {
		body.limit = req.Size / 2
		if req.Size <= 0 { // there is no inside
			s.action.When = After
		}
	}
	r.Body = body
	p.back.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), strikeKey{}, s)))
}

// countedBody counts what is read of a request's body, and strikes inside it.
type countedBody struct {
	io.ReadCloser

	count  func(int) // nil: nothing is counted
	read   int64
	limit  int64 // strikes at this byte; -1 never
	strike *strike
}

// Read reads, counts and strikes.
func (b *countedBody) Read(p []byte) (int, error) {
	if b.limit >= 0 {
		left := b.limit - b.read
		if left <= 0 {
			b.strike.do()
			return 0, errStruck
		}
		p = p[:min(int64(len(p)), left)]
	}
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if b.count != nil && n > 0 {
		b.count(n)
	}
	return n, err
}
