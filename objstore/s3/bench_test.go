package s3_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/s3/manager"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
)

// sink is a service that keeps nothing of large bodies. It runs in a process of
// its own, so that the CPU time of ours is the client's alone.
type sink struct {
	fake *fake // for what is small

	mu      sync.Mutex
	objects map[string]http.Header // guarded by mu
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.Contains(r.URL.Path, ".segtier-probe/"), r.Method == http.MethodGet, r.Method == http.MethodDelete, r.URL.Query().Has("uploads"):
		s.fake.ServeHTTP(w, r)
	case r.Method == http.MethodPut:
		n, _ := io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", fmt.Sprintf(`"%d"`, n))
		crc := r.Header.Get("X-Amz-Checksum-Crc32c")
		if crc == "" {
			crc = r.Trailer.Get("X-Amz-Checksum-Crc32c")
		}
		w.Header().Set("X-Amz-Checksum-Crc32c", crc)
	case r.Method == http.MethodPost:
		s.complete(w, r)
	case r.Method == http.MethodHead:
		s.mu.Lock()
		h := s.objects[r.URL.Path]
		s.mu.Unlock()
		if h == nil {
			w.WriteHeader(http.StatusNotFound)
		}
		for name, values := range h {
			w.Header()[name] = values
		}
	}
}

func (s *sink) complete(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Part []struct{ ChecksumCRC32C string }
	}
	body, _ := io.ReadAll(r.Body)
	if err := xml.Unmarshal(body, &in); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var sums []byte
	for _, p := range in.Part {
		sum, _ := base64.StdEncoding.DecodeString(p.ChecksumCRC32C)
		sums = append(sums, sum...)
	}
	crc := fmt.Sprintf("%s-%d", checksum.Base64(checksum.CRC32C(sums)), len(in.Part))
	s.mu.Lock()
	s.objects[r.URL.Path] = http.Header{
		"Etag": {`"x"`}, "X-Amz-Checksum-Crc32c": {crc}, "X-Amz-Checksum-Type": {"COMPOSITE"}, "Content-Length": {r.Header.Get("X-Amz-Mp-Object-Size")},
	}
	s.mu.Unlock()
	_, _ = fmt.Fprint(w, "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>")
}

// sinkVariable makes the test's program a sink instead of a test.
const sinkVariable = "SEGTIER_TEST_S3_SINK"

