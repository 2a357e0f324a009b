package main

import (
	"io"
	"sync"

	"github.com/schollz/progressbar/v3"
)

// progress shows how far a job is. Without a terminal it does nothing. Its
// methods may be called concurrently.
type progress struct {
	mu   sync.Mutex
	bar  *progressbar.ProgressBar // nil: silent
	base int64                    // bytes of the items that are done
	item int64                    // bytes of the running item that are done, at most size
	size int64                    // bytes of the running item
}

// newProgress starts a bar over total bytes.
func newProgress(w io.Writer, terminal bool, total int64, what string) *progress {
	if !terminal {
		return &progress{}
	}
	return &progress{bar: progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(true),
		progressbar.OptionUseIECUnits(true),
		progressbar.OptionSetWidth(24),
		progressbar.OptionClearOnFinish(),
	)}
}

// begin starts an item of size bytes.
func (p *progress) begin(what string, size int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.item, p.size = 0, size
	if p.bar != nil {
		p.bar.Describe(what)
	}
}

// add counts bytes of the running item. What is counted twice by a retry does
// not carry the bar beyond the item.
func (p *progress) add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.item = min(p.item+n, p.size)
	p.show()
}

// end counts the running item as done.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.base, p.item, p.size = p.base+p.size, 0, 0
	p.show()
}

func (p *progress) show() {
	if p.bar != nil {
		_ = p.bar.Set64(p.base + p.item) // an error here is of the terminal
	}
}

// clear takes the bar off the screen, so that a line can be written.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
