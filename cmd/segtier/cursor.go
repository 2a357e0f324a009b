package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/segtier/segtier/audit"
)

// cursorEvery is how often the file of a cursor is written: what a crash loses.
const cursorEvery = 5 * time.Second

// maxCursor bounds the file of a cursor in bytes.
const maxCursor = 64 << 10

// cursorFile keeps where a verification stands. Without a name it does nothing.
type cursorFile struct {
	name   string
	resume *audit.Cursor // what was in the file; nil: there was none

	last    *audit.Cursor // not written yet
	written time.Time
	err     error // of the first write that failed
}

// openCursor reads the file, if it is there.
func openCursor(name string) (*cursorFile, error) {
	c := &cursorFile{name: name, written: time.Now()}
	if name == "" {
		return c, nil
	}
	fail := func(err error) (*cursorFile, error) {
		return nil, fmt.Errorf("cursor %s: %w; remove it to begin anew", name, err)
	}
	b, err := readSmall(name, maxCursor)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return c, nil
	case err != nil:
		return fail(err)
	}
	c.resume = new(audit.Cursor)
	if err := strictly(b, c.resume); err != nil {
		return fail(err)
	}
	return c, nil
}

// readSmall reads a file of at most that many bytes. It opens nothing but a file: a
// pipe would never end.
func readSmall(name string, limit int64) ([]byte, error) {
	fi, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !fi.Mode().IsRegular():
		return nil, errors.New("it is no file")
	case fi.Size() > limit:
		return nil, fmt.Errorf("it has %d bytes, the limit is %d", fi.Size(), limit)
	}
	return os.ReadFile(name)
}

// checkpoint takes where the verification stands, and writes it now and then.
func (c *cursorFile) checkpoint(at audit.Cursor) {
	if c.name == "" {
		return
	}
	if c.last = &at; time.Since(c.written) >= cursorEvery {
		c.write()
	}
}

// write replaces the file in one step.
func (c *cursorFile) write() {
	if c.last == nil || c.err != nil {
		return
	}
	b, err := json.Marshal(c.last)
	if err == nil {
		err = replaceFile(c.name, append(b, '\n'))
	}
	if err != nil {
		c.err = fmt.Errorf("cursor %s: %w", c.name, err)
	}
	c.last, c.written = nil, time.Now()
}

// close writes where an interrupted verification stands, or removes the file of
// one that is complete.
func (c *cursorFile) close(complete bool) error {
	if c.name == "" {
		return nil
	}
	if complete {
		if err := os.Remove(c.name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cursor %s: %w", c.name, err)
		}
		return c.err
	}
	c.write()
	return c.err
}

// replaceFile writes a file under another name and gives it its own when it is
// complete.
func replaceFile(name string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // renamed by then, or of no use
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
