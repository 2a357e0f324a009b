package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

const (
	// Bucket is there when the server starts, and empty.
	Bucket = "tier-bucket"
	// Region is the one that the server expects in signatures.
	Region = "eu-test-1"

	// readyWait bounds how long a start may take; it takes a tenth of a second on a
	// machine that has nothing else to do.
	readyWait = 5 * time.Minute
	pollEvery = 5 * time.Millisecond

	healthPath = "/health-of-the-server"
)

// Options of a server. The zero value is a server over plain HTTP.
type Options struct {
	TLS   bool // HTTPS, with a certificate made for this server: see Server.CAFile
	Users bool // others than root can be added: see Server.AddUser
}

// Server is a process that serves S3. Its methods may be called concurrently.
type Server struct {
	// AccessKey and SecretKey are the root user's; both are random.
	AccessKey, SecretKey string

	program  string
	args     []string
	env      []string
	health   string // path that answers 200 when the server is ready
	dir      string // of this server; data, the certificate
	addr     string // host:port
	secure   bool
	cert     certificate // only if secure
	client   *http.Client
	outputMu sync.Mutex
	output   bytes.Buffer // of all processes so far; guarded by outputMu

	mu      sync.Mutex
	process *process // nil: not running; guarded by mu
}

// Start starts versitygw; it is stopped when the test ends. It returns when the
// server answers. Without the program it skips the test, or fails it; see the
// package comment.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s := newServer(t, program(t, "SEGTIER_VERSITYGW", "versitygw", "make tools"), freeAddr(t))
	s.secure = o.TLS
	for _, dir := range []string{filepath.Join(s.DataDir(), Bucket), s.usersDir()} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	transport := &http.Transport{DisableKeepAlives: true}
	if o.TLS {
		s.cert = newCertificate(t, s.dir)
		transport.TLSClientConfig = &tls.Config{RootCAs: s.cert.pool}
	}
	s.client.Transport = transport
	s.health = healthPath
	s.args = []string{"--port", s.addr, "--region", Region, "--health", healthPath, "--keep-alive"}
	if o.TLS {
		s.args = append(s.args, "--cert", s.cert.certFile, "--key", s.cert.keyFile)
	}
	if o.Users {
		s.args = append(s.args, "--iam-dir", s.usersDir(), "--iam-cache-disable")
	}
	s.args = append(s.args, "posix", s.DataDir())
	s.env = []string{"ROOT_ACCESS_KEY=" + s.AccessKey, "ROOT_SECRET_KEY=" + s.SecretKey}
	s.start(t)
	return s
}

// newServer returns a server that is not running yet.
func newServer(t testing.TB, program, addr string) *Server {
	return &Server{
		AccessKey: "AKIA" + rand.Text()[:16],
		SecretKey: "secret-" + rand.Text() + rand.Text()[:7],
		program:   program,
		dir:       t.TempDir(),
		addr:      addr,
		client:    &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second},
	}
}

// start starts the server, to be stopped when the test ends.
func (s *Server) start(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("output of %s, its end:\n%s", s.program, s.Output())
		}
	})
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
}

// program returns the path of a program, or ends the test: what variable names, or
// the one in bin that the make target builds.
func program(t testing.TB, variable, name, target string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		path = filepath.Join(moduleRoot(t), "bin", name)
	}
	_, err := os.Stat(path)
	if err == nil {
		return path
	}
	if !errors.Is(err, fs.ErrNotExist) || Required() {
		t.Fatalf("S3 server for tests: %v: run %s", err, target)
	}
	t.Skip("no S3 server to test with: run " + target)
	return ""
}

// Required reports whether tests must not be skipped for want of the server.
// Those that find more the longer they run do all they should then.
func Required() bool { return os.Getenv("SEGTIER_GATEWAY") == "required" }

// moduleRoot returns the folder above the test's that has the module's go.mod.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if up := filepath.Dir(dir); up != dir {
			dir = up
			continue
		}
		t.Fatal("no go.mod above the test's folder")
	}
}

// loopback is the address of this process's servers. What others listen on cannot
// take a port of theirs, before they start or while they are killed: where all of
// 127.0.0.0/8 is there, as on Linux, an address is the process's own.
func loopback() net.IP {
	pid := os.Getpid() // at most 22 bits
	own := net.IPv4(127, byte(64|pid>>16), byte(pid>>8), byte(pid))
	l, err := net.Listen("tcp", net.JoinHostPort(own.String(), "0"))
	if err != nil {
		return net.IPv4(127, 0, 0, 1)
	}
	_ = l.Close()
	return own
}

