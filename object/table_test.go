package object

import (
	"sort"
	"testing"

	"pgregory.net/rapid"
)

// batch is a batch of a model log.
type batch struct {
	pos, size  int64
	base, last int64
	time       int64
}

// drawLog makes a model log and its chunk table: batches of very different
// sizes, so that many chunks have no start, with gaps between offsets.
func drawLog(t *rapid.T) ([]batch, Table) {
	size := rapid.Int64Range(1, 50).Draw(t, "chunk size")
	n := rapid.IntRange(1, 30).Draw(t, "batches")
	var log []batch
	pos, base := int64(0), rapid.Int64Range(0, 10).Draw(t, "start")
	for range n {
		b := batch{pos: pos, base: base}
		b.size = rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 400)).Draw(t, "size")
		b.last = base + rapid.Int64Range(0, 5).Draw(t, "records")
		b.time = rapid.Int64Range(-1, 40).Draw(t, "time")
		log = append(log, b)
		pos += b.size
		base = b.last + 1 + rapid.Int64Range(0, 4).Draw(t, "gap")
	}
	table := Table{ChunkSize: size}
	for start := int64(0); start < pos; start += size {
		c := Chunk{Len: int32(min(size, pos-start)), FirstBatch: -1, BaseOffset: -1, MaxTimestamp: -1}
		for _, b := range log {
			if b.pos >= start+size {
				break
			}
			c.MaxTimestamp = max(c.MaxTimestamp, b.time)
			if b.pos >= start && c.FirstBatch < 0 {
				c.FirstBatch, c.BaseOffset = b.pos, b.base
			}
		}
		table.Chunks = append(table.Chunks, c)
	}
	return log, table
}

func TestTableLookups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log, table := drawLog(t)
		end := log[len(log)-1]
		if got := table.LogSize(); got != end.pos+end.size {
			t.Fatalf("log size %d, want %d", got, end.pos+end.size)
		}
		for offset := log[0].base - 2; offset <= end.last+2; offset++ {
			// The batch that answers starts at or behind the chunk's first batch,
			// and no other chunk that holds for is nearer.
			want := sort.Search(len(log), func(i int) bool { return log[i].last >= offset })
			got := table.ForOffset(offset)
			c := table.Chunks[got]
			if c.FirstBatch < 0 {
				t.Fatalf("offset %d: no batch starts in chunk %d", offset, got)
			}
			if want < len(log) && log[want].pos < c.FirstBatch {
				t.Fatalf("offset %d: batch at %d lies before chunk %d, which begins with the one at %d", offset, log[want].pos, got, c.FirstBatch)
			}
			brute := 0
			for i, c := range table.Chunks {
				if c.FirstBatch >= 0 && c.BaseOffset <= offset {
					brute = i
				}
			}
			if got != brute {
				t.Fatalf("offset %d: chunk %d, want %d", offset, got, brute)
			}
		}
		for ts := int64(-2); ts <= 42; ts++ {
			want := len(table.Chunks)
			for _, b := range log {
				if b.time >= ts {
					want = int(b.pos / table.ChunkSize)
					break
				}
			}
			if ts <= -1 {
				want = 0 // every batch qualifies
			}
			if got := table.ForTime(ts); got != want {
				t.Fatalf("time %d: chunk %d, want %d", ts, got, want)
			}
		}
		for i := range table.Chunks {
			if table.Start(i) != int64(i)*table.ChunkSize || table.Len(i) != int64(table.Chunks[i].Len) {
				t.Fatalf("chunk %d is at %d, %d bytes long", i, table.Start(i), table.Len(i))
			}
		}
	})
}

// bigTable is that of a 1 GiB segment, one batch of ten records per chunk.
func bigTable() Table {
	t := Table{ChunkSize: DefaultChunkSize}
	for i := range int64(1024) {
		t.Chunks = append(t.Chunks, Chunk{Len: DefaultChunkSize, FirstBatch: i * DefaultChunkSize, BaseOffset: i * 10, MaxTimestamp: i * 10})
	}
	return t
}

func TestTableLookupsDoNotAllocate(t *testing.T) {
	table := bigTable()
	sum := 0
	if n := testing.AllocsPerRun(100, func() { sum += table.ForOffset(5003) + table.ForTime(5003) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkTableForOffset(b *testing.B) {
	bench := func(name string, table Table, lookup func(Table, int64) int) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			x, sum := int64(0), 0
			for b.Loop() {
				x = (x*5 + 1) % 10240
				sum += lookup(table, x)
			}
			if sum < 0 {
				b.Fatal(sum)
			}
		})
	}
	bench("holes=0", bigTable(), Table.ForOffset)
	holes := bigTable()
	for i := range holes.Chunks {
		if i%64 != 0 {
			holes.Chunks[i].FirstBatch, holes.Chunks[i].BaseOffset = -1, -1
		}
	}
	bench("holes=63of64", holes, Table.ForOffset)
	bench("sort.Search", bigTable(), func(t Table, x int64) int {
		return sort.Search(len(t.Chunks), func(i int) bool { return t.Chunks[i].BaseOffset > x })
	})
}
