package gateway_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/segtier/segtier/internal/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client trusts the server's certificate.
func client(t *testing.T, s *gateway.Server) *http.Client {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	if s.CAFile() != "" {
		pem, err := os.ReadFile(s.CAFile())
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	return &http.Client{Transport: transport}
}

func get(t *testing.T, c *http.Client, url string) (status int, body string, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

// The server answers as S3 does over both schemes, is gone once it is killed,
// comes back at the same address, and tells nobody its keys.
func TestServer(t *testing.T) {
	for _, secure := range []bool{false, true} {
		s := gateway.Start(t, gateway.Options{TLS: secure})
		c := client(t, s)
		object := s.URL() + "/" + gateway.Bucket + "/x"
		denied := func() {
			t.Helper()
			status, body, err := get(t, c, object)
			if err != nil || status != http.StatusForbidden || !strings.Contains(body, "<Code>AccessDenied") {
				t.Errorf("%s without a signature: %d %q, %v", object, status, body, err)
			}
		}
		denied()
		s.Kill()
		if status, _, err := get(t, c, object); err == nil {
			t.Errorf("a server that was killed answers with status %d", status)
		}
		s.Kill() // again is fine
		u, err := url.Parse(s.URL())
		if err != nil {
			t.Fatal(err)
		}
		if u.Hostname() != "127.0.0.1" { // but its own: somebody else gets the port meanwhile
			l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", u.Port()))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
		}
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		denied()
		if out := s.Output(); !strings.Contains(out, "VersityGW") || strings.Contains(out, s.SecretKey) {
			t.Errorf("output: %s", out)
		}
	}
}

// A proxy passes on what it is not told to hurt, and cuts the rest where it is
// told to.
func TestProxy(t *testing.T) {
	s := gateway.Start(t, gateway.Options{TLS: true})
	p := gateway.Front(t, s)
	c := client(t, s)
	object := p.URL() + "/" + gateway.Bucket + "/a/b"
	if status, body, err := get(t, c, object); err != nil || status != http.StatusForbidden {
		t.Fatalf("%d %q, %v", status, body, err)
	}
	if n := p.Count("GetObject"); n != 1 {
		t.Errorf("%d GetObject counted", n)
	}
	for _, when := range []gateway.Moment{gateway.Before, gateway.Inside, gateway.After} {
		struck := 0
		p.Hook(func(r gateway.Request) gateway.Action {
			if r.Op != "PutObject" || r.Key != "a/b" || r.Size != 100_000 {
				t.Errorf("request %+v", r)
			}
			return gateway.Action{When: when, Do: func() { struck++ }}
		})
		before := p.Sent("/b")
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, object, strings.NewReader(strings.Repeat("x", 100_000)))
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(req)
		if err == nil {
			res.Body.Close()
			t.Errorf("moment %d: status %d, want a cut connection", when, res.StatusCode)
		}
		if struck != 1 {
			t.Errorf("moment %d: struck %d times", when, struck)
		}
		sent := p.Sent("/b") - before
		switch when {
		case gateway.Before:
			if sent != 0 {
				t.Errorf("before: %d bytes passed", sent)
			}
		case gateway.Inside:
			if sent != 50_000 {
				t.Errorf("inside: %d bytes passed", sent)
			}
		}
	}
	p.Hook(func(gateway.Request) gateway.Action {
		return gateway.Action{Answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }}
	})
	if status, _, err := get(t, c, object); err != nil || status != http.StatusTeapot {
		t.Errorf("an answer of ours: %d, %v", status, err)
	}
}
