package object

import (
	"bytes"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"
)

// docTables returns the tables of docs/format.md: of each the lines between its
// head and the next line that is no row, as cells.
func docTables(t *testing.T) (tables [][][]string) {
	t.Helper()
	b, err := os.ReadFile("../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	inTable := false
	for line := range strings.SplitSeq(string(b), "\n") {
		if !strings.HasPrefix(line, "|") {
			inTable = false
			continue
		}
		if !inTable {
			tables = append(tables, nil)
			inTable = true
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), " | ") {
			cells = append(cells, strings.Trim(cell, " "))
		}
		last := &tables[len(tables)-1]
		*last = append(*last, cells)
	}
	return tables
}

// The tables of section 7 name every byte of the golden tail, of its location
// and of an owner marker, in order and without a gap.
func TestFormatPageBytes(t *testing.T) {
	tail, loc := golden(t)
	want := [][]byte{tail, loc.Append(nil), nil, []byte(goldenOwner)} // the third is transfer's
	n := 0
	for _, table := range docTables(t) {
		if len(table[0]) < 2 || table[0][1] != "bytes" || !strings.HasSuffix(table[0][0], "+") && table[0][0] != "offset" {
			continue
		}
		if n == len(want) {
			t.Fatal("a table of bytes that nobody checks")
		}
		var got []byte
		for _, row := range table[2:] {
			if row[0] != strconv.Itoa(len(got)) {
				t.Errorf("table %d: row at %s (%s) should be at %d", n, row[0], row[2], len(got))
			}
			b, err := hex.DecodeString(strings.Trim(row[1], "`"))
			if err != nil {
				t.Errorf("table %d: row at %s: %v", n, row[0], err)
			}
			got = append(got, b...)
		}
		if want[n] != nil && !bytes.Equal(got, want[n]) {
			t.Errorf("table %d:\npage %x\ncode %x", n, got, want[n])
		}
		n++
	}
	if n != len(want) {
		t.Errorf("%d tables of bytes, want %d", n, len(want))
	}
}

// The tables of fields have no gaps and end where the code says.
func TestFormatPageFields(t *testing.T) {
	want := []int{tableFixed, chunkEntrySize, headerFixed, TrailerSize, locationSize, 44}
	n := 0
	for _, table := range docTables(t) {
		if len(table[0]) < 2 || table[0][1] != "size" {
			continue
		}
		end := 0
		for _, row := range table[2:] {
			size, err := strconv.Atoi(row[1])
			if err != nil {
				break // of variable length
			}
			if row[0] != strconv.Itoa(end) {
				t.Errorf("table %d: field at %s (%s) should be at %d", n, row[0], row[2], end)
			}
			end += size
		}
		if n < len(want) && end != want[n] {
			t.Errorf("table %d: fields end at %d, want %d", n, end, want[n])
		}
		n++
	}
	if n != len(want) {
		t.Errorf("%d tables of fields, want %d", n, len(want))
	}
}
