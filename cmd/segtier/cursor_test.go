package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segtier/segtier/audit"
	"github.com/segtier/segtier/internal/bubble"
)

// segmentsAt returns how many segments the cursor file says were verified, -1 if there
// is no file.
func segmentsAt(t *testing.T, file string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return -1
	}
	var at audit.Cursor
	if err == nil {
		err = json.Unmarshal(b, &at)
	}
	if err != nil {
		t.Fatal(err)
	}
	return at.Report.Segments
}

func cursorAt(n int) audit.Cursor { return audit.Cursor{Report: audit.Report{Segments: n}} }

// Where a verification stands is in the file within cursorEvery, also if nothing comes
// after it for long: it is what a kill loses.
func TestCursorIsWrittenInTime(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cursor.json")
	bubble.Test(t, func(t *testing.T) {
		c, err := openCursor(file)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		c.checkpoint(cursorAt(1))
		synctest.Wait()
		if n := segmentsAt(t, file); n != 1 {
			t.Errorf("behind the first segment the file is at %d", n)
		}
		c.checkpoint(cursorAt(2))
		time.Sleep(time.Second)
		c.checkpoint(cursorAt(3))
		synctest.Wait()
		if n := segmentsAt(t, file); n != 1 {
			t.Errorf("it is at %d: written with each segment", n)
		}
		time.Sleep(cursorEvery)
		if n := segmentsAt(t, file); n != 3 {
			t.Errorf("after %v it is at %d", cursorEvery, n)
		}
		c.checkpoint(cursorAt(4))
		if err := c.close(false); err != nil || segmentsAt(t, file) != 4 {
			t.Errorf("%v, at %d", err, segmentsAt(t, file))
		}
	})
}

// A write that fails is tried again, and forgotten when it succeeds.
func TestCursorIsTriedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "cursor.json")
	bubble.Test(t, func(t *testing.T) {
		c, err := openCursor(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		c.checkpoint(cursorAt(1))
		synctest.Wait()
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		time.Sleep(cursorEvery + time.Second)
		if n := segmentsAt(t, file); n != 1 {
			t.Errorf("it was not tried again: at %d", n)
		}
		if err := c.close(false); err != nil {
			t.Errorf("what failed once and then did not is an error: %v", err)
		}
	})
}

// Whatever is being written when the verification ends, the last word is its own.
func TestCursorEndsWhileItIsWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cursor.json")
	for i := range 100 {
		bubble.Test(t, func(t *testing.T) {
			c, err := openCursor(file)
			if err != nil {
				t.Fatal(err)
			}
			c.checkpoint(cursorAt(1))
			for range i { // until it is, now and then
				runtime.Gosched()
			}
			c.checkpoint(cursorAt(2))
			complete := i%2 == 0
			err = c.close(complete)
			synctest.Wait()
			want := 2
			if complete {
				want = -1
			}
			if n := segmentsAt(t, file); err != nil || n != want {
				t.Errorf("complete: %v: it is at %d, want %d: %v", complete, n, want, err)
			}
		})
	}
}

// A path that cannot be written is told before anything is read.
func TestCursorThatCannotBeWritten(t *testing.T) {
	b := copied(t, source(payments))
	o := b.want(statusUsage, "verify", "--cursor", filepath.Join(b.dir, "nowhere", "c.json"))
	o.oneError(t, "--cursor", "nowhere")
	if strings.Contains(o.msg, "verified") {
		t.Errorf("%+v", o)
	}
	names := func() (names []string) {
		entries, err := os.ReadDir(b.dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	before := len(names())
	b.done("verify", "--cursor", filepath.Join(b.dir, "c.json"))
	if got := names(); len(got) != before {
		t.Errorf("left are %v", got)
	}
}

// Whatever becomes of the cursor, what was verified is told, and the damage that was
// found is the exit status.
func TestCursorLost(t *testing.T) {
	b := copied(t, source(payments))
	damages()["deleted"](t, filepath.Join(b.store, filepath.FromSlash(objectOf(t, b, "payments.tx_commit-abort/0", 0))))
	dir := filepath.Join(b.dir, "d")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	a := &app{stdout: writerFunc(func(p []byte) (int, error) {
		if err := os.RemoveAll(dir); err != nil { // with the first finding
			t.Error(err)
		}
		return len(p), os.WriteFile(dir, nil, 0o666) // not to be made again
	}), getenv: b.getenv}
	var msg strings.Builder
	a.stderr = &msg
	status := a.run(t.Context(), []string{"verify", "--cursor", filepath.Join(dir, "c.json")})
	if status != statusDamage || !strings.Contains(msg.String(), "12 segments verified") || !strings.Contains(msg.String(), "1 damaged") {
		t.Errorf("status %d, stderr: %s", status, msg.String())
	}
	if !strings.Contains(msg.String(), "cursor "+dir) {
		t.Errorf("the cursor's error is not told: %s", msg.String())
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
