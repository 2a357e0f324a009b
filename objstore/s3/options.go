package s3

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/segtier/segtier/objstore"
)

// Options of a Store. Bucket is needed; the zero value of every other field is a
// default. Credentials never appear when Options are printed, in whatever form.
type Options struct {
	// Bucket is the bucket's name.
	Bucket string
	// Prefix is what every object's key begins with, without a slash at either
	// end; "" is the whole bucket.
	Prefix string

	// Region is the bucket's region; "" asks the AWS default chain, and is
	// us-east-1 if that has none and Endpoint is set.
	Region string
	// Endpoint is the URL of the service, "http://127.0.0.1:7070"; "" is AWS.
	Endpoint string
	// PathStyle puts the bucket into the path instead of the host name, as most
	// services other than AWS want.
	PathStyle bool

	// AccessKeyID, SecretAccessKey and SessionToken are fixed credentials;
	// without them the AWS default chain finds some: environment, shared files,
	// web identity, container, instance.
	AccessKeyID, SecretAccessKey, SessionToken string
	// Profile is the profile of the shared files; "" is the chain's choice.
	Profile string

	// RootCAs and RootCAFile (PEM) replace the system's certificate authorities.
	RootCAs    *x509.CertPool
	RootCAFile string

	// StorageClass, Tags, SSE and KMSKeyID are given to each new object. SSE is
	// "AES256", "aws:kms" or "aws:kms:dsse"; "" is the bucket's default.
	StorageClass  string
	Tags          map[string]string
	SSE, KMSKeyID string
	// ExpectedBucketOwner is the account that must own the bucket.
	ExpectedBucketOwner string

	// ReadOnly refuses every change with objstore.ErrReadOnly.
	ReadOnly bool
	// Evidence is the least that confirms a part: objstore.Echoed (also the
	// zero value), Listed, Attributed or ReadBack. Where the service does not give
	// it, or does not verify checksums, what was written is read back.
	Evidence objstore.Level
	// Concurrency is how many parts of one upload are sent at a time; 0 is 8.
	// All uploads together are bounded by the slots of their requests.
	Concurrency int
	// OnCancel says what becomes of an upload whose context ends.
	OnCancel OnCancel
	// StallTimeout is how long a request of an upload, a deletion or a listing
	// may make no progress; 0 is 60 s. Completing an upload may take five times
	// as long. Get and Stat have no timeout of their own: package endpoint, which
	// repeats them, watches them.
	StallTimeout time.Duration

	// HTTPClient replaces the one that Open makes; TLS fields are then not used.
	HTTPClient *http.Client
	// Logger hears of what was resumed, resolved and left over (debug), and of
	// what could not be cleaned up (warn); nil is silent.
	Logger *slog.Logger
	// Events are told to the host.
	Events Events
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Events are functions that are called, if not nil, as things happen: from
// several goroutines, never under a lock.
type Events struct {
	// Resolved: the answer to a write was lost or unclear, because of cause. The
	// object was looked at and is there (found) or not.
	Resolved func(key string, found bool, cause error)
	// Probed: the service's abilities are known.
	Probed func(Abilities)
}

// OnCancel says what becomes of an upload whose context ends or whose store is
// closed.
type OnCancel uint8

const (
	// AbortUpload discards the parts that were sent.
	AbortUpload OnCancel = iota
	// KeepUpload leaves them on the service, for the next Upload of the same
	// object to go on with. Uploads lists them.
	KeepUpload
)

// String returns "abort" or "keep".
func (c OnCancel) String() string {
	switch c {
	case AbortUpload:
		return "abort"
	case KeepUpload:
		return "keep"
	}
	return "unknown"
}

const (
	defaultConcurrency  = 8
	defaultStallTimeout = time.Minute
	// defaultRegion is what signatures name where a service has no regions.
	defaultRegion = "us-east-1"
)

// validate fills in the defaults and says what is wrong.
func (o Options) validate() (Options, error) {
	for _, check := range []func() error{o.checkPlace, o.checkCredentials, o.checkObjects} {
		if err := check(); err != nil {
			return o, err
		}
	}
	if o.Concurrency < 0 || o.Concurrency > 1000 {
		return o, fmt.Errorf("concurrency %d: 1 to 1000 parts at a time, 0 for %d", o.Concurrency, defaultConcurrency)
	}
	if o.StallTimeout < 0 {
		return o, fmt.Errorf("stall timeout %v is negative", o.StallTimeout)
	}
	if o.Concurrency == 0 {
		o.Concurrency = defaultConcurrency
	}
	if o.StallTimeout == 0 {
		o.StallTimeout = defaultStallTimeout
	}
	if o.Evidence == objstore.Unconfirmed {
		o.Evidence = objstore.Echoed
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}

// isBucket is S3's rule without its fine print; the service has the last word.
func isBucket(name string) bool {
	plain := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
	if len(name) < 3 || len(name) > 63 || !plain(name[0]) || !plain(name[len(name)-1]) {
		return false
	}
	for i := range len(name) {
		if !plain(name[i]) && !strings.ContainsRune(".-_", rune(name[i])) {
			return false
		}
	}
	return true
}

// checkPlace checks where the objects are.
func (o Options) checkPlace() error {
	if o.Bucket == "" {
		return errors.New("no bucket")
	}
	if !isBucket(o.Bucket) {
		return fmt.Errorf("bucket %q is no name of a bucket: 3 to 63 letters, digits, dots and hyphens", o.Bucket)
	}
	if o.Prefix != "" {
		if err := objstore.ValidateKey(o.Prefix); err != nil {
			return fmt.Errorf("prefix %q: it is a relative path without a slash at either end: %w", o.Prefix, err)
		}
		if len(o.Prefix) > 512 {
			return fmt.Errorf("prefix of %d bytes, allowed are 512", len(o.Prefix))
		}
	}
	if o.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(o.Endpoint)
	switch {
	case err != nil:
		return errors.New("the endpoint is no URL: it begins with http:// or https:// and a host") // which may hold a password: not shown
	case u.User != nil:
		return errors.New("the endpoint holds credentials; give them as AccessKeyID and SecretAccessKey, or to the AWS default chain")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return fmt.Errorf("endpoint %q: it begins with http:// or https:// and a host", o.Endpoint)
	case u.RawQuery != "", u.Fragment != "":
		return fmt.Errorf("endpoint %q has a query or a fragment", o.Endpoint)
	}
	if net.ParseIP(u.Hostname()) != nil && !o.PathStyle {
		return fmt.Errorf("endpoint %q is an address, under which no bucket has a host name: set PathStyle (path-style=true)", o.Endpoint)
	}
	return nil
}

func (o Options) checkCredentials() error {
	switch {
	case (o.AccessKeyID == "") != (o.SecretAccessKey == ""):
		return errors.New("AccessKeyID and SecretAccessKey go together: one of them is missing")
	case o.SessionToken != "" && o.AccessKeyID == "":
		return errors.New("a SessionToken without AccessKeyID and SecretAccessKey")
	case o.Profile != "" && o.AccessKeyID != "":
		return errors.New("both a profile and fixed credentials: which?")
	case o.RootCAs != nil && o.RootCAFile != "":
		return errors.New("both RootCAs and RootCAFile: which?")
	}
	return nil
}

// checkObjects checks what new objects get, and how they are proven.
func (o Options) checkObjects() error {
	switch o.SSE {
	case "", "AES256", "aws:kms", "aws:kms:dsse":
	default:
		return fmt.Errorf(`encryption %q: it is "AES256", "aws:kms" or "aws:kms:dsse"`, o.SSE)
	}
	if o.KMSKeyID != "" && !strings.HasPrefix(o.SSE, "aws:kms") {
		return errors.New(`a KMS key without the encryption "aws:kms"`)
	}
	if len(o.Tags) > 10 {
		return fmt.Errorf("%d tags, an object may have 10", len(o.Tags))
	}
	if o.Evidence > objstore.ReadBack {
		return fmt.Errorf("evidence level %d is unknown", o.Evidence)
	}
	if o.OnCancel > KeepUpload {
		return fmt.Errorf("OnCancel %d is unknown", o.OnCancel)
	}
	return nil
}

// redacted stands in for a credential.
const redacted = "[redacted]"

// plainOptions are Options that print as they are.
type plainOptions Options

// redact returns o for printing.
func (o Options) redact() plainOptions {
	for _, secret := range []*string{&o.AccessKeyID, &o.SecretAccessKey, &o.SessionToken} {
		if *secret != "" {
			*secret = redacted
		}
	}
	if u, err := url.Parse(o.Endpoint); o.Endpoint != "" && (err != nil || u.User != nil) {
		o.Endpoint = redacted
	}
	o.HTTPClient, o.Logger, o.RootCAs, o.Events, o.Now = nil, nil, nil, Events{}, nil
	return plainOptions(o)
}

// String returns the options without credentials.
func (o Options) String() string { return fmt.Sprintf("%+v", o.redact()) }

// Format implements fmt.Formatter: no verb shows credentials.
func (o Options) Format(f fmt.State, verb rune) {
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), o.redact()) // there is nobody to tell
}

// LogValue implements slog.LogValuer: no log shows credentials.
func (o Options) LogValue() slog.Value { return slog.StringValue(o.String()) }

// MarshalJSON makes of o a string without credentials.
func (o Options) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%q", o.String()), nil }
