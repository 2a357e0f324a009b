package object

import (
	"bytes"
	"slices"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/index"
	"github.com/segtier/segtier/segment"
)

// Tail is what a reader knows of an object before it asks for data. It is
// immutable and may be shared.
type Tail struct {
	Header   Header
	Table    Table
	Txn      index.Txn       // aborted transactions whose markers lie in the segment
	Epochs   segment.Lineage // the partition's whole history up to the segment's end
	Sections [numSections]Extent
}

// Section returns where a section lies. It panics on a section that is none.
func (t *Tail) Section(s Section) Extent { return t.Sections[s] }

// ParseTail parses the tail of the object at loc: b holds [TailOffset,
// ObjectSize). It verifies every sum and that everything agrees with everything
// else, and fails with an error that wraps ErrCorrupt or ErrVersion. The Tail
// keeps nothing of b.
func ParseTail(b []byte, loc Location) (*Tail, error) {
	if err := loc.check(); err != nil {
		return nil, err
	}
	if int64(len(b)) != loc.TailSize() {
		return nil, corrupt("tail", "%d bytes, the location says %d", len(b), loc.TailSize())
	}
	if err := verify("tail", loc.TailOffset, b, loc.TailCRC32C); err != nil {
		return nil, err
	}
	d, err := parseTrailer(b, loc.ObjectSize)
	if err != nil {
		return nil, err
	}
	if d.tailOffset() != loc.TailOffset {
		return nil, corrupt("trailer", "points to a tail at %d, the location to %d", d.tailOffset(), loc.TailOffset)
	}
	if sum := d.objectSum(b); sum.CRC32C != loc.ObjectCRC32C {
		return nil, corrupt("trailer", "sections sum up to %08x, the location says %08x", sum.CRC32C, loc.ObjectCRC32C)
	}
	section := func(s Section) []byte {
		at := d[s].Off - loc.TailOffset
		return b[at : at+d[s].Len : at+d[s].Len]
	}
	for s := TxnIndex; s < numSections; s++ {
		if err := verify(s.String(), d[s].Off, section(s), d[s].CRC32C); err != nil {
			return nil, err
		}
	}
	t := &Tail{Sections: *d}
	if t.Header, err = parseHeader(section(HeaderSection)); err != nil {
		return nil, err
	}
	if t.Table, err = parseTable(section(ChunkTable)); err != nil {
		return nil, err
	}
	if t.Epochs, err = segment.ParseLineage(section(Epochs)); err != nil {
		return nil, corrupt(Epochs.String(), "%w", err)
	}
	if t.Txn, err = index.ParseTxn(bytes.Clone(section(TxnIndex)), t.Header.StartOffset); err != nil {
		return nil, corrupt(TxnIndex.String(), "%w", err)
	}
	if err := t.check(section(Epochs)); err != nil {
		return nil, err
	}
	return t, nil
}

// check reports where the parts of a tail, each sound in itself, disagree.
func (t *Tail) check(epochs []byte) error {
	h := &t.Header
	if size := t.Sections[Log].Len; h.SizeBytes != size {
		return corrupt("header", "log of %d bytes, the directory says %d", h.SizeBytes, size)
	}
	if err := t.Table.check(t.Sections[Log], h.StartOffset, h.EndOffset); err != nil {
		return err
	}
	if ts := t.Table.maxTimestamp(); ts >= 0 && ts != h.MaxTimestamp {
		return corrupt("header", "max timestamp %d, the chunk table's is %d", h.MaxTimestamp, ts)
	}
	if n := t.Sections[TxnIndex].Len; h.TxnIndexEmpty && n > 0 {
		return corrupt("header", "says that nothing was aborted, but the txn index has %d bytes", n)
	}
	if err := t.Epochs.Validate(); err != nil {
		return corrupt(Epochs.String(), "%w", err)
	}
	// One spelling: Kafka's reader takes any white space.
	if text, err := t.Epochs.AppendText(nil); err != nil || !slices.Equal(text, epochs) {
		return corrupt(Epochs.String(), "not spelled as Kafka spells it")
	}
	if len(t.Epochs) == 0 || t.Epochs[0].Start > h.StartOffset || t.Epochs[len(t.Epochs)-1].Start > h.EndOffset {
		return corrupt(Epochs.String(), "%v do not fit offsets %d to %d", t.Epochs, h.StartOffset, h.EndOffset)
	}
	if want := t.Epochs.Range(h.StartOffset, h.EndOffset); !slices.Equal(want, h.Epochs) {
		return corrupt("header", "leader epochs %v, the history gives %v", h.Epochs, want)
	}
	return nil
}

// TailInput is what a tail is made from.
type TailInput struct {
	Header Header
	Table  Table
	Head   [4]checksum.Sum // of log, offset index, time index, producer snapshot, as they will be stored
	// TxnIndex is the content of Kafka's file, empty if there is none.
	TxnIndex []byte
	// Epochs is the partition's whole history up to the segment's end.
	Epochs segment.Lineage
}

// AppendTail appends the tail made from in to dst. What does not add up is an
// error, as ParseTail would have it; nothing is appended then.
func AppendTail(dst []byte, in TailInput) ([]byte, error) {
	var d directory
	for i, s := range in.Head {
		d[i] = Extent{Len: s.Len, CRC32C: s.CRC32C}
	}
	start := len(dst)
	out := slices.Grow(dst, len(in.TxnIndex)+tableFixed+len(in.Table.Chunks)*chunkEntrySize+TrailerSize+1024)
	from := start
	end := func(s Section) {
		d[s] = Extent{Len: int64(len(out) - from), CRC32C: checksum.CRC32C(out[from:])}
		from = len(out)
	}
	out = append(out, in.TxnIndex...)
	end(TxnIndex)
	out, err := in.Epochs.AppendText(out)
	if err != nil {
		return dst, corrupt(Epochs.String(), "%w", err)
	}
	end(Epochs)
	out = in.Table.Append(out)
	end(ChunkTable)
	out = in.Header.append(out)
	end(HeaderSection)
	for i := 1; i < len(d); i++ {
		d[i].Off = d[i-1].Off + d[i-1].Len
	}
	out = d.appendTrailer(out)

	// The reader's own judgement, on the bytes as they will be stored.
	tail := out[start:]
	loc, err := LocationOf(tail)
	if err != nil {
		return dst, err
	}
	t, err := ParseTail(tail, loc)
	if err != nil {
		return dst, err
	}
	if t.Table.ChunkSize != in.Table.ChunkSize || !slices.Equal(t.Table.Chunks, in.Table.Chunks) {
		return dst, corrupt("chunk table", "a field does not fit its width")
	}
	return out, nil
}
