package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
)

// Acceptance holds a store to the law of package objstore: one subtest for each
// thing that a rule demands, numbered as the rules are. open returns a store
// without objects; it is called once for each subtest, and Acceptance closes
// what it returned. After each subtest, no goroutine may be left over, so
// Acceptance must not run in parallel with tests that start some.
//
// Objects have up to 15 MiB, in parts of 5 MiB, the least that S3 accepts. Rule
// 3 (durability) and the second half of rule 7 (a lost answer) cannot be tested
// from outside: they are the store's own tests to make.
func Acceptance(t *testing.T, open func(t *testing.T) objstore.Store) {
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			leaks := goleak.IgnoreCurrent()
			s := newSuite(t, open(t))
			r.test(s)
			if err := s.store.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			goleak.VerifyNone(t, leaks)
		})
	}
}

// rule is one subtest.
type rule struct {
	name string
	test func(*suite)
}

func rules() []rule {
	return slices.Concat(keyRules(), writeRules(), readRules(), callRules(), listRules())
}

// tester is what the rules need of *testing.T, so that a test of the rules can
// see them fail.
type tester interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// suite is one store under test.
type suite struct {
	tester
	store objstore.Store
	ctx   context.Context
}

func newSuite(t tester, store objstore.Store) *suite {
	return &suite{tester: t, store: store, ctx: t.Context()}
}

// partSize is the least that S3 accepts for a part that is not the last.
const partSize = 5 << 20

// content returns n bytes that depend on seed and on their position: a random
// block over and over, with its position stamped on each.
func content(seed uint64, n int) []byte {
	b := make([]byte, n)
	var block [1024]byte
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(block[:]) // never fails
	for pos := 0; pos < n; pos += len(block) {
		binary.LittleEndian.PutUint64(block[:], seed<<32^uint64(pos))
		copy(b[pos:], block[:])
	}
	return b
}

// request returns a right request for an object of the given bytes.
func request(key string, data []byte) objstore.UploadRequest {
	c := checksum.NewCutter(partSize)
	_, _ = c.Write(data) // never fails
	return objstore.UploadRequest{
		Key: key, Body: bytes.NewReader(data), Size: int64(len(data)),
		PartSize: partSize, PartSums: c.Pieces(0), Token: "token of " + key,
	}
}

// put uploads what a rule is about to look at and checks the evidence.
func (s *suite) put(key string, data []byte) objstore.Evidence {
	s.Helper()
	req := request(key, data)
	ev, err := s.store.Upload(s.ctx, req)
	if err != nil {
		s.Fatalf("Upload of %s, %d bytes: %v", key, len(data), err)
	}
	s.checkEvidence(&req, ev)
	return ev
}

func (s *suite) checkEvidence(req *objstore.UploadRequest, ev objstore.Evidence) {
	s.Helper()
	if ev.Size != req.Size {
		s.Errorf("evidence: size %d, uploaded %d", ev.Size, req.Size)
	}
	if ev.Identity == "" {
		s.Errorf("evidence: no identity")
	}
	if len(ev.Parts) != len(req.PartSums) {
		s.Fatalf("evidence: %d parts, uploaded %d", len(ev.Parts), len(req.PartSums))
	}
	for i, p := range ev.Parts {
		if p.Part != i || p.Sum != req.PartSums[i] {
			s.Errorf("evidence of part %d: part %d with sum %v, uploaded %v", i, p.Part, p.Sum, req.PartSums[i])
		}
		if p.Level <= objstore.Unconfirmed || p.Level > objstore.ReadBack {
			s.Errorf("evidence of part %d: level %v", i, p.Level)
		}
	}
}

// read returns the bytes [off, off+n) and what came with them.
func (s *suite) read(key string, off, n int64, opts objstore.GetOptions) (objstore.Info, []byte, error) {
	info, body, err := s.store.Get(s.ctx, key, off, n, opts)
	if err != nil {
		return info, nil, err
	}
	// n may be nonsense that should have been refused; then it is not allocated.
	buf := bytes.NewBuffer(make([]byte, 0, max(0, min(n, 4*partSize))+bytes.MinRead))
	_, err = buf.ReadFrom(body)
	return info, buf.Bytes(), errors.Join(err, body.Close())
}

