package s3_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/s3"
)

// soak multiplies what long tests do.
func soak(quick, long int) int {
	if os.Getenv("SEGTIER_SOAK") != "" {
		return long
	}
	return quick
}

const mib = 1 << 20

// bubble runs test with a Store on a fake, in a bubble of testing/synctest:
// timeouts cost nothing, and a goroutine that is left over fails the test.
func inBubble(t *testing.T, d dialect, shape func(*s3.Options), test func(t *testing.T, f *fake, s *s3.Store)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		f := newFake(d)
		test(t, f, f.another(t, shape))
	})
}

// another opens another Store on a fake served over pipes.
func (f *fake) another(t testing.TB, shape func(*s3.Options)) *s3.Store {
	t.Helper()
	if f.client == nil {
		f.client = f.pipeClient(t)
	}
	o := f.options("http://fake.test")
	o.HTTPClient = f.client
	if shape != nil {
		shape(&o)
	}
	return open(t, o)
}

// content returns n bytes that depend on seed; the same ones share memory.
func content(seed byte, n int) []byte {
	key := [2]int{int(seed), n}
	if b, ok := contents.Load(key); ok {
		return b.([]byte)
	}
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	contents.Store(key, b)
	return b
}

var contents sync.Map

// upload is a request for data in parts of partSize.
func upload(key string, data []byte, partSize int64) objstore.UploadRequest {
	c := checksum.NewCutter(partSize)
	_, _ = c.Write(data)
	return objstore.UploadRequest{
		Key: key, Body: bytes.NewReader(data), Size: int64(len(data)), PartSize: partSize, PartSums: c.Pieces(0), Token: "token-of-" + key,
	}
}

// readerAt is a body made of a function.
type readerAt func(p []byte, off int64) (int, error)

func (f readerAt) ReadAt(p []byte, off int64) (int, error) { return f(p, off) }

// checkEvidence fails unless ev proves every part of req, at least at level.
func checkEvidence(t *testing.T, req objstore.UploadRequest, ev objstore.Evidence, level objstore.Level) {
	t.Helper()
	if ev.Size != req.Size || ev.Identity == "" || len(ev.Parts) != len(req.PartSums) {
		t.Fatalf("evidence of %d bytes, identity %q, %d parts; uploaded were %d bytes in %d parts", ev.Size, ev.Identity, len(ev.Parts), req.Size, len(req.PartSums))
	}
	for i, p := range ev.Parts {
		if p.Part != i || p.Sum != req.PartSums[i] || p.Level < level {
			t.Errorf("part %d: %+v, want sum %v and at least %v", i, p, req.PartSums[i], level)
		}
	}
}

// mustUpload uploads and checks what is there afterwards.
func mustUpload(t *testing.T, f *fake, s *s3.Store, req objstore.UploadRequest, data []byte) objstore.Evidence {
	t.Helper()
	ev, err := s.Upload(t.Context(), req)
	if err != nil {
		t.Fatalf("Upload: %v", err)
	}
	checkEvidence(t, req, ev, objstore.Echoed)
	if got := f.object(req.Key); !bytes.Equal(got, data) {
		t.Fatalf("the object has other bytes (%d, uploaded %d)", len(got), len(data))
	}
	return ev
}

// only returns a plan with one fault, at the nth request of an operation.
func only(op string, nth int, what fault) func(request) fault {
	return func(r request) fault {
		if r.op == op && r.nth == nth && !isProbe(r) {
			return what
		}
		return fault{}
	}
}

func isProbe(r request) bool { return bytes.Contains([]byte(r.key), []byte(".segtier-probe/")) }

// count returns how many requests of an operation reached the fake.
func (f *fake) count(op string) int { return len(f.requests(op)) }

// set changes the plan while requests may be under way.
func (f *fake) set(plan func(request) fault) {
	f.mu.Lock()
	f.plan = plan
	f.mu.Unlock()
}

// wantError fails unless err is an *objstore.Error for op that wraps want.
func wantError(t *testing.T, err error, op string, want error) {
	t.Helper()
	var e *objstore.Error
	switch {
	case err == nil:
		t.Errorf("succeeded, want %v", want)
	case !errors.As(err, &e) || e.Op != op:
		t.Errorf("%v (%T) is no *objstore.Error for %q", err, err, op)
	case want != nil && !errors.Is(err, want):
		t.Errorf("%v, want %v", err, want)
	}
}

// partNumbers returns the parts that were sent, in the order of their numbers.
func (f *fake) partNumbers() []int {
	var numbers []int
	for _, r := range f.requests("UploadPart") {
		numbers = append(numbers, r.part)
	}
	slices.Sort(numbers)
	return numbers
}

// crcText is a checksum as S3 shows it.
func crcText(b []byte) string { return checksum.Base64(checksum.CRC32C(b)) }

// compositeText is the sum of an object made of parts, as S3 shows it.
func compositeText(data []byte, partSize int64) string {
	var sums []byte
	n := 0
	for part := range slices.Chunk(data, int(partSize)) {
		sums = binary.BigEndian.AppendUint32(sums, checksum.CRC32C(part))
		n++
	}
	return crcText(sums) + "-" + strconv.Itoa(n)
}
