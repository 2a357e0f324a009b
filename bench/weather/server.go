package weather

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Options of a Server. The zero value of each field is a default.
type Options struct {
	Schedule Schedule

	// Dir holds files that are served under the names that they have below it, in
	// every bucket; "" is none.
	Dir string

	// KeepBytes is how many bytes of what clients write are kept; beyond them an
	// object is summed and verified, but only its last 256 KiB can be read
	// again. 0 is 256 MiB, -1 keeps nothing whole but objects of at most 64 KiB.
	KeepBytes int64

	// NoPayloadHash leaves x-amz-content-sha256 unverified. It costs this server
	// a second for 1.5 GB, which a client that sends it would be charged for.
	NoPayloadHash bool

	// MinPartBytes is the least size of all parts but the last; 0 is AWS's 5 MiB.
	MinPartBytes int64

	// HTTP, HTTPS and Admin are the addresses of Start; "" is a free port of
	// 127.0.0.1, "none" none.
	HTTP, HTTPS, Admin string
}

// Server is a small S3. Its methods may be called concurrently.
type Server struct {
	o        Options
	schedule atomic.Pointer[Schedule]
	maker    maker
	store    store
	count    counters
	attempts attempts
	out, in  pace // of all connections
	requests bucket

	running sync.WaitGroup // handlers and serving goroutines
	started started
}

// New makes a Server. It is an http.Handler by itself; Start opens ports for it.
func New(o Options) (*Server, error) {
	if err := o.Schedule.Validate(); err != nil {
		return nil, err
	}
	switch {
	case o.KeepBytes < -1:
		return nil, fmt.Errorf("weather: KeepBytes %d", o.KeepBytes)
	case o.KeepBytes == 0:
		o.KeepBytes = 256 << 20
	}
	if o.MinPartBytes == 0 {
		o.MinPartBytes = 5 << 20
	}
	s := &Server{o: o}
	s.schedule.Store(&o.Schedule)
	s.store.init(max(o.KeepBytes, 0))
	s.count.init()
	return s, nil
}

// SetSchedule changes the weather for requests from now on.
func (s *Server) SetSchedule(next Schedule) error {
	if err := next.Validate(); err != nil {
		return err
	}
	s.schedule.Store(&next)
	return nil
}

// Schedule returns the weather.
func (s *Server) Schedule() Schedule { return *s.schedule.Load() }

// Reset sets all counts to zero and forgets the attempts of all clients, so that
// the next client meets the weather that the first one met. What was written
// stays, unless objects is true.
func (s *Server) Reset(objects bool) {
	s.count.reset()
	s.attempts.reset()
	if objects {
		s.store.init(max(s.o.KeepBytes, 0))
	}
}

// Stats returns what was counted.
func (s *Server) Stats() Stats { return s.count.stats() }

// attempts counts how often each client asked for each thing.
type attempts struct {
	mu   sync.Mutex
	seen map[uint64]uint32 // guarded by mu
}

// maxAttempts bounds the memory for attempts; beyond it all are forgotten.
const maxAttempts = 1 << 22

// next returns how often the same was asked for before.
func (a *attempts) next(by *ask) uint32 {
	h := by.hash(xxhash.Sum64String(by.client))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil || len(a.seen) >= maxAttempts {
		a.seen = make(map[uint64]uint32)
	}
	n := a.seen[h]
	a.seen[h] = n + 1
	return n
}

func (a *attempts) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = nil
}

// S3's names of the operations.
const (
	opGetObject     = "GetObject"
	opHeadObject    = "HeadObject"
	opAttributes    = "GetObjectAttributes"
	opPutObject     = "PutObject"
	opDeleteObject  = "DeleteObject"
	opDeleteObjects = "DeleteObjects"
	opCreate        = "CreateMultipartUpload"
	opUploadPart    = "UploadPart"
	opComplete      = "CompleteMultipartUpload"
	opAbort         = "AbortMultipartUpload"
	opListParts     = "ListParts"
	opListUploads   = "ListMultipartUploads"
	opListV2        = "ListObjectsV2"
	opList          = "ListObjects"
	opHeadBucket    = "HeadBucket"
	opCreateBucket  = "CreateBucket"
	opLocation      = "GetBucketLocation"
	opListBuckets   = "ListBuckets"
	opUnknown       = "Unknown"
)

