package checksum

import "fmt"

// MismatchError says that bytes are not those that were summed before.
type MismatchError struct {
	What string // what was read: "chunk 3", "tail", "batch at position 4096"
	Off  int64  // where it begins, in bytes from the start of the object or file
	Len  int64  // bytes
	Want uint32 // the recorded CRC-32C
	Got  uint32 // the CRC-32C of what was read
}

// Error names the range and both sums.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("checksum mismatch in %s, bytes [%d,%d): recorded CRC32C %08x, read %08x",
		e.What, e.Off, e.Off+e.Len, e.Want, e.Got)
}
