package weather

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/segtier/segtier/internal/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is a started server with a raw client.
type place struct {
	*Server
	Addresses

	t      testing.TB
	client *http.Client
	url    string // of the bucket
	dials  atomic.Int64
}

func newPlace(t testing.TB, o Options) *place {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	at, err := s.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(at.CA)) {
		t.Fatal("no certificate")
	}
	p := &place{Server: s, Addresses: at, t: t, url: at.HTTP + "/bucket/"}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableCompression: true}
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		p.dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	p.client = &http.Client{Transport: tr}
	return p
}

// until waits until the server has come to something, which it does by itself.
func (p *place) until(come func(Stats) bool) {
	p.t.Helper()
	for guard := time.Now().Add(hangs); !come(p.Stats()); <-time.After(time.Millisecond) {
		if time.Now().After(guard) {
			p.t.Fatalf("it never comes to it: %+v", p.Stats())
		}
	}
}

// hangs is after how long something hangs for certain, on whatever machine.
const hangs = 5 * time.Minute

// reply is an answer as the client saw it.
type reply struct {
	status int
	header http.Header
	body   []byte
	err    error // of reading the body, or of the request
}

// ask sends a request. Headers are given as "Name: value".
func (p *place) ask(method, url string, body []byte, headers ...string) reply {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, b, err}
}

// want sends a request that must be answered with this status.
func (p *place) want(status int, method, url string, body []byte, headers ...string) reply {
	p.t.Helper()
	r := p.ask(method, url, body, headers...)
	if r.status != status || r.err != nil {
		p.t.Fatalf("%s %s: status %d, want %d: %s (%v)", method, url, r.status, status, r.body, r.err)
	}
	return r
}

// code is the S3 code of an error.
func (r reply) code() string {
	_, rest, _ := strings.Cut(string(r.body), "<Code>")
	code, _, _ := strings.Cut(rest, "</Code>")
	return code
}

func bytesOf(t testing.TB, tier *Tier, p, i int) (*Object, []byte) {
	t.Helper()
	o, err := tier.Object(p, i)
	if err != nil {
		t.Fatal(err)
	}
	return o, whole(t, o)
}

func TestRanges(t *testing.T) {
	p := newPlace(t, Options{})
	o, b := bytesOf(t, mustTier(t, Spec{SegmentBytes: 3 << 20, BatchBytes: 5000}), 0, 0)
	n := len(b)
	for _, scheme := range []string{p.HTTP, p.HTTPS} {
		url := scheme + "/bucket/some/prefix/" + o.Key()
		whole := p.want(200, "GET", url, nil)
		if !bytes.Equal(whole.body, b) || whole.header.Get("ETag") == "" {
			t.Fatal("the whole object is another")
		}
		head := p.want(200, "HEAD", url, nil)
		if head.header.Get("Content-Length") != fmt.Sprint(n) || head.header.Get("ETag") != whole.header.Get("ETag") {
			t.Errorf("HEAD: %v", head.header)
		}
		for _, c := range []struct {
			spec     string
			from, to int
		}{
			{"0-0", 0, 1},
			{"0-99", 0, 100},
			{"1048576-2097151", 1 << 20, 2 << 20},
			{fmt.Sprintf("%d-", n-10), n - 10, n},
			{"-7", n - 7, n},
			{fmt.Sprintf("5-%d", 10*n), 5, n},
			{fmt.Sprintf("-%d", 10*n), 0, n},
		} {
			r := p.want(206, "GET", url, nil, "Range: bytes="+c.spec)
			if !bytes.Equal(r.body, b[c.from:c.to]) || r.header.Get("Content-Range") != fmt.Sprintf("bytes %d-%d/%d", c.from, c.to-1, n) {
				t.Errorf("range %s: %d bytes, %s", c.spec, len(r.body), r.header.Get("Content-Range"))
			}
		}
		for _, spec := range []string{fmt.Sprintf("%d-", n), "9-3", "-0"} {
			if r := p.want(416, "GET", url, nil, "Range: bytes="+spec); r.code() != "InvalidRange" {
				t.Errorf("range %s: %s", spec, r.body)
			}
		}
		p.want(206, "GET", url, nil, "Range: bytes=0-9", "If-Match: "+whole.header.Get("ETag"))
		p.want(412, "GET", url, nil, "Range: bytes=0-9", `If-Match: "other"`)
		p.want(304, "GET", url, nil, "If-None-Match: "+whole.header.Get("ETag"))
	}
	if r := p.want(404, "GET", p.url+"nothing", nil); r.code() != "NoSuchKey" {
		t.Errorf("%s", r.body)
	}
	p.want(404, "HEAD", p.url+"nothing", nil)
	p.want(501, "PATCH", p.url+"x", nil)
}

