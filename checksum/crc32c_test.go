package checksum_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/checksum"
)

// Known answers: RFC 3720 B.4, and the check value of the catalogue of CRCs.
func TestCRC32CKnownAnswers(t *testing.T) {
	ascending := make([]byte, 32)
	descending := make([]byte, 32)
	for i := range ascending {
		ascending[i], descending[i] = byte(i), byte(31-i)
	}
	read, err := hex.DecodeString("01c00000000000000000000000000000" + "14000000000004000000001400000018" + "28000000000000000200000000000000")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		b    []byte
		want uint32
	}{
		{"nothing", nil, 0},
		{"check value", []byte("123456789"), 0xE3069283},
		{"32 zeros", make([]byte, 32), 0x8A9136AA},
		{"32 ones", bytes.Repeat([]byte{0xFF}, 32), 0x62A8AB43},
		{"ascending", ascending, 0x46DD794E},
		{"descending", descending, 0x113FDB5C},
		{"iSCSI read command", read, 0xD9963A56},
	} {
		if got := checksum.CRC32C(c.b); got != c.want {
			t.Errorf("%s: CRC32C = %08x, want %08x", c.name, got, c.want)
		}
		if got := checksum.Update(checksum.CRC32C([]byte("before")), c.b); got != checksum.CRC32C(append([]byte("before"), c.b...)) {
			t.Errorf("%s: Update = %08x", c.name, got)
		}
	}
}

// The same polynomial, bit by bit: another way to the same sums.
func TestCRC32CBitByBit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		crc := ^uint32(0)
		for _, v := range b {
			crc ^= uint32(v)
			for range 8 {
				crc = crc>>1 ^ 0x82F63B78&-(crc&1)
			}
		}
		if got := checksum.CRC32C(b); got != ^crc {
			t.Fatalf("CRC32C = %08x, want %08x", got, ^crc)
		}
	})
}

// Known answers of xxHash's own test program with seed 0.
func TestXXH64KnownAnswers(t *testing.T) {
	for s, want := range map[string]uint64{
		"":          0xEF46DB3751D8E999,
		"a":         0xD24EC4F1A98C6E5B,
		"abc":       0x44BC2CF5AD770999,
		"123456789": 0x8CB841DB40E6AE83,
	} {
		if got := checksum.XXH64([]byte(s)); got != want {
			t.Errorf("XXH64(%q) = %016x, want %016x", s, got, want)
		}
	}
}

// As S3 answers for the same bytes.
func TestBase64(t *testing.T) {
	for crc, want := range map[uint32]string{0: "AAAAAA==", 0xE3069283: "4waSgw==", math.MaxUint32: "/////w=="} {
		if got := checksum.Base64(crc); got != want {
			t.Errorf("Base64(%08x) = %s, want %s", crc, got, want)
		}
	}
}

func TestCombineEqualsDirect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "a")
		b := rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "b")
		got := checksum.Combine(checksum.CRC32C(a), checksum.CRC32C(b), int64(len(b)))
		if want := checksum.CRC32C(append(a, b...)); got != want {
			t.Fatalf("Combine = %08x, want %08x", got, want)
		}
	})
}

// Lengths that no test could sum directly: combining in any order is the same,
// and so is appending zeros piece by piece.
func TestCombineIsAssociative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := rapid.Uint32().Draw(t, "a"), rapid.Uint32().Draw(t, "b"), rapid.Uint32().Draw(t, "c")
		lenB, lenC := rapid.Int64Range(0, 1<<61).Draw(t, "lenB"), rapid.Int64Range(0, 1<<61).Draw(t, "lenC")
		left := checksum.Combine(checksum.Combine(a, b, lenB), c, lenC)
		right := checksum.Combine(a, checksum.Combine(b, c, lenC), lenB+lenC)
		if left != right {
			t.Fatalf("(ab)c = %08x, a(bc) = %08x", left, right)
		}
	})
}

func TestCombineEdges(t *testing.T) {
	x := checksum.CRC32C([]byte("x"))
	if got := checksum.Combine(x, 0, 0); got != x {
		t.Errorf("nothing appended: %08x, want %08x", got, x)
	}
	if got := checksum.Combine(0, x, 1); got != x {
		t.Errorf("appended to nothing: %08x, want %08x", got, x)
	}
	// A mebibyte of zeros, directly and by doubling.
	zeros := make([]byte, 1<<20)
	sum, n := checksum.CRC32C(zeros[:1]), int64(1)
	for n < int64(len(zeros)) {
		sum, n = checksum.Combine(sum, sum, n), 2*n
	}
	if want := checksum.CRC32C(zeros); sum != want {
		t.Errorf("doubling zeros: %08x, want %08x", sum, want)
	}
	defer func() {
		if got := fmt.Sprint(recover()); got != "checksum: Combine with negative length -1" {
			t.Errorf("panic %s", got)
		}
	}()
	checksum.Combine(1, 2, -1)
}

func TestSumsDoNotAllocate(t *testing.T) {
	b := make([]byte, 1000)
	var sink uint32
	n := testing.AllocsPerRun(100, func() {
		sink = checksum.Combine(checksum.CRC32C(b[:500]), checksum.Update(sink, b), 1000)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestMismatchErrorNamesRangeAndSums(t *testing.T) {
	err := &checksum.MismatchError{What: "chunk 3", Off: 3 << 20, Len: 1 << 20, Want: 0xE3069283, Got: 1}
	const want = "checksum mismatch in chunk 3, bytes [3145728,4194304): recorded CRC32C e3069283, read 00000001"
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

func BenchmarkCombine(b *testing.B) {
	for _, n := range []int64{1, 1 << 20, 1<<30 - 1} {
		b.Run(fmt.Sprintf("len=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			crc := uint32(1)
			for b.Loop() {
				crc = checksum.Combine(crc, 0x12345678, n)
			}
		})
	}
}