// serveSink serves until its standard input ends.
func serveSink() {
	server := httptest.NewUnstartedServer(&sink{fake: newFake(dialect{}), objects: map[string]http.Header{}})
	if os.Getenv(sinkVariable) == "tls" {
		server.StartTLS()
	} else {
		server.Start()
	}
	fmt.Println(server.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// startSink returns the URL of a sink in another process.
func startSink(b *testing.B, scheme string) string {
	b.Helper()
	cmd := exec.CommandContext(context.Background(), os.Args[0])
	cmd.Env = append(os.Environ(), sinkVariable+"="+scheme)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	var url string
	if _, err := fmt.Fscanln(out, &url); err != nil {
		b.Fatal(err)
	}
	return url
}

// spent is what one upload has cost this process.
type spent struct {
	cpu, wall time.Duration
	alloc     uint64
}

func measure(f func()) spent {
	var before, after syscall.Rusage
	var m1, m2 runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m1)
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	begin := time.Now()
	f()
	wall := time.Since(begin)
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	runtime.ReadMemStats(&m2)
	cpu := func(u syscall.Rusage) time.Duration { return time.Duration(u.Utime.Nano() + u.Stime.Nano()) }
	return spent{cpu: cpu(after) - cpu(before), wall: wall, alloc: m2.TotalAlloc - m1.TotalAlloc}
}

func median[T int64 | uint64 | time.Duration](values []T) float64 {
	slices.Sort(values)
	return float64(values[len(values)/2])
}

// BenchmarkUpload uploads 256 MiB, ours and with plain manager in turn (A B B A),
// and reports medians: client CPU, wall time and allocation, and their ratios. The
// sums of ours are given, as transfer gives them; manager computes its own.
func BenchmarkUpload(b *testing.B) {
	const size = 256 * mib
	path := filepath.Join(b.TempDir(), "log")
	if err := os.WriteFile(path, content(1, size), 0o600); err != nil {
		b.Fatal(err)
	}
	for _, scheme := range []string{"http", "tls"} {
		for _, partSize := range []int64{8 * mib, 64 * mib} {
			b.Run(fmt.Sprintf("%s/part=%dMiB", scheme, partSize/mib), func(b *testing.B) {
				file, err := os.Open(path)
				if err != nil {
					b.Fatal(err)
				}
				defer file.Close()
				url := startSink(b, scheme)
				ours := benchOurs(b, url, file, partSize)
				plain := benchManager(url, file, size, partSize)
				n := 0
				run := func(f func(key string) error) func() {
					n++
					key := fmt.Sprint("object-", n)
					return func() {
						if err := f(key); err != nil {
							b.Fatal(err)
						}
					}
				}
				run(ours)() // the probe, the connections
				run(plain)()
				var cost [2][]spent
				for b.Loop() {
					for i, f := range []func(string) error{ours, plain, plain, ours} {
						which := []int{0, 1, 1, 0}[i]
						cost[which] = append(cost[which], measure(run(f)))
					}
				}
				report(b, cost, size)
			})
		}
	}
}

func report(b *testing.B, cost [2][]spent, size int64) {
	b.Helper()
	of := func(which int, f func(spent) time.Duration) float64 {
		var values []time.Duration
		for _, c := range cost[which] {
			values = append(values, f(c))
		}
		return median(values)
	}
	cpu := func(c spent) time.Duration { return c.cpu }
	wall := func(c spent) time.Duration { return c.wall }
	alloc := func(c spent) time.Duration { return time.Duration(c.alloc) }
	perGiB := float64(1<<30) / float64(size) / 1e9
	b.ReportMetric(of(0, cpu)*perGiB, "cpu-s/GiB")
	b.ReportMetric(of(1, cpu)*perGiB, "manager-cpu-s/GiB")
	b.ReportMetric(of(0, cpu)/of(1, cpu), "cpu-ratio")
	b.ReportMetric(of(0, wall)/of(1, wall), "wall-ratio")
	b.ReportMetric(of(0, alloc)/mib, "alloc-MiB")
	b.ReportMetric(of(1, alloc)/mib, "manager-alloc-MiB")
}

const benchWorkers = 5 // manager's default

func benchOurs(b *testing.B, url string, file *os.File, partSize int64) func(string) error {
	b.Helper()
	o := newFake(dialect{}).options(url)
	o.Concurrency = benchWorkers
	o.RootCAs = sinkAuthority(b, url)
	s := open(b, o)
	info, err := file.Stat()
	if err != nil {
		b.Fatal(err)
	}
	c := checksum.NewCutter(partSize)
	if _, err := io.Copy(c, io.NewSectionReader(file, 0, info.Size())); err != nil {
		b.Fatal(err)
	}
	return func(key string) error {
		_, err := s.Upload(context.Background(), objstore.UploadRequest{
			Key: key, Body: file, Size: info.Size(), PartSize: partSize, PartSums: c.Pieces(0), Token: "t",
		})
		return err
	}
}

// sinkAuthority asks a TLS sink for its certificate; nil over plain HTTP.
func sinkAuthority(b *testing.B, url string) *x509.CertPool {
	b.Helper()
	host, ok := strings.CutPrefix(url, "https://")
	if !ok {
		return nil
	}
	raw, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", host)
	if err != nil {
		b.Fatal(err)
	}
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) // of a benchmark, to learn it
	defer conn.Close()
	if err := conn.HandshakeContext(context.Background()); err != nil {
		b.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(conn.ConnectionState().PeerCertificates[0])
	return pool
}

func benchManager(url string, file *os.File, size, partSize int64) func(string) error {
	client := awss3.New(awss3.Options{
		Region: "eu-test-1", BaseEndpoint: &url, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(accessKey, secretKey, ""),
		HTTPClient:  &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 10}},
	})
	//nolint:staticcheck // SA1019: it is what we are compared with
	uploader := manager.NewUploader(client, func(u *manager.Uploader) { u.PartSize, u.Concurrency = partSize, benchWorkers })
	return func(key string) error {
		//nolint:staticcheck // SA1019: as above
		_, err := uploader.Upload(context.Background(), &awss3.PutObjectInput{
			Bucket: aws.String(bucket), Key: &key, ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
			Body: io.NewSectionReader(file, 0, size),
		})
		return err
	}
}
