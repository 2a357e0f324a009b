package job

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"
)

// Reader is one way of reading a range of an object.
type Reader interface {
	// get returns n bytes from off on, and what to call when they are not needed
	// any more.
	Get(ctx context.Context, o *Object, off, n int64) (b []byte, release func(), err error)
	Close()
}

// Opener makes a Reader for a job.
type Opener func(j Job) (Reader, error)

// ReadSummed fills b, which begins at off of the object, and checks the chunks
// that lie wholly in it.
func ReadSummed(r io.Reader, b []byte, o *Object, off int64) error {
	const step = 128 << 10
	if o.Chunk == 0 || off%o.Chunk != 0 {
		_, err := io.ReadFull(r, b)
		return err
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	for chunk := off / o.Chunk; len(b) > 0; chunk++ {
		c := b[:min(o.Chunk, int64(len(b)))]
		b = b[len(c):]
		sum := uint32(0)
		for rest := c; len(rest) > 0; {
			s := rest[:min(step, len(rest))]
			if _, err := io.ReadFull(r, s); err != nil {
				return err
			}
			sum = crc32.Update(sum, table, s)
			rest = rest[len(s):]
		}
		if whole := min(o.Chunk, o.LogSize-chunk*o.Chunk); int64(len(c)) == whole && sum != o.Sums[chunk] {
			return fmt.Errorf("chunk %d of %s sums to %08x, not %08x", chunk, o.Key, sum, o.Sums[chunk])
		}
	}
	return nil
}

// FillFrom is the work that reads the logs of all objects in order, PartSize bytes a GET and
// Concurrency of them ahead, and writes them to the sink.
func FillFrom(open Opener) Work {
	return func(ctx context.Context, j Job, m *Meter) (map[string]float64, error) {
		r, err := open(j)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		out, err := Dial(ctx, j.Sink, j.Label)
		if err != nil {
			return nil, err
		}
		defer out.Close()
		if err := Warm(ctx, j, r); err != nil {
			return nil, err
		}
		m.Start()
		if err := sequential(ctx, j, r, out, m); err != nil {
			return nil, err
		}
		m.Stop()
		return nil, out.Finish()
	}
}

// piece is a range that is on its way.
type piece struct {
	b       []byte
	release func()
	err     error
}

func sequential(ctx context.Context, j Job, r Reader, out io.Writer, m *Meter) error {
	ctx, cancel := context.WithCancel(ctx)
	var gets sync.WaitGroup
	defer gets.Wait()
	defer cancel()
	var ahead []chan piece
	take := func() error {
		p := <-ahead[0]
		ahead = ahead[1:]
		if p.err != nil {
			return p.err
		}
		_, err := out.Write(p.b)
		m.Count(int64(len(p.b)))
		p.release()
		return err
	}
	for i := range j.Objects {
		o := &j.Objects[i]
		for off := int64(0); off < o.LogSize; off += j.PartSize {
			if len(ahead) == max(j.Concurrency, 1) {
				if err := take(); err != nil {
					return err
				}
			}
			c := make(chan piece, 1)
			ahead = append(ahead, c)
			n := min(j.PartSize, o.LogSize-off)
			gets.Go(func() {
				b, release, err := r.Get(ctx, o, off, n)
				c <- piece{b, release, err}
			})
		}
	}
	for len(ahead) > 0 {
		if err := take(); err != nil {
			return err
		}
	}
	return nil
}

// Warm opens the connections that the work will use.
func Warm(ctx context.Context, j Job, r Reader) error {
	errs := make([]error, max(j.Concurrency, 1))
	var gets sync.WaitGroup
	for i := range errs {
		gets.Go(func() {
			o := j.Objects[0]
			o.Chunk = 0
			_, _, errs[i] = r.Get(ctx, &o, o.LogSize-1-int64(i), 1)
		})
	}
	gets.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return fmt.Errorf("warming up: %w", errs[i])
	}
	return nil
}
