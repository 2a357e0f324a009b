package objstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
)

func TestErrorNamesWhatFailed(t *testing.T) {
	for _, c := range []struct {
		err  objstore.Error
		want string
	}{
		{objstore.Error{Op: "open", Err: objstore.ErrReadOnly}, "open: store is read-only"},
		{objstore.Error{Op: "stat", Key: "a/b", Err: objstore.ErrNotExist}, "stat a/b: object does not exist"},
		{objstore.Error{Op: "get", Key: "a/b", Off: 10, Len: 5, Err: io.ErrUnexpectedEOF}, "get a/b bytes [10,15): unexpected EOF"},
		{objstore.Error{Op: "get", Key: "a/b", Off: 10, Err: io.EOF}, "get a/b: EOF"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestErrorLeadsToItsCause(t *testing.T) {
	mismatch := &checksum.MismatchError{What: "chunk 3", Off: 3, Len: 4, Want: 1, Got: 2}
	err := fmt.Errorf("fetching: %w", &objstore.Error{Op: "get", Key: "k", Err: fmt.Errorf("%w: %w", objstore.ErrCorrupt, mismatch)})
	var e *objstore.Error
	var m *checksum.MismatchError
	if !errors.Is(err, objstore.ErrCorrupt) || !errors.As(err, &e) || e.Key != "k" || !errors.As(err, &m) || m != mismatch {
		t.Errorf("%v", err)
	}
	if err := (&objstore.Error{Op: "get", Err: context.Canceled}); !errors.Is(err, context.Canceled) || errors.Is(err, objstore.ErrClosed) {
		t.Errorf("%v", err)
	}
}

func TestValidateKey(t *testing.T) {
	for _, key := range []string{
		"a", "a/b", "0/00000000000000000100-AZaz09_-.seg", ".a", "..a", "a..", "...", "-", "_", "~", "!", "a:b", "%2F",
		strings.Repeat("x", 1024),
	} {
		if err := objstore.ValidateKey(key); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
	for _, key := range []string{
		"", "/", "a/", "/a", "a//b", ".", "..", "./a", "a/.", "../a", "a/..", "a/../b", "a b", "a\tb", "a\x00", "a\x7f", "ä", `a\b`, `..\a`,
		strings.Repeat("x", 1025),
	} {
		if err := objstore.ValidateKey(key); err == nil {
			t.Errorf("%q is accepted", key)
		}
	}
}

// What is accepted stays below any root it is joined to, and names one thing.
func FuzzValidateKey(f *testing.F) {
	for _, key := range []string{
		"a", "orders-0/x/0/00000000000000000100-AZaz09_-.seg", "", "/", "//", "a/../../b", `a\..\b`, ".", "..", "..0", "a/.b/..c",
		"a\x00b", "a b", "é", "\xff", "~", "a/", strings.Repeat("k", 1025),
	} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		err := objstore.ValidateKey(key)
		if err != nil {
			if len(err.Error()) > 10_000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if len(key) > 1024 || path.Clean(key) != key || path.IsAbs(key) || !strings.HasPrefix(path.Join("/root", key), "/root/") {
			t.Errorf("%q is accepted", key)
		}
		for _, c := range []byte(key) {
			if c <= ' ' || c >= 0x7f || c == '\\' {
				t.Errorf("%q is accepted with %q in it", key, c)
			}
		}
	})
}

func TestCheckRange(t *testing.T) {
	for _, r := range [][3]int64{{0, 1, 1}, {0, 10, 10}, {9, 1, 10}, {math.MaxInt64 - 1, 1, math.MaxInt64}} {
		if err := objstore.CheckRange(r[0], r[1], r[2]); err != nil {
			t.Errorf("%v: %v", r, err)
		}
	}
	for _, r := range [][3]int64{
		{0, 0, 10},
		{0, -1, 10},
		{-1, 1, 10},
		{10, 1, 10},
		{0, 11, 10},
		{9, 2, 10},
		{0, 1, 0},
		{1, math.MaxInt64, 10},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{math.MinInt64, 1, 10},
	} {
		if err := objstore.CheckRange(r[0], r[1], r[2]); !errors.Is(err, objstore.ErrRange) {
			t.Errorf("%v: %v", r, err)
		}
	}
}

// The parts of a valid request cover the object exactly, and their sums
// combine to its sum.
func TestPartsCoverTheObject(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "data")
		partSize := rapid.Int64Range(1, 250).Draw(t, "part size")
		c := checksum.NewCutter(partSize)
		_, _ = c.Write(data)
		r := objstore.UploadRequest{Key: "k", Body: bytes.NewReader(data), Size: int64(len(data)), PartSize: partSize, PartSums: c.Pieces(0)}
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		var end int64
		for i, sum := range r.PartSums {
			off, n := r.Part(i)
			if off != end || n != sum.Len || sum.CRC32C != checksum.CRC32C(data[off:off+n]) {
				t.Fatalf("part %d is [%d,%d), the one before ends at %d", i, off, off+n, end)
			}
			end += n
		}
		if want := (checksum.Sum{Len: int64(len(data)), CRC32C: checksum.CRC32C(data)}); end != want.Len || r.Sum() != want {
			t.Fatalf("parts end at %d, sum %v, want %v", end, r.Sum(), want)
		}
	})
}

