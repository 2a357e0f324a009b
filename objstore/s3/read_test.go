package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/s3"
)

// answers is a service that answers every GET with the same thing.
type answers struct {
	status int
	header map[string]string
	body   string
	cut    bool // the connection is closed behind body
}

func (a answers) RoundTrip(req *http.Request) (*http.Response, error) {
	h := http.Header{"Etag": {`"one"`}}
	for name, value := range a.header {
		h.Set(name, value)
	}
	resp := &http.Response{StatusCode: a.status, Header: h, Request: req, ContentLength: int64(len(a.body)), Body: io.NopCloser(strings.NewReader(a.body))}
	if a.cut {
		resp.ContentLength += 10
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(a.body), errReader{io.ErrUnexpectedEOF}))
	}
	if text := h.Get("Content-Length"); text != "" {
		_, _ = fmt.Sscan(text, &resp.ContentLength)
	}
	return resp, nil
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// The answer to a ranged GET is exactly that range, or an error that says what it
// is instead.
func TestAnswersToRanges(t *testing.T) {
	const body = "0123456789"
	get := func(a answers, opts objstore.GetOptions) (objstore.Info, string, error) {
		o := newFake(dialect{}).options("http://fake.test")
		o.HTTPClient = &http.Client{Transport: a}
		s := open(t, o)
		info, content, err := s.Get(t.Context(), "a", 100, 10, opts)
		if err != nil {
			return info, "", err
		}
		defer content.Close()
		b, err := io.ReadAll(content)
		return info, string(b), err
	}
	ok := map[string]string{"Content-Range": "bytes 100-109/1000"}
	with := func(name, value string) map[string]string {
		h := map[string]string{"Content-Range": "bytes 100-109/1000"}
		h[name] = value
		return h
	}
	for name, c := range map[string]struct {
		answers
		match string
		want  error // nil: some error; errNone: none
	}{
		"right":                {answers: answers{206, ok, body, false}, want: errNone},
		"right, of that one":   {answers: answers{206, ok, body, false}, match: `"one"`, want: errNone},
		"of another":           {answers: answers{206, ok, body, false}, match: `"two"`, want: objstore.ErrChanged},
		"of another, said":     {answers: answers{412, nil, "", false}, match: `"two"`, want: objstore.ErrChanged},
		"whole":                {answers: answers{200, nil, strings.Repeat("x", 1000), false}, want: objstore.ErrRefused},
		"whole, too short":     {answers: answers{200, map[string]string{"Content-Length": "10"}, body, false}, want: objstore.ErrRange},
		"no content range":     {answers: answers{206, nil, body, false}},
		"another start":        {answers: answers{206, with("Content-Range", "bytes 99-108/1000"), body, false}},
		"another end":          {answers: answers{206, with("Content-Range", "bytes 100-108/1000"), body[:9], false}},
		"cut at the end":       {answers: answers{206, with("Content-Range", "bytes 100-104/105"), body[:5], false}, want: objstore.ErrRange},
		"unknown size":         {answers: answers{206, with("Content-Range", "bytes 100-109/*"), body, false}},
		"nonsense":             {answers: answers{206, with("Content-Range", "bytes 109-100/1000"), body, false}},
		"beyond":               {answers: answers{206, with("Content-Range", "bytes 100-109/105"), body, false}},
		"huge":                 {answers: answers{206, with("Content-Range", "bytes 100-109/99999999999999999999"), body, false}},
		"signed":               {answers: answers{206, with("Content-Range", "bytes +100-109/1000"), body, false}},
		"another length":       {answers: answers{206, ok, body[:9], false}},
		"another length, said": {answers: answers{206, with("Content-Length", "9"), body[:9], false}},
		"compressed":           {answers: answers{206, with("Content-Encoding", "gzip"), body, false}},
		"no ETag":              {answers: answers{206, with("Etag", ""), body, false}},
		"ends early":           {answers: answers{206, with("Content-Length", "10"), body[:4], false}, want: io.ErrUnexpectedEOF},
		"is cut":               {answers: answers{206, with("Content-Length", "10"), body[:4], true}, want: io.ErrUnexpectedEOF},
		"goes on":              {answers: answers{206, with("Content-Length", "10"), body + "more", false}, want: errNone},
		"no such key":          {answers: answers{404, nil, "<Error><Code>NoSuchKey</Code></Error>", false}, want: objstore.ErrNotExist},
		"no such bucket":       {answers: answers{404, nil, "<Error><Code>NoSuchBucket</Code></Error>", false}, want: objstore.ErrRefused},
		"outside":              {answers: answers{416, nil, "<Error><Code>InvalidRange</Code></Error>", false}, want: objstore.ErrRange},
		"slow down":            {answers: answers{503, map[string]string{"Retry-After": "7"}, "<Error><Code>SlowDown</Code></Error>", false}, want: objstore.ErrThrottled},
		"too many":             {answers: answers{429, map[string]string{"Retry-After": "7"}, "", false}, want: objstore.ErrThrottled},
		"a page of a proxy":    {answers: answers{502, nil, "<html>bad gateway", false}},
		"an archived object":   {answers: answers{403, nil, "<Error><Code>InvalidObjectState</Code></Error>", false}, want: objstore.ErrRefused},
		"not modified":         {answers: answers{304, nil, "", false}},
		"somewhere else":       {answers: answers{301, map[string]string{"Location": "http://elsewhere/"}, "", false}, want: objstore.ErrRefused},
		"an error that is 2xx": {answers: answers{204, nil, "", false}},
	} {
		info, got, err := get(c.answers, objstore.GetOptions{IfMatch: c.match})
		if c.want == errNone {
			if err != nil || got != body || info.Size != 1000 || info.Identity != `"one"` || info.Key != "a" {
				t.Errorf("%s: %+v, %q, %v", name, info, got, err)
			}
			continue
		}
		wantError(t, err, "get", c.want)
		if err != nil && !strings.Contains(err.Error(), "[100,110)") {
			t.Errorf("%s: the range is not named: %v", name, err)
		}
		var e *objstore.Error
		if errors.Is(err, objstore.ErrThrottled) && (!errors.As(err, &e) || e.RetryAfter != 7*time.Second) {
			t.Errorf("%s: retry after %v", name, e.RetryAfter)
		}
	}
}