func operations() []string {
	return []string{
		opGetObject, opHeadObject, opAttributes, opPutObject, opDeleteObject, opDeleteObjects, opCreate, opUploadPart,
		opComplete, opAbort, opListParts, opListUploads, opListV2, opList, opHeadBucket, opCreateBucket, opLocation, opListBuckets,
	}
}

// operationOf returns which operation a request is.
func operationOf(method, name string, q url.Values) string {
	if name == "" {
		return bucketOperation(method, q)
	}
	switch method {
	case http.MethodGet:
		switch {
		case q.Has("uploadId"):
			return opListParts
		case q.Has("attributes"):
			return opAttributes
		}
		return opGetObject
	case http.MethodHead:
		return opHeadObject
	case http.MethodPut:
		if q.Has("partNumber") {
			return opUploadPart
		}
		return opPutObject
	case http.MethodPost:
		switch {
		case q.Has("uploads"):
			return opCreate
		case q.Has("uploadId"):
			return opComplete
		}
	case http.MethodDelete:
		if q.Has("uploadId") {
			return opAbort
		}
		return opDeleteObject
	}
	return opUnknown
}

func bucketOperation(method string, q url.Values) string {
	switch method {
	case http.MethodGet:
		switch {
		case q.Has("uploads"):
			return opListUploads
		case q.Has("location"):
			return opLocation
		case q.Get("list-type") == "2":
			return opListV2
		}
		return opList
	case http.MethodHead:
		return opHeadBucket
	case http.MethodPut:
		return opCreateBucket
	case http.MethodPost:
		if q.Has("delete") {
			return opDeleteObjects
		}
	}
	return opUnknown
}

// exchange is one request and its answer.
type exchange struct {
	s        *Server
	w        http.ResponseWriter
	r        *http.Request
	schedule *Schedule
	conn     *conn

	operation    string
	bucket, name string
	query        url.Values
	fate         fate
	begun        bool // the answer has begun
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.running.Add(1)
	defer s.running.Done()
	if strings.HasPrefix(r.URL.Path, adminPrefix) {
		s.admin(w, r)
		return
	}
	x := &exchange{s: s, w: w, r: r, schedule: s.schedule.Load(), query: r.URL.Query()}
	if x.conn, _ = r.Context().Value(connKey{}).(*conn); x.conn == nil {
		x.conn = &conn{}
	}
	x.bucket, x.name, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	x.operation = operationOf(r.Method, x.name, x.query)
	if x.bucket == "" {
		x.operation = opListBuckets
	}
	defer s.count.begin(x.operation)()
	x.header().Set("Server", "weather")
	x.serve()
}

// serve lets the weather decide and answers.
func (x *exchange) serve() {
	by := ask{client: accessKey(x.r), operation: x.operation, object: x.bucket + "/" + x.name, start: x.start()}
	by.attempt = x.s.attempts.next(&by)
	x.fate = x.schedule.fate(&by)
	if !x.s.requests.take(x.schedule.RequestRate, x.schedule.RequestBurst) {
		x.fate = fate{firstByte: x.fate.firstByte, fault: &Fault{Kind: Throttle}}
	}
	if f := x.fate.fault; f != nil {
		switch f.Kind {
		case Throttle, Internal, Refuse, Missing:
			x.happens(f.Kind)
			x.drain()
			x.fail(f.failure())
			return
		case Late:
			x.happens(f.Kind)
		default: // where the body is sent, or the answer to a write
		}
	}
	handle := map[string]func() error{
		opGetObject: x.get, opHeadObject: x.get, opAttributes: x.attributes,
		opPutObject: x.putObject, opUploadPart: x.uploadPart,
		opCreate: x.create, opComplete: x.complete, opAbort: x.abortUpload,
		opDeleteObject: x.deleteObject, opDeleteObjects: x.deleteObjects,
		opListParts: x.listParts, opListUploads: x.listUploads, opListV2: x.list, opList: x.list,
		opHeadBucket: x.nothing, opCreateBucket: x.nothing, opLocation: x.location, opListBuckets: x.listBuckets,
	}[x.operation]
	if handle == nil {
		handle = func() error {
			return &failure{http.StatusNotImplemented, "NotImplemented", x.r.Method + " " + x.r.URL.RequestURI(), 0}
		}
	}
	if err := handle(); err != nil {
		x.fail(err)
	}
}

