package checksum

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C returns the CRC-32C of b.
func CRC32C(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// Update returns the CRC-32C of the bytes summed in crc followed by p.
func Update(crc uint32, p []byte) uint32 { return crc32.Update(crc, castagnoli, p) }

// XXH64 returns the 64-bit xxHash of b with seed 0.
func XXH64(b []byte) uint64 { return xxhash.Sum64(b) }

// Base64 returns crc as S3 writes it in x-amz-checksum-crc32c: the four bytes,
// big-endian, in standard base64.
func Base64(crc uint32) string {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], crc)
	return base64.StdEncoding.EncodeToString(b[:])
}

// Combine returns the CRC-32C of A‖B, given the sums of A and of B and the
// length of B in bytes. It panics if lenB is negative.
//
// Appending lenB zero bytes to A multiplies its remainder by x^(8·lenB) modulo
// the polynomial; adding B's sum on top of that gives the sum of A‖B. The initial and final
// inversions cancel out. Cost: one multiplication per bit set in lenB.
func Combine(a, b uint32, lenB int64) uint32 {
	if lenB < 0 {
		panic(fmt.Sprintf("checksum: Combine with negative length %d", lenB))
	}
	if a == 0 {
		return b
	}
	for n := uint64(lenB); n != 0; n &= n - 1 {
		a = mulmod(a, powers[bits.TrailingZeros64(n)])
	}
	return a ^ b
}

// poly is the Castagnoli polynomial in the reflected bit order, where the
// highest bit is the coefficient of x^0.
const poly = 0x82F63B78

// mulmod multiplies two elements of GF(2)[x]/poly in the reflected bit order.
func mulmod(a, b uint32) uint32 {
	var p uint32
	for m := uint32(1) << 31; m != 0; m >>= 1 {
		if a&m != 0 {
			p ^= b
		}
		b = b>>1 ^ poly&-(b&1)
	}
	return p
}

// powers[k] is x^(8·2^k): what multiplies a sum when 2^k zero bytes follow.
var powers = func() (p [63]uint32) {
	p[0] = 1 << (31 - 8) // x^8
	for k := 1; k < len(p); k++ {
		p[k] = mulmod(p[k-1], p[k-1])
	}
	return p
}()
