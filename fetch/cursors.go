package fetch

import (
	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/segment"
)

// A Cursor tells the cache where a consumer of a partition is, so that what it is
// about to need is kept rather than what nobody will read. Consumers are also
// found without, once they have read in sequence for a while; one that
// is announced is known from its first read on, and when it stalls. It is one
// reader, whatever else is read of its partition: with its first read elsewhere, or when it
// is closed, what is on its way for it alone is called off, as a Stream's is.
type Cursor struct {
	c   *cache.Cursor
	r   *Reader
	own *stream
}

// Announce says that a consumer will read a partition from an offset on. Its
// requests name the Cursor (Request.Cursor); Close it when the consumer ends.
func (r *Reader) Announce(p segment.Partition, offset int64) *Cursor {
	log := logOf(p)
	return &Cursor{r.cache.Announce(log, offset), r, r.single(log, offset)}
}

// Close says that the consumer is gone. It may be called more than once.
func (c *Cursor) Close() {
	c.c.Close()
	c.r.finish(c.own)
}

// own returns the stream of the one reader who asks r, if he is known to be one; else nil.
func (req *Request) own(r *Reader) *stream {
	if req.stream != nil {
		return req.stream
	}
	if req.announced(r) {
		return req.Cursor.own
	}
	return nil
}

// announced reports whether the read is of a consumer who was announced to r for this
// partition. A Cursor of another is none: it stays where it is.
func (req *Request) announced(r *Reader) bool {
	c := req.Cursor
	return c != nil && c.r == r && c.own.lanes.log == logOf(req.Partition)
}

func logOf(p segment.Partition) cache.Log { return cache.Log{ID: p.TopicID, Number: p.Number} }

// place tells where the chunk of a fill lies in its log: from the first batch that
// starts in it up to the first of a later chunk.
func (t *tail) place(f cache.Fill) {
	chunks := t.Table.Chunks
	p := cache.Place{Log: logOf(t.Header.Partition), First: t.Header.StartOffset, Next: t.Header.EndOffset + 1}
	c := int(f.Key().Chunk)
	for i := c; i >= 0; i-- {
		if chunks[i].FirstBatch >= 0 {
			p.First = chunks[i].BaseOffset
			break
		}
	}
	for i := c + 1; i < len(chunks); i++ {
		if chunks[i].FirstBatch >= 0 {
			p.Next = chunks[i].BaseOffset
			break
		}
	}
	f.Place(p)
}

// release ends fills whose read has returned: nobody writes to their memory any
// more.
func release(fills []cache.Fill) {
	for _, f := range fills {
		f.Release()
	}
}
