package main

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/segtier/segtier/objstore/s3"
)

// Where things are if nothing else is said.
const (
	defaultStore = "file:segtier-data/store"
	defaultMeta  = "file:segtier-data/metadata.db"
)

// location is a URL that was understood: a path of this machine, or a bucket.
type location struct {
	url  string // as it was given
	path string
	s3   *s3.Options // nil: it is a path
}

// String returns the location for messages.
func (l location) String() string {
	if l.s3 != nil {
		return "s3://" + l.s3.Bucket + "/" + l.s3.Prefix
	}
	return l.path
}

// Forms of store URLs, for messages.
const (
	fileForm = "file:///dir"
	s3Form   = "s3://bucket/prefix?region=…"
)

// storeLocation returns where the object store is.
func (a *app) storeLocation() (location, error) {
	raw := first(a.store, a.getenv("SEGTIER_STORE"), defaultStore)
	if scheme, _, ok := strings.Cut(raw, ":"); ok && strings.EqualFold(scheme, "s3") {
		return locateS3(raw)
	}
	return locate("store", raw, fileForm+" or "+s3Form, "")
}

// locateS3 parses a URL of the form s3://bucket/prefix. Nothing of one that will
// not do is shown but what s3.ParseURL says: it may hold credentials.
func locateS3(raw string) (location, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return location{}, usagef("store URL: it cannot be read; write %s, with %% and other special characters as %%25 and so on", s3Form)
	}
	o, err := s3.ParseURL(u)
	if err != nil {
		return location{}, usagef("%w; write %s", err, s3Form)
	}
	return location{url: raw, s3: &o}, nil
}

// metaLocation returns where the metadata is.
func (a *app) metaLocation() (location, error) {
	return locate("metadata", first(a.meta, a.getenv("SEGTIER_META"), defaultMeta), "file:///path.db", "kafka")
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// locate parses a URL of the form file:///path or file:path. What is planned
// under the scheme later is refused by name, everything else with the form that
// would do.
func locate(what, raw, form, later string) (location, error) {
	fail := func(format string, args ...any) (location, error) {
		return location{}, usagef("%s URL %q: %s", what, raw, fmt.Sprintf(format, args...))
	}
	u, err := url.Parse(raw)
	if err != nil {
		return fail("%v; write %s", bare(err), form)
	}
	switch strings.ToLower(u.Scheme) {
	case "file":
	case "":
		return fail("a URL is needed, not a path; write file:%s", raw)
	case later:
		return fail("%s:// is not built into this version; write %s", later, form)
	default:
		return fail("scheme %q is not known; write %s", u.Scheme, form)
	}
	switch {
	case u.User != nil || u.Host != "" && u.Host != "localhost":
		return fail("a file URL has no host; write %s, or file:dir for a relative path", form)
	case u.RawQuery != "" || u.ForceQuery:
		return fail("parameter %q is not known, a file URL has none", firstParameter(u.RawQuery))
	case u.Fragment != "":
		return fail("a file URL has no fragment; write # in a path as %%23")
	}
	path := u.Path
	if u.Opaque != "" {
		if path, err = url.PathUnescape(u.Opaque); err != nil {
			return fail("%v; write %s", err, form)
		}
	}
	if path == "" || strings.ContainsRune(path, 0) {
		return fail("there is no path in it; write %s", form)
	}
	return location{url: raw, path: filepath.Clean(filepath.FromSlash(path))}, nil
}

// bare takes the URL off the error of url.Parse: our message has it already.
func bare(err error) error {
	if e, ok := err.(*url.Error); ok { //nolint:errorlint // url.Parse returns exactly this
		return e.Err
	}
	return err
}

func firstParameter(query string) string {
	name, _, _ := strings.Cut(query, "&")
	name, _, _ = strings.Cut(name, "=")
	return name
}

// fileURL is the URL of a path, for command lines that are shown.
func fileURL(path string) string {
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path)}
	if !filepath.IsAbs(path) {
		u = url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()}
	}
	return u.String()
}
