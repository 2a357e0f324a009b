package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/segtier/segtier/objstore"
)

// ServiceError is what the service answered instead of what it was asked for. It
// wraps the sentinel of package objstore that fits, if one does.
type ServiceError struct {
	Operation string // of S3's API: "PutObject"
	Code      string // S3's: "AccessDenied"; "" if the answer had none
	Status    int    // of HTTP
	Message   string // the service's, shortened
	RequestID string // what to name when asking those who run the service
	Hint      string // what to do about it, "" if we do not know

	RetryAfter time.Duration // what the service asked for, 0 if nothing
	Err        error         // a sentinel of package objstore, or nil
}

// Error says what was asked for, what was answered and what to do.
func (e *ServiceError) Error() string {
	var b strings.Builder
	if e.Err != nil {
		fmt.Fprintf(&b, "%v: ", e.Err)
	}
	fmt.Fprintf(&b, "%s answered %d", e.Operation, e.Status)
	if e.Code != "" {
		fmt.Fprintf(&b, " %s", e.Code)
	}
	if e.Message != "" && e.Message != e.Code {
		fmt.Fprintf(&b, " (%s)", e.Message)
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, "; %s", e.Hint)
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, " [request %s]", e.RequestID)
	}
	return b.String()
}

// Unwrap returns the sentinel.
func (e *ServiceError) Unwrap() error { return e.Err }

// AbilityError says that the service lacks what every store must have. Nothing
// can be copied to it.
type AbilityError struct {
	Ability string // "read after write", "stored bytes", "ranged reads", "checksum headers"
	Err     error  // what was seen
}

// Error names the ability.
func (e *AbilityError) Error() string {
	return fmt.Sprintf("the service lacks %s: %v", e.Ability, e.Err)
}

// Unwrap returns objstore.ErrRefused and what was seen.
func (e *AbilityError) Unwrap() []error { return []error{objstore.ErrRefused, e.Err} }

// What only this package decides on.
var (
	errNoUpload       = errors.New("the multipart upload does not exist any more")
	errPrecondition   = errors.New("a condition of the request does not hold")
	errRace           = errors.New("a conflicting operation is in progress")
	errNotImplemented = errors.New("the service does not implement this")
)

// stallError is the cause with which a request that makes no progress is ended.
type stallError struct{ after time.Duration }

func (e stallError) Error() string {
	return fmt.Sprintf("no progress for %v: %v", e.after, os.ErrDeadlineExceeded)
}

func (e stallError) Unwrap() error { return os.ErrDeadlineExceeded }

// ended returns why ctx ended, as an error in which errors.Is finds ctx.Err() if
// the caller's context did, or objstore.ErrClosed if the store was closed.
func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	var stall stallError
	if errors.As(cause, &stall) || errors.Is(cause, objstore.ErrClosed) || errors.Is(cause, ctx.Err()) {
		return cause
	}
	return fmt.Errorf("%w: %w", ctx.Err(), cause)
}

// fault makes of the SDK's error one of ours. Nothing of it is kept but what is
// shown, since the SDK's errors hold requests and those hold signatures.
func (s *Store) fault(ctx context.Context, operation string, err error) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	var resp *smithyhttp.ResponseError
	if !errors.As(err, &resp) || resp.HTTPStatusCode() == 0 {
		return s.unsent(operation, err)
	}
	e := &ServiceError{Operation: operation, Status: resp.HTTPStatusCode()}
	var api smithy.APIError
	if errors.As(err, &api) {
		e.Code, e.Message = shorten(api.ErrorCode(), 60), shorten(api.ErrorMessage(), 300)
		if e.Message == "UnknownError" { // the SDK's word for none
			e.Message = ""
		}
	} else {
		e.Message = shorten("the answer cannot be read: "+err.Error(), 300)
	}
	header := http.Header{}
	if resp.Response != nil && resp.Response.Response != nil {
		header = resp.Response.Header
	}
	e.RequestID = shorten(header.Get("X-Amz-Request-Id"), 80)
	e.RetryAfter = retryAfter(header, s.opts.Now())
	s.classify(e, header)
	return e
}

