package fetch

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/segment"
)

// Notes say of every offset and every limit what a walk over all headers says, but
// for what lies between two of them.
func TestNotesAgainstAWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := testseg.Random(rapid.Uint64Range(0, 200).Draw(t, "log"), testseg.Options{Segments: 1})
		s := log.Segments[0]
		chunk := rapid.Int64Range(100, 9000).Draw(t, "chunk size")
		every := rapid.SampledFrom([]int{1, 100, 1000, 4096}).Draw(t, "every")
		x := &tail{Tail: &object.Tail{}}
		x.Table.ChunkSize = chunk
		size := int64(len(s.Log))
		for at := int64(0); at < size; at += chunk {
			x.Table.Chunks = append(x.Table.Chunks, object.Chunk{Len: int32(min(chunk, size-at)), FirstBatch: -1, BaseOffset: -1})
		}
		starts := map[int64]int{}
		for i, b := range s.Batches {
			starts[b.Pos] = i
			if c := &x.Table.Chunks[b.Pos/chunk]; c.FirstBatch < 0 {
				c.FirstBatch, c.BaseOffset = b.Pos, b.Header.BaseOffset
			}
		}
		for c, entry := range x.Table.Chunks {
			start := x.Table.Start(c)
			n := makeNotes(x, c, s.Log[start:start+int64(entry.Len)], every)
			if n == nil {
				n2 := n.seek(entry.FirstBatch, 1<<40)
				if _, _, _, ok := n.fit(1<<40, 1<<40); ok || n2 != entry.FirstBatch {
					t.Fatal("no notes say something")
				}
				// None were due: no second batch whose header is in the chunk begins
				// far enough behind the first.
				for _, b := range s.Batches {
					if entry.FirstBatch >= 0 && b.Pos >= entry.FirstBatch+int64(every) && b.Pos > entry.FirstBatch && b.Pos+segment.HeaderSize <= start+int64(entry.Len) {
						t.Fatalf("chunk %d: no notes, but a batch at %d", c, b.Pos)
					}
				}
				continue
			}
			last := entry.FirstBatch
			for _, a := range n.at {
				pos := n.start + a.half(byPos)
				i, ok := starts[pos]
				if !ok || pos < last+int64(every) || n.base+a.half(byOffset) != s.Batches[i-1].Header.LastOffset {
					t.Fatalf("chunk %d: a note at %d behind offset %d, the note before is at %d", c, pos, n.base+a.half(byOffset), last)
				}
				last = pos
			}
			for range 50 {
				offset := rapid.Int64Range(s.Batches[0].Header.BaseOffset-2, s.Batches[len(s.Batches)-1].Header.LastOffset+2).Draw(t, "offset")
				want := entry.FirstBatch
				for _, a := range n.at {
					if n.base+a.half(byOffset) < offset {
						want = n.start + a.half(byPos)
					}
				}
				if got := n.seek(entry.FirstBatch, offset); got != want {
					t.Fatalf("chunk %d, offset %d: begin at %d, want %d", c, offset, got, want)
				}
				if pos, size, last, ok := n.find(offset); ok {
					b := s.Batches[starts[pos]]
					if pos != b.Pos || b.Header.Size != size || b.Header.LastOffset != last || last < offset || s.Batches[starts[pos]-1].Header.LastOffset >= offset {
						t.Fatalf("chunk %d, offset %d: found at %d, %d bytes, up to %d", c, offset, pos, size, last)
					}
				}
				limit := rapid.Int64Range(start, start+int64(entry.Len)).Draw(t, "limit")
				wantEnd, wantLast, wantOK := int64(0), int64(0), false
				for _, a := range n.at {
					if pos, last := n.start+a.half(byPos), n.base+a.half(byOffset); pos <= limit && last < offset {
						wantEnd, wantLast, wantOK = pos, last, true
					}
				}
				end, last, exact, ok := n.fit(limit, offset)
				if exact {
					b := s.Batches[starts[end]]
					exact = b.Pos+int64(b.Header.Size) <= limit && b.Header.LastOffset < offset
				}
				if end != wantEnd || last != wantLast || ok != wantOK || exact {
					t.Fatalf("chunk %d, limit %d, upper %d: %d, %d, %v, want %d, %d, %v", c, limit, offset, end, last, ok, wantEnd, wantLast, wantOK)
				}
			}
		}
	})
}

// Bytes that no broker wrote end the notes, whatever they are.
func TestNotesOfNonsense(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 1, 2000).Draw(t, "bytes")
		x := &tail{Tail: &object.Tail{}}
		x.Table = object.Table{ChunkSize: 2000, Chunks: []object.Chunk{{
			Len: int32(len(b)), FirstBatch: rapid.Int64Range(-1, 2000).Draw(t, "first batch"), BaseOffset: rapid.Int64().Draw(t, "base"),
		}}}
		if n := makeNotes(x, 0, b, 1); n != nil {
			for i, a := range n.at {
				if a.half(byPos) >= int64(len(b)) || i > 0 && (a.half(byPos) <= n.at[i-1].half(byPos) || a.half(byOffset) < n.at[i-1].half(byOffset)) {
					t.Fatalf("notes %x", n.at)
				}
			}
		}
	})
}
