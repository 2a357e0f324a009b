package job

import (
	"os"
	"strconv"
	"strings"
)

// peakRSS returns the high water of this process's resident memory in bytes, 0
// where /proc does not say.
func peakRSS() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, ok := strings.Cut(string(status), "VmHWM:")
	if !ok {
		return 0
	}
	line, _, _ := strings.Cut(rest, "\n")
	kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(line), " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}

// resetPeak sets the high water to what is resident now. Where that is not
// possible the high water includes the set-up.
func resetPeak() {
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o200)
}