// holds checks that the object is exactly data.
func (s *suite) holds(key string, data []byte) objstore.Info {
	s.Helper()
	info, got, err := s.read(key, 0, int64(len(data)), objstore.GetOptions{})
	if err != nil {
		s.Fatalf("Get of %s: %v", key, err)
	}
	if !bytes.Equal(got, data) {
		s.Errorf("%s: other bytes than were uploaded (%d, uploaded %d)", key, len(got), len(data))
	}
	stat, err := s.store.Stat(s.ctx, key)
	if err != nil {
		s.Fatalf("Stat of %s: %v", key, err)
	}
	for from, info := range map[string]objstore.Info{"Get": info, "Stat": stat} {
		if info.Key != key || info.Size != int64(len(data)) || info.Identity == "" || info.Identity != stat.Identity {
			s.Errorf("%s of %s, %d bytes: %+v; Stat said identity %q", from, key, len(data), info, stat.Identity)
		}
		if info.HasCRC32C && info.CRC32C != checksum.CRC32C(data) {
			s.Errorf("%s of %s: CRC32C %08x, it is %08x", from, key, info.CRC32C, checksum.CRC32C(data))
		}
		if want := "token of " + key; info.Token != "" && info.Token != want {
			s.Errorf("%s of %s: token %q, want %q or none", from, key, info.Token, want)
		}
	}
	return stat
}

// absent checks that nobody can see an object under key.
func (s *suite) absent(key string) {
	s.Helper()
	if _, err := s.store.Stat(s.ctx, key); !errors.Is(err, objstore.ErrNotExist) {
		s.Errorf("Stat of %s, which should not exist: %v", key, err)
	}
	if _, _, err := s.read(key, 0, 1, objstore.GetOptions{}); !errors.Is(err, objstore.ErrNotExist) {
		s.Errorf("Get of %s, which should not exist: %v", key, err)
	}
	for info, err := range s.store.List(s.ctx, key, "") {
		if err != nil {
			s.Errorf("List: %v", err)
		} else if info.Key == key {
			s.Errorf("List shows %s, which should not exist", key)
		}
	}
}

// list returns what List yields.
func (s *suite) list(prefix, after string) []string {
	s.Helper()
	var keys []string
	for info, err := range s.store.List(s.ctx, prefix, after) {
		if err != nil {
			s.Fatalf("List of %q after %q: %v", prefix, after, err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

// failsWith checks the form and the cause of an error.
func (s *suite) failsWith(err, cause error, op, key string) {
	s.Helper()
	var e *objstore.Error
	switch {
	case err == nil:
		s.Errorf("%s of %q succeeded, want %v", op, key, cause)
	case !errors.As(err, &e):
		s.Errorf("%s of %q: %v (%T), which is no *objstore.Error", op, key, err, err)
	case e.Op != op || (key != "" && e.Key != key):
		s.Errorf("%s of %q: the error names %q of %q: %v", op, key, e.Op, e.Key, err)
	case cause != nil && !errors.Is(err, cause):
		s.Errorf("%s of %q: %v, want %v", op, key, err, cause)
	}
}

// each calls f in n goroutines and waits for them.
func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// readerAt is an upload's body made of a function.
type readerAt func(p []byte, off int64) (int, error)

func (f readerAt) ReadAt(p []byte, off int64) (int, error) { return f(p, off) }

// confirmations records what Confirmed is told.
type confirmations struct {
	mu    sync.Mutex
	parts []objstore.PartEvidence // guarded by mu
}

func (c *confirmations) add(p objstore.PartEvidence) {
	c.mu.Lock()
	c.parts = append(c.parts, p)
	c.mu.Unlock()
}

// checkConfirmed checks that each part was confirmed once, with its sum.
func (s *suite) checkConfirmed(req *objstore.UploadRequest, c *confirmations) {
	s.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.SortFunc(c.parts, func(a, b objstore.PartEvidence) int { return a.Part - b.Part })
	if len(c.parts) != len(req.PartSums) {
		s.Errorf("%d parts confirmed of %d: %v", len(c.parts), len(req.PartSums), c.parts)
		return
	}
	for i, p := range c.parts {
		if p.Part != i || p.Sum != req.PartSums[i] || p.Level == objstore.Unconfirmed {
			s.Errorf("confirmation %d: %+v, want sum %v", i, p, req.PartSums[i])
		}
	}
}
