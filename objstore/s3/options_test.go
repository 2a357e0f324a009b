package s3_test

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/s3"
)

func TestOptionsAreChecked(t *testing.T) {
	good := s3.Options{Bucket: "tier", Region: "eu-test-1", AccessKeyID: accessKey, SecretAccessKey: secretKey}
	for says, spoil := range map[string]func(*s3.Options){
		"no bucket":             func(o *s3.Options) { o.Bucket = "" },
		"no name of a bucket":   func(o *s3.Options) { o.Bucket = "a/b" },
		"without a slash":       func(o *s3.Options) { o.Prefix = "/logs/" },
		"element":               func(o *s3.Options) { o.Prefix = "a/../b" },
		"begins with http":      func(o *s3.Options) { o.Endpoint = "127.0.0.1:7070" },
		"PathStyle":             func(o *s3.Options) { o.Endpoint = "http://127.0.0.1:7070" },
		"a query":               func(o *s3.Options) { o.Endpoint = "http://host?x=1" },
		"holds credentials":     func(o *s3.Options) { o.Endpoint = "http://user:" + secretKey + "@host" },
		"is no URL":             func(o *s3.Options) { o.Endpoint = "http://user:" + secretKey + "@host:port" },
		"go together":           func(o *s3.Options) { o.SecretAccessKey = "" },
		"a SessionToken":        func(o *s3.Options) { o.AccessKeyID, o.SecretAccessKey, o.SessionToken = "", "", "t" },
		"both a profile":        func(o *s3.Options) { o.Profile = "p" },
		"both RootCAs":          func(o *s3.Options) { o.RootCAs, o.RootCAFile = x509.NewCertPool(), "f" },
		"certificate authority": func(o *s3.Options) { o.RootCAFile = filepath.Join(t.TempDir(), "absent") },
		"encryption":            func(o *s3.Options) { o.SSE = "rot13" },
		"KMS key":               func(o *s3.Options) { o.KMSKeyID = "k" },
		"concurrency":           func(o *s3.Options) { o.Concurrency = -1 },
		"stall timeout":         func(o *s3.Options) { o.StallTimeout = -1 },
		"evidence level":        func(o *s3.Options) { o.Evidence = 99 },
		"OnCancel":              func(o *s3.Options) { o.OnCancel = 99 },
		"tags": func(o *s3.Options) {
			o.Tags = map[string]string{}
			for i := range 11 {
				o.Tags[fmt.Sprint(i)] = "v"
			}
		},
	} {
		o := good
		spoil(&o)
		s, err := s3.Open(t.Context(), o)
		if err == nil {
			_ = s.Close()
		}
		wantError(t, err, "open", nil)
		if err != nil && !strings.Contains(err.Error(), strings.TrimSuffix(says, "y")) {
			t.Errorf("%v, which does not say %q", err, says)
		}
		if err != nil {
			noSecret(t, "error", err.Error())
		}
	}
	pem := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(pem, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := good
	o.RootCAFile = pem
	if _, err := s3.Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no PEM certificate") {
		t.Errorf("a file without certificates: %v", err)
	}
	s, err := s3.Open(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}
	if s.String() != "s3://tier/" {
		t.Errorf("it is called %s", s)
	}
	_ = s.Close()
}

// noSecret fails if text holds a credential.
func noSecret(t *testing.T, what, text string) {
	t.Helper()
	for _, secret := range []string{accessKey, secretKey, sessionToken} {
		if strings.Contains(text, secret) {
			t.Errorf("%s shows a credential: %s", what, text)
		}
	}
}

const sessionToken = "fakesessiontokenfakesessiontoken"

