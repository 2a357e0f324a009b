package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/segtier/segtier/audit"
)

// cursorEvery is how long a segment that was verified may not be in the file of a
// cursor: what a crash loses, beside the segments that were under way.
const cursorEvery = 5 * time.Second

// maxCursor bounds the file of a cursor in bytes.
const maxCursor = 64 << 10

// cursorFile keeps where a verification stands. Without a name it does nothing.
type cursorFile struct {
	name   string
	resume *audit.Cursor // what was in the file; nil: there was none

	mu     sync.Mutex
	last   *audit.Cursor // not written yet
	again  *time.Timer   // not nil: it was tried less than cursorEvery ago, and is then
	closed bool
	err    error // of the last write, if it failed
}

// openCursor reads the file, if it is there, and makes sure that it can be written.
func openCursor(name string) (*cursorFile, error) {
	c := &cursorFile{name: name}
	if name == "" {
		return c, nil
	}
	fail := func(err error) (*cursorFile, error) {
		return nil, fmt.Errorf("cursor %s: %w; remove it to begin anew", name, err)
	}
	b, err := readSmall(name, maxCursor)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return c, tryCursor(name)
	case err != nil:
		return fail(err)
	}
	c.resume = new(audit.Cursor)
	if err := strictly(b, c.resume); err != nil {
		return fail(err)
	}
	return c, tryCursor(name)
}

// tryCursor makes sure that the file can be replaced: a run of hours must not find
// out at its end.
func tryCursor(name string) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".new-*")
	if err == nil {
		err = errors.Join(f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		return usagef("--cursor %s: it cannot be written: %w", name, err)
	}
	return nil
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

// checkpoint takes where the verification stands, and has it written soon.
func (c *cursorFile) checkpoint(at audit.Cursor) {
	if c.name == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last = &at; c.again == nil {
		c.write()
	}
}

// write replaces the file in one step, if there is something new, which after an
// error there still is. What comes next is written cursorEvery later. c.mu is held.
func (c *cursorFile) write() {
	if c.last == nil {
		return
	}
	b, err := json.Marshal(c.last)
	if err == nil {
		err = replaceFile(c.name, append(b, '\n'))
	}
	if c.err = err; err == nil {
		c.last = nil
	}
	c.again = time.AfterFunc(cursorEvery, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.again = nil; !c.closed {
			c.write()
		}
	})
}

// close writes where an interrupted verification stands, or removes the file of
// one that is complete.
func (c *cursorFile) close(complete bool) error {
	if c.name == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	var err error
	if complete {
		if err = os.Remove(c.name); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	} else {
		c.write()
		err = c.err
	}
	if c.again != nil {
		c.again.Stop()
	}
	if err != nil {
		return fmt.Errorf("cursor %s: %w", c.name, err)
	}
	return nil
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
