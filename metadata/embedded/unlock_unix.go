//go:build unix && !aix && !solaris

package embedded

import (
	"os"
	"syscall"
)

// unlock gives back bbolt's lock on the file. Closing the file is not enough
// while its mapping is there, for that keeps it open.
func unlock(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
