//go:build unix

package dir

import (
	"fmt"
	"os"
	"syscall"
)

// identity tells a file from every other that has had its name: objects are
// never written to, so a changed size, time or inode is another object.
func identity(fi os.FileInfo) string {
	var inode uint64
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		inode = st.Ino
	}
	return fmt.Sprintf("%x-%x-%x", fi.Size(), fi.ModTime().UnixNano(), inode)
}
