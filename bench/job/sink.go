package job

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strings"
	"sync"
)

// Received is what arrived over one connection of a Sink.
type Received struct {
	Label  string `json:"label"`
	Bytes  int64  `json:"bytes"`
	CRC32C uint32 `json:"crc32c"`
	Error  string `json:"error,omitempty"`
}

// ServeSink accepts connections, sums what comes, and writes a Received as a line of
// JSON to out for each, before the sender is told that its bytes arrived. It
// returns when ctx ends, after its connections.
func ServeSink(ctx context.Context, ln net.Listener, out io.Writer) error {
	var (
		mu    sync.Mutex // guards out
		conns sync.WaitGroup
	)
	defer conns.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()
	for {
		conn, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		conns.Go(func() {
			unhook := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer unhook()
			defer conn.Close()
			got := receive(conn)
			mu.Lock()
			err := json.NewEncoder(out).Encode(got)
			mu.Unlock()
			if err == nil && got.Error == "" {
				_, _ = conn.Write([]byte{1})
			}
		})
	}
}

// receive reads a connection to its end.
func receive(conn net.Conn) Received {
	var got Received
	r := bufio.NewReaderSize(conn, 256)
	label, err := r.ReadString('\n')
	if err != nil {
		got.Error = err.Error()
		return got
	}
	got.Label = strings.TrimSuffix(label, "\n")
	table := crc32.MakeTable(crc32.Castagnoli)
	buf := make([]byte, 256<<10)
	for {
		// The bufio.Reader gives what it has and then reads straight into buf.
		n, err := r.Read(buf)
		got.CRC32C = crc32.Update(got.CRC32C, table, buf[:n])
		got.Bytes += int64(n)
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			got.Error = err.Error()
			return got
		}
	}
}

// Pipe is a connection to a Sink. It is written to like any net.Conn.
type Pipe struct{ *net.TCPConn }

// Dial opens a Pipe. label names it in the sink's sums.
func Dial(ctx context.Context, addr, label string) (*Pipe, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, label+"\n"); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &Pipe{conn.(*net.TCPConn)}, nil
}

// Finish waits until the sink has everything, and closes.
func (p *Pipe) Finish() error {
	defer p.Close()
	if err := p.CloseWrite(); err != nil {
		return err
	}
	var ack [1]byte
	if _, err := io.ReadFull(p, ack[:]); err != nil {
		return fmt.Errorf("sink did not acknowledge: %w", err)
	}
	return nil
}
