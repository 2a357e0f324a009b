package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segtier/segtier/internal/gateway"
	"github.com/segtier/segtier/internal/testseg"
)

// Tests of the command on a real S3 server; see package internal/gateway.

// s3Bench is a bench whose store is under prefix on the server, or a proxy before
// it, at endpoint. The keys are in the environment, as a user has them.
func s3Bench(t *testing.T, s *gateway.Server, endpoint, prefix string) *bench {
	t.Helper()
	for _, v := range s.Env() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	b := newBench(t)
	b.storeURL = s.StoreURL(endpoint, prefix)
	return b
}

// Every command on a bucket, over both schemes; those that read leave no trace on
// the server.
func TestCommandsOnS3(t *testing.T) {
	for _, secure := range []bool{false, true} {
		s := gateway.Start(t, gateway.Options{TLS: secure})
		proxy := gateway.Front(t, s)
		b := s3Bench(t, s, proxy.URL(), "all/commands")
		o := oracleOf(t, source(payments))
		if out := b.done("copy", source(payments)); strings.Count(out, "copied") != len(o.bases) {
			t.Errorf("copy: %s", out)
		}
		proxy.Hook(func(r gateway.Request) gateway.Action {
			if r.Op != "GetObject" && r.Op != "HeadObject" && r.Op != "ListObjectsV2" {
				t.Errorf("a reading command makes a %s of %s", r.Op, r.Key)
			}
			return gateway.Action{}
		})
		file := filepath.Join(b.dir, "out.log")
		b.done("fetch", "--format", "raw", "--max-bytes", "64MiB", "--out", file, o.name, "earliest")
		if got, err := os.ReadFile(file); err != nil || string(got) != string(o.log) {
			t.Errorf("fetched %d bytes, %v, differing from the %d of the source", len(got), err, len(o.log))
		}
		b.done("verify")
		b.done("explain", o.name, fmt.Sprint(o.end))
		b.done("offset", o.name, "0")
		b.done("ls", "--json")
		b.want(statusNotInTier, "fetch", o.name, fmt.Sprint(o.end+1))
		export := filepath.Join(b.dir, "export.jsonl")
		if err := os.WriteFile(export, []byte(b.done("meta", "export")), 0o600); err != nil {
			t.Fatal(err)
		}
		other := newBench(t)
		other.storeURL = b.storeURL
		other.done("meta", "import", export, "--apply")
		if got := other.done("ls", "--json"); got != b.done("ls", "--json") {
			t.Errorf("imported are\n%s", got)
		}
		proxy.Hook(nil)
		if out := b.done("copy", source(payments)); strings.Count(out, "exists") != len(o.bases) {
			t.Errorf("copy again: %s", out)
		}
	}
}

