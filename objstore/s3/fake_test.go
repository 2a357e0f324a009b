package s3_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/segtier/segtier/objstore/s3"
)

// fake is S3 in memory, as strict as AWS was recorded to be, with dialects of
// other services and with faults. It checks every signature.
type fake struct {
	dialect
	// plan decides what goes wrong with a request; nil is nothing. It is called
	// under mu.
	plan func(request) fault
	// gate, if not nil, is called with each request before it has its effect.
	gate func(request)
	now  func() time.Time

	mu      sync.Mutex
	objects map[string]*fakeObject // guarded by mu
	uploads map[string]*fakeUpload // by id; guarded by mu
	done    map[string]string      // completed upload ids and their keys; guarded by mu
	seq     int                    // guarded by mu
	log     []request              // guarded by mu
	stop    chan struct{}
	client  *http.Client // of pipeClient
}

// dialect says where a service differs from AWS.
type dialect struct {
	name          string
	blind         bool // verifies no checksum
	noEcho        bool // answers without checksums
	noListCRC     bool // lists parts without checksums
	listTwice     bool // lists a part that was sent again twice
	noCondition   bool // ignores If-None-Match
	refuseIfNone  bool // answers 501 to If-None-Match
	noSize        bool // ignores the announced size of a multipart object
	noHeadCRC     bool // HEAD shows no checksum
	noAttributes  bool // GetObjectAttributes lists no parts
	suffix        bool // the attributes show the composite sum with its suffix
	noReplay      bool // a second Complete is NoSuchUpload
	replay412     bool // a second Complete finds its own object in the way
	noMeta        bool // forgets user metadata
	noHeaders     bool // refuses checksum headers
	forgets       bool // an object written is not there
	framing       bool // stores other bytes than it was sent
	ignoresRange  bool
	noSuffix      bool // HEAD shows a composite sum without its suffix
	listsAll      bool // ignores what a listing is to begin with and behind
	misassembles  bool // makes the object of the parts in another order
	listsOther    bool // lists another sum for part 2
	noListing     bool // of unfinished uploads
	noBatchDelete bool
	pageSize      int // of listings; 0 is 1000
	stuckMarker   bool
	region        string
}

const (
	bucket    = "tier"
	accessKey = "AKIAFAKEACCESSKEY"
	secretKey = "fakesecretfakesecretfakesecret"
)

type fakeObject struct {
	data     []byte
	etag     string
	meta     map[string]string
	crc      string // as shown
	kind     string // FULL_OBJECT, COMPOSITE
	parts    []fakePart
	modified time.Time
}

type fakePart struct {
	number int
	data   []byte
	etag   string
	crc    string
}

type fakeUpload struct {
	ghost   bool // has forgotten that it is of CRC32C: keeps no sums, and cannot be completed
	key     string
	meta    map[string]string
	parts   map[int]fakePart
	again   []fakePart // sent before by the same number
	started time.Time
	seq     int
}

// request is one request as the fake saw it.
type request struct {
	op     string
	key    string
	part   int
	nth    int // of this op, from 1
	header http.Header
	proto  string
	query  url.Values
	bytes  int64 // of the body, as far as it was read
	status int   // that was answered, 0 if none
	fault  fault
}

func newFake(d dialect) *fake {
	f := &fake{dialect: d, now: time.Now, stop: make(chan struct{})}
	f.reset()
	return f
}

// reset forgets everything.
func (f *fake) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.objects, f.uploads, f.done = map[string]*fakeObject{}, map[string]*fakeUpload{}, map[string]string{}
	f.log = nil
}

// options are those of a Store on the fake.
func (f *fake) options(endpoint string) s3.Options {
	return s3.Options{
		Bucket: bucket, Prefix: "logs", Region: "eu-test-1", Endpoint: endpoint, PathStyle: true,
		AccessKeyID: accessKey, SecretAccessKey: secretKey, Now: f.now,
	}
}