var errNone = errors.New("none")

func TestStatShowsWhatTheServiceSays(t *testing.T) {
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		small, large := content(1, 1000), content(1, threeParts)
		req := upload("small", small, mib)
		req.Token = "a token with spaces  and ünïcode/+%"
		mustUpload(t, f, s, req, small)
		mustUpload(t, f, s, upload("large", large, 5*mib), large)
		info, err := s.Stat(t.Context(), "small")
		if err != nil || info.Token != req.Token || !info.HasCRC32C || info.CRC32C != req.Sum().CRC32C || info.Size != 1000 || info.Now.IsZero() || info.Modified.IsZero() {
			t.Errorf("%+v, %v", info, err)
		}
		// The sum of the parts' sums is not the object's.
		if info, err := s.Stat(t.Context(), "large"); err != nil || info.HasCRC32C || info.Size != threeParts {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

func TestCompositeSumIsNotTheObjects(t *testing.T) {
	inBubble(t, dialect{noSuffix: true}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		data := content(1, threeParts)
		mustUpload(t, f, s, upload("a", data, 5*mib), data)
		if info, err := s.Stat(t.Context(), "a"); err != nil || info.HasCRC32C {
			t.Errorf("%+v, %v", info, err)
		}
		if ev := mustUpload(t, f, s, upload("a", data, 5*mib), data); !ev.Existed || s.Stats().BytesRead != 0 {
			t.Errorf("existed %v, %d bytes read", ev.Existed, s.Stats().BytesRead)
		}
	})
}

func TestListShowsWhatWasAskedFor(t *testing.T) {
	inBubble(t, dialect{listsAll: true}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		f.mu.Lock()
		for _, name := range []string{"logs/a", "logs/b/1", "logs/b/2", "logs/b/3", "logs/c"} {
			f.objects[name] = &fakeObject{etag: `"e"`}
		}
		f.mu.Unlock()
		var got []string
		for info, err := range s.List(t.Context(), "b/", "b/1") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, info.Key)
		}
		if text := fmt.Sprint(got); text != "[b/2 b/3]" {
			t.Errorf("listed are %s", text)
		}
	})
}