func TestValidateRequest(t *testing.T) {
	good := func() objstore.UploadRequest {
		return objstore.UploadRequest{Key: "k", Body: strings.NewReader("12345"), Size: 5, PartSize: 3, PartSums: []checksum.Sum{{Len: 3}, {Len: 2}}}
	}
	r := good()
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
	for what, spoil := range map[string]func(*objstore.UploadRequest){
		"no key":            func(r *objstore.UploadRequest) { r.Key = "" },
		"bad key":           func(r *objstore.UploadRequest) { r.Key = "../k" },
		"no body":           func(r *objstore.UploadRequest) { r.Body = nil },
		"empty":             func(r *objstore.UploadRequest) { r.Size, r.PartSums = 0, nil },
		"negative size":     func(r *objstore.UploadRequest) { r.Size = -1 },
		"no part size":      func(r *objstore.UploadRequest) { r.PartSize = 0 },
		"negative part":     func(r *objstore.UploadRequest) { r.PartSize = -3 },
		"too few sums":      func(r *objstore.UploadRequest) { r.PartSums = r.PartSums[:1] },
		"too many sums":     func(r *objstore.UploadRequest) { r.PartSums = append(r.PartSums, checksum.Sum{}) },
		"last sum too long": func(r *objstore.UploadRequest) { r.PartSums[1].Len = 3 },
		"parts unequal":     func(r *objstore.UploadRequest) { r.PartSums[0].Len, r.PartSums[1].Len = 2, 3 },
		"huge":              func(r *objstore.UploadRequest) { r.Size, r.PartSize = math.MaxInt64, 1 },
		"huge parts":        func(r *objstore.UploadRequest) { r.Size, r.PartSize = math.MaxInt64, math.MaxInt64-1 },
	} {
		r := good()
		spoil(&r)
		if err := r.Validate(); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

func TestLevels(t *testing.T) {
	for level, want := range map[objstore.Level]string{
		objstore.Unconfirmed: "unconfirmed", objstore.Echoed: "echoed", objstore.Listed: "listed",
		objstore.Attributed: "attributed", objstore.ReadBack: "read back", 99: "unknown",
	} {
		if got := level.String(); got != want {
			t.Errorf("level %d is %q, want %q", uint8(level), got, want)
		}
	}
	if !(objstore.Unconfirmed < objstore.Echoed && objstore.Echoed < objstore.Listed &&
		objstore.Listed < objstore.Attributed && objstore.Attributed < objstore.ReadBack) {
		t.Error("levels do not grow stronger")
	}
}