// serve serves the fake over TCP until the test ends.
func (f *fake) serve(t testing.TB) string {
	server := httptest.NewServer(f)
	t.Cleanup(func() {
		close(f.stop)
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// pipeClient serves the fake over pipes, in which time is what a bubble of
// testing/synctest says, and returns a client for it.
func (f *fake) pipeClient(t testing.TB) *http.Client {
	ln := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: f, ReadHeaderTimeout: time.Hour}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(ln) })
	transport := &http.Transport{
		MaxIdleConnsPerHost: 100, DisableCompression: true, WriteBufferSize: 128 << 10, ReadBufferSize: 128 << 10,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return ln.dial(ctx) },
	}
	t.Cleanup(func() {
		close(f.stop)
		transport.CloseIdleConnections()
		_ = server.Close()
		wg.Wait()
	})
	return &http.Client{Transport: transport}
}

type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// requests returns what was asked, of one operation or of all.
func (f *fake) requests(op string) []request {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []request
	for _, r := range f.log {
		if (op == "" || r.op == op) && !strings.Contains(r.key, ".segtier-probe/") {
			out = append(out, r)
		}
	}
	return out
}

// object returns the bytes under a key, nil if there is none.
func (f *fake) object(key string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o := f.objects["logs/"+key]; o != nil {
		return o.data
	}
	return nil
}

// names returns the names of all objects and the number of unfinished uploads.
func (f *fake) names() ([]string, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.objects)), len(f.uploads)
}

// fakeError is an answer of S3 that is no success.
type fakeError struct {
	status  int
	code    string
	message string
	header  map[string]string
}

func (e *fakeError) Error() string { return e.code }

func refuse(status int, code string) error { return &fakeError{status: status, code: code} }

func (e *fakeError) write(w http.ResponseWriter, head bool) {
	for name, value := range e.header {
		w.Header().Set(name, value)
	}
	w.Header().Set("X-Amz-Request-Id", "REQUEST7")
	if head {
		w.WriteHeader(e.status)
		return
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(e.status)
	_, _ = fmt.Fprintf(w, "%s<Error><Code>%s</Code><Message>%s</Message><RequestId>REQUEST7</RequestId></Error>", xml.Header, e.code, e.message)
}

// ServeHTTP implements http.Handler.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req := f.describe(r)
	f.mu.Lock()
	for _, before := range f.log {
		if before.op == req.op && strings.Contains(before.key, ".segtier-probe/") == strings.Contains(req.key, ".segtier-probe/") {
			req.nth++
		}
	}
	req.nth++
	var what fault
	if f.plan != nil {
		what = f.plan(req)
	}
	req.fault = what
	at := len(f.log)
	f.log = append(f.log, req)
	f.mu.Unlock()
	w.Header().Set("Date", f.now().UTC().Format(http.TimeFormat))
	note := func(status int, n int64) {
		f.mu.Lock()
		if at < len(f.log) {
			f.log[at].status, f.log[at].bytes = status, n
		}
		f.mu.Unlock()
	}
	f.carryOut(w, r, req, what, note)
}

// describe finds out which operation is asked for.
func (f *fake) describe(r *http.Request) request {
	q := r.URL.Query()
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	part, _ := strconv.Atoi(q.Get("partNumber"))
	op := ""
	has := func(name string) bool { return q.Has(name) }
	switch r.Method {
	case http.MethodHead:
		op = "HeadObject"
		if key == "" {
			op = "HeadBucket"
		}
	case http.MethodGet:
		switch {
		case key == "" && has("uploads"):
			op = "ListMultipartUploads"
		case key == "":
			op = "ListObjectsV2"
		case has("attributes"):
			op = "GetObjectAttributes"
		case has("uploadId"):
			op = "ListParts"
		default:
			op = "GetObject"
		}
	case http.MethodPut:
		op = "PutObject"
		if has("uploadId") {
			op = "UploadPart"
		}
	case http.MethodPost:
		switch {
		case has("delete"):
			op = "DeleteObjects"
		case has("uploads"):
			op = "CreateMultipartUpload"
		case has("uploadId"):
			op = "CompleteMultipartUpload"
		}
	case http.MethodDelete:
		op = "DeleteObject"
		if has("uploadId") {
			op = "AbortMultipartUpload"
		}
	}
	return request{op: op, key: key, part: part, header: r.Header.Clone(), proto: r.Proto, query: q}
}

