package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/index"
	"github.com/segtier/segtier/segment"
)

// sink writes fetched batches in one of the formats.
type sink interface {
	write(a *app, res *fetch.Result) error
	flush() error
}

// newSink returns the sink of a format; records below offset from are left out
// where records are shown.
func newSink(format string, w io.Writer, from int64, committed bool) sink {
	switch format {
	case "raw":
		return &rawSink{w}
	case "json":
		b := bufio.NewWriter(w)
		return &recordSink{from: from, committed: committed, record: jsonRecord(jsonLines(b)), done: b.Flush}
	default:
		t := newTable(w)
		return &recordSink{from: from, committed: committed, record: tableRecord(t), done: t.flush}
	}
}

// rawSink gives the batches as they are.
type rawSink struct{ w io.Writer }

func (s *rawSink) write(_ *app, res *fetch.Result) error {
	_, err := res.WriteTo(s.w)
	return err
}

func (s *rawSink) flush() error { return nil }

// recordSink shows records.
type recordSink struct {
	from      int64
	committed bool
	warned    bool // that transactions are incomplete
	record    func(segment.Header, segment.Record) error
	done      func() error
	decoder   segment.Decoder
}

func (s *recordSink) flush() error { return s.done() }

func (s *recordSink) write(a *app, res *fetch.Result) error {
	var filter abortFilter
	if s.committed {
		aborted, complete, upTo := res.AbortedTransactions()
		filter.aborted = aborted
		if !complete && !s.warned {
			s.warned = true
			a.messagef("transactions that end beyond offset %d are not in the tier: records of theirs are shown, but may be aborted", upTo)
		}
	}
	for h, raw := range res.Batches() {
		if s.committed && filter.skip(h, raw, &s.decoder) {
			continue
		}
		if err := s.batch(h, raw); err != nil {
			return fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err)
		}
	}
	return s.done() // not to hold more than one result back
}

