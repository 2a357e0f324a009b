package weather

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"math/bits"
	"net/http"
	"strings"
)

// algorithm is one of S3's checksum algorithms, spelled as in the names
// of headers.
type algorithm string

const (
	noAlgorithm algorithm = ""
	algCRC32    algorithm = "crc32"
	algCRC32C   algorithm = "crc32c"
	algCRC64    algorithm = "crc64nvme"
	algSHA1     algorithm = "sha1"
	algSHA256   algorithm = "sha256"
)

func algorithms() []algorithm {
	return []algorithm{algCRC32, algCRC32C, algCRC64, algSHA1, algSHA256}
}

func (a algorithm) header() string { return "X-Amz-Checksum-" + string(a) }

// polynomials in the reflected bit order.
const (
	polyCRC32  = uint64(crc32.IEEE)
	polyCRC32C = uint64(crc32.Castagnoli)
	polyCRC64  = 0x9a6c9329ac4bc9b5
)

// newHash returns a hash, nil if the algorithm is unknown.
func (a algorithm) newHash() hash.Hash {
	switch a {
	case algCRC32:
		return crc32.NewIEEE()
	case algCRC32C:
		return crc32.New(crc32.MakeTable(crc32.Castagnoli))
	case algCRC64:
		return crc64.New(crc64.MakeTable(polyCRC64))
	case algSHA1:
		return sha1.New()
	case algSHA256:
		return sha256.New()
	default:
		return nil
	}
}

// full returns the sum of the whole from those of its parts; false if the
// algorithm cannot do that.
func (a algorithm) full(parts []*part) ([]byte, bool) {
	var poly uint64
	width := 32
	switch a {
	case algCRC32:
		poly = polyCRC32
	case algCRC32C:
		poly = polyCRC32C
	case algCRC64:
		poly, width = polyCRC64, 64
	default:
		return nil, false
	}
	var crc uint64
	for _, p := range parts {
		var sum [8]byte
		copy(sum[8-len(p.sum):], p.sum)
		crc = combine(crc, binary.BigEndian.Uint64(sum[:]), p.size, poly, width)
	}
	out := binary.BigEndian.AppendUint64(nil, crc)
	return out[8-width/8:], true
}

// combine returns the CRC of A‖B, given those of A and B and the length of B, for
// any reflected polynomial with inversions at both ends.
func combine(a, b uint64, lenB int64, poly uint64, width int) uint64 {
	mul := func(x, y uint64) (p uint64) {
		for m := uint64(1) << (width - 1); m != 0; m >>= 1 {
			if x&m != 0 {
				p ^= y
			}
			y = y>>1 ^ poly&-(y&1)
		}
		return p
	}
	power := uint64(1) << (width - 1 - 8) // x^8
	for n := uint64(lenB); n != 0; n >>= 1 {
		if n&1 != 0 {
			a = mul(a, power)
		}
		power = mul(power, power)
	}
	return a ^ b
}

// composite returns the sum of the sums of the parts.
func (a algorithm) composite(parts []*part) []byte {
	h := a.newHash()
	for _, p := range parts {
		_, _ = h.Write(p.sum) // never fails
	}
	return h.Sum(nil)
}

func encode(sum []byte) string { return base64.StdEncoding.EncodeToString(sum) }

// claim is a checksum that came with a body.
type claim struct {
	algorithm algorithm
	value     string // base64; "" if it is in a trailer
}

// claimOf returns the checksum that the headers name.
func claimOf(h http.Header) (claim, error) {
	var c claim
	for _, a := range algorithms() {
		v := h.Get(a.header())
		if v == "" {
			continue
		}
		if c.algorithm != noAlgorithm {
			return c, errRequest("Expecting a single x-amz-checksum- header")
		}
		c = claim{a, v}
	}
	if name := strings.ToLower(h.Get("X-Amz-Trailer")); name != "" {
		a := algorithm(strings.TrimPrefix(name, "x-amz-checksum-"))
		if a.newHash() == nil || c.algorithm != noAlgorithm {
			return c, errRequest("The value specified in the x-amz-trailer header is not supported")
		}
		c.algorithm = a
	}
	if c.value != "" {
		b, err := base64.StdEncoding.DecodeString(c.value)
		if err != nil || len(b) != c.algorithm.newHash().Size() {
			return c, errRequest("Value for " + strings.ToLower(c.algorithm.header()) + " header is invalid.")
		}
	}
	return c, nil
}

// digests sums a body in every way that is asked for.
type digests struct {
	crc32c  uint32
	own     hash.Hash // of the claim, if that is not CRC32C
	md5     hash.Hash // of Content-MD5
	payload hash.Hash // of x-amz-content-sha256
	table   *crc32.Table
}

func (x *exchange) newDigests(c claim) *digests {
	d := &digests{table: crc32.MakeTable(crc32.Castagnoli)}
	if c.algorithm != noAlgorithm && c.algorithm != algCRC32C {
		d.own = c.algorithm.newHash()
	}
	if x.r.Header.Get("Content-Md5") != "" {
		d.md5 = md5.New()
	}
	if len(x.r.Header.Get("X-Amz-Content-Sha256")) == 2*sha256.Size && !x.s.o.NoPayloadHash {
		d.payload = sha256.New()
	}
	return d
}

func (d *digests) write(p []byte) {
	d.crc32c = crc32.Update(d.crc32c, d.table, p)
	for _, h := range []hash.Hash{d.own, d.md5, d.payload} {
		if h != nil {
			_, _ = h.Write(p) // never fails
		}
	}
}

// sum returns the sum by the claim's algorithm.
func (d *digests) sum() []byte {
	if d.own != nil {
		return d.own.Sum(nil)
	}
	return binary.BigEndian.AppendUint32(nil, d.crc32c)
}

// verify holds the body to what was said of it.
func (d *digests) verify(h http.Header, c claim) error {
	if c.algorithm != noAlgorithm && encode(d.sum()) != c.value {
		return errDigest("The " + strings.ToUpper(string(c.algorithm)) + " you specified did not match the calculated checksum.")
	}
	if d.md5 != nil && encode(d.md5.Sum(nil)) != h.Get("Content-Md5") {
		return errDigest("The Content-MD5 you specified did not match what we received.")
	}
	if d.payload != nil && hex.EncodeToString(d.payload.Sum(nil)) != h.Get("X-Amz-Content-Sha256") {
		return &failure{http.StatusBadRequest, "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match what was computed.", 0}
	}
	return nil
}

// etag names bytes by their sums. It is no MD5, as with encryption on AWS.
func etag(crc uint32, size int64) string {
	var b [16]byte
	binary.BigEndian.PutUint32(b[:], crc)
	binary.BigEndian.PutUint32(b[4:], bits.Reverse32(crc)^0x5e97_1e12)
	binary.BigEndian.PutUint64(b[8:], uint64(size))
	return hex.EncodeToString(b[:])
}
