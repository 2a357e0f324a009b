package object

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/segment"
)

var update = flag.Bool("update", false, "write testdata/golden.seg and testdata/broken anew")

const goldenFile = "testdata/golden.seg"

// goldenFiles are the files of the golden segment: a log and indexes made by
// Kafka's own classes, and a producer snapshot of one producer. They are the
// head of golden.seg; how long each is, is known here and nowhere else.
func goldenFiles(t testing.TB) (head [4][]byte, txn []byte) {
	t.Helper()
	b, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range []int{11479, 32, 60, 56} {
		head[i], b = b[:n], b[n:]
	}
	return head, b[:34]
}

func mustUUID(t testing.TB, s string) segment.UUID {
	t.Helper()
	id, err := segment.ParseUUID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// goldenInput is what the tail of golden.seg is made from. The chunk table is
// written out, as read off the batches of the log by eye: chunks of 4096 bytes,
// batches at 0 (offset 100), 5083 (112) and 8713 (125).
func goldenInput(t testing.TB) TailInput {
	t.Helper()
	head, txn := goldenFiles(t)
	in := TailInput{
		Header: Header{
			Partition:      segment.Partition{Topic: "orders.eu", TopicID: mustUUID(t, "AAECAwQFBgcICQoLDA0ODw"), Number: 7},
			SegmentID:      mustUUID(t, "EBESExQVFhcYGRobHB0eHw"),
			StartOffset:    100,
			EndOffset:      139,
			MaxTimestamp:   1700000011002,
			EventTimestamp: 1700000600000,
			BrokerID:       3,
			SizeBytes:      11479,
			Epochs:         segment.Lineage{{Epoch: 2, Start: 100}, {Epoch: 5, Start: 119}},
		},
		Table: Table{ChunkSize: 4096, Chunks: []Chunk{
			{Len: 4096, FirstBatch: 0, BaseOffset: 100, MaxTimestamp: 1700000003002},
			{Len: 4096, FirstBatch: 5083, BaseOffset: 112, MaxTimestamp: 1700000007002},
			{Len: 3287, FirstBatch: 8713, BaseOffset: 125, MaxTimestamp: 1700000011002},
		}},
		TxnIndex: txn,
		Epochs:   segment.Lineage{{Epoch: 0, Start: 0}, {Epoch: 2, Start: 90}, {Epoch: 5, Start: 119}},
	}
	for i, b := range head {
		in.Head[i] = checksum.Sum{Len: int64(len(b)), CRC32C: checksum.CRC32C(b)}
	}
	for i := range in.Table.Chunks {
		start := i * 4096
		in.Table.Chunks[i].CRC32C = checksum.CRC32C(head[0][start : start+int(in.Table.Chunks[i].Len)])
	}
	return in
}

// golden returns golden.seg's tail and location.
func golden(t testing.TB) (tail []byte, loc Location) {
	t.Helper()
	tail, err := AppendTail(nil, goldenInput(t))
	if err != nil {
		t.Fatal(err)
	}
	if loc, err = LocationOf(tail); err != nil {
		t.Fatal(err)
	}
	return tail, loc
}

func TestGoldenObject(t *testing.T) {
	head, _ := goldenFiles(t)
	tail, loc := golden(t)
	object := bytes.Join(append(head[:], tail), nil)
	if *update {
		if err := os.WriteFile(goldenFile, object, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(object, want) {
		t.Fatalf("object differs from %s", goldenFile)
	}
	if loc.ObjectSize != int64(len(object)) || loc.ObjectCRC32C != checksum.CRC32C(object) {
		t.Errorf("location %+v, the object has %d bytes and CRC32C %08x", loc, len(object), checksum.CRC32C(object))
	}
	got, err := ParseTail(tail, loc)
	if err != nil {
		t.Fatal(err)
	}
	for s, e := range got.Sections {
		if sum := checksum.CRC32C(object[e.Off : e.Off+e.Len]); sum != e.CRC32C {
			t.Errorf("%s at [%d,%d) sums up to %08x, directory says %08x", Section(s), e.Off, e.Off+e.Len, sum, e.CRC32C)
		}
	}
	clear(tail) // the Tail keeps nothing of it
	if got.Txn.Len() != 1 || got.Txn.Entry(0).ProducerID != 4000 {
		t.Errorf("txn index has %d entries", got.Txn.Len())
	}
}

// rawTail is a tail whose bytes are put together without any check.
type rawTail struct {
	head     [4]checksum.Sum
	sections [4][]byte // txn index, leader epochs, chunk table, header
	dir      func(*directory)
	trailer  func([]byte)
	sealed   bool // the trailer's own sum is made after trailer changed it
	loc      func(*Location)
}

// rawGolden takes golden.seg's tail apart.
func rawGolden(t testing.TB) *rawTail {
	t.Helper()
	in := goldenInput(t)
	tail, loc := golden(t)
	parsed, err := ParseTail(tail, loc)
	if err != nil {
		t.Fatal(err)
	}
	r := &rawTail{head: in.Head}
	for i := range r.sections {
		e := parsed.Sections[headSections+i]
		r.sections[i] = bytes.Clone(tail[e.Off-loc.TailOffset:][:e.Len])
	}
	return r
}

// build returns location and tail, with sums that fit whatever was changed.
func (r *rawTail) build() (Location, []byte) {
	var d directory
	for i, s := range r.head {
		d[i] = Extent{Len: s.Len, CRC32C: s.CRC32C}
	}
	var tail []byte
	for i, b := range r.sections {
		d[headSections+i] = Extent{Len: int64(len(b)), CRC32C: checksum.CRC32C(b)}
		tail = append(tail, b...)
	}
	for i := 1; i < len(d); i++ {
		d[i].Off = d[i-1].Off + d[i-1].Len
	}
	if r.dir != nil {
		r.dir(&d)
	}
	tail = d.appendTrailer(tail)
	if r.trailer != nil {
		b := tail[len(tail)-TrailerSize:]
		r.trailer(b)
		if r.sealed {
			putUint32(b[108:], checksum.CRC32C(b[:108]))
		}
	}
	loc := Location{
		ObjectSize: d.objectSize(), TailOffset: d.tailOffset(),
		ObjectCRC32C: d.objectSum(tail).CRC32C, TailCRC32C: checksum.CRC32C(tail),
	}
	if r.loc != nil {
		r.loc(&loc)
	}
	return loc, tail
}

func putUint32(b []byte, v uint32) {
	copy(b, []byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

const (
	rawTxn = iota
	rawEpochs
	rawTable
	rawHeader
)

// set changes bytes of a section.
func (r *rawTail) set(section, off int, hexBytes string) {
	b, err := hex.DecodeString(hexBytes)
	if err != nil {
		panic(err)
	}
	copy(r.sections[section][off:off+len(b)], b)
}

// broken are tails with one thing wrong and all sums right, so that the check
// for just that thing must find it. want is in the error's text.
var broken = map[string]struct {
	change func(*rawTail)
	want   string
}{
	"header-short":            {func(r *rawTail) { r.sections[rawHeader] = r.sections[rawHeader][:85] }, "header: malformed: 85 bytes long"},
	"header-no-segment-id":    {func(r *rawTail) { r.set(rawHeader, 0, "00000000000000000000000000000000") }, "no segment id"},
	"header-no-topic-id":      {func(r *rawTail) { r.set(rawHeader, 16, "00000000000000000000000000000000") }, "no topic id"},
	"header-partition":        {func(r *rawTail) { r.set(rawHeader, 32, "ffffffff") }, "negative partition"},
	"header-start-negative":   {func(r *rawTail) { r.set(rawHeader, 36, "ffffffffffffffff") }, "offsets -1 to 139"},
	"header-end-before-start": {func(r *rawTail) { r.set(rawHeader, 44, "0000000000000063") }, "offsets 100 to 99"},
	"header-max-timestamp":    {func(r *rawTail) { r.set(rawHeader, 52, "0000000000000001") }, "max timestamp 1, the chunk table's is 1700000011002"},
	"header-log-size":         {func(r *rawTail) { r.set(rawHeader, 72, "0000000000002cd8") }, "log of 11480 bytes, the directory says 11479"},
	"header-log-size-zero":    {func(r *rawTail) { r.set(rawHeader, 72, "0000000000000000") }, "log of 0 bytes"},
	"header-epochs-huge":      {func(r *rawTail) { r.set(rawHeader, 80, "ffffffff") }, "4294967295 leader epochs"},
	"header-epochs-none": {func(r *rawTail) {
		r.set(rawHeader, 80, "00000000")
		r.sections[rawHeader] = r.sections[rawHeader][:headerFixed+9]
	}, "no leader epochs"},
	"header-flags":             {func(r *rawTail) { r.set(rawHeader, 84, "02") }, "flags 02"},
	"header-no-aborts":         {func(r *rawTail) { r.set(rawHeader, 84, "01") }, "nothing was aborted, but the txn index has 34 bytes"},
	"header-topic-length":      {func(r *rawTail) { r.set(rawHeader, 85, "0a") }, "topic name of 10 bytes"},
	"header-topic-dots":        {func(r *rawTail) { r.set(rawHeader, 86, "2e2e2f2e2e2f2e2e2f") }, "is not allowed"},
	"header-epoch-first":       {func(r *rawTail) { r.set(rawHeader, 99, "0000000000000065") }, "first leader epoch begins at 101, the segment at 100"},
	"header-epoch-last":        {func(r *rawTail) { r.set(rawHeader, 111, "00000000000003e8") }, "last leader epoch begins at 1000, the segment ends at 139"},
	"header-epoch-order":       {func(r *rawTail) { r.set(rawHeader, 107, "00000002") }, "does not follow epoch 2"},
	"header-epoch-not-history": {func(r *rawTail) { r.set(rawHeader, 107, "00000006") }, "the history gives"},
	"table-short":              {func(r *rawTail) { r.sections[rawTable] = r.sections[rawTable][:7] }, "chunk table: malformed: 7 bytes long"},
	"table-count":              {func(r *rawTail) { r.set(rawTable, 4, "ffffffff") }, "4294967295 entries in 84 bytes"},
	"table-entry-missing": {func(r *rawTail) {
		r.set(rawTable, 4, "00000002")
		r.sections[rawTable] = r.sections[rawTable][:8+2*28]
	}, "2 chunks of 4096 bytes for a log of 11479 bytes"},
	"table-chunk-size-zero": {func(r *rawTail) { r.set(rawTable, 0, "00000000") }, "chunk size of 0 bytes"},
	"table-chunk-size-huge": {func(r *rawTail) { r.set(rawTable, 0, "04000001") }, "chunk size of 67108865 bytes"},
	"table-chunk-length":    {func(r *rawTail) { r.set(rawTable, 8, "00000fff") }, "chunk 0 has 4095 bytes, not 4096"},
	"table-chunk-sum":       {func(r *rawTail) { r.set(rawTable, 12, "00000000") }, "sums of the chunks give"},
	"table-first-not-zero":  {func(r *rawTail) { r.set(rawTable, 16, "00000001") }, "first batch at 1"},
	"table-first-none": {func(r *rawTail) {
		r.set(rawTable, 16, "ffffffff")
		r.set(rawTable, 20, "ffffffffffffffffffffffffffffffff")
	}, "chunk 0: no batch starts in it"},
	"table-first-outside":       {func(r *rawTail) { r.set(rawTable, 8+28+8, "00002000") }, "chunk 1, positions [4096,8192): first batch at 8192"},
	"table-first-before":        {func(r *rawTail) { r.set(rawTable, 8+28+8, "00000fff") }, "first batch at 4095"},
	"table-hole-with-base":      {func(r *rawTail) { r.set(rawTable, 8+28+8, "ffffffff") }, "chunk 1: no batch starts in it, but base offset 112"},
	"table-base-descends":       {func(r *rawTail) { r.set(rawTable, 8+28+12, "0000000000000064") }, "chunk 1: base offset 100 after 100"},
	"table-base-below-start":    {func(r *rawTail) { r.set(rawTable, 8+12, "0000000000000063") }, "chunk 0: base offset 99"},
	"table-base-beyond-end":     {func(r *rawTail) { r.set(rawTable, 8+56+12, "000000000000008c") }, "chunk 2: base offset 140"},
	"table-timestamp-descends":  {func(r *rawTail) { r.set(rawTable, 8+28+20, "0000000000000001") }, "chunk 1: max timestamp 1 after"},
	"table-timestamp-below-one": {func(r *rawTail) { r.set(rawTable, 8+20, "fffffffffffffffe") }, "chunk 0: max timestamp -2 after -1"},
	"epochs-empty":              {func(r *rawTail) { r.sections[rawEpochs] = []byte("0\n0\n") }, "do not fit offsets 100 to 139"},
	"epochs-count":              {func(r *rawTail) { r.sections[rawEpochs] = []byte("0\n2\n0 0\n2 90\n5 119\n") }, "leader epochs: malformed"},
	"epochs-spelling":           {func(r *rawTail) { r.sections[rawEpochs] = []byte("0\n3\n0 0\n2 90\n5  119\n") }, "not spelled as Kafka spells it"},
	"epochs-late":               {func(r *rawTail) { r.sections[rawEpochs] = []byte("0\n1\n5 119\n") }, "do not fit offsets 100 to 139"},
	"epochs-beyond":             {func(r *rawTail) { r.sections[rawEpochs] = []byte("0\n4\n0 0\n2 90\n5 119\n6 140\n") }, "do not fit offsets 100 to 139"},
	"txn-version":               {func(r *rawTail) { r.set(rawTxn, 0, "0100") }, "txn index: malformed"},
	"trailer-magic":             {func(r *rawTail) { r.trailer = func(b []byte) { b[112] = 'S' } }, "not the end of an object of segtier"},
	"trailer-version":           {func(r *rawTail) { r.sealed, r.trailer = true, func(b []byte) { b[105] = 2 } }, "version 2, known is 1"},
	"trailer-codec":             {func(r *rawTail) { r.sealed, r.trailer = true, func(b []byte) { b[106] = 1 } }, "codec 1, known is 0"},
	"trailer-section-count":     {func(r *rawTail) { r.sealed, r.trailer = true, func(b []byte) { b[107] = 9 } }, "9 sections, not 8"},
	"trailer-sum":               {func(r *rawTail) { r.trailer = func(b []byte) { b[108] ^= 1 } }, "checksum mismatch in trailer"},
	"trailer-tail-offset":       {func(r *rawTail) { r.sealed, r.trailer = true, func(b []byte) { b[103]++ } }, "points to a tail at 11628, sections say 11627"},
	"trailer-length-negative":   {func(r *rawTail) { r.sealed, r.trailer = true, func(b []byte) { b[0] = 0x80 } }, "log of -"},
	"trailer-length-huge":       {func(r *rawTail) { r.sealed, r.trailer = true, func(b []byte) { b[3] = 1 } }, "log of 4294978775 bytes"},
	"trailer-lengths-sum":       {func(r *rawTail) { r.sealed, r.trailer = true, func(b []byte) { b[7]++ } }, "sections of"},
	"trailer-empty-with-sum":    {func(r *rawTail) { r.head[2] = checksum.Sum{CRC32C: 1} }, "time index is empty and has sum 00000001"},
	"trailer-log-empty":         {func(r *rawTail) { r.head[0] = checksum.Sum{} }, "log of 0 bytes"},
	"trailer-section-sum":       {func(r *rawTail) { r.dir = func(d *directory) { d[HeaderSection].CRC32C ^= 1 } }, "checksum mismatch in header"},
	"location-size":             {func(r *rawTail) { r.loc = func(l *Location) { l.ObjectSize++ } }, "the location says"},
	"location-tail":             {func(r *rawTail) { r.loc = func(l *Location) { l.TailOffset++; l.ObjectSize++ } }, "sections of"},
	"location-object-sum":       {func(r *rawTail) { r.loc = func(l *Location) { l.ObjectCRC32C++ } }, "sections sum up to"},
	"location-tail-sum":         {func(r *rawTail) { r.loc = func(l *Location) { l.TailCRC32C++ } }, "checksum mismatch in tail"},
}

// Each broken object is committed as its location followed by its tail.
func TestBrokenObjects(t *testing.T) {
	const dir = "testdata/broken"
	if *update {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil && !*update {
		t.Fatal(err)
	}
	if len(files) != len(broken) && !*update {
		t.Errorf("%s holds %d files for %d cases", dir, len(files), len(broken))
	}
	for name, c := range broken {
		t.Run(name, func(t *testing.T) {
			r := rawGolden(t)
			c.change(r)
			loc, tail := r.build()
			file := filepath.Join(dir, name)
			if *update {
				if err := os.WriteFile(file, append(loc.Append(nil), tail...), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(b, append(loc.Append(nil), tail...)) {
				t.Error("the committed bytes are others")
			}
			loc, err = ParseLocation(b[:locationSize])
			if err != nil {
				t.Fatal(err)
			}
			got, err := ParseTail(b[locationSize:], loc)
			checkRefused(t, got, err, c.want)
		})
	}
}
