package main

import (
	"strings"
	"testing"

	"github.com/segtier/segtier/objstore/s3"
	"github.com/segtier/segtier/segment"
)

// What is no usage at all is told once, on stderr, with status 2, whatever the
// store holds; there is none here, so nothing else could be the reason.
func TestWrongUsage(t *testing.T) {
	for _, tt := range []struct {
		args string
		says string
	}{
		{"", "command is missing"},
		{"cpoy x", "unknown command"},
		{"rm", "requires at least 1 arg"},
		{"gc x", "unknown command"},
		{"retain", "unknown command"},
		{"rebuild x", "unknown command"},
		{"copy", "requires at least 1 arg"},
		{"copy --nonsense x", "unknown flag"},
		{"copy --topic-id short x", "22 characters"},
		{"copy --broker-id -1 x", "not negative"},
		{"copy --chunk-size 1XB x", "not a size"},
		{"copy --bandwidth fast x", "not a size"},
		{"ls a/0 b/0", "at most 1 arg"},
		{"ls orders", "topic/partition"},
		{"ls --store=", "--store is empty"},
		{"copy --meta= x", "--meta is empty"},
		{"ls --store nowhere", "a URL is needed"},
		{"ls orders-0", "did you mean orders/0"},
		{"ls orders/x", "not a partition number"},
		{"ls orders/-1", "not a partition number"},
		{"ls orders/4294967296", "not a partition number"},
		{"ls ../0", "not allowed"},
		{"ls a/b/0", "not allowed"},
		{"ls /0", "empty"},
		{"ls " + strings.Repeat("x", 250) + "/0", "the limit is 249"},
		{"fetch orders/0", "accepts 2 arg"},
		{"fetch orders/0", "usage: segtier fetch PARTITION OFFSET"},
		{"nonsense", "usage: segtier COMMAND"},
		{"fetch orders/0 one", "offset"},
		{"fetch orders/0 latest", "earliest"},
		{"fetch orders/0 -1", "write a number from 0 on, or earliest"},
		{"explain orders/0 -15", `"-15": write a number from 0 on, or earliest`},
		{"offset orders/0 -1", "write RFC 3339"},
		{"fetch -1", "write a number from 0 on"},
		{"ls -1", "unknown shorthand"},
		{"fetch orders/0 -x", "unknown shorthand"},
		{"fetch orders/0 9223372036854775808", "offset"},
		{"fetch orders/0 1 --format xml", "table, raw or json"},
		{"fetch orders/0 1 --max-bytes 0", "1 or more"},
		{"fetch orders/0 1 --max-bytes much", "not a size"},
		{"fetch orders/0 1 --isolation dirty", "read_committed"},
		{"fetch orders/0 1 --isolation read_committed --format raw", "as they are"},
		{"fetch orders/0 1 --json --format raw", "contradict"},
		{"offset orders/0 yesterday", "RFC 3339"},
		{"offset orders/0 1969-12-31T23:59:59Z", "RFC 3339"},
		{"offset orders/0 -- -5", "RFC 3339"},
		{"explain orders/0 x", "offset"},
		{"verify orders", "topic/partition"},
		{"version x", "unknown command"},
		{"demo x", "unknown command"},
		{"demo --store file:///x", "its own store"},
		{"completion", "shell is missing"},
		{"completion tcsh", "unknown command"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			o := newBench(t).try(strings.Fields(tt.args)...)
			if o.status != statusUsage {
				t.Errorf("status %d, want %d", o.status, statusUsage)
			}
			if o.out != "" {
				t.Errorf("stdout: %s", o.out)
			}
			o.oneError(t, tt.says, "usage: segtier", "--help")
		})
	}
}

func TestStoreURLs(t *testing.T) {
	for _, tt := range []struct{ url, path, says string }{
		{url: "file:///var/tier", path: "/var/tier"},
		{url: "file://localhost/var/tier", path: "/var/tier"},
		{url: "FILE:///var/tier/", path: "/var/tier"},
		{url: "file:///a%20b/100%25", path: "/a b/100%"},
		{url: "file:tier", path: "tier"},
		{url: "file:./a/../tier", path: "tier"},
		{url: "file:a%20b", path: "a b"},
		{url: "/var/tier", says: "write file:/var/tier"},
		{url: "tier", says: "write file:tier"},
		{url: "s4://bucket/prefix", says: "s3://bucket/prefix"},
		{url: "kafka://localhost:9092", says: `scheme "kafka" is not known`},
		{url: "http://x/y", says: `scheme "http" is not known`},
		{url: "file://tier/x", says: "no host"},
		{url: "file://me@/x", says: "no host"},
		{url: "file:///x?region=eu", says: `parameter "region"`},
		{url: "file:///x?", says: "parameter"},
		{url: "file:x?a=b", says: `parameter "a"`},
		{url: "file:///x#1", says: "%23"},
		{url: "file:", says: "no path"},
		{url: "file://", says: "no path"},
		{url: "file:///%00", says: "no path"},
		{url: "file:///%zz", says: "write file:///dir"},
		{url: "file:%zz", says: "write file:///dir"},
		{url: ":", says: "write file:///dir"},
	} {
		a := &app{store: tt.url, getenv: func(string) string { return "" }}
		got, err := a.storeLocation()
		switch {
		case tt.says == "" && (err != nil || got.path != tt.path):
			t.Errorf("%s: %q, %v; want %q", tt.url, got.path, err, tt.path)
		case tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "file:")):
			t.Errorf("%s: %v; want it to say %q and which URLs there are", tt.url, err, tt.says)
		case err != nil && (&app{}).statusOf(err) != statusUsage:
			t.Errorf("%s: status %d", tt.url, (&app{}).statusOf(err))
		}
	}
}