// What stands between the command and its bucket is told once, with what to do,
// ends with status 1, at once, and shows no secret.
func TestS3Refusals(t *testing.T) {
	plain := gateway.Start(t, gateway.Options{})
	secure := gateway.Start(t, gateway.Options{TLS: true})
	proxy := gateway.Front(t, plain)
	swap := func(url, from, to string) string {
		t.Helper()
		if !strings.Contains(url, from) {
			t.Fatalf("%s does not hold %s", url, from)
		}
		return strings.Replace(url, from, to, 1)
	}
	const wrongSecret = "wrong-secret-of-somebody-who-mistyped-it"
	for _, tt := range []struct {
		name  string
		setup func(b *bench)
		hook  func(gateway.Request) gateway.Action
		says  []string

		passing bool // for all that one can know: it is tried again
	}{
		{
			name: "wrong secret key", says: []string{"SignatureDoesNotMatch", "secret key"},
			setup: func(*bench) { t.Setenv("AWS_SECRET_ACCESS_KEY", wrongSecret) },
		},
		{
			name: "unknown access key", says: []string{"access key", "wrong"},
			setup: func(*bench) { t.Setenv("AWS_ACCESS_KEY_ID", "AKIANOBODYHASTHISKEY") },
		},
		{
			name: "no credentials", says: []string{"no AWS credentials"},
			setup: func(*bench) { t.Setenv("AWS_ACCESS_KEY_ID", ""); t.Setenv("AWS_SECRET_ACCESS_KEY", "") },
		},
		{
			name: "missing bucket", says: []string{"no bucket missing-bucket"},
			setup: func(b *bench) { b.storeURL = swap(b.storeURL, gateway.Bucket, "missing-bucket") },
		},
		{
			name: "wrong region", says: []string{"AuthorizationHeaderMalformed", "region"},
			setup: func(b *bench) { b.storeURL = swap(b.storeURL, gateway.Region, "xx-wrong-7") },
		},
		{
			name: "plain HTTP behind https", says: []string{"plain HTTP", "http://"},
			setup: func(b *bench) { b.storeURL = plain.StoreURL(swap(plain.URL(), "http://", "https://"), "x") },
		},
		{
			name: "TLS behind http", says: []string{"speaks TLS", "https://"}, passing: true,
			setup: func(b *bench) { b.storeURL = plain.StoreURL(swap(secure.URL(), "https://", "http://"), "x") },
		},
		{
			name: "unknown certificate", says: []string{"certificate", "ca-file"},
			setup: func(b *bench) { b.storeURL = plain.StoreURL(secure.URL(), "x") },
		},
		{
			name: "nobody there", says: []string{"connection refused"}, passing: true,
			setup: func(b *bench) { b.storeURL = plain.StoreURL("http://127.0.0.1:1", "x") },
		},
		{
			name: "denied action", says: []string{"AccessDenied", "s3:PutObject"},
			hook: func(r gateway.Request) gateway.Action {
				if r.Op == "PutObject" || r.Op == "CreateMultipartUpload" {
					return answer(http.StatusForbidden, "AccessDenied", "User is not authorized to perform: s3:PutObject", time.Now())
				}
				return gateway.Action{}
			},
		},
		{
			name: "denied reading", says: []string{"403", "s3:GetObject"},
			hook: func(r gateway.Request) gateway.Action {
				if r.Op == "GetObject" || r.Op == "HeadObject" {
					return answer(http.StatusForbidden, "AccessDenied", "Access Denied", time.Now())
				}
				return gateway.Action{}
			},
		},
		{
			name: "clock twenty minutes off", says: []string{"RequestTimeTooSkewed", "clock", "off by -20m"},
			hook: func(gateway.Request) gateway.Action {
				return answer(http.StatusForbidden, "RequestTimeTooSkewed", "The difference between the request time and the server's time is too large.", time.Now().Add(20*time.Minute+30*time.Second))
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := s3Bench(t, plain, proxy.URL(), "refusals")
			proxy.Hook(tt.hook)
			if tt.setup != nil {
				tt.setup(b)
			}
			defer func() { t.Setenv("AWS_ACCESS_KEY_ID", ""); t.Setenv("AWS_SECRET_ACCESS_KEY", "") }()
			for _, args := range []string{"copy", "copy -v", "copy --json"} {
				o := b.try(append(strings.Fields(args), source(sensors))...)
				if o.status != statusFailed || strings.Contains(o.out, "copied") {
					t.Errorf("%s: %+v", args, o)
				}
				told := o
				told.msg = withoutLog(o.msg)
				told.oneError(t, tt.says...)
				if !tt.passing && (strings.Contains(o.msg, "tried again") || strings.Contains(o.msg, "gave up after")) {
					t.Errorf("%s: not told at once: %s", args, o.msg)
				}
				for _, secret := range []string{plain.SecretKey, secure.SecretKey, wrongSecret, plain.AccessKey, "AKIANOBODY", "Signature=", "Credential="} {
					if strings.Contains(o.msg+o.out, secret) {
						t.Errorf("%s: the output holds %q:\n%s%s", args, secret, o.msg, o.out)
					}
				}
				if args == "copy" {
					t.Logf("%s", o.msg)
				}
			}
		})
	}
}

// answer is one in the server's place, by a server whose clock says now.
func answer(status int, code, message string, now time.Time) gateway.Action {
	return gateway.Action{Answer: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
		w.WriteHeader(status)
		if r.Method != http.MethodHead {
			_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, message)
		}
	}}
}

// withoutLog returns messages without the lines that --verbose adds.
func withoutLog(msg string) string {
	var rest []string
	for line := range strings.Lines(msg) {
		if !strings.HasPrefix(line, "time=") {
			rest = append(rest, line)
		}
	}
	return strings.Join(rest, "")
}

// TestKilledCopyResumes kills the command as kill -9 does, at random moments of a
// copy of one segment, and runs it again until it comes through. Each death
// costs at most one part per worker: no more is sent twice.
func TestKilledCopyResumes(t *testing.T) {
	const (
		workers  = 2
		partSize = 5 << 20
		logSize  = 40 << 20
		deaths   = 4
		// An upload without deaths makes at least so many requests: it is created,
		// has a part for each 5 MiB of the log, and is completed. So the first run dies.
		leastRequests = 2 + logSize/partSize
	)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 9))
	s := gateway.Start(t, gateway.Options{})
	proxy := gateway.Front(t, s)
	dir, err := testseg.Big(seed, logSize, testseg.Options{}).WriteDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for round := range soak(2) {
		b := s3Bench(t, s, proxy.URL(), fmt.Sprintf("killed-%d", round))
		b.storeURL += fmt.Sprintf("&concurrency=%d", workers)
		before := proxy.Sent(".seg")
		args := []string{"copy", "--part-size", "5MiB", "--include-active", dir}
		killed := 0
		for range deaths {
			killed += killDuring(t, b, proxy, r, leastRequests, args)
		}
		proxy.Hook(nil)
		o := b.wait(b.process("main", args...))
		if o.status != statusDone {
			t.Fatalf("after %d deaths: %+v", killed, o)
		}
		sent := proxy.Sent(".seg") - before
		object := onlyObject(t, s, "killed-"+fmt.Sprint(round))
		t.Logf("round %d: %d deaths, object of %d bytes, %d sent, %.1f parts more", round, killed, object, sent, float64(sent-object)/partSize)
		if most := object + int64(killed*workers*partSize); sent > most {
			t.Errorf("%d deaths: %d bytes sent for an object of %d, at most %d were to be", killed, sent, object, most)
		}
		if killed == 0 {
			t.Error("nothing was killed")
		}
		b.done("verify")
	}
}

