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

	begin  sync.Once // starts keep, with the first checkpoint
	keeps  sync.WaitGroup
	news   chan struct{} // has one when last was set and nobody has looked
	closed chan struct{}

	mu   sync.Mutex
	last *audit.Cursor // not written yet; guarded by mu
}

// openCursor reads the file, if it is there, and makes sure that it can be written.
func openCursor(name string) (*cursorFile, error) {
	c := &cursorFile{name: name, news: make(chan struct{}, 1), closed: make(chan struct{})}
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
	c.last = &at
	c.mu.Unlock()
	c.tell()
	c.begin.Do(func() { c.keeps.Go(c.keep) })
}

func (c *cursorFile) tell() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// keep writes what is new until c is closed, at most once in cursorEvery. What could
// not be written is new.
func (c *cursorFile) keep() {
	for {
		select {
		case <-c.news:
		case <-c.closed:
			return
		}
		if c.write() != nil {
			c.tell()
		}
		select {
		case <-time.After(cursorEvery):
		case <-c.closed:
			return
		}
	}
}

// write replaces the file in one step, if there is something new, which after an
// error there still is.
func (c *cursorFile) write() error {
	c.mu.Lock()
	at := c.last
	c.mu.Unlock()
	if at == nil {
		return nil
	}
	b, err := json.Marshal(at)
	if err == nil {
		err = replaceFile(c.name, append(b, '\n'))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.last == at {
		c.last = nil
	}
	return err
}

// close writes where an interrupted verification stands, or removes the file of
// one that is complete. It is called once, behind the last checkpoint.
func (c *cursorFile) close(complete bool) error {
	if c.name == "" {
		return nil
	}
	close(c.closed)
	c.keeps.Wait()
	var err error
	if !complete {
		err = c.write()
	} else if err = os.Remove(c.name); errors.Is(err, os.ErrNotExist) {
		err = nil
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