func TestBucketURLs(t *testing.T) {
	for _, tt := range []struct {
		url  string
		want s3.Options
		says string
	}{
		{url: "s3://logs", want: s3.Options{Bucket: "logs"}},
		{url: "S3://logs/a/tier/?region=eu-west-1", want: s3.Options{Bucket: "logs", Prefix: "a/tier", Region: "eu-west-1"}},
		{
			url:  "s3://logs/tier?region=us-east-1&endpoint=http://127.0.0.1:7070&path-style=true",
			want: s3.Options{Bucket: "logs", Prefix: "tier", Region: "us-east-1", Endpoint: "http://127.0.0.1:7070", PathStyle: true},
		},
		{url: "s3:", says: "bucket"},
		{url: "s3:///tier", says: "bucket"},
		{url: "s3://logs/tier?regoin=eu", says: `"regoin"`},
		{url: "s3://logs/tier?path-style=perhaps", says: "path-style"},
		{url: "s3://logs/100%", says: "%25"},
		{url: "s3://logs/a/../b", says: `".."`},
		// Whatever is wrong, what could be a secret is not repeated.
		{url: "s3://AKIAEXAMPLE:5ecret@logs/tier", says: "credentials"},
		{url: "s3://AKIAEXAMPLE:5ecret/with/slash@logs/tier", says: "s3://bucket/prefix"},
		{url: "s3://AKIAEXAMPLE:5ecret%@logs/tier", says: "s3://bucket/prefix"},
		{url: "s3://logs/tier?secret-access-key=5ecret", says: `"secret-access-key"`},
		{url: "s3://logs/tier?endpoint=http://AKIAEXAMPLE:5ecret@host", says: "credentials"},
		{url: "s3://logs/tier?endpoint=http://AKIAEXAMPLE:5ecret%zz@host", says: "s3://bucket/prefix"},
	} {
		a := &app{store: tt.url, getenv: func(string) string { return "" }}
		got, err := a.storeLocation()
		if tt.says != "" {
			switch {
			case err == nil || !strings.Contains(err.Error(), tt.says):
				t.Errorf("%s: %v; want it to say %q", tt.url, err, tt.says)
			case strings.Contains(err.Error(), "5ecret") || strings.Contains(err.Error(), "AKIA"):
				t.Errorf("%s: the message repeats credentials: %v", tt.url, err)
			case a.statusOf(err) != statusUsage:
				t.Errorf("%s: status %d", tt.url, a.statusOf(err))
			}
			continue
		}
		if err != nil || got.s3 == nil || got.s3.String() != tt.want.String() {
			t.Errorf("%s: %v, %v; want %v", tt.url, got.s3, err, tt.want)
			continue
		}
		if text := got.String(); !strings.HasPrefix(text, "s3://logs/") || strings.Contains(text, "?") {
			t.Errorf("%s is shown as %s", tt.url, text)
		}
	}
}

// A flag wins over the environment, which wins over the default.
func TestWhereThingsAre(t *testing.T) {
	env := map[string]string{}
	a := &app{getenv: func(name string) string { return env[name] }}
	check := func(store, meta string) {
		t.Helper()
		s, err1 := a.storeLocation()
		m, err2 := a.metaLocation()
		if err1 != nil || err2 != nil || s.path != store || m.path != meta {
			t.Errorf("%v, %v, %v, %v; want %s, %s", s, err1, m, err2, store, meta)
		}
	}
	check("segtier-data/store", "segtier-data/metadata.db")
	env["SEGTIER_STORE"], env["SEGTIER_META"] = "file:///e/s", "file:///e/m.db"
	check("/e/s", "/e/m.db")
	a.store, a.meta = "file:///f/s", "file:///f/m.db"
	check("/f/s", "/f/m.db")
	a.meta = "kafka://localhost:9092?topic=x"
	if _, err := a.metaLocation(); err == nil || !strings.Contains(err.Error(), "not built into this version") {
		t.Errorf("kafka metadata: %v", err)
	}
}