// perform carries out a request; body is all of it.
func (f *fake) perform(w http.ResponseWriter, r *http.Request, req request, body []byte) {
	err := f.authorize(r, body)
	if err == nil {
		f.mu.Lock()
		err = f.operation(w, req, body)
		f.mu.Unlock()
	}
	if err != nil {
		var e *fakeError
		if !errors.As(err, &e) {
			e = &fakeError{status: 500, code: "InternalError", message: err.Error()}
		}
		e.write(w, r.Method == http.MethodHead)
	}
}

func (f *fake) operation(w http.ResponseWriter, req request, body []byte) error {
	ops := map[string]func(http.ResponseWriter, request, []byte) error{
		"HeadBucket": func(http.ResponseWriter, request, []byte) error { return nil },
		"HeadObject": f.headObject, "GetObject": f.getObject, "PutObject": f.putObject, "DeleteObject": f.deleteObject,
		"DeleteObjects": f.deleteObjects, "ListObjectsV2": f.listObjects, "GetObjectAttributes": f.attributes,
		"CreateMultipartUpload": f.create, "UploadPart": f.uploadPart, "CompleteMultipartUpload": f.complete,
		"AbortMultipartUpload": f.abort, "ListParts": f.listParts, "ListMultipartUploads": f.listUploads,
	}
	op, ok := ops[req.op]
	if !ok {
		return refuse(501, "NotImplemented")
	}
	return op(w, req, body)
}

