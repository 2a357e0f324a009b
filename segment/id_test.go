package segment_test

import (
	"strings"
	"testing"

	"github.com/segtier/segtier/segment"
)

func TestUUIDText(t *testing.T) {
	u := segment.UUID{0x06, 0x9f, 0x53, 0x0d, 0xdb, 0x89, 0x44, 0x66, 0xbd, 0x43, 0x9a, 0xe5, 0xbc, 0x22, 0x4e, 0xc6}
	const text = "Bp9TDduJRGa9Q5rlvCJOxg" // as Kafka prints it
	if u.String() != text {
		t.Errorf("String = %s", u)
	}
	b, err := u.MarshalText()
	if err != nil || string(b) != text {
		t.Errorf("MarshalText = %s, %v", b, err)
	}
	var back segment.UUID
	if err := back.UnmarshalText(b); err != nil || back != u {
		t.Errorf("UnmarshalText = %v, %v", back, err)
	}
	if u.IsZero() || !(segment.UUID{}).IsZero() {
		t.Error("IsZero")
	}
	if zero, err := segment.ParseUUID("AAAAAAAAAAAAAAAAAAAAAA"); err != nil || !zero.IsZero() {
		t.Errorf("zero: %v, %v", zero, err)
	}
	for _, s := range []string{
		"", text[:21], text + "A", text + "==", strings.Replace(text, "B", "+", 1), strings.Replace(text, "B", "/", 1),
		text[:21] + "h", // unused bits: another spelling of the same id
		"Bp9TDduJRGa9Q5rlvCJOx\n", "Bp9TDduJRGa9Q5rlvCJ\r\ng", strings.Repeat("é", 11),
	} {
		if got, err := segment.ParseUUID(s); err == nil {
			t.Errorf("ParseUUID(%q) = %v", s, got)
		}
	}
	if _, err := segment.ParseUUID(strings.Repeat("x", 1000)); err == nil || len(err.Error()) > 200 {
		t.Errorf("a long text makes a long error: %v", err)
	}
}

func TestNewUUID(t *testing.T) {
	seen := map[segment.UUID]bool{}
	for range 2000 {
		u := segment.NewUUID()
		if u[6]>>4 != 4 || u[8]>>6 != 2 {
			t.Fatalf("%x is not of version 4", u)
		}
		if u.String()[0] == '-' {
			t.Fatalf("%v begins with -", u)
		}
		if seen[u] {
			t.Fatalf("%v again", u)
		}
		seen[u] = true
	}
}

func TestValidateTopic(t *testing.T) {
	for _, name := range []string{"a", "orders", "orders.eu-west_1", "...", "-", "_", "A0.z", strings.Repeat("x", 249)} {
		if err := segment.ValidateTopic(name); err != nil {
			t.Errorf("%.20q refused: %v", name, err)
		}
	}
	for _, c := range []struct{ name, want string }{
		{"", "empty"},
		{".", "not allowed"},
		{"..", "not allowed"},
		{strings.Repeat("x", 250), "250 bytes long, the limit is 249"},
		{"a/b", `'/'`},
		{"../x", `'/'`},
		{`a\b`, `'\\'`},
		{"a b", `' '`},
		{"a\x00", `'\x00'`},
		{"a\n", `'\n'`},
		{"bücher", "not allowed"},
		{"a:b", `':'`},
		{"%2e", `'%'`},
	} {
		err := segment.ValidateTopic(c.name)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.20q: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestPartitionValidate(t *testing.T) {
	good := segment.Partition{Topic: "orders", TopicID: segment.UUID{1}, Number: 3}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	if got, want := good.String(), "orders/3 (AQAAAAAAAAAAAAAAAAAAAA)"; got != want {
		t.Errorf("String = %s, want %s", got, want)
	}
	for _, change := range []func(p *segment.Partition){
		func(p *segment.Partition) { p.Topic = ".." },
		func(p *segment.Partition) { p.TopicID = segment.UUID{} },
		func(p *segment.Partition) { p.Number = -1 },
	} {
		p := good
		change(&p)
		if p.Validate() == nil {
			t.Errorf("%v accepted", p)
		}
	}
}

func TestFileKindNames(t *testing.T) {
	want := []string{"log", "offset index", "time index", "producer snapshot", "transaction index", "file kind 5"}
	for i, name := range want {
		if got := segment.FileKind(i).String(); got != name {
			t.Errorf("FileKind(%d) = %s, want %s", i, got, name)
		}
	}
}
