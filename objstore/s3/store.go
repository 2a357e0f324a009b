package s3

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/segtier/segtier/objstore"
)

// Store is an object store in a bucket. Several Stores, also in several
// processes, may use one prefix at the same time.
type Store struct {
	client    *awss3.Client
	transport *http.Transport // nil if the host gave an HTTPClient
	opts      Options         // without credentials
	prefix    string          // "" or ends in a slash
	stats     counters
	probe     prober
	keys      keyLocks
	answered  atomic.Bool // the bucket has answered a request of ours
	ranged    atomic.Bool // it has answered with the range that was asked for

	mu      sync.Mutex
	closed  bool               // guarded by mu
	calls   map[*call]struct{} // in progress, open bodies among them; guarded by mu
	running sync.WaitGroup     // of calls, bodies aside; Add under mu, while not closed
}

var (
	_ objstore.Store        = (*Store)(nil)
	_ objstore.UploadLister = (*Store)(nil)
)

// Open makes a Store. It reads configuration files and the environment, but
// contacts nobody: a bucket that is missing or denied shows at the first call. ctx
// is for Open alone.
func Open(ctx context.Context, o Options) (*Store, error) {
	fail := func(err error) (*Store, error) {
		return nil, &objstore.Error{Op: "open", Err: fmt.Errorf("s3: %w", err)}
	}
	o, err := o.validate()
	if err != nil {
		return fail(err)
	}
	s := &Store{calls: make(map[*call]struct{}), probe: prober{turn: make(chan struct{}, 1)}}
	httpClient := o.HTTPClient
	if httpClient == nil {
		if httpClient, s.transport, err = newHTTPClient(o); err != nil {
			return fail(err)
		}
	}
	if s.client, err = newClient(ctx, o, counting{httpClient, &s.stats.requests}); err != nil {
		return fail(err)
	}
	o.AccessKeyID, o.SecretAccessKey, o.SessionToken = "", "", "" // the client has them
	s.opts = o
	if o.Prefix != "" {
		s.prefix = o.Prefix + "/"
	}
	return s, nil
}

// String names the bucket and the prefix.
func (s *Store) String() string { return "s3://" + s.opts.Bucket + "/" + s.prefix }

// Close implements objstore.Store. Calls in progress and open bodies are ended
// with objstore.ErrClosed; calls are waited for.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	for c := range s.calls {
		c.cancel(objstore.ErrClosed)
	}
	s.mu.Unlock()
	s.running.Wait()
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}
	return nil
}

// call is one call in progress, or the body that came of it.
type call struct {
	s      *Store
	cancel context.CancelCauseFunc
	joined bool // Close waits for it
}

// enter registers a call, so that Close can end it. leave is to be called once.
func (s *Store) enter(ctx context.Context) (context.Context, *call, error) {
	if ctx.Err() != nil {
		return nil, nil, ended(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	c := &call{s: s, cancel: cancel, joined: true}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		cancel(objstore.ErrClosed)
		return nil, nil, objstore.ErrClosed
	}
	s.calls[c] = struct{}{}
	s.running.Add(1)
	return ctx, c, nil
}

// detach lets the call outlive the method that began it: it is a body now, which
// Close ends but does not wait for.
func (c *call) detach() {
	c.joined = false
	c.s.running.Done()
}

func (c *call) leave() {
	c.cancel(nil)
	c.s.mu.Lock()
	delete(c.s.calls, c)
	c.s.mu.Unlock()
	if c.joined {
		c.s.running.Done()
	}
}

// key returns the name in the bucket of an object. What begins as probes do is
// ours: nobody else reads or writes it.
func (s *Store) key(key string) (string, error) {
	if err := objstore.ValidateKey(key); err != nil {
		return "", err
	}
	if strings.HasPrefix(key, objstore.ProbePrefix) {
		return "", fmt.Errorf("object key %q: %s is reserved for probes", key, objstore.ProbePrefix)
	}
	if n := len(s.prefix) + len(key); n > 1024 {
		return "", fmt.Errorf("object key of %d bytes with its prefix, S3 allows 1024", n)
	}
	return s.prefix + key, nil
}

// anyKey is key of what may be a probe's too: to find and delete what a killed
// process has left.
func (s *Store) anyKey(key string) (string, error) {
	if objstore.IsProbe(key) {
		return s.prefix + key, nil
	}
	return s.key(key)
}

// listed reports whether a key is shown by a listing of prefix: not a probe's,
// unless it was asked for, nor what is nobody's of ours.
func (s *Store) listed(key, prefix string) bool {
	if strings.HasPrefix(prefix, objstore.ProbePrefix) {
		return objstore.IsProbe(key)
	}
	_, err := s.key(key)
	return err == nil
}

// Stats counts what a Store has done since it was opened.
type Stats struct {
	Requests     int64 // sent to the service, whatever came of them
	BytesSent    int64 // of parts and objects, in requests that succeeded
	BytesResumed int64 // of parts that an earlier try had left
	BytesRead    int64 // read back to confirm or compare
}

type counters struct{ requests, sent, resumed, read atomic.Int64 }

// Stats returns the counts so far.
func (s *Store) Stats() Stats {
	return Stats{
		Requests: s.stats.requests.Load(), BytesSent: s.stats.sent.Load(),
		BytesResumed: s.stats.resumed.Load(), BytesRead: s.stats.read.Load(),
	}
}