// What fileURL prints is what locate reads.
func TestFileURLs(t *testing.T) {
	for _, path := range []string{"/a", "/a b/c%d", "/a?b#c", "rel", "rel/a b?c#d", "/ü"} {
		l, err := locate("store", fileURL(path), "file:///dir", "s3")
		if err != nil || l.path != path {
			t.Errorf("%s: %s: %q, %v", path, fileURL(path), l.path, err)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int64
		back string
	}{
		{"0", 0, "0"},
		{"1", 1, "1"},
		{"65536", 65536, "64KiB"},
		{"1MiB", 1 << 20, "1MiB"},
		{"1 mib", 1 << 20, "1MiB"},
		{"3KiB", 3072, "3KiB"},
		{"5kB", 5000, "5000"},
		{"2MB", 2e6, "2000000"},
		{"7GiB", 7 << 30, "7GiB"},
		{"1TiB", 1 << 40, "1TiB"},
		{"10B", 10, "10"},
	} {
		var b byteSize
		if err := b.Set(tt.text); err != nil || int64(b) != tt.want || b.String() != tt.back {
			t.Errorf("%s: %d %s, %v; want %d %s", tt.text, int64(b), b.String(), err, tt.want, tt.back)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5MiB", "1MiBB", "1KK", "x", "9223372036854775807KiB", "99999999999999999999"} {
		var b byteSize
		if err := b.Set(text); err == nil {
			t.Errorf("%q is %d", text, int64(b))
		}
	}
}

func TestTimes(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int64
	}{
		{"0", 0},
		{"1709254800000", 1709254800000},
		{"2024-03-01T01:00:00Z", 1709254800000},
		{"2024-03-01t01:00:00z", 1709254800000},
		{"2024-03-01T03:00:00+02:00", 1709254800000},
		{"2024-03-01T01:00:00.001Z", 1709254800001},
		{"2024-03-01T01:00:00.0010Z", 1709254800001},
		{"2024-03-01T01:00:00.000000001Z", 1709254800001}, // no record lies between two milliseconds
		{"2024-03-01T01:00:00.0011Z", 1709254800002},
	} {
		if got, err := parseTime(tt.text); err != nil || got != tt.want {
			t.Errorf("%s: %d, %v; want %d", tt.text, got, err, tt.want)
		}
	}
}

// A name that two topics share is not guessed at; ids tell them apart.
func TestResolve(t *testing.T) {
	a, b, c := segment.UUID{1}, segment.UUID{2}, segment.UUID{3}
	known := []segment.Partition{
		{Topic: "orders", TopicID: a, Number: 0},
		{Topic: "orders", TopicID: b, Number: 0},
		{Topic: "orders", TopicID: b, Number: 1},
		{Topic: "lone", TopicID: c, Number: 7},
		{Topic: a.String(), TopicID: c, Number: 9}, // a topic named as another's id is printed
		{Topic: b.String(), TopicID: c, Number: 1}, // one that the other has a partition of, too
	}
	for _, tt := range []struct {
		arg  string
		want segment.Partition
		says string
	}{
		{arg: "lone/7", want: known[3]},
		{arg: "orders/1", want: known[2]},
		{arg: a.String() + "/0", want: known[0]},
		{arg: b.String() + "/0", want: known[1]},
		{arg: a.String() + "/9", want: known[4]},
		{arg: b.String() + "/1", want: known[5]}, // the name wins
		{arg: "orders/0", says: a.String() + "/0 or " + b.String() + "/0"},
		{arg: "orders/2", says: "it holds partition 0, 1"},
		{arg: "other/0", says: "segtier ls"},
		{arg: segment.UUID{9}.String() + "/0", says: "segtier ls"},
	} {
		arg, err := parsePartition(tt.arg)
		if err != nil {
			t.Fatal(err)
		}
		got, err := resolve(known, arg)
		if tt.says == "" && (err != nil || got != tt.want) || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%s: %v, %v; want %v, %q", tt.arg, got, err, tt.want, tt.says)
		}
	}
}

func TestShowText(t *testing.T) {
	for _, tt := range []struct {
		in    string
		limit int
		want  string
	}{
		{"plain text", 20, "plain text"},
		{"", 20, `""`},
		{"null", 20, `"null"`},
		{`"quoted"`, 20, `"\"quoted\""`},
		{"[COMMIT", 20, `"[COMMIT"`},
		{" space", 20, `" space"`},
		{"tab\there", 20, `"tab\there"`},
		{"größe", 20, "größe"},
		{"\xff\x00", 20, `"\xff\x00"`},
		{"0123456789", 4, "0123… (10 bytes)"},
		{"aaaö", 4, "aaa… (5 bytes)"},
		{"\xff\xff\xff\xff\xff", 4, `"\xff\xff"… (5 bytes)`},
		{"a\tb", 4, `"a\t"… (3 bytes)`},
	} {
		if got := showText([]byte(tt.in), tt.limit); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.in, got, tt.want)
		}
	}
	if got := showText(nil, 20); got != "null" {
		t.Errorf("nil: %s", got)
	}
}
