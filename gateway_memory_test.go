package segtier_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/internal/gateway"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/embedded"
	"github.com/segtier/segtier/objstore/s3"
	"github.com/segtier/segtier/segment"
)

// The budget of the process that copies many segments at once.
const (
	manySegments      = 64
	manyBytesInFlight = 24 << 20
	manyMemoryBytes   = 8 << 20
	manyAllowance     = 64 << 20 // beside the budget: code, runtime, buffers of connections
)

// manyVar makes the test binary copy and print its peak memory. Its value is
// the directory with the source, and where it may write.
const manyVar = "SEGTIER_TEST_COPY_MANY"

// TestGatewayMemory copies 64 segments of 16 MiB at once, in a process of its own
// whose resident memory never exceeds the budget it was given and 64 MiB.
func TestGatewayMemory(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("peak memory is only known where there is /proc")
	}
	if bubble.RaceDetector {
		t.Skip("the race detector needs memory of its own")
	}
	s := gateway.Start(t, gateway.Options{})
	work := t.TempDir()
	if _, err := testseg.Big(4, 16<<20, testseg.Options{}).WriteDir(work); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), s.Env()...), manyVar+"="+work, "SEGTIER_STORE="+s.StoreURL(s.URL(), "many"))
	var out, msg bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &msg
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &msg)
	}
	peak, err := strconv.ParseInt(strings.TrimSpace(out.String()), 10, 64)
	if err != nil {
		t.Fatalf("%v: %s%s", err, &out, &msg)
	}
	const limit = manyBytesInFlight + manyMemoryBytes + manyAllowance
	t.Logf("peak resident memory %.1f MiB, of %d MiB allowed", float64(peak)/(1<<20), limit>>20)
	if peak > limit {
		t.Errorf("peak resident memory %d bytes, want at most %d", peak, limit)
	}
}

// copyMany is the other process.
func copyMany(work string) (err error) {
	ctx := context.Background()
	u, err := url.Parse(os.Getenv("SEGTIER_STORE"))
	if err != nil {
		return err
	}
	o, err := s3.ParseURL(u)
	if err != nil {
		return err
	}
	store, err := s3.Open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	meta, err := embedded.Open(filepath.Join(work, "metadata.db"), embedded.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, meta.Close()) }()
	tier, err := segtier.Open(ctx, segtier.Options{
		Store: store, Metadata: meta, PartSize: s3Part, BytesInFlight: manyBytesInFlight, MemoryBytes: manyMemoryBytes,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tier.Close()) }()
	src, err := segment.OpenDir(filepath.Join(work, "orders-0"), 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()

	// The same files as so many partitions: a log does not know whose it is.
	var all errgroup.Group
	for number := range int32(manySegments) {
		all.Go(func() error {
			_, err := tier.Copy(ctx, asPartition{src, number}, metadata.Writer{BrokerID: 1, LeaderEpoch: 3})
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	peak, err := peakMemory()
	if err == nil {
		fmt.Println(peak)
	}
	return err
}

// asPartition is a source that belongs to another partition.
type asPartition struct {
	segment.Source

	number int32
}

func (s asPartition) Info() segment.Info {
	info := s.Source.Info()
	info.Partition.Number = s.number
	return info
}

// peakMemory returns the greatest resident memory of this process so far.
func peakMemory() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("no VmHWM in /proc/self/status")
}
