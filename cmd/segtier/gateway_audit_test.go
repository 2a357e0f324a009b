package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/gateway"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/embedded"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/s3"
	"github.com/segtier/segtier/segment"
)

// bucket opens the bench's store beside the command.
func (b *bench) bucket() objstore.Store {
	b.t.Helper()
	where, err := (&app{getenv: b.getenv}).storeLocation()
	if err != nil {
		b.t.Fatal(err)
	}
	where.s3.OnCancel = s3.KeepUpload
	store, err := s3.Open(b.t.Context(), *where.s3)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := store.Close(); err != nil {
			b.t.Error(err)
		}
	})
	return store
}

func request(key string, content []byte, part int64) objstore.UploadRequest {
	c := checksum.NewCutter(part)
	_, _ = c.Write(content) // never fails
	return objstore.UploadRequest{Key: key, Body: bytes.NewReader(content), Size: int64(len(content)), PartSize: part, PartSums: c.Pieces(0)}
}

// TestGatewayAudit: verify, gc and rebuild on a bucket of a real S3 server, with
// objects and unfinished uploads of ours and of others in it.
func TestGatewayAudit(t *testing.T) {
	s := gateway.Start(t, gateway.Options{})
	b := s3Bench(t, s, s.URL(), "audit/x")
	b.done("copy", source(payments))
	o := oracleOf(t, source(payments))
	for _, level := range []string{"full", "sample", "head", "metadata"} {
		b.done("verify", "--level", level)
	}
	store := b.bucket()
	put := func(key, content string) string {
		t.Helper()
		if _, err := store.Upload(t.Context(), request(key, []byte(content), 100)); err != nil {
			t.Fatal(err)
		}
		return key
	}
	var p segment.Partition
	b.edit(func(_ *embedded.Store, view *metadata.View) error { p = view.Partition(); return nil })
	ended := b.end(0)
	unknown := put(object.Key(p, 1, segment.NewUUID()), "no object")
	foreign := put("notes.txt", "not ours")
	readable := objectOf(t, b, o.name, 3)
	put("backup/"+readable, "not ours, and named like it")
	// A copy of three parts that was killed behind the first, of an id that ended.
	big := make([]byte, 12<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(big) // never fails
	for _, key := range []string{ended + "x", object.Key(p, 2, segment.NewUUID())} {
		ctx, cancel := context.WithCancel(t.Context())
		req := request(key, big, 5<<20)
		var n atomic.Int32
		req.Confirmed = func(objstore.PartEvidence) {
			if n.Add(1) == 1 {
				cancel()
			}
		}
		_, err := store.Upload(ctx, req)
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}

	reasons := func(args ...string) (out []string) {
		for _, l := range decode[orphanLine](t, b.done(append([]string{"gc", "--json", "--older-than", "0s"}, args...)...)) {
			out = append(out, l.Reason+" "+l.Action)
		}
		return out
	}
	all := strings.Join(reasons(), ",")
	for _, want := range []string{"ORPHAN_ENDED removable", "ORPHAN_UNKNOWN kept", "FOREIGN_OBJECT kept", "UPLOAD_UNKNOWN kept"} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is not in %s", want, all)
		}
	}
	if strings.Count(all, "FOREIGN_OBJECT") != 3 { // an object beside, one below backup/, an upload
		t.Error(all)
	}
	reasons("--apply")
	reasons("--apply", "--unknown")
	for key, want := range map[string]bool{ended: false, unknown: false, foreign: true, readable: true, "backup/" + readable: true, object.OwnerKey: true} {
		if _, err := store.Stat(t.Context(), key); errors.Is(err, objstore.ErrNotExist) == want {
			t.Errorf("%s: %v", key, err)
		}
	}
	left := 0
	for u, err := range store.(objstore.UploadLister).Uploads(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if left++; u.Key != ended+"x" {
			t.Errorf("the upload of %s is there", u.Key)
		}
	}
	if left != 1 {
		t.Errorf("%d uploads are left, somebody else's is one", left)
	}

	records := b.done("ls", "--json")
	if err := os.Remove(b.meta); err != nil {
		t.Fatal(err)
	}
	b.done("rebuild", "--apply")
	if got := b.done("ls", "--json"); got != records {
		t.Errorf("records are\n%s\nwant\n%s", got, records)
	}
	b.done("verify")
	b.done("gc")
}