func TestOptionsNeverShowCredentials(t *testing.T) {
	o := s3.Options{
		Bucket: "tier", Prefix: "logs", Region: "eu-test-1", Endpoint: "http://me:" + secretKey + "@host",
		AccessKeyID: accessKey, SecretAccessKey: secretKey, SessionToken: sessionToken, HTTPClient: http.DefaultClient,
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("opened", "options", o, "pointer", &o, "map", map[string]any{"o": o})
	slog.New(slog.NewJSONHandler(&log, nil)).Info("opened", "options", o, "pointer", &o, "struct", struct{ O s3.Options }{o})
	b, err := json.Marshal(struct{ O s3.Options }{o})
	if err != nil {
		t.Error(err)
	}
	shown := []string{log.String(), string(b), o.String(), fmt.Sprint(o), fmt.Sprintln(&o), fmt.Errorf("bad: %v", o).Error()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"} {
		shown = append(shown, fmt.Sprintf(verb, o), fmt.Sprintf(verb, &o), fmt.Sprintf(verb, []s3.Options{o}), fmt.Sprintf(verb, struct{ O *s3.Options }{&o}))
	}
	for _, text := range shown {
		noSecret(t, "printing", text)
		if strings.Contains(text, fmt.Sprintf("%x", secretKey)) {
			t.Errorf("printing shows a credential in hexadecimal: %s", text)
		}
	}
	if text := o.String(); !strings.Contains(text, "Bucket:tier") || !strings.Contains(text, "[redacted]") {
		t.Errorf("printed as %s", text)
	}
	if o.SecretAccessKey != secretKey {
		t.Error("printing has changed the options")
	}
	// Every field that could hold a secret is one that is known to.
	known := "AccessKeyID SecretAccessKey SessionToken KMSKeyID"
	for f := range reflect.TypeFor[s3.Options]().Fields() {
		if name := f.Name; (strings.Contains(name, "Key") || strings.Contains(name, "Secret") || strings.Contains(name, "Token") || strings.Contains(name, "Pass")) && !strings.Contains(known, name) {
			t.Errorf("field %s sounds like a secret: is it redacted?", name)
		}
	}
}

func TestParseURL(t *testing.T) {
	for text, want := range map[string]s3.Options{
		"s3://tier":           {Bucket: "tier"},
		"s3://tier/":          {Bucket: "tier"},
		"s3://tier/a/b/":      {Bucket: "tier", Prefix: "a/b"},
		"s3://tier/a%23b":     {Bucket: "tier", Prefix: "a#b"},
		"s3://tier?region=eu": {Bucket: "tier", Region: "eu"},
		"s3://tier/p?region=eu&endpoint=http://127.0.0.1:7070&path-style=true&profile=x&ca-file=/ca.pem": {
			Bucket: "tier", Prefix: "p", Region: "eu", Endpoint: "http://127.0.0.1:7070", PathStyle: true, Profile: "x", RootCAFile: "/ca.pem",
		},
		"s3://tier?storage-class=STANDARD_IA&sse=aws:kms&kms-key-id=k&owner=1&read-only=1&evidence=read-back&concurrency=3&on-cancel=keep&stall-timeout=5s&tag.team=x&tag.env=": {
			Bucket: "tier", StorageClass: "STANDARD_IA", SSE: "aws:kms", KMSKeyID: "k", ExpectedBucketOwner: "1", ReadOnly: true,
			Evidence: objstore.ReadBack, Concurrency: 3, OnCancel: s3.KeepUpload, StallTimeout: 5 * time.Second, Tags: map[string]string{"team": "x", "env": ""},
		},
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s3.ParseURL(u)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, says := range map[string]string{
		"file:///a":      "s3://",
		"s3:///prefix":   "no bucket",
		"s3:tier":        "no bucket",
		"s3://tier:80/p": "no port",
		"s3://" + accessKey + ":" + secretKey + "@tier/p": "credentials",
		"s3://tier/p#x":                            "fragment",
		"s3://tier?regoin=eu":                      `"regoin" is unknown`,
		"s3://tier?region=eu&region=us":            "2 times",
		"s3://tier?region=":                        "region is empty",
		"s3://tier?path-style=yes":                 "path-style",
		"s3://tier?concurrency=many":               "concurrency",
		"s3://tier?on-cancel=ask":                  "abort, keep",
		"s3://tier?evidence=unconfirmed":           "echoed, listed, attributed, read-back",
		"s3://tier?stall-timeout=5":                "stall-timeout",
		"s3://tier?endpoint=ftp://x":               "http://",
		"s3://tier?a;b":                            "cannot be read",
		"s3://t":                                   "3 to 63",
		"s3://tier/a//b":                           "prefix",
		"s3://tier?tag.=x":                         "unknown",
		"s3://tier?secret-access-key=" + secretKey: "unknown",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s3.ParseURL(u)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want one that says %q", text, err, says)
		}
		if err != nil {
			noSecret(t, "error", err.Error())
		}
	}
}

func FuzzParseURL(f *testing.F) {
	f.Add("s3://tier/p?region=eu&endpoint=http://127.0.0.1:7070&path-style=true")
	f.Add("s3://tier?evidence=read-back&tag.x=y&concurrency=5")
	f.Add("s3://a:b@tier")
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.Parse(text)
		if err != nil {
			return
		}
		o, err := s3.ParseURL(u)
		if err != nil {
			return
		}
		if o.Bucket == "" || strings.HasPrefix(o.Prefix, "/") || strings.HasSuffix(o.Prefix, "/") || o.AccessKeyID != "" || o.SecretAccessKey != "" {
			t.Errorf("%q gives %+v", text, o)
		}
	})
}