// unsent is the error of a request that brought no answer.
func (s *Store) unsent(operation string, err error) error {
	refuse := func(hint string) error {
		return fmt.Errorf("%s: %w: %s", operation, objstore.ErrRefused, hint)
	}
	var cert *tls.CertificateVerificationError
	text := err.Error()
	switch {
	case strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return refuse("the endpoint speaks plain HTTP: its URL begins with http://")
	case errors.Is(err, errSpeaksTLS):
		return refuse(errSpeaksTLS.Error())
	case errors.As(err, &cert):
		return refuse(fmt.Sprintf("%v; name the authority that signed it (ca-file=…)", cert))
	case strings.Contains(text, "get credentials") || strings.Contains(text, "retrieve credentials"):
		if !s.answered.Load() { // else they were there a moment ago
			return refuse("no AWS credentials found in the environment, the shared files or the instance's role: " + lastCause(err))
		}
		return fmt.Errorf("%s: renewing the AWS credentials: %s", operation, lastCause(err))
	}
	// Of net/http's and the SDK's wrapping, the cause alone says something.
	var sent *smithyhttp.RequestSendError
	if errors.As(err, &sent) {
		err = sent.Err
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		return fmt.Errorf("%s: %s", operation, shorten(err.Error(), 300))
	}
	if s.mayWantTLS(err) {
		return fmt.Errorf("%s: %w (an endpoint that speaks TLS cuts the connection so: does its URL begin with https://?)", operation, err)
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// mayWantTLS reports whether err is what a server that speaks TLS does to one who
// speaks plain HTTP, if it says nothing. It may be a fault that passes, too.
func (s *Store) mayWantTLS(err error) bool {
	if s.answered.Load() || !strings.HasPrefix(s.opts.Endpoint, "http://") {
		return false
	}
	for _, cut := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, cut) {
			return true
		}
	}
	return false
}

// lastCause is the text of the innermost error.
func lastCause(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return shorten(err.Error(), 300)
		}
		err = next
	}
}

// classify finds the sentinel and the hint for an answer.
func (s *Store) classify(e *ServiceError, header http.Header) {
	if region := header.Get("X-Amz-Bucket-Region"); region != "" && region != s.client.Options().Region && e.Status != http.StatusNotFound {
		e.Err = objstore.ErrRefused
		e.Hint = fmt.Sprintf("the bucket is in region %s, not %s (region=%[1]s)", shorten(region, 40), s.client.Options().Region)
		return
	}
	if s.classifyCode(e, header) {
		return
	}
	switch e.Status {
	case http.StatusNotFound:
		e.Err = objstore.ErrNotExist
	case http.StatusRequestedRangeNotSatisfiable:
		e.Err = objstore.ErrRange
	case http.StatusPreconditionFailed:
		e.Err = errPrecondition
	case http.StatusConflict:
		e.Err = errRace
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		e.Err = objstore.ErrThrottled
	case http.StatusNotImplemented, http.StatusMethodNotAllowed:
		e.Err = errNotImplemented
	case http.StatusInsufficientStorage:
		e.Err = objstore.ErrFull
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Err, e.Hint = objstore.ErrRefused, "the credentials need "+iamAction(e.Operation)
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect:
		e.Err, e.Hint = objstore.ErrRefused, "the bucket is elsewhere: check region and endpoint"
	default:
		if e.Status >= 400 && e.Status < 500 {
			e.Err = objstore.ErrRefused // our request is wrong, and stays so
		}
	}
}

