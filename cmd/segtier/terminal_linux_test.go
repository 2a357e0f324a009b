package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal returns the two ends of a pseudo terminal.
func openTerminal(t *testing.T) (outer, inner *os.File) {
	t.Helper()
	outer, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { outer.Close() })
	if err := unix.IoctlSetPointerInt(int(outer.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetUint32(int(outer.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	inner, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inner.Close() })
	return outer, inner
}

// On a terminal there is a bar, and the lines of data are none the worse for it.
func TestProgressOnATerminal(t *testing.T) {
	outer, inner := openTerminal(t)
	if !isTerminal(inner) {
		t.Fatal("a terminal is not taken for one")
	}
	shown := make(chan string)
	go func() {
		b, _ := io.ReadAll(outer) // ends with an error when the other end is closed
		shown <- string(b)
	}()
	b := newBench(t)
	var out strings.Builder
	status := run(t.Context(), []string{"copy", source(wide), source(sensors)}, &out, inner, b.getenv)
	if status != statusDone || strings.Count(out.String(), "copied  ") != 6 {
		t.Errorf("status %d, stdout %s", status, out.String())
	}
	if status := run(t.Context(), []string{"verify"}, &out, inner, b.getenv); status != statusDone {
		t.Errorf("verify: status %d", status)
	}
	if err := inner.Close(); err != nil {
		t.Fatal(err)
	}
	text := <-shown
	for _, s := range []string{"copying events.wide-segment_1/0 at 0", "verifying", "6 segments copied", "6 segments verified"} {
		if !strings.Contains(text, s) {
			t.Errorf("the terminal does not show %q: %q", s, text)
		}
	}
}