// freeAddr returns a loopback address that nobody listened on a moment ago.
func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(loopback().String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Kill ends the process at once, as kill -9 does, and waits until it is gone. A
// server that is not running is left so.
func (s *Server) Kill() {
	s.mu.Lock()
	p := s.process
	s.process = nil
	s.mu.Unlock()
	if p != nil {
		p.kill()
	}
}

// Restart starts the server again, killing it first if it runs: at the same
// address, over the same directory, with the same keys. It returns when the server
// answers.
func (s *Server) Restart() error {
	s.Kill()
	cmd := exec.Command(s.program, s.args...)
	cmd.Dir, cmd.Env = s.dir, s.env
	cmd.Stdout, cmd.Stderr = writerFunc(s.log), writerFunc(s.log)
	p, err := startProcess(cmd)
	if err != nil {
		return fmt.Errorf("S3 server: %w", err)
	}
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	if err := s.ready(p); err != nil {
		return fmt.Errorf("%s does not answer at %s: %w\n%s", s.program, s.addr, err, s.Output())
	}
	return nil
}

// ready waits until the server answers.
func (s *Server) ready(p *process) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyWait)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+s.health, http.NoBody)
		if err != nil {
			return err
		}
		res, err := s.client.Do(req)
		if err == nil {
			_ = res.Body.Close() // nothing is in it
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-p.done:
			return errors.New("it ended")
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// URL is the server's endpoint, without a slash at its end.
func (s *Server) URL() string {
	if s.secure {
		return "https://" + s.addr
	}
	return "http://" + s.addr
}

// StoreURL is the URL of a store on this server, as the command takes it, whose
// requests go to endpoint: URL of the server or of a proxy before it.
func (s *Server) StoreURL(endpoint, prefix string) string {
	query := url.Values{"region": {Region}, "endpoint": {endpoint}, "path-style": {"true"}}
	if s.secure {
		query.Set("ca-file", s.cert.certFile)
	}
	return "s3://" + Bucket + "/" + prefix + "?" + query.Encode()
}

// Env are the variables by which the AWS SDK finds the root user's keys, and
// nothing else: no file or service of the machine is asked.
func (s *Server) Env() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + s.AccessKey,
		"AWS_SECRET_ACCESS_KEY=" + s.SecretKey,
		"AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE=" + filepath.Join(s.dir, "no-config"),
		"AWS_SHARED_CREDENTIALS_FILE=" + filepath.Join(s.dir, "no-credentials"),
	}
}

// CAFile is the PEM file with the certificate to trust; "" over plain HTTP.
func (s *Server) CAFile() string { return s.cert.certFile }

// AddUser adds a user who may do nothing yet, and returns its keys. The server
// must have been started with Options.Users.
func (s *Server) AddUser(t testing.TB, name string) (accessKey, secretKey string) {
	t.Helper()
	secretKey = "secret-" + rand.Text()
	cmd := exec.CommandContext(t.Context(), s.program, "admin", "--allow-insecure", "create-user",
		"--access", name, "--secret", secretKey, "--role", "user")
	cmd.Env = []string{
		"ADMIN_ACCESS_KEY_ID=" + s.AccessKey, "ADMIN_SECRET_ACCESS_KEY=" + s.SecretKey,
		"ADMIN_REGION=" + Region, "ADMIN_ENDPOINT_URL=" + s.URL(),
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("versitygw admin create-user %s: %v: %s", name, err, out)
	}
	return name, secretKey
}

func (s *Server) usersDir() string { return filepath.Join(s.dir, "users") }

// DataDir is where the server keeps buckets, each a directory of its own.
func (s *Server) DataDir() string { return filepath.Join(s.dir, "data") }

// maxOutput bounds what is kept of the server's output, in bytes.
const maxOutput = 64 << 10

// Output returns what the server printed, at most its last 64 KiB.
func (s *Server) Output() string {
	s.outputMu.Lock()
	defer s.outputMu.Unlock()
	return s.output.String()
}

func (s *Server) log(b []byte) (int, error) {
	s.outputMu.Lock()
	defer s.outputMu.Unlock()
	s.output.Write(b)
	if over := s.output.Len() - maxOutput; over > 0 {
		s.output.Next(over)
	}
	return len(b), nil
}

// writerFunc is a function as an io.Writer.
type writerFunc func([]byte) (int, error)

// Write calls the function.
func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// process is a running child. The kernel kills a child when the thread that
// made it ends, if asked to; so that thread is kept until the child is gone.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it was waited for
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.SysProcAttr = diesWithParent()
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed, or ends by itself: its output says why
		}
	}()
	if err := <-started; err != nil {
		<-p.done
		return nil, err
	}
	return p, nil
}

// kill ends the process and waits for it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.done
}