func TestFilesOfADirectory(t *testing.T) {
	p := newPlace(t, Options{Dir: "cmd"})
	r := p.want(206, "GET", p.url+"main.go", nil, "Range: bytes=0-9")
	if string(r.body) != "// Command" {
		t.Errorf("%q", r.body)
	}
	p.want(404, "GET", p.url+"../doc.go", nil)
	p.want(404, "GET", p.url+"nothing.go", nil)
}

// Each kind of fault is what it says it is, and is counted.
func TestFaultsOfReads(t *testing.T) {
	tier := mustTier(t, Spec{SegmentBytes: 3 << 20})
	o, b := bytesOf(t, tier, 0, 0)
	const from, n = 1000, 600_000
	want := b[from : from+n]
	for _, c := range []struct {
		fault Fault
		check func(r reply, took time.Duration) bool
	}{
		{Fault{Kind: Stall, At: 300_000, For: Duration(60 * time.Millisecond)}, func(r reply, took time.Duration) bool {
			return r.status == 206 && bytes.Equal(r.body, want) && took >= 60*time.Millisecond
		}},
		{Fault{Kind: Reset, At: 300_000}, func(r reply, _ time.Duration) bool {
			return r.err != nil && !errors.Is(r.err, io.ErrUnexpectedEOF) && len(r.body) <= 300_000 && bytes.HasPrefix(want, r.body)
		}},
		{Fault{Kind: Reset}, func(r reply, _ time.Duration) bool { return r.err != nil && r.status == 0 }},
		{Fault{Kind: Cut, At: 300_000}, func(r reply, _ time.Duration) bool {
			return errors.Is(r.err, io.ErrUnexpectedEOF) && bytes.Equal(r.body, want[:300_000])
		}},
		{Fault{Kind: Cut}, func(r reply, _ time.Duration) bool { return errors.Is(r.err, io.EOF) && r.status == 0 }},
		{Fault{Kind: Short, At: 300_000}, func(r reply, _ time.Duration) bool {
			return r.status == 206 && r.err == nil && bytes.Equal(r.body, want[:300_000]) &&
				r.header.Get("Content-Range") == fmt.Sprintf("bytes %d-%d/%d", from, from+300_000-1, len(b))
		}},
		{Fault{Kind: Whole}, func(r reply, _ time.Duration) bool {
			return r.status == 200 && bytes.Equal(r.body, b) && r.header.Get("Content-Range") == ""
		}},
		{Fault{Kind: WrongRange}, func(r reply, _ time.Duration) bool {
			return r.status == 206 && r.header.Get("Content-Range") == fmt.Sprintf("bytes %d-%d/%d", from-1, from+n-2, len(b)) &&
				bytes.Equal(r.body, b[from-1:from+n-1])
		}},
		{Fault{Kind: WrongETag}, func(r reply, _ time.Duration) bool {
			return r.status == 206 && bytes.Equal(r.body, want) && r.header.Get("ETag") == `"`+strings.Repeat("0", 32)+`"`
		}},
		{Fault{Kind: Encoded}, func(r reply, _ time.Duration) bool {
			return r.status == 206 && bytes.Equal(r.body, want) && r.header.Get("Content-Encoding") == "gzip"
		}},
		{Fault{Kind: Flip, At: 300_000}, func(r reply, _ time.Duration) bool {
			if r.status != 206 || len(r.body) != n {
				return false
			}
			d := r.body[300_000] ^ want[300_000]
			r.body[300_000] ^= d
			return d != 0 && d&(d-1) == 0 && bytes.Equal(r.body, want)
		}},
		{Fault{Kind: Throttle}, func(r reply, _ time.Duration) bool {
			return r.status == 503 && r.code() == "SlowDown" && r.header.Get("Retry-After") == ""
		}},
		{Fault{Kind: Throttle, RetryAfter: Duration(1500 * time.Millisecond)}, func(r reply, _ time.Duration) bool {
			return r.status == 503 && r.header.Get("Retry-After") == "2"
		}},
		{Fault{Kind: Internal}, func(r reply, _ time.Duration) bool { return r.status == 500 && r.code() == "InternalError" }},
		{Fault{Kind: Refuse}, func(r reply, _ time.Duration) bool { return r.status == 403 }},
		{Fault{Kind: Missing}, func(r reply, _ time.Duration) bool { return r.status == 404 }},
		{Fault{Kind: Late, For: Duration(60 * time.Millisecond)}, func(r reply, took time.Duration) bool {
			return r.status == 206 && bytes.Equal(r.body, want) && took >= 60*time.Millisecond
		}},
	} {
		t.Run(string(c.fault.Kind), func(t *testing.T) {
			c.fault.Share, c.fault.Attempts = 1, 1
			p := newPlace(t, Options{Schedule: Schedule{Faults: []Fault{c.fault}}})
			// A POST, or a request with the key, is repeated by net/http if the
			// connection was used before: this is the first on its connection.
			began := time.Now()
			r := p.ask("GET", p.url+o.Key(), nil, fmt.Sprintf("Range: bytes=%d-%d", from, from+n-1))
			if !c.check(r, time.Since(began)) {
				t.Errorf("status %d, %d bytes, %v, %v", r.status, len(r.body), r.header, r.err)
			}
			if got := p.Stats().Faults[c.fault.Kind]; got != 1 {
				t.Errorf("counted %d times", got)
			}
			// Only the first attempt.
			if r := p.want(206, "GET", p.url+o.Key(), nil, fmt.Sprintf("Range: bytes=%d-%d", from, from+n-1)); !bytes.Equal(r.body, want) {
				t.Error("the second attempt meets it, too")
			}
		})
	}
}

