package weather

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

// failure is an answer other than success.
type failure struct {
	status     int
	code       string // S3's
	message    string
	retryAfter time.Duration
}

func (f *failure) Error() string { return f.code + ": " + f.message }

var (
	errPrecondition = &failure{http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold", 0}
	errRange        = &failure{http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The requested range is not satisfiable", 0}
	errNoUpload     = &failure{http.StatusNotFound, "NoSuchUpload", "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed.", 0}
	errXML          = &failure{http.StatusBadRequest, "MalformedXML", "The XML you provided was not well-formed or did not validate against our published schema", 0}
	errIncomplete   = &failure{http.StatusBadRequest, "IncompleteBody", "You did not provide the number of bytes specified by the Content-Length HTTP header", 0}
)

func errArgument(message string) *failure {
	return &failure{http.StatusBadRequest, "InvalidArgument", message, 0}
}

func errRequest(message string) *failure {
	return &failure{http.StatusBadRequest, "InvalidRequest", message, 0}
}

func errDigest(message string) *failure {
	return &failure{http.StatusBadRequest, "BadDigest", message, 0}
}

// failure is what a fault answers.
func (f *Fault) failure() *failure {
	switch f.Kind {
	case Internal:
		return &failure{http.StatusInternalServerError, "InternalError", "We encountered an internal error. Please try again.", 0}
	case Refuse:
		return &failure{http.StatusForbidden, "AccessDenied", "Access Denied", 0}
	case Missing:
		return &failure{http.StatusNotFound, "NoSuchKey", "The specified key does not exist.", 0}
	default:
		return &failure{http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate.", time.Duration(f.RetryAfter)}
	}
}

// xmlError is S3's form of a failure.
type xmlError struct {
	XMLName  xml.Name `xml:"Error"`
	Code     string
	Message  string
	Resource string
}

// fail answers with err.
func (x *exchange) fail(err error) {
	f := new(failure)
	if !errors.As(err, &f) {
		f = &failure{http.StatusInternalServerError, "InternalError", err.Error(), 0}
	}
	if f.retryAfter > 0 {
		x.header().Set("Retry-After", strconv.Itoa(int((f.retryAfter+time.Second-1)/time.Second)))
	}
	if f.status == http.StatusNotModified {
		x.header().Del("Content-Length")
		x.s.count.status(f.status)
		x.w.WriteHeader(f.status)
		return
	}
	x.answer(f.status, xmlError{Code: f.code, Message: f.message, Resource: x.r.URL.Path})
}

// answer sends a status and an XML body.
func (x *exchange) answer(code int, body any) {
	b, err := xml.Marshal(body)
	if err != nil {
		b = []byte("<Error><Code>InternalError</Code></Error>")
	}
	b = append([]byte(xml.Header), b...)
	x.header().Set("Content-Type", "application/xml")
	if x.status(code, int64(len(b))) && x.r.Method != http.MethodHead {
		_, _ = x.w.Write(b) // who does not read it has left
	}
}

// empty answers a write, or what has nothing to say.
func (x *exchange) empty(code int) {
	if code == http.StatusNoContent {
		if x.wait() {
			x.s.count.status(code)
			x.w.WriteHeader(code)
		}
		return
	}
	x.status(code, 0)
}

// done ends a write that has had its effect: with the answer, or without one.
func (x *exchange) done(answer func()) error {
	if x.strikes(Lost) {
		if x.wait() {
			x.abort(false)
		}
		return nil
	}
	answer()
	return nil
}

// drain reads what is left of the request, so that its answer is not lost with
// the connection.
func (x *exchange) drain() {
	buf := pool.Get().(*buffers)
	defer pool.Put(buf)
	for {
		n, err := x.r.Body.Read(buf.data)
		if err != nil || !x.throttle(&x.conn.in, &x.s.in, n) {
			return
		}
	}
}

// document reads the XML body of a request.
func (x *exchange) document(into any) error {
	const most = 4 << 20 // 10,000 parts with checksums
	b, err := io.ReadAll(io.LimitReader(x.r.Body, most+1))
	if err != nil || len(b) > most {
		return errXML
	}
	if xml.Unmarshal(b, into) != nil {
		return errXML
	}
	return nil
}