func (s *recordSink) batch(h segment.Header, raw []byte) error {
	var failed error
	err := s.decoder.Records(raw, func(r segment.Record) bool {
		if r.Offset >= s.from {
			failed = s.record(h, r)
		}
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	return err
}

// abortFilter leaves out what a read_committed consumer does not see, as Kafka's
// consumer does: an aborted transaction begins at its first offset and ends at
// its producer's next ABORT marker.
type abortFilter struct {
	aborted []index.AbortedTxn // ascending in FirstOffset; those not begun yet
	open    map[int64]bool     // producers inside an aborted transaction
}

func (f *abortFilter) skip(h segment.Header, raw []byte, d *segment.Decoder) bool {
	for len(f.aborted) > 0 && f.aborted[0].FirstOffset <= h.LastOffset {
		if f.open == nil {
			f.open = map[int64]bool{}
		}
		f.open[f.aborted[0].ProducerID] = true
		f.aborted = f.aborted[1:]
	}
	if h.Control() {
		if controlType(raw, d) == "ABORT" {
			delete(f.open, h.ProducerID)
		}
		return true
	}
	return h.Transactional() && f.open[h.ProducerID]
}

// controlType returns the kind of the batch's control record.
func controlType(raw []byte, d *segment.Decoder) (kind string) {
	_ = d.Records(raw, func(r segment.Record) bool {
		kind = controlName(r.Key)
		return false
	})
	return kind
}

// controlName reads the key of a control record: a version and a type, each an
// int16. The names are those of Kafka's ControlRecordType.
func controlName(key []byte) string {
	if len(key) < 4 {
		return "UNKNOWN"
	}
	switch binary.BigEndian.Uint16(key[2:]) {
	case 0:
		return "ABORT"
	case 1:
		return "COMMIT"
	case 2:
		return "LEADER_CHANGE"
	case 3:
		return "SNAPSHOT_HEADER"
	case 4:
		return "SNAPSHOT_FOOTER"
	case 5:
		return "KRAFT_VERSION"
	case 6:
		return "KRAFT_VOTERS"
	}
	return "UNKNOWN"
}

// recordLine is a record as --format json shows it. Of key and keyBase64 one is
// there, of value and valueBase64 too.
type recordLine struct {
	Offset          int64        `json:"offset"`
	Timestamp       int64        `json:"timestamp"`
	LeaderEpoch     int32        `json:"leaderEpoch"`
	ProducerID      *int64       `json:"producerId,omitempty"`
	ProducerEpoch   *int16       `json:"producerEpoch,omitempty"`
	IsTransactional bool         `json:"isTransactional,omitempty"`
	ControlType     string       `json:"controlType,omitempty"` // of a control record
	Key             any          `json:"key,omitempty"`
	KeyBase64       []byte       `json:"keyBase64,omitempty"`
	Value           any          `json:"value,omitempty"`
	ValueBase64     []byte       `json:"valueBase64,omitempty"`
	Headers         []headerLine `json:"headers"`
}

type headerLine struct {
	Key         string `json:"key"`
	Value       any    `json:"value,omitempty"`
	ValueBase64 []byte `json:"valueBase64,omitempty"`
}

func jsonRecord(enc *json.Encoder) func(segment.Header, segment.Record) error {
	return func(h segment.Header, r segment.Record) error {
		line := recordLine{
			Offset:          r.Offset,
			Timestamp:       r.Timestamp,
			LeaderEpoch:     h.LeaderEpoch,
			IsTransactional: h.Transactional(),
			Headers:         make([]headerLine, 0, len(r.Headers)),
		}
		if h.ProducerID >= 0 {
			line.ProducerID, line.ProducerEpoch = &h.ProducerID, &h.ProducerEpoch
		}
		if h.Control() {
			line.ControlType = controlName(r.Key)
		}
		line.Key, line.KeyBase64 = jsonBytes(r.Key)
		line.Value, line.ValueBase64 = jsonBytes(r.Value)
		for _, rh := range r.Headers {
			hl := headerLine{Key: rh.Key}
			hl.Value, hl.ValueBase64 = jsonBytes(rh.Value)
			line.Headers = append(line.Headers, hl)
		}
		return enc.Encode(line)
	}
}

// jsonBytes returns bytes as a JSON string or null, or, if they are no UTF-8,
// as what becomes base64.
func jsonBytes(b []byte) (text any, binary []byte) {
	switch {
	case b == nil:
		return json.RawMessage("null"), nil
	case utf8.Valid(b):
		return string(b), nil
	}
	return nil, b
}

// Columns of the table are cut at these lengths, in bytes.
const (
	maxKeyText    = 40
	maxValueText  = 60
	maxHeaderText = 24
)

func tableRecord(t *table) func(segment.Header, segment.Record) error {
	titled := false
	return func(h segment.Header, r segment.Record) error {
		if !titled {
			titled = true
			t.rowf("OFFSET\tTIMESTAMP\tEPOCH\tKEY\tVALUE\tHEADERS")
		}
		if h.Control() {
			t.rowf("%d\t%s\t%d\t[%s of producer %d]\t\t", r.Offset, timeText(r.Timestamp), h.LeaderEpoch, controlName(r.Key), h.ProducerID)
			return t.err
		}
		var headers []string
		for _, rh := range r.Headers {
			headers = append(headers, showText([]byte(rh.Key), maxHeaderText)+"="+showText(rh.Value, maxHeaderText))
		}
		t.rowf("%d\t%s\t%d\t%s\t%s\t%s", r.Offset, timeText(r.Timestamp), h.LeaderEpoch,
			showText(r.Key, maxKeyText), showText(r.Value, maxValueText), strings.Join(headers, " "))
		return t.err
	}
}

// showText shows bytes in a table: text as it is, null as null, anything that is
// not plain or could be taken for something else in quotes. What is longer than
// limit bytes is cut, and its full length given; what is quoted takes more room
// and is cut at half of that.
func showText(b []byte, limit int) string {
	if b == nil {
		return "null"
	}
	cut := cutText(b, limit)
	text := string(cut)
	if !plain(text) {
		cut = cutText(b, limit/2)
		if text = string(cut); utf8.ValidString(text) {
			text = strconv.Quote(text)
		} else {
			text = strconv.QuoteToASCII(text) // what is no text has no letters either
		}
	}
	if len(cut) < len(b) {
		text += fmt.Sprintf("… (%d bytes)", len(b))
	}
	return text
}

// cutText returns the first limit bytes of b, or a few less, so that a character
// is not cut in two.
func cutText(b []byte, limit int) []byte {
	if len(b) <= limit {
		return b
	}
	for n := limit; n > limit-utf8.UTFMax && n > 0; n-- {
		if utf8.Valid(b[:n]) {
			return b[:n]
		}
	}
	return b[:limit]
}

// plain reports whether text can be shown without quotes.
func plain(text string) bool {
	if text == "" || text == "null" || text[0] == '"' || text[0] == '[' || text != strings.TrimSpace(text) || !utf8.ValidString(text) {
		return false
	}
	return !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}
