package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
	for _, key := range []string{ended + "x", object.Key(p, 2, segment.NewUUID())} {
		upload(t, store, key)
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

// TestGatewayProbesThatWereLeft: what a killed process has left of a probe goes by
// its age; what may be one under way, and what is only called like one, stays.
func TestGatewayProbesThatWereLeft(t *testing.T) {
	s := gateway.Start(t, gateway.Options{})
	b := s3Bench(t, s, s.URL(), "probes")
	b.done("copy", source(payments))
	old, young := strings.Repeat("a7", 13), strings.Repeat("b7", 13)
	for _, dir := range []string{old, young, "x"} {
		b.storeURL = s.StoreURL(s.URL(), "probes/"+objstore.ProbePrefix+dir)
		store := b.bucket()
		upload(t, store, "wrong")
		for _, key := range []string{"right", "wrong", "else"} {
			if _, err := store.Upload(t.Context(), request(key, []byte("probe"), 100)); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.storeURL = s.StoreURL(s.URL(), "probes")
	at := filepath.Join(s.DataDir(), gateway.Bucket, "probes", objstore.ProbePrefix)
	for _, key := range []string{old + "/right", old + "/wrong", old + "/else"} {
		if err := os.Chtimes(filepath.Join(at, key), time.Time{}, time.Now().Add(-2*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"gc", "--older-than", "0s", "--json"}, {"gc", "--older-than", "0s", "--json", "--apply"}} {
		var got []string
		for _, l := range decode[orphanLine](t, b.done(args...)) {
			if l.Reason == "PROBE_LEFT" && l.Action != "kept" {
				got = append(got, strings.TrimPrefix(l.Object, objstore.ProbePrefix))
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, []string{old + "/right", old + "/wrong"}) {
			t.Errorf("%v: %q", args, got)
		}
	}
	for key, want := range map[string]bool{
		old + "/right": false, old + "/wrong": false, old + "/else": true, young + "/right": true, young + "/wrong": true, "x/right": true,
	} {
		if _, err := os.Stat(filepath.Join(at, key)); (err == nil) != want {
			t.Errorf("%s: %v", key, err)
		}
	}
	b.done("verify")
}

// TestGatewayDeleteAbortsUploads: the parts that a killed writer has left of a
// segment's object go with the segment, those of others stay.
func TestGatewayDeleteAbortsUploads(t *testing.T) {
	s := gateway.Start(t, gateway.Options{})
	b := s3Bench(t, s, s.URL(), "aborted")
	b.done("copy", source(payments))
	store := b.bucket()
	segs := decode[segmentLine](t, b.done("ls", "--json"))
	keys := make([]string, 2)
	for i := range keys {
		keys[i] = objectOf(t, b, "payments.tx_commit-abort/0", i)
		// As it was before the copy ended: parts, and no object.
		if err := store.Delete(t.Context(), keys[i]); err != nil {
			t.Fatal(err)
		}
		upload(t, store, keys[i])
		upload(t, store, keys[i]+"x") // not a segment's
	}
	uploads := func() (got []string) {
		for u, err := range store.(objstore.UploadLister).Uploads(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, u.Key)
		}
		slices.Sort(got)
		return got
	}
	if got := uploads(); len(got) != 4 {
		t.Fatalf("uploads %q", got)
	}
	b.done("rm", segs[0].SegmentID.String(), "--apply", "--delete-delay", "0s")
	if got, want := uploads(), []string{keys[0] + "x", keys[1], keys[1] + "x"}; !slices.Equal(got, want) {
		t.Errorf("uploads %q, want %q", got, want)
	}
	b.done("rm", "payments.tx_commit-abort/0", "--apply", "--delete-delay", "0s")
	if got, want := uploads(), []string{keys[0] + "x", keys[1] + "x"}; !slices.Equal(got, want) {
		t.Errorf("with the partition: uploads %q, want %q", got, want)
	}
}

// upload leaves an upload of three parts that was killed behind the first. The
// store must keep what is cancelled.
func upload(t *testing.T, store objstore.Store, key string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	big := make([]byte, 12<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(big) // never fails
	req := request(key, big, 5<<20)
	var n atomic.Int32
	req.Confirmed = func(objstore.PartEvidence) {
		if n.Add(1) == 1 {
			cancel()
		}
	}
	if _, err := store.Upload(ctx, req); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}