// authorize signs the request again and compares.
func (f *fake) authorize(r *http.Request, body []byte) error {
	if name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); name != bucket {
		return &fakeError{status: 404, code: "NoSuchBucket", message: "The specified bucket does not exist"}
	}
	fields := map[string]string{}
	auth, ok := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
	if !ok {
		return refuse(403, "AccessDenied")
	}
	for field := range strings.SplitSeq(auth, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		fields[name] = value
	}
	scope := strings.Split(fields["Credential"], "/")
	if len(scope) != 5 || scope[0] != accessKey {
		return &fakeError{status: 403, code: "InvalidAccessKeyId", message: "The AWS Access Key Id you provided does not exist in our records: " + scope[0]}
	}
	if f.region != "" && scope[2] != f.region {
		return &fakeError{status: 400, code: "AuthorizationHeaderMalformed", message: "the region is wrong", header: map[string]string{"X-Amz-Bucket-Region": f.region}}
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		return refuse(403, "AccessDenied")
	}
	if skew := f.now().Sub(at); skew > 15*time.Minute || skew < -15*time.Minute {
		return &fakeError{status: 403, code: "RequestTimeTooSkewed", message: "The difference between the request time and the current time is too large."}
	}
	hash := r.Header.Get("X-Amz-Content-Sha256")
	signed := strings.Split(fields["SignedHeaders"], ";")
	if hash == "UNSIGNED-PAYLOAD" && len(body) > 0 && !slices.Contains(signed, "x-amz-checksum-crc32c") {
		return refuse(403, "AccessDenied") // nothing binds the body
	}
	again := &http.Request{Method: r.Method, URL: r.URL, Host: r.Host, Header: http.Header{}, ContentLength: r.ContentLength}
	for _, name := range signed {
		if name != "host" && name != "content-length" {
			again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	u := *r.URL
	u.Host, u.Scheme = r.Host, "http"
	again.URL = &u
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err := signer.SignHTTP(context.Background(), aws.Credentials{AccessKeyID: accessKey, SecretAccessKey: secretKey}, again, hash, "s3", scope[2], at); err != nil {
		return err
	}
	if again.Header.Get("Authorization") != r.Header.Get("Authorization") {
		return &fakeError{status: 403, code: "SignatureDoesNotMatch", message: "AWSAccessKeyId " + accessKey}
	}
	return nil
}

// fault is what goes wrong with one request.
type fault struct {
	kind       faultKind
	at         int64 // byte of the request's or the answer's body
	status     int
	code       string
	retryAfter string // header X-Amz-Retry-After, in milliseconds
}

type faultKind uint8

const (
	noFault     faultKind = iota
	failBefore            // answers an error, nothing happens
	cutBefore             // the connection is closed before anything is read
	cutInside             // and inside the request's body
	stallAsked            // the request is read, and never answered
	failAfter             // it has its effect, and an error is answered
	cutAfter              // it has its effect, and the connection is closed
	stallAfter            // it has its effect, and is never answered
	okError               // 200 with an error inside, without effect
	okErrorDone           // 200 with an error inside, with effect
	cutAnswer             // the answer's body is cut
	wrongEcho             // the answer names another checksum
	noAnswerSum           // the answer names none
	flipBody              // one bit of the request's body is flipped on its way
	flipAnswer            // one bit of the answer's body is flipped on its way
	faultKinds
)

func (f *fake) carryOut(w http.ResponseWriter, r *http.Request, req request, what fault, note func(int, int64)) {
	fail := func() {
		e := &fakeError{status: what.status, code: what.code}
		if e.status == 0 {
			e.status, e.code = 500, "InternalError"
		}
		if what.retryAfter != "" {
			e.header = map[string]string{"X-Amz-Retry-After": what.retryAfter}
		}
		note(e.status, 0)
		e.write(w, r.Method == http.MethodHead)
	}
	switch what.kind {
	case cutBefore:
		panic(http.ErrAbortHandler)
	case cutInside:
		n, _ := io.CopyN(io.Discard, r.Body, what.at)
		note(0, n)
		panic(http.ErrAbortHandler)
	}
	body, err := io.ReadAll(r.Body)
	note(0, int64(len(body)))
	if err != nil || int64(len(body)) != max(0, r.ContentLength) {
		panic(http.ErrAbortHandler)
	}
	if what.kind == flipBody && len(body) > 0 {
		body[what.at%int64(len(body))] ^= 1
	}
	if f.gate != nil {
		f.gate(req)
	}
	answer := httptest.NewRecorder()
	maps.Copy(answer.Header(), w.Header())
	switch what.kind {
	case failBefore:
		fail()
		return
	case stallAsked:
		f.hang(r)
	case okError:
		_, _ = io.WriteString(answer, "<Error><Code>InternalError</Code><Message>a part was lost</Message></Error>")
	default:
		f.perform(answer, r, req, body)
	}
	switch what.kind {
	case failAfter:
		fail()
		return
	case cutAfter:
		panic(http.ErrAbortHandler)
	case stallAfter:
		f.hang(r)
	case okErrorDone:
		answer.Body.Reset()
		answer.Code = 200
		_, _ = io.WriteString(answer.Body, "<Error><Code>InternalError</Code><Message>try again</Message></Error>")
	case wrongEcho:
		if answer.Header().Get("X-Amz-Checksum-Crc32c") != "" {
			answer.Header().Set("X-Amz-Checksum-Crc32c", "AAAAAA==")
		}
	case noAnswerSum:
		answer.Header().Del("X-Amz-Checksum-Crc32c")
	}
	maps.Copy(w.Header(), answer.Header())
	out := answer.Body.Bytes()
	if what.kind == flipAnswer && len(out) > 0 {
		out = bytes.Clone(out)
		out[what.at%int64(len(out))] ^= 1
	}
	note(answer.Code, int64(len(body)))
	if r.Method != http.MethodHead {
		w.Header().Set("Content-Length", strconv.Itoa(len(out)))
	}
	w.WriteHeader(answer.Code)
	if r.Method == http.MethodHead {
		return
	}
	if what.kind == cutAnswer && len(out) > 0 {
		_, _ = w.Write(out[:what.at%int64(len(out))])
		_ = http.NewResponseController(w).Flush() // what was written arrives
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(out)
}

// hang answers nothing until the client leaves.
func (f *fake) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-f.stop:
	}
	panic(http.ErrAbortHandler)
}
