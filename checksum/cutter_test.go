package checksum_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/checksum"
)

// direct sums the pieces of b one by one.
func direct(b []byte, size int64) []checksum.Sum {
	var out []checksum.Sum
	for piece := range slices.Chunk(b, int(size)) {
		out = append(out, checksum.Sum{Len: int64(len(piece)), CRC32C: checksum.CRC32C(piece)})
	}
	return out
}

func checkCutter(t interface {
	Helper()
	Fatalf(string, ...any)
}, c *checksum.Cutter, b []byte, sizes ...int64,
) {
	t.Helper()
	for i, size := range sizes {
		if got, want := c.Pieces(i), direct(b, size); !slices.Equal(got, want) {
			t.Fatalf("pieces of %d: %v, want %v", size, got, want)
		}
	}
	if got, want := c.Total(), (checksum.Sum{Len: int64(len(b)), CRC32C: checksum.CRC32C(b)}); got != want {
		t.Fatalf("total %v, want %v", got, want)
	}
}

// Any stream, cut at any sizes, written in any pieces.
func TestCutterEqualsDirect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(t, "bytes")
		sizes := rapid.SliceOfN(rapid.Int64Range(1, 300), 0, 4).Draw(t, "sizes")
		c := checksum.NewCutter(sizes...)
		for rest := b; len(rest) > 0; {
			n := rapid.IntRange(0, len(rest)).Draw(t, "write")
			if k, err := c.Write(rest[:n]); k != n || err != nil {
				t.Fatalf("Write = %d, %v", k, err)
			}
			rest = rest[n:]
			if rapid.Bool().Draw(t, "look") { // looking changes nothing
				checkCutter(t, c, b[:len(b)-len(rest)], sizes...)
			}
		}
		checkCutter(t, c, b, sizes...)
	})
}

func TestCutterBorders(t *testing.T) {
	b := []byte("0123456789abcdef")
	for _, sizes := range [][]int64{nil, {1}, {16}, {17}, {4, 8}, {8, 4}, {3, 5}, {5, 5}} {
		t.Run(fmt.Sprint(sizes), func(t *testing.T) {
			c := checksum.NewCutter(sizes...)
			checkCutter(t, c, nil, sizes...)
			_, _ = c.Write(b)
			_, _ = c.Write(nil)
			checkCutter(t, c, b, sizes...)
		})
	}
	var zero checksum.Cutter
	_, _ = zero.Write(b)
	checkCutter(t, &zero, b)
}

func TestCutterPiecesAreTheCallers(t *testing.T) {
	c := checksum.NewCutter(4)
	_, _ = c.Write([]byte("01234567"))
	got := c.Pieces(0)
	got[0] = checksum.Sum{}
	_ = append(got, checksum.Sum{Len: 99})
	_, _ = c.Write([]byte("89"))
	checkCutter(t, c, []byte("0123456789"), 4)
}

func TestNewCutterRefusesSizes(t *testing.T) {
	for _, size := range []int64{0, -1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("no panic for size %d", size)
				}
			}()
			checksum.NewCutter(1, size)
		}()
	}
}

func TestCutterAllocatesOnlyForSums(t *testing.T) {
	c := checksum.NewCutter(1<<40, 1<<41)
	b := make([]byte, 1000)
	if n := testing.AllocsPerRun(100, func() { _, _ = c.Write(b) }); n != 0 {
		t.Errorf("%v allocations without a border", n)
	}
}

func FuzzCutter(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), uint16(3), uint16(5), uint16(7))
	f.Add([]byte{}, uint16(0), uint16(0), uint16(0))
	f.Fuzz(func(t *testing.T, b []byte, size1, size2, step uint16) {
		sizes := []int64{int64(size1) + 1, int64(size2) + 1}
		c := checksum.NewCutter(sizes...)
		for piece := range slices.Chunk(b, int(step)+1) {
			_, _ = c.Write(piece)
		}
		checkCutter(t, c, b, sizes...)
	})
}

// One pass that cuts at chunks of 1 MiB and parts of 16 MiB, by the size of
// writes. 64 MiB are summed each time.
func BenchmarkCutter(b *testing.B) {
	data := make([]byte, 1<<20)
	for _, write := range []int{4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("write=%d", write), func(b *testing.B) {
			b.SetBytes(64 << 20)
			b.ReportAllocs()
			for b.Loop() {
				c := checksum.NewCutter(1<<20, 16<<20)
				for range 64 {
					for p := data; len(p) > 0; p = p[write:] {
						_, _ = c.Write(p[:write])
					}
				}
			}
		})
	}
}
