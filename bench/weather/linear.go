package weather

import (
	"hash/crc32"

	"github.com/segtier/segtier/checksum"
)

// CRC-32C is linear: where two messages of one length differ by d (bit by bit),
// their sums differ by a function of d alone, and that of two differences is the
// sum of both. So the sum of a batch is that of the template, changed by what
// each patched byte adds.

// effects is what a field of eight bytes, big-endian, adds to a sum: one table
// for each byte.
type effects [8][256]uint32

// of returns what the value v of the field adds, against 0.
func (e *effects) of(v uint64) uint32 {
	return e[0][byte(v>>56)] ^ e[1][byte(v>>48)] ^ e[2][byte(v>>40)] ^ e[3][byte(v>>32)] ^
		e[4][byte(v>>24)] ^ e[5][byte(v>>16)] ^ e[6][byte(v>>8)] ^ e[7][byte(v)]
}

// add makes e the effect of its field being at from, too, in a message of length
// bytes. width is the length of the field: its bytes are the last of the eight.
func (e *effects) add(from, width, length int) {
	for i := range width {
		t := &e[8-width+i]
		behind := int64(length - from - i - 1) // zero bytes that follow
		var basis [8]uint32
		for bit := range basis {
			basis[bit] = checksum.Combine(raw(byte(1<<bit)), 0, behind)
		}
		spread(t[:], basis[:])
	}
}

// spread adds to each entry of t the sum of those of basis that its index has bits
// of.
func spread(t, basis []uint32) {
	for v := range t {
		for bit, b := range basis {
			if v>>bit&1 != 0 {
				t[v] ^= b
			}
		}
	}
}

// raw is the linear part of the sum of one byte: without the inversions at the
// beginning and at the end.
func raw(v byte) uint32 {
	return ^crc32.Update(^uint32(0), crc32.MakeTable(crc32.Castagnoli), []byte{v})
}

// shifter appends a fixed number of bytes to a sum: a table for each byte of it.
type shifter [4][256]uint32

func newShifter(length int64) *shifter {
	var s shifter
	for i := range s {
		var basis [8]uint32
		for bit := range basis {
			basis[bit] = checksum.Combine(1<<(8*i+bit), 0, length)
		}
		spread(s[i][:], basis[:])
	}
	return &s
}

// apply returns crc as it is in front of length further bytes; XOR with the sum
// of those gives the sum of both.
func (s *shifter) apply(crc uint32) uint32 {
	return s[0][byte(crc)] ^ s[1][byte(crc>>8)] ^ s[2][byte(crc>>16)] ^ s[3][crc>>24]
}