// killDuring runs the command and kills it once at a random moment of a random
// request of its upload, one of the first so many. It returns how often that came about.
func killDuring(t *testing.T, b *bench, proxy *gateway.Proxy, r *rand.Rand, first int, args []string) int {
	t.Helper()
	cmd := b.process("main", args...)
	var mu sync.Mutex
	left, dead := 1+r.IntN(first), 0
	when := []gateway.Moment{gateway.Before, gateway.Inside, gateway.After}[r.IntN(3)]
	started := make(chan struct{})
	proxy.Hook(func(req gateway.Request) gateway.Action {
		mu.Lock()
		defer mu.Unlock()
		if !strings.HasSuffix(req.Key, ".seg") {
			return gateway.Action{}
		}
		if left--; left != 0 {
			return gateway.Action{}
		}
		return gateway.Action{When: when, Do: func() {
			<-started
			mu.Lock()
			dead++ // counted before it can be seen
			mu.Unlock()
			_ = cmd.Process.Kill() // it may have ended by itself
		}}
	})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	close(started)
	_ = cmd.Wait() // it was killed, or it is done
	mu.Lock()
	defer mu.Unlock()
	return dead
}

// onlyObject returns the size of the only segment object under prefix.
func onlyObject(t *testing.T, s *gateway.Server, prefix string) int64 {
	t.Helper()
	var sizes []int64
	err := filepath.WalkDir(filepath.Join(s.DataDir(), gateway.Bucket, prefix), func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".seg") {
			fi, err := d.Info()
			if err != nil {
				return err
			}
			sizes = append(sizes, fi.Size())
		}
		return err
	})
	if err != nil || len(sizes) != 1 {
		t.Fatalf("objects of %v bytes, want one: %v", sizes, err)
	}
	return sizes[0]
}

// With --verbose the command says what it tries again and why, and what it did
// not have to send.
func TestVerboseTellsRetriesAndResumes(t *testing.T) {
	s := gateway.Start(t, gateway.Options{})
	proxy := gateway.Front(t, s)
	dir, err := testseg.Big(1, 32<<20, testseg.Options{}).WriteDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := s3Bench(t, s, proxy.URL(), "verbose")
	b.storeURL += "&concurrency=1"
	args := []string{"copy", "--verbose", "--part-size", "5MiB", "--include-active", dir}

	cmd := b.process("main", args...)
	started := make(chan struct{})
	proxy.Hook(func(r gateway.Request) gateway.Action {
		if r.Op != "UploadPart" || r.Part != 5 { // the probe has no such part
			return gateway.Action{}
		}
		return gateway.Action{When: gateway.Before, Do: func() {
			<-started
			_ = cmd.Process.Kill() // it may have ended by itself
		}}
	})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	close(started)
	_ = cmd.Wait() // it was killed

	var once sync.Once
	proxy.Hook(func(r gateway.Request) gateway.Action {
		var a gateway.Action
		if r.Op == "UploadPart" && strings.HasSuffix(r.Key, ".seg") {
			once.Do(func() { a.When = gateway.Before })
		}
		return a
	})
	o := b.want(statusDone, args...)
	for _, says := range []string{`msg="an interrupted copy was resumed"`, "parts=4 bytes=20971520", `msg="an upload is tried again"`, "cause="} {
		if !strings.Contains(o.msg, says) {
			t.Errorf("stderr does not say %q:\n%s", says, o.msg)
		}
	}
}

// copy keeps to --bandwidth, whatever the store.
func TestBandwidth(t *testing.T) {
	dir, err := testseg.Big(1, 1<<20, testseg.Options{}).WriteDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	begin := time.Now()
	b.done("copy", "--bandwidth", "2MiB", "--part-size", "256KiB", "--include-active", dir)
	// A MiB in four parts and a short one; each but the last to go is paid for.
	if took := time.Since(begin); took < 370*time.Millisecond {
		t.Errorf("a MiB at 2 MiB/s took %v", took)
	}
}
