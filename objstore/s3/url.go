package s3

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/segtier/segtier/objstore"
)

// ParseURL returns the Options that a URL of a store describes:
//
//	s3://bucket/prefix?region=eu-west-1&endpoint=http://127.0.0.1:7070&path-style=true
//
// Parameters, each at most once: region, endpoint, path-style, profile, ca-file,
// storage-class, sse, kms-key-id, owner, read-only, evidence (echoed, listed,
// attributed, read-back), concurrency, on-cancel (abort, keep), stall-timeout
// (30s) and tag.NAME. Credentials have no place in a URL, which ends up in
// process lists and logs: one that holds some is refused, and not shown.
func ParseURL(u *url.URL) (Options, error) {
	fail := func(format string, args ...any) (Options, error) {
		return Options{}, fmt.Errorf("store URL: "+format, args...)
	}
	switch {
	case u.Scheme != "s3":
		return fail("it begins with %q, not with s3://", u.Scheme)
	case u.User != nil:
		return fail("it holds credentials; those come from the environment, a profile or the instance")
	case u.Opaque != "" || u.Host == "":
		return fail("it names no bucket; write s3://bucket/prefix")
	case u.Port() != "":
		return fail("a bucket has no port; write s3://bucket/prefix?endpoint=http://host:port&path-style=true")
	case u.Fragment != "":
		return fail("it has a fragment; write %%23 for a # in the prefix")
	}
	o := Options{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/")}
	params, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return fail("its parameters cannot be read; they are separated by & and escaped by %%")
	}
	for name, values := range params {
		if len(values) != 1 {
			return fail("parameter %s is given %d times", name, len(values))
		}
		if err := o.set(name, values[0]); err != nil {
			return fail("%w", err)
		}
	}
	if _, err := o.validate(); err != nil {
		return fail("%w", err)
	}
	return o, nil
}

// set takes one parameter of a URL.
func (o *Options) set(name, value string) (err error) {
	texts := map[string]*string{
		"region": &o.Region, "endpoint": &o.Endpoint, "profile": &o.Profile, "ca-file": &o.RootCAFile,
		"storage-class": &o.StorageClass, "sse": &o.SSE, "kms-key-id": &o.KMSKeyID, "owner": &o.ExpectedBucketOwner,
	}
	if text, ok := texts[name]; ok {
		if value == "" {
			return fmt.Errorf("parameter %s is empty", name)
		}
		*text = value
		return nil
	}
	if tag, ok := strings.CutPrefix(name, "tag."); ok && tag != "" {
		if o.Tags == nil {
			o.Tags = make(map[string]string)
		}
		o.Tags[tag] = value
		return nil
	}
	switch name {
	case "path-style":
		o.PathStyle, err = strconv.ParseBool(value)
	case "read-only":
		o.ReadOnly, err = strconv.ParseBool(value)
	case "concurrency":
		o.Concurrency, err = strconv.Atoi(value)
	case "stall-timeout":
		o.StallTimeout, err = time.ParseDuration(value)
	case "on-cancel":
		o.OnCancel, err = oneOf(value, AbortUpload, KeepUpload)
	case "evidence":
		o.Evidence, err = oneOf(strings.ReplaceAll(value, "-", " "), objstore.Echoed, objstore.Listed, objstore.Attributed, objstore.ReadBack)
	default:
		return fmt.Errorf("parameter %q is unknown", name)
	}
	if err != nil {
		if cause := errors.Unwrap(err); cause != nil {
			err = cause
		}
		return fmt.Errorf("parameter %s=%q: %w", name, value, err)
	}
	return nil
}

// oneOf returns the one of values that prints as text.
func oneOf[T fmt.Stringer](text string, values ...T) (T, error) {
	var names []string
	for _, v := range values {
		if v.String() == text {
			return v, nil
		}
		names = append(names, strings.ReplaceAll(v.String(), " ", "-"))
	}
	var zero T
	return zero, fmt.Errorf("it is one of %s", strings.Join(names, ", "))
}