// classifyCode decides by S3's code, where that says more than the status.
func (s *Store) classifyCode(e *ServiceError, header http.Header) bool {
	switch e.Code {
	case "NoSuchBucket":
		e.Err, e.Hint = objstore.ErrRefused, fmt.Sprintf("there is no bucket %s at this endpoint; create it, or check its name", s.opts.Bucket)
	case "NoSuchUpload":
		e.Err = errNoUpload
	case "NoSuchKey":
		e.Err = objstore.ErrNotExist
	case "BadDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch":
		e.Err = objstore.ErrCorrupt
	case "SlowDown", "SlowDownRead", "SlowDownWrite", "RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequests", "TooManyRequestsException":
		e.Err = objstore.ErrThrottled
	case "RequestTimeout", "IncompleteBody", "InvalidPart", "InvalidPartOrder", "InternalError":
		// May pass; 400 says otherwise.
	case "NotImplemented":
		e.Err = errNotImplemented
	case "QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "NoSpaceLeftOnDevice":
		e.Err = objstore.ErrFull
	case "RequestTimeTooSkewed", "RequestInTheFuture", "RequestExpired":
		e.Err, e.Hint = objstore.ErrRefused, "the clock of this machine is wrong: set it"
		if date, err := http.ParseTime(header.Get("Date")); err == nil {
			e.Hint = fmt.Sprintf("the clock of this machine is off by %v: set it", s.opts.Now().Sub(date).Round(time.Minute))
		}
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "XAdminUserNotFound": // the last is versitygw's, with 404
		e.Err, e.Hint = objstore.ErrRefused, "the access key or the secret key is wrong for this endpoint"
		e.Message = "" // may name the key
	case "ExpiredToken", "InvalidToken", "TokenRefreshRequired":
		e.Err, e.Hint = objstore.ErrRefused, "the session token is not valid any more: get new credentials"
		e.Message = ""
	case "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect":
		e.Err, e.Hint = objstore.ErrRefused, "the region is not the bucket's: check region"
	default:
		return false
	}
	return true
}

// iamAction names what the credentials must allow for an operation.
func iamAction(operation string) string {
	switch operation {
	case "HeadObject":
		return "s3:GetObject (and s3:ListBucket, to tell what is absent from what is denied)"
	case "PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload":
		return "s3:PutObject (with a KMS key kms:GenerateDataKey and kms:Decrypt too)"
	case "ListParts":
		return "s3:ListMultipartUploadParts"
	case "ListMultipartUploads":
		return "s3:ListBucketMultipartUploads"
	case "ListObjectsV2", "HeadBucket":
		return "s3:ListBucket"
	case "DeleteObjects":
		return "s3:DeleteObject"
	default: // GetObject, GetObjectAttributes, DeleteObject, AbortMultipartUpload
		return "s3:" + operation
	}
}

// retryAfter returns how long the service asks to wait.
func retryAfter(header http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseInt(header.Get("X-Amz-Retry-After"), 10, 32); err == nil && ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	text := header.Get("Retry-After")
	if sec, err := strconv.ParseInt(text, 10, 32); err == nil && sec > 0 {
		return time.Duration(sec) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// shorten returns at most n printable runes of what a service said.
func shorten(text string, n int) string {
	var b strings.Builder
	for _, r := range text {
		if n--; n < 0 {
			b.WriteString("…")
			break
		}
		if !unicode.IsPrint(r) {
			r = ' '
		}
		b.WriteRune(r)
	}
	return strings.TrimSpace(b.String())
}

// failed returns err as the *objstore.Error of a call.
func failed(at objstore.Error, err error) error {
	if e, ok := err.(*objstore.Error); ok && e.Op == at.Op { //nolint:errorlint // the outermost error alone: what it wraps is not the call's
		return e
	}
	var service *ServiceError
	if errors.As(err, &service) {
		at.RetryAfter = service.RetryAfter
	}
	at.Err = err
	return &at
}

// within wraps what an *objstore.Error says, so that the call stays named once.
func within(err error, wrap func(error) error) error {
	e, ok := err.(*objstore.Error) //nolint:errorlint // the outermost error alone
	if !ok {
		return wrap(err)
	}
	wrapped := *e
	wrapped.Err = wrap(e.Err)
	return &wrapped
}

// plain keeps from callers a sentinel that, of an upload, would say something
// else than it says of a read: that what was just written is absent or replaced may
// pass.
func plain(err error) error {
	if errors.Is(err, objstore.ErrNotExist) || errors.Is(err, objstore.ErrChanged) || errors.Is(err, objstore.ErrRange) {
		return errors.New(err.Error())
	}
	return err
}
