package objstore

import (
	"errors"
	"fmt"

	"github.com/segtier/segtier/checksum"
)

// Sum returns the sum of the whole object, combined from its parts.
func (r *UploadRequest) Sum() checksum.Sum {
	var s checksum.Sum
	for _, p := range r.PartSums {
		s = s.Append(p)
	}
	return s
}

// Part returns where part i begins and how long it is, in bytes. Parts count
// from 0; i must be less than len(PartSums) of a request that Validate accepts.
func (r *UploadRequest) Part(i int) (off, n int64) {
	off = int64(i) * r.PartSize
	return off, min(r.PartSize, r.Size-off)
}

// Validate reports what makes r a request that no store can carry out: a key
// that is none, no body, sizes that are not positive, or part sums that do not
// cover [0, Size) in parts of PartSize. Implementations call it first.
func (r *UploadRequest) Validate() error {
	if err := ValidateKey(r.Key); err != nil {
		return err
	}
	if r.Body == nil {
		return errors.New("upload without a body")
	}
	if r.Size <= 0 || r.PartSize <= 0 {
		return fmt.Errorf("upload of %d bytes in parts of %d bytes: both must be greater than 0", r.Size, r.PartSize)
	}
	// (Size-1)/PartSize+1 cannot overflow, unlike Size+PartSize-1.
	if want := (r.Size-1)/r.PartSize + 1; int64(len(r.PartSums)) != want {
		return fmt.Errorf("upload of %d bytes in parts of %d bytes has %d part sums, needs %d",
			r.Size, r.PartSize, len(r.PartSums), want)
	}
	for i, sum := range r.PartSums {
		if _, n := r.Part(i); sum.Len != n {
			return fmt.Errorf("upload: the sum of part %d covers %d bytes, the part has %d", i, sum.Len, n)
		}
	}
	return nil
}

// CheckRange returns ErrRange, saying why, if [off, off+n) is not a range of at
// least one byte within an object of size bytes. A range that ends beyond the
// object is never cut short: whoever asks for it knows another object.
func CheckRange(off, n, size int64) error {
	if off < 0 || n <= 0 || off > size || n > size-off {
		return fmt.Errorf("%w: %d bytes from %d, the object has %d bytes", ErrRange, n, off, size)
	}
	return nil
}
