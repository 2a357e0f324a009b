//go:build !unix || aix || solaris

package embedded

import "os"

// unlock is not needed where locks belong to the process or to the handle.
func unlock(*os.File) {}
