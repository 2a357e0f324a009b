package s3

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
)

// Whatever the request's parts are, those that are sent cover them in order,
// whole, within S3's limits.
func TestPartsAreWithinLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(1, 5), rapid.IntRange(1, 50_000)).Draw(t, "parts")
		partSize := rapid.OneOf(rapid.Int64Range(1, 100), rapid.Int64Range(1, 12<<20), rapid.Int64Range(1, 6<<30)).Draw(t, "part size")
		last := rapid.Int64Range(1, partSize).Draw(t, "last part")
		req := &objstore.UploadRequest{PartSize: partSize, Size: int64(n-1)*partSize + last}
		for i := range n {
			_, length := req.Part(i)
			req.PartSums = append(req.PartSums, checksum.Sum{Len: length, CRC32C: uint32(i) * 0x9e3779b9})
		}
		size, parts, err := planParts(req)
		// S3 cannot take it, however it is divided: parts of the request are
		// never divided.
		perPart := (int64(n)-1)/maxParts + 1
		if err != nil {
			if min(partSize, req.Size)*max(perPart, 1) <= maxPartSize/2 {
				t.Fatalf("%d parts of %d bytes: %v", n, partSize, err)
			}
			return
		}
		if len(parts) > maxParts {
			t.Fatalf("%d parts", len(parts))
		}
		next, off, whole := 0, int64(0), checksum.Sum{}
		for i, p := range parts {
			if p.first != next || p.count < 1 || p.off != off {
				t.Fatalf("part %d begins with part %d at %d, expected %d at %d", i, p.first, p.off, next, off)
			}
			if i < len(parts)-1 && (p.sum.Len < minPartSize || p.sum.Len != size) || p.sum.Len > maxPartSize || p.sum.Len > size {
				t.Fatalf("part %d of %d has %d bytes, parts of %d", i, len(parts), p.sum.Len, size)
			}
			next, off, whole = next+p.count, off+p.sum.Len, whole.Append(p.sum)
		}
		if next != n || whole != req.Sum() {
			t.Fatalf("%d parts of %d are covered, sum %v, want %v", next, n, whole, req.Sum())
		}
	})
}

// A composite sum is that of the parts' sums, big-endian, and their number.
func TestComposite(t *testing.T) {
	parts := []sentPart{{sum: checksum.Sum{Len: 9, CRC32C: 0xE3069283}}, {sum: checksum.Sum{Len: 1, CRC32C: 0xC1D04330}}}
	sums := []byte{0xE3, 0x06, 0x92, 0x83, 0xC1, 0xD0, 0x43, 0x30}
	if got, want := composite(parts), checksum.Base64(checksum.CRC32C(sums))+"-2"; got != want {
		t.Errorf("composite = %s, want %s", got, want)
	}
	for text, want := range map[string]uint32{"4waSgw==": 0xE3069283, "AAAAAA==": 0} {
		if got, ok := parseCRC(text); !ok || got != want {
			t.Errorf("parseCRC(%s) = %08x, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "4waSgw", "4waSgw==-2", "4waSgx==", "4waSg===", "!waSgw==", "4waSgwAA"} {
		if got, ok := parseCRC(text); ok {
			t.Errorf("parseCRC(%q) = %08x", text, got)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-7": 0, "soon": 0, "99999999999999": 0, "1.5": 0,
		"Fri, 02 Jan 2026 03:04:15 GMT": 10 * time.Second, "Fri, 02 Jan 2026 03:04:00 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("Retry-After %q is %v, want %v", text, got, want)
		}
	}
	if got := retryAfter(http.Header{"X-Amz-Retry-After": {"250"}, "Retry-After": {"9"}}, now); got != 250*time.Millisecond {
		t.Errorf("X-Amz-Retry-After is %v", got)
	}
}

func TestShorten(t *testing.T) {
	for text, want := range map[string]string{"": "", "short": "short", "a\nb\x00c": "a b c", strings.Repeat("é", 12): strings.Repeat("é", 10) + "…"} {
		if got := shorten(text, 10); got != want {
			t.Errorf("shorten(%q) = %q, want %q", text, got, want)
		}
	}
}

func FuzzContentRange(f *testing.F) {
	f.Add("bytes 0-9/10")
	f.Add("bytes 5-4/*")
	f.Add("bytes 0-18446744073709551615/1")
	f.Fuzz(func(t *testing.T, text string) {
		first, last, total, ok := parseContentRange(text)
		if ok && (first < 0 || first > last || last >= total) {
			t.Errorf("%q is [%d,%d] of %d", text, first, last, total)
		}
	})
}

func FuzzToken(f *testing.F) {
	f.Add("token of a/b  %+é")
	f.Fuzz(func(t *testing.T, text string) {
		meta, err := metadata(text)
		if err != nil {
			return
		}
		for _, value := range meta {
			for i := range len(value) {
				if value[i] <= ' ' || value[i] > '~' {
					t.Errorf("%q becomes %q, which is no value of a header", text, value)
				}
			}
		}
		if got := token(meta); got != text {
			t.Errorf("%q comes back as %q", text, got)
		}
	})
}