// Two clients meet the same weather; another seed is another weather.
func TestWeatherIsTheSameForAll(t *testing.T) {
	tier := mustTier(t, Spec{SegmentBytes: 1 << 20})
	o, _ := bytesOf(t, tier, 0, 0)
	storm := Schedule{Seed: 7, Faults: []Fault{{Kind: Throttle, Share: .3}, {Kind: Cut, Share: .3, At: -1}, {Kind: Flip, Share: .3, At: -1}}}
	p := newPlace(t, Options{Schedule: storm})
	seen := func(key string, order []int) string {
		got := make([]string, 40)
		for _, i := range order {
			for range 2 {
				r := p.ask("GET", p.url+o.Key(), nil, fmt.Sprintf("Range: bytes=%d-%d", i*1000, i*1000+20_000), "Authorization: AWS4-HMAC-SHA256 Credential="+key+"/x")
				got[i] += fmt.Sprintf("%d:%d:%x ", r.status, len(r.body), sum(r.body))
			}
		}
		return strings.Join(got, "\n")
	}
	up, down := make([]int, 40), make([]int, 40)
	for i := range up {
		up[i], down[i] = i, 39-i
	}
	first, second := seen("one", up), seen("two", down)
	if first != second {
		t.Errorf("two clients met\n%s\nand\n%s", first, second)
	}
	if again := seen("one", up); again == first {
		t.Error("the third attempt is like the first")
	}
	p.Reset(false)
	if again := seen("one", down); again != first {
		t.Error("another weather after a reset")
	}
	storm.Seed = 8
	if err := p.SetSchedule(storm); err != nil {
		t.Fatal(err)
	}
	if other := seen("three", up); other == first {
		t.Error("the same weather with another seed")
	}
}

func sum(b []byte) (s uint32) {
	for _, c := range b {
		s = s*31 + uint32(c)
	}
	return s
}

// How long answers take, to the nanosecond: in virtual time, without a network.
func TestRatesAndLatencies(t *testing.T) {
	tier := mustTier(t, Spec{SegmentBytes: 4 << 20})
	o, b := bytesOf(t, tier, 0, 0)
	took := func(weather Schedule, clients, n int) (d time.Duration) {
		bubble.Test(t, func(t *testing.T) {
			s, err := New(Options{Schedule: weather})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			var running sync.WaitGroup
			for range clients { // on a connection each
				running.Go(func() {
					req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/bucket/"+o.Key(), nil)
					req.Header.Set("Range", fmt.Sprintf("bytes=0-%d", n-1))
					w := httptest.NewRecorder()
					if s.ServeHTTP(w, req); w.Code != 206 || !bytes.Equal(w.Body.Bytes(), b[:n]) {
						t.Errorf("status %d, %d bytes", w.Code, w.Body.Len())
					}
				})
			}
			running.Wait()
			d = time.Since(began)
		})
		return d
	}
	for name, c := range map[string]struct {
		weather    Schedule
		clients, n int
		want       time.Duration
	}{
		"2 MiB at 20 MiB/s":              {Schedule{ConnRate: 20 << 20}, 1, 2 << 20, 100 * time.Millisecond},
		"2 MiB each of two at 20 MiB/s":  {Schedule{ConnRate: 20 << 20}, 2, 2 << 20, 100 * time.Millisecond},
		"2 MiB of two, 20 MiB/s in all":  {Schedule{TotalRate: 20 << 20}, 2, 1 << 20, 100 * time.Millisecond},
		"a first byte of 50 ms":          {Schedule{FirstByte: Latency{Median: Duration(50 * time.Millisecond)}}, 1, 1, 50 * time.Millisecond},
		"no rate and no latency at all":  {Schedule{}, 2, 2 << 20, 0},
		"the slower one of the two ones": {Schedule{ConnRate: 20 << 20, TotalRate: 10 << 20}, 1, 1 << 20, 100 * time.Millisecond},
	} {
		// What is rounded, a nanosecond for each piece of 32 KiB.
		if d := took(c.weather, c.clients, c.n); d < c.want-100 || d > c.want {
			t.Errorf("%s took %v, want %v", name, d, c.want)
		}
	}
}

