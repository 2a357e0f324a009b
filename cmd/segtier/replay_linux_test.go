package main

import (
	"io"
	"strings"
	"testing"
)

// On a terminal there are live figures, and they are gone at the end.
func TestLiveFiguresOnATerminal(t *testing.T) {
	outer, inner := openTerminal(t)
	shown := make(chan string)
	go func() {
		b, _ := io.ReadAll(outer) // ends with an error when the other end is closed
		shown <- string(b)
	}()
	b := copied(t, source(wide))
	var out strings.Builder
	status := run(t.Context(), []string{"replay", "--workload", "random", "--events", "50", "--rate", "100"}, &out, inner, b.getenv)
	if err := inner.Close(); err != nil {
		t.Fatal(err)
	}
	text := <-shown
	if status != statusDone || !strings.Contains(text, "fetches/s") || !strings.HasSuffix(text, "\x1b[K") || strings.Contains(out.String(), "\x1b") {
		t.Errorf("status %d, on the terminal %q, stdout %q", status, text, out.String())
	}
}
