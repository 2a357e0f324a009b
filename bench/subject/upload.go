package subject

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/dir"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// upload sends the segment in directory File, Count copies of it at a time
// below prefixes of their own, with the sums made before. Its header is in World.
func upload(ctx context.Context, j job.Job, m *job.Meter) (values map[string]float64, err error) {
	var h object.Header
	if err := json.Unmarshal(j.World, &h); err != nil {
		return nil, fmt.Errorf("world of the job: %w", err)
	}
	src, err := segment.Dir{Path: j.File, TopicID: h.Partition.TopicID}.Open(h.StartOffset)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	plan, err := transfer.Scan(ctx, src, transfer.ScanOptions{PartSize: j.PartSize})
	if err != nil {
		return nil, err
	}
	n := max(j.Count, 1)
	eps := make([]*endpoint.Endpoint, n)
	for i := range eps {
		store, err := openStore(ctx, j, fmt.Sprintf("%s-%d", j.Label, i))
		if err != nil {
			return nil, err
		}
		defer store.Close()
		if eps[i], err = endpoint.New(store, optionsOf(j).endpoint); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, eps[i].Close()) }()
	}
	// What the service can do is asked once in a store's life, and a connection is
	// opened: not what an upload costs.
	for _, ep := range eps {
		if err := warm(ctx, ep); err != nil {
			return nil, err
		}
	}
	m.Start()
	err = all(ctx, n, func(ctx context.Context, i int) error {
		receipt, err := transfer.Upload(ctx, eps[i], src, plan, h, transfer.UploadOptions{})
		if err != nil {
			return err
		}
		m.Count(receipt.Facts().Object.Len)
		m.Wrote(fmt.Sprintf("%s-%d/%s", j.Label, i, h.Key()))
		return nil
	})
	if err != nil {
		return nil, err
	}
	m.Stop()
	return nil, nil
}

// warm uploads a little.
func warm(ctx context.Context, ep *endpoint.Endpoint) error {
	b := []byte("warm")
	_, err := ep.Upload(ctx, objstore.UploadRequest{
		Key: "warm", Body: bytes.NewReader(b), Size: int64(len(b)), PartSize: 5 << 20,
		PartSums: []checksum.Sum{{Len: int64(len(b)), CRC32C: checksum.CRC32C(b)}}, Token: "warm",
	})
	return err
}

// Segment is a segment on disk, ready to be copied, and the object that it
// becomes.
type Segment struct {
	Dir    string        // partition directory
	Header object.Header // of its STARTED record
	Object string        // file with the object's bytes
	Size   int64         // of the object
	CRC32C uint32        // of the object
}

// MakeSegment writes a generated segment of size bytes of log below work.
func MakeSegment(ctx context.Context, work string, size int64) (s Segment, err error) {
	tier, err := weather.Spec{SegmentBytes: size, Topic: "upload"}.Tier()
	if err != nil {
		return s, err
	}
	o, err := tier.Object(0, 0)
	if err != nil {
		return s, err
	}
	s.Header = o.Header()
	// Not the id that a generated segment has: those objects are in every store of package
	// weather, and an upload that finds its object there sends nothing.
	s.Header.SegmentID[len(s.Header.SegmentID)-1] ^= 1
	s.Dir = filepath.Join(work, fmt.Sprintf("%s-%d", s.Header.Partition.Topic, s.Header.Partition.Number))
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return s, err
	}
	base := fmt.Sprintf("%020d", s.Header.StartOffset)
	for name, content := range map[string]string{
		base + ".index":           "",
		base + ".timeindex":       "",
		"leader-epoch-checkpoint": "0\n1\n0 0\n",
		"partition.metadata":      fmt.Sprintf("version: 0\ntopic_id: %s\n", s.Header.Partition.TopicID),
	} {
		if err := os.WriteFile(filepath.Join(s.Dir, name), []byte(content), 0o644); err != nil {
			return s, err
		}
	}
	if err := writeLog(filepath.Join(s.Dir, base+".log"), o, tier.SegmentBytes()); err != nil {
		return s, err
	}
	return s, s.makeObject(ctx, work)
}

func writeLog(name string, o *weather.Object, size int64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, 1<<20)
	for off := int64(0); off < size; off += int64(len(buf)) {
		b := buf[:min(int64(len(buf)), size-off)]
		if _, err := o.ReadAt(b, off); err != nil {
			return err
		}
		if _, err := f.Write(b); err != nil {
			return err
		}
	}
	return f.Close()
}

// makeObject copies the segment into a directory store: the file there holds the
// bytes that every upload must send.
func (s *Segment) makeObject(ctx context.Context, work string) (err error) {
	store, err := dir.Open(filepath.Join(work, "object"), dir.Options{Create: true})
	if err != nil {
		return err
	}
	defer store.Close()
	ep, err := endpoint.New(store, endpoint.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ep.Close()) }()
	src, err := segment.Dir{Path: s.Dir}.Open(s.Header.StartOffset)
	if err != nil {
		return err
	}
	defer src.Close()
	plan, err := transfer.Scan(ctx, src, transfer.ScanOptions{})
	if err != nil {
		return err
	}
	s.Header.MaxTimestamp, s.Header.TxnIndexEmpty = plan.MaxTimestamp(), plan.TxnIndexEmpty()
	receipt, err := transfer.Upload(ctx, ep, src, plan, s.Header, transfer.UploadOptions{})
	if err != nil {
		return err
	}
	s.Object = filepath.Join(work, "object", filepath.FromSlash(s.Header.Key()))
	s.Size, s.CRC32C = receipt.Facts().Object.Len, receipt.Facts().Object.CRC32C
	return nil
}