func TestRequestRates(t *testing.T) {
	p := newPlace(t, Options{Schedule: Schedule{RequestRate: .0001, RequestBurst: 2}}) // the next one in hours
	o, _ := bytesOf(t, mustTier(t, Spec{SegmentBytes: 4 << 20}), 0, 0)
	for range 2 {
		p.want(206, "GET", p.url+o.Key(), nil, "Range: bytes=0-9")
	}
	if r := p.want(503, "GET", p.url+o.Key(), nil); r.code() != "SlowDown" {
		t.Errorf("%s", r.body)
	}
	if n := p.Stats().Answers[503]; n != 1 {
		t.Errorf("%d answers of 503 are counted", n)
	}
}

func TestLatencyDistributions(t *testing.T) {
	const n = 100_000
	d := dice{1}
	count := func(l Latency, below time.Duration) (c float64) {
		for range n {
			if l.draw(d.next(), d.next(), d.next()) < below {
				c++
			}
		}
		return c / n
	}
	log := Latency{Kind: Lognormal, Median: Duration(30 * time.Millisecond), P99: Duration(200 * time.Millisecond)}
	heavy := log
	heavy.Kind, heavy.Tail, heavy.Max = HeavyTail, .05, Duration(3*time.Second)
	for _, c := range []struct {
		l     Latency
		below time.Duration
		want  float64
	}{
		{log, 30 * time.Millisecond, .5},
		{log, 200 * time.Millisecond, .99},
		{heavy, 200 * time.Millisecond, .95 * .99},
		// Of the tail, 10 % are above p99 · 10^(1/1.1).
		{heavy, 1622 * time.Millisecond, 1 - .05*.1},
		{heavy, 3*time.Second + 1, 1},
		{Latency{Median: 5}, 5, 0},
		{Latency{Median: 5}, 6, 1},
	} {
		if got := count(c.l, c.below); got < c.want-.006 || got > c.want+.006 {
			t.Errorf("%+v: %.4f are below %v, want %.4f", c.l, got, c.below, c.want)
		}
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	p := newPlace(t, Options{Schedule: Schedule{IdleClose: Duration(20 * time.Millisecond)}})
	p.want(404, "GET", p.url+"x", nil)
	p.until(func(st Stats) bool { return st.IdleClosed > 0 && st.Open == 0 })
}

func TestCounts(t *testing.T) {
	p := newPlace(t, Options{})
	held, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.HTTP[len("http://"):])
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	p.until(func(st Stats) bool { return st.Open == 1 })
	tier := mustTier(t, Spec{SegmentBytes: 8 << 20})
	o, _ := bytesOf(t, tier, 0, 0)
	url := p.url + o.Key()
	get := func(from, n int64) {
		p.want(206, "GET", url, nil, fmt.Sprintf("Range: bytes=%d-%d", from, from+n-1))
	}
	get(0, 1<<20)
	get(3<<20, 1<<20)
	get(1<<20, 2<<20) // fills the hole
	get(o.Location().TailOffset, o.Location().TailSize())
	p.want(200, "HEAD", url, nil)
	// How many connections there are beside that one is net/http's business: it takes
	// another if it is not told within 50 ms that the request before was written.
	st := p.Stats()
	if st.DuplicateBytes != 0 || st.DuplicateMiB != 0 || st.TouchedMiB != 5 || st.DataGets != 3 || st.TailGets != 1 ||
		st.BytesOut != 4<<20+o.Location().TailSize() || st.Requests["GetObject"] != 4 || st.Requests["HeadObject"] != 1 ||
		st.Answers[206] != 4 || st.Answers[200] != 1 || st.Connections != 1+p.dials.Load() || st.Open < 1 || st.Abandoned != 0 {
		t.Errorf("%+v", st)
	}
	get(1<<20-5, 10)
	get(5<<20, 1)
	st = p.Stats()
	if st.DuplicateBytes != 10 || st.DuplicateMiB != 2 || st.TouchedMiB != 6 {
		t.Errorf("%+v", st)
	}
	// By the admin port, which counts nothing.
	var asked Stats
	if err := json.Unmarshal(p.want(200, "GET", p.Addresses.Admin+"/_weather/stats", nil).body, &asked); err != nil || asked.DuplicateBytes != 10 || asked.Connections != st.Connections {
		t.Errorf("%+v: %v", asked, err)
	}
	p.want(200, "POST", p.Addresses.Admin+"/_weather/reset", nil)
	if st := p.Stats(); st.BytesOut != 0 || len(st.Requests) != 0 || st.TouchedMiB != 0 || st.Open < 1 {
		t.Errorf("after a reset: %+v", st)
	}
	p.want(200, "POST", p.Addresses.Admin+"/_weather/schedule", []byte("s3"))
	if p.Schedule().RequestRate != 5500 {
		t.Error("the schedule is not the one that was set")
	}
	if r := p.want(400, "POST", p.Addresses.Admin+"/_weather/schedule", []byte(`{"faults":[{"kind":"hail","share":1}]}`)); !strings.Contains(string(r.body), "hail") {
		t.Errorf("%s", r.body)
	}
	p.want(400, "POST", p.Addresses.Admin+"/_weather/schedule", []byte("@doc.go"))
	p.want(404, "GET", p.HTTP+"/_weather/nothing", nil)
}