// A bucket may hold what is not ours.
func TestListSkipsWhatIsNotOurs(t *testing.T) {
	inBubble(t, dialect{pageSize: 2}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		f.mu.Lock()
		for _, name := range []string{"logs/", "logs/a/", "logs/a//b", "logs/b", "logs/c d", "logs/.segtier-probe/x/right", "logsmore", "log", "logs/z", "\u00e4"} {
			f.objects[name] = &fakeObject{etag: `"e"`}
		}
		f.mu.Unlock()
		f.left(".segtier-probe/x/right", "probe", nil)
		f.left("b", "ours", nil)
		var got []string
		for info, err := range s.List(t.Context(), "", "") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, info.Key)
		}
		for p, err := range s.Uploads(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, p.ID)
		}
		if text := fmt.Sprint(got); text != "[b z ours]" {
			t.Errorf("listed are %s", text)
		}
		_, err := s.Stat(t.Context(), ".segtier-probe/x/right")
		wantError(t, err, "stat", nil)
	})
}

// What a killed process has left of a probe is shown to who asks for it, and can be
// deleted; nobody reads or writes it.
func TestProbesThatWereLeft(t *testing.T) {
	inBubble(t, dialect{pageSize: 2}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		id := objstore.ProbePrefix + strings.Repeat("a7", 13)
		f.mu.Lock()
		for _, name := range []string{"logs/b", "logs/" + id + "/right", "logs/" + id + "/wrong", "logs/" + id + "/else", "logs/.segtier-probe/x/right"} {
			f.objects[name] = &fakeObject{etag: `"e"`}
		}
		f.mu.Unlock()
		f.left(id+"/right", "probe", nil)
		f.left("b", "ours", nil)
		shown := func() (got []string) {
			for info, err := range s.List(t.Context(), objstore.ProbePrefix, "") {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, info.Key)
			}
			for p, err := range s.Uploads(t.Context(), objstore.ProbePrefix) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, p.ID)
			}
			return got
		}
		if got := shown(); !slices.Equal(got, []string{id + "/right", id + "/wrong", "probe"}) {
			t.Errorf("shown are %q", got)
		}
		if _, err := s.Stat(t.Context(), id+"/right"); err != nil {
			t.Error(err)
		}
		_, _, err := s.Get(t.Context(), id+"/right", 0, 1, objstore.GetOptions{})
		wantError(t, err, "get", nil)
		err = s.Delete(t.Context(), objstore.ProbePrefix+"x/right")
		wantError(t, err, "delete", nil)
		if err := s.Delete(t.Context(), id+"/right", id+"/wrong"); err != nil {
			t.Error(err)
		}
		if err := s.Abort(t.Context(), objstore.Pending{Key: id + "/right", ID: "probe"}); err != nil {
			t.Error(err)
		}
		if got := shown(); len(got) > 0 {
			t.Errorf("still shown are %q", got)
		}
	})
}

func TestDeleteNamesWhatItCouldNot(t *testing.T) {
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		err := s.Delete(t.Context(), "a", "b/protected", "c")
		wantError(t, err, "delete", objstore.ErrRefused)
		var e *objstore.Error
		if errors.As(err, &e); e.Key != "b/protected" || !strings.Contains(err.Error(), "s3:DeleteObject") {
			t.Errorf("%v", err)
		}
		keys := make([]string, 2500)
		for i := range keys {
			keys[i] = fmt.Sprint("k/", i)
		}
		if err := s.Delete(t.Context(), keys...); err != nil || f.count("DeleteObjects") != 4 {
			t.Errorf("%v after %d requests", err, f.count("DeleteObjects"))
		}
	})
}

func TestBodiesAfterTheirEnd(t *testing.T) {
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		data := content(1, mib)
		mustUpload(t, f, s, upload("a", data, mib), data)
		ctx, cancel := context.WithCancel(t.Context())
		_, body, err := s.Get(ctx, "a", 10, 1000, objstore.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(body)
		if err != nil || !bytes.Equal(got, data[10:1010]) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		cancel()
		for range 2 {
			if err := body.Close(); err != nil {
				t.Error(err)
			}
		}
		f.set(func(r request) fault { return fault{kind: cutAnswer, at: 500} })
		_, body, err = s.Get(t.Context(), "a", 10, 1000, objstore.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, err = io.ReadAll(body)
		if !errors.Is(err, io.ErrUnexpectedEOF) || !bytes.Equal(got, data[10:10+len(got)]) || len(got) > 500 {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		_ = body.Close()
	})
}
