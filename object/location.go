package object

import (
	"encoding/binary"

	"github.com/segtier/segtier/checksum"
)

const (
	locationKind    = 'L' // tells it from the fingerprint of a plan, and from other plugins' metadata
	locationVersion = 1
	locationSize    = 31

	// MaxTailSize is the greatest length of a tail in bytes. A segment whose
	// tail would be longer (about two million aborted transactions) is refused.
	MaxTailSize = 64 << 20

	// MaxChunkSize is the greatest length of a chunk in bytes: chunks are read,
	// verified and cached as a whole.
	MaxChunkSize = 64 << 20

	// maxFileSize bounds each file of the head: Kafka's positions are 32-bit.
	maxFileSize = 1<<31 - 1
	// maxObjectSize follows from the bounds of its sections.
	maxObjectSize = 4*maxFileSize + MaxTailSize
)

// Location says where an object's tail is and what the object sums to. Encoded,
// it is the custom metadata of a FINISHED segment, 31 bytes of the 128 that
// Kafka allows by default. It names no ETag and no upload: the sums are the
// identity.
type Location struct {
	ObjectSize   int64  // bytes
	TailOffset   int64  // where the tail begins, in bytes from the start of the object
	ObjectCRC32C uint32 // of the whole object
	TailCRC32C   uint32 // of [TailOffset, ObjectSize)
	Codec        uint8  // how chunks are stored; 0: as they are
}

// TailSize returns the length of the tail in bytes.
func (l Location) TailSize() int64 { return l.ObjectSize - l.TailOffset }

// Append appends the encoded location to dst.
func (l Location) Append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, locationKind, locationVersion, l.Codec)
	dst = binary.BigEndian.AppendUint64(dst, uint64(l.ObjectSize))
	dst = binary.BigEndian.AppendUint64(dst, uint64(l.TailOffset))
	dst = binary.BigEndian.AppendUint32(dst, l.ObjectCRC32C)
	dst = binary.BigEndian.AppendUint32(dst, l.TailCRC32C)
	return binary.BigEndian.AppendUint32(dst, checksum.CRC32C(dst[start:]))
}

// IsLocation reports whether b begins as a location does. What does not was
// written by another storage plugin; what does may still be damaged.
func IsLocation(b []byte) bool { return len(b) > 0 && b[0] == locationKind }

// ParseLocation parses what Append wrote. It is ErrVersion if a newer segtier
// wrote it, ErrCorrupt for anything else, among it the custom metadata of other
// storage plugins. A location that parses is safe to allocate a tail for.
func ParseLocation(b []byte) (Location, error) {
	const what = "location"
	if len(b) < 3 || b[0] != locationKind {
		return Location{}, corrupt(what, "%d bytes that segtier did not write", len(b))
	}
	if b[1] != locationVersion {
		return Location{}, newer(what, "version", int(b[1]), locationVersion)
	}
	if len(b) != locationSize {
		return Location{}, corrupt(what, "%d bytes long, not %d", len(b), locationSize)
	}
	body, sum := b[:locationSize-4], binary.BigEndian.Uint32(b[locationSize-4:])
	if err := verify(what, 0, body, sum); err != nil {
		return Location{}, err
	}
	l := Location{
		Codec:        b[2],
		ObjectSize:   int64(binary.BigEndian.Uint64(b[3:])),
		TailOffset:   int64(binary.BigEndian.Uint64(b[11:])),
		ObjectCRC32C: binary.BigEndian.Uint32(b[19:]),
		TailCRC32C:   binary.BigEndian.Uint32(b[23:]),
	}
	if err := l.check(); err != nil {
		return Location{}, err
	}
	return l, nil
}

// check reports what makes l impossible.
func (l Location) check() error {
	const what = "location"
	switch {
	case l.Codec != 0:
		return newer(what, "codec", int(l.Codec), 0)
	case l.ObjectSize < 0 || l.ObjectSize > maxObjectSize:
		return corrupt(what, "object of %d bytes", l.ObjectSize)
	case l.TailOffset <= 0 || l.TailOffset > l.ObjectSize-TrailerSize:
		return corrupt(what, "tail at %d in an object of %d bytes", l.TailOffset, l.ObjectSize)
	case l.TailSize() > MaxTailSize:
		return corrupt(what, "tail of %d bytes, the limit is %d", l.TailSize(), MaxTailSize)
	}
	return nil
}

// verify compares the sum of b, which lies at off, with the recorded one.
func verify(what string, off int64, b []byte, want uint32) error {
	if got := checksum.CRC32C(b); got != want {
		return corrupt(what, "%w", &checksum.MismatchError{What: what, Off: off, Len: int64(len(b)), Want: want, Got: got})
	}
	return nil
}