// start is the position that the weather is keyed on.
func (x *exchange) start() int64 {
	if x.operation == opUploadPart {
		n, _ := parseNumber(x.query.Get("partNumber")) // of a bad one, 0
		return n
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(x.r.Header.Get("Range"), "bytes="), "-")
	n, _ := parseNumber(first)
	return n
}

// accessKey returns the access key of a signature, "" if there is none.
func accessKey(r *http.Request) string {
	_, rest, ok := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	if !ok {
		rest = r.URL.Query().Get("X-Amz-Credential")
	}
	key, _, _ := strings.Cut(rest, "/")
	return key
}

func (x *exchange) header() http.Header { return x.w.Header() }

// happens counts a fault.
func (x *exchange) happens(k Kind) { x.s.count.fault(k) }

// strikes reports whether the fault of this request is k, and counts it.
func (x *exchange) strikes(k Kind) bool {
	if x.fate.fault == nil || x.fate.fault.Kind != k {
		return false
	}
	x.happens(k)
	return true
}

// wait waits for the first byte's time; false if the client has gone.
func (x *exchange) wait() bool { return sleep(x.r.Context(), x.fate.firstByte) }

// abort ends the connection: with RST, or with FIN behind what was written.
func (x *exchange) abort(rst bool) {
	if rst {
		if c, ok := x.conn.tcp.(*net.TCPConn); ok {
			_ = c.SetLinger(0) // the connection ends in any case
		}
	} else if f, ok := x.w.(http.Flusher); ok && x.begun {
		f.Flush()
	}
	panic(http.ErrAbortHandler)
}

// conn is one connection.
type conn struct {
	tcp     net.Conn
	out, in pace

	mu   sync.Mutex
	idle *time.Timer // guarded by mu
}

type connKey struct{}

// throttle waits until n more bytes may pass.
func (x *exchange) throttle(mine, all *pace, n int) bool {
	d := max(mine.take(n, x.schedule.ConnRate), all.take(n, x.schedule.TotalRate))
	return sleep(x.r.Context(), d)
}

// joinConn has Close wait for a connection's goroutine.
func (s *Server) joinConn(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.running.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.running.Done()
	case http.StateActive, http.StateIdle:
	}
}

// connState follows a connection of a client.
func (s *Server) connState(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.count.connection(1)
	case http.StateClosed, http.StateHijacked:
		s.count.connection(-1)
	case http.StateActive, http.StateIdle:
	}
	defer s.joinConn(c, state)
	v, ok := s.started.conns.Load(c)
	if !ok {
		return
	}
	x := v.(*conn)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.idle != nil {
		x.idle.Stop()
		x.idle = nil
	}
	switch state {
	case http.StateIdle:
		if after := time.Duration(s.schedule.Load().IdleClose); after > 0 {
			x.idle = time.AfterFunc(after, func() {
				s.count.idleClosed.Add(1)
				_ = c.Close() // that is all that is wanted
			})
		}
	case http.StateClosed, http.StateHijacked:
		s.started.conns.Delete(c)
	default:
	}
}

// connContext makes a connection known to its requests.
func (s *Server) connContext(ctx context.Context, c net.Conn) context.Context {
	x := &conn{tcp: c}
	if t, ok := c.(*tls.Conn); ok {
		x.tcp = t.NetConn()
	}
	s.started.conns.Store(c, x)
	return context.WithValue(ctx, connKey{}, x)
}
