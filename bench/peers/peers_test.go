package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/object"
)

// Every peer that reads serves the right bytes, and every one that writes leaves
// the right ones.
func TestPeersMoveTheRightBytes(t *testing.T) {
	server, err := weather.New(weather.Options{HTTPS: "none"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	at, err := server.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var sums bytes.Buffer
	sink := make(chan error, 1)
	go func() { sink <- job.ServeSink(ctx, ln, &sums) }()

	tier, err := weather.Spec{SegmentBytes: 6 << 20, Segments: 2}.Tier()
	if err != nil {
		t.Fatal(err)
	}
	j := job.Job{
		Server: at.HTTP, Bucket: "lab", Client: "test", Sink: ln.Addr().String(), Concurrency: 2, PartSize: 5 << 20,
		Memory: 64 << 20, Streams: 2, Count: 2, Param: map[string]float64{"lag": 1 << 20},
	}
	var log checksum.Sum
	for i := range 2 {
		o, err := tier.Object(0, i)
		if err != nil {
			t.Fatal(err)
		}
		tail, err := o.Tail()
		if err != nil {
			t.Fatal(err)
		}
		s := tail.Section(object.Log)
		d := job.Object{Key: o.Key(), Size: o.Size(), LogSize: s.Len, CRC32C: s.CRC32C, Chunk: tail.Table.ChunkSize}
		for _, c := range tail.Table.Chunks {
			d.Sums = append(d.Sums, c.CRC32C)
		}
		j.Objects = append(j.Objects, d)
		log = log.Append(checksum.Sum{Len: s.Len, CRC32C: s.CRC32C})
	}
	j.File = filepath.Join(t.TempDir(), "file")
	data := bytes.Repeat([]byte("a file of several parts\n"), 500_000)
	if err := os.WriteFile(j.File, data, 0o600); err != nil {
		t.Fatal(err)
	}

	want := map[string]checksum.Sum{}
	for _, name := range job.Names(works()) {
		j := j
		j.Subject, j.Work, _ = strings.Cut(name, "/")
		j.Label, j.Key = name, strings.ReplaceAll(name, "/", "-")
		switch j.Work {
		case "fill":
			if j.Subject == "week" {
				j.PartSize = 1 << 20
			}
			want[name] = log
		case "serve":
			want[name] = log.Append(log)
		case "fanout":
			want[name+"/0"], want[name+"/1"] = log, log
		case "latency":
			j.PartSize = 1 << 20
		case "policy":
			j.Name, j.Param = "A", map[string]float64{"shorten": 50}
		}
		r := job.Do(t.Context(), j, works())
		if r.Error != "" || r.Missing != "" {
			t.Errorf("%s: %s%s", name, r.Error, r.Missing)
		}
		if j.Work == "upload" {
			checkWritten(t, at.HTTP+"/lab/"+j.Key, data)
		}
		if v := r.Values["ratio"]; j.Work == "policy" && (v <= 0 || v >= 1) {
			t.Errorf("%s: hit ratio %v", name, v)
		}
	}
	cancel()
	if err := <-sink; err != nil {
		t.Fatal(err)
	}
	for dec := json.NewDecoder(&sums); dec.More(); {
		var got job.Received
		if err := dec.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if w := want[got.Label]; got.Bytes != w.Len || got.CRC32C != w.CRC32C {
			t.Errorf("%s served %+v, want %+v", got.Label, got, w)
		}
		delete(want, got.Label)
	}
	for label := range want {
		t.Errorf("%s served nothing", label)
	}
}

func checkWritten(t *testing.T, url string, want []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s holds %d bytes, want %d: %v", url, len(got), len(want), err)
	}
}