// A client that leaves is noticed.
func TestAbandonedBodies(t *testing.T) {
	p := newPlace(t, Options{Schedule: Schedule{ConnRate: 10 << 20}})
	o, _ := bytesOf(t, mustTier(t, Spec{SegmentBytes: 32 << 20}), 0, 0)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+o.Key(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	p.until(func(st Stats) bool { return st.Abandoned > 0 })
}

func TestCoverage(t *testing.T) {
	// Against a model of single bytes.
	c, seen, twice := &coverage{cells: map[int64]bool{}}, make([]bool, 1000), int64(0)
	d := dice{3}
	for range 500 {
		from := int64(d.next() * 900)
		to := from + 1 + int64(d.next()*20)
		for i := from; i < to; i++ {
			if seen[i] {
				twice++
			}
			seen[i] = true
		}
		c.add(from, to)
		if c.twice != twice {
			t.Fatalf("[%d,%d): %d bytes twice, want %d", from, to, c.twice, twice)
		}
		for i, s := range c.spans {
			if s.from >= s.to || i > 0 && s.from <= c.spans[i-1].to {
				t.Fatalf("spans %v", c.spans)
			}
		}
	}
}

func TestSchedules(t *testing.T) {
	for _, name := range Presets() {
		s, err := ParseSchedule(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseSchedule(string(b))
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, b)
		}
		c, err := json.Marshal(again)
		if err != nil || !bytes.Equal(b, c) {
			t.Errorf("%s is read back as %s, written %s", name, c, b)
		}
	}
	for _, bad := range []string{
		"", "sunny", "{", `{"rain":1}`, `{} {}`, `{"connRate":-1}`, `{"requestRate":-1}`, `{"firstByte":{"median":"x"}}`,
		`{"firstByte":{"kind":"lognormal","median":"30ms"}}`, `{"firstByte":{"kind":"odd"}}`, `{"faults":[{"kind":"cut","share":2}]}`,
		`{"faults":[{"kind":"cut","share":1,"operation":"Get"}]}`, `{"faults":[{"kind":"stall","share":1}]}`,
		`{"faults":[{"kind":"cut","share":1,"at":-2}]}`, `{"idleClose":"-1s"}`, "@nothing.json",
	} {
		if _, err := ParseSchedule(bad); err == nil {
			t.Errorf("%q is a schedule", bad)
		}
	}
}

func TestSpecs(t *testing.T) {
	for _, bad := range []Spec{
		{BatchBytes: 10},
		{BatchBytes: 100, Records: 50},
		{Records: 256},
		{ChunkBytes: 1000},
		{ChunkBytes: 512},
		{SegmentBytes: 100},
		{SegmentBytes: 1 << 40},
		{Partitions: -1},
		{Segments: -1},
		{Topic: "a/b"},
	} {
		if _, err := bad.Tier(); err == nil {
			t.Errorf("%+v is a spec", bad)
		}
	}
	for _, good := range []Spec{{}, {BatchBytes: 100}, {BatchBytes: 1 << 20, SegmentBytes: 2 << 30}, {Segments: 1 << 30}} {
		if _, err := good.Tier(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
}
