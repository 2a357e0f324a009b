package embedded

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

// childEnv tells a copy of the test program to be the child of TestKill9.
const childEnv = "SEGTIER_EMBEDDED_CHILD"

// child publishes events and moves the log start until it is killed, writes
// snapshots meanwhile, and prints each event after it was acknowledged: "ID
// STATE", or "LOGSTART OFFSET".
func child(path string) int {
	s, err := Open(path, Options{SnapshotEvery: 3 * time.Millisecond})
	if err != nil {
		fmt.Println("open:", err)
		return 1
	}
	ctx := context.Background()
	for i := int64(0); ; i++ {
		seg := &metadata.Segment{
			Partition: testPartition(), ID: segment.NewUUID(),
			StartOffset: 10 * i, EndOffset: 10*i + 9, SizeBytes: 1,
			Epochs: segment.Lineage{{Epoch: 0, Start: 10 * i}},
			Custom: make([]byte, metadata.MaxCustomSize),
		}
		started, err := metadata.Started(seg, testWriter(), i)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		// FINISHED needs an upload; what matters here are two events of a segment.
		deleting, err := metadata.DeleteStarted(started.Segment(), testWriter(), i)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		for _, ev := range []metadata.Event{started, deleting} {
			if err := s.Publish(ctx, ev); err != nil {
				fmt.Println("publish:", err)
				return 1
			}
			fmt.Println(seg.ID, ev.To())
		}
		if i%4 == 3 {
			// In the next life of the child it goes on from there.
			at := s.mustView().LogStart() + 1
			if err := s.SetLogStart(ctx, testPartition(), at, testWriter()); err != nil {
				fmt.Println("log start:", err)
				return 1
			}
			fmt.Println(logStartLine, at)
		}
	}
}

// logStartLine begins the lines of a child that are of no segment.
const logStartLine = "LOGSTART"

func (s *Store) mustView() *metadata.View {
	v, err := s.View(testPartition())
	if err != nil {
		panic(err)
	}
	return v
}

// TestKill9 kills a process that publishes, again and again on the same file.
// All that it has acknowledged must be there afterwards, and at most the one
// event that it had not acknowledged yet.
func TestKill9(t *testing.T) {
	rounds := 20
	if os.Getenv("SEGTIER_SOAK") != "" {
		rounds = 1000
	}
	path := filepath.Join(t.TempDir(), "m.db")
	acked := map[segment.UUID]metadata.State{}
	snapshots := 0
	for round := range rounds {
		last, logStart := killed(t, path, 1+round*7%23, acked)
		s, err := Open(path, Options{})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		view, err := s.View(testPartition())
		if err != nil {
			t.Fatal(err)
		}
		for id, want := range acked {
			got, ok := view.Get(id)
			if !ok || got.State != want && !(id == last && got.State == metadata.DeleteSegmentStarted) {
				t.Fatalf("round %d: segment %s was acknowledged in %s, is in %v", round, id, want, got)
			}
			acked[id] = got.State
		}
		if t.Failed() {
			return // what is wrong was said
		}
		if got := view.LogStart(); got != logStart && got != logStart+1 {
			t.Fatalf("round %d: the log start was acknowledged at %d, is %d", round, logStart, got)
		}
		snapshots += readSnapshots(t, path)
		surplus := 0
		for s := range view.All() {
			if _, ok := acked[s.ID]; !ok {
				acked[s.ID] = s.State
				surplus++
			}
		}
		if surplus > 1 {
			t.Errorf("round %d: %d segments that were not acknowledged", round, surplus)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d segments were acknowledged in %d rounds; %d snapshots were read", len(acked), rounds, snapshots)
	if len(acked) < rounds {
		t.Errorf("only %d segments in %d rounds", len(acked), rounds)
	}
}

// readSnapshots opens every snapshot that has its name: each is whole.
func readSnapshots(t *testing.T, path string) (n int) {
	t.Helper()
	for _, name := range files(t, path) {
		if strings.Contains(name, snapshotInfix) {
			r := mustOpen(t, filepath.Join(filepath.Dir(path), name), Options{ReadOnly: true})
			_ = r.Close()
			n++
		}
	}
	return n
}

// killed runs a child and kills it after it has printed some lines and there is a
// snapshot, however late its time comes. It adds what was acknowledged, and returns
// the last segment and log start.
func killed(t *testing.T, path string, lines int, acked map[segment.UUID]metadata.State) (last segment.UUID, logStart int64) {
	t.Helper()
	if _, err := os.Stat(path); err == nil {
		r := mustOpen(t, path, Options{ReadOnly: true})
		logStart = r.mustView().LogStart()
		_ = r.Close()
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	const patience = 20_000
	snapshot := func() bool {
		return slices.ContainsFunc(files(t, path), func(name string) bool { return strings.Contains(name, snapshotInfix) })
	}
	scan := bufio.NewScanner(out)
	dead := false
	for n := 0; scan.Scan(); n++ { // on to the end: what is in the pipe was acknowledged
		id, state, _ := strings.Cut(scan.Text(), " ")
		if id == logStartLine {
			if logStart, err = strconv.ParseInt(state, 10, 64); err != nil {
				t.Error(err)
			}
		} else if last, err = segment.ParseUUID(id); err != nil {
			t.Errorf("child: %s", scan.Text())
			break
		} else {
			acked[last] = metadata.CopySegmentStarted
			if state == metadata.DeleteSegmentStarted.String() {
				acked[last] = metadata.DeleteSegmentStarted
			}
		}
		if !dead && n >= lines && (snapshot() || n == patience) {
			if dead = true; n == patience {
				t.Errorf("no snapshot beside %d events", n)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	_ = cmd.Wait() // killed
	return last, logStart
}
