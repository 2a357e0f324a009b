package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/segtier/segtier/internal/gateway"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/metadata"
)

// Commands that write, killed as kill -9 does at any instant, on a store in a
// directory and on a real S3 server. After each death everything that was readable
// still is, unless the command was asked to delete it; at the end of each life of a
// tier the commands come through, and what is there is what was asked for, to the
// byte.

func TestKilledAtAnyInstant(t *testing.T) {
	seed := crashSeed(t)
	crashes(t, seed, crashKills(t), func(int) (*bench, func() int) {
		b := newBench(t)
		return b, func() int { return countObjects(t, b.store) }
	})
}

func TestGatewayKilledAtAnyInstant(t *testing.T) {
	s := gateway.Start(t, gateway.Options{})
	seed := crashSeed(t)
	crashes(t, seed, crashKills(t), func(life int) (*bench, func() int) {
		prefix := fmt.Sprint("life-", life)
		b := s3Bench(t, s, s.URL(), prefix)
		return b, func() int { return countObjects(t, filepath.Join(s.DataDir(), gateway.Bucket, prefix)) }
	})
}

// crashKills is how often a test kills: 1,000 times in the long run.
func crashKills(t *testing.T) int {
	t.Helper()
	if s := os.Getenv("SEGTIER_KILLS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if soak(1) > 1 {
		return 1000
	}
	return 20
}

func crashSeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("SEGTIER_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("seed %d", seed)
	return seed
}

func countObjects(t *testing.T, dir string) (n int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".seg") {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// crashing is the model of one life of a tier.
type crashing struct {
	*bench
	r        *rand.Rand
	o        *oracle
	logStart int64          // the greatest that retention was asked for
	readable map[int64]bool // base offsets of the segments that are
	took     map[string]time.Duration
	fine     string // what a command may fail with, because the one before had come through

	kills, ended, checks int
	offsets              int64
}

const (
	crashSegments = 6
	killsInALife  = 10
)

func crashes(t *testing.T, seed uint64, kills int, open func(life int) (*bench, func() int)) {
	t.Helper()
	took := map[string]time.Duration{}
	var sum crashing
	lives := 0
	for ; sum.kills < kills && !t.Failed(); lives++ {
		b, objects := open(lives)
		log := testseg.Random(seed+uint64(lives), testseg.Options{Segments: crashSegments + 1, Batches: 6, Plain: true})
		dir, err := log.WriteDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		c := &crashing{bench: b, r: rand.New(rand.NewPCG(seed, uint64(lives))), o: oracleOf(t, dir), readable: map[int64]bool{}, took: took}
		c.live(min(killsInALife, kills-sum.kills), objects)
		sum.kills, sum.ended, sum.checks, sum.offsets = sum.kills+c.kills, sum.ended+c.ended, sum.checks+c.checks, sum.offsets+c.offsets
	}
	t.Logf("%d kills in %d lives, %d commands came through before they were killed; %d times all that is readable was compared, %d offsets", sum.kills, lives, sum.ended, sum.checks, sum.offsets)
}

// live kills commands that many times, and then lets them come through.
func (c *crashing) live(kills int, objects func() int) {
	for try := 0; c.kills < kills && !c.t.Failed(); try++ {
		if try > 20*kills {
			c.t.Fatalf("%d kills in %d tries", c.kills, try)
		}
		c.one()
	}
	if c.t.Failed() {
		return
	}
	dir := c.o.path
	c.done("copy", dir) // goes on with what was begun, and expire with every deletion
	c.done("expire", c.o.name, "--log-start", fmt.Sprint(c.logStart), "--apply", "--delete-delay", "0s")
	c.gc()
	c.done("copy", dir) // fills what single segments have left
	c.gc()
	var want []int64
	for _, base := range c.o.bases {
		if base >= c.logStart {
			want = append(want, base)
		}
	}
	got := slices.Sorted(maps.Keys(c.look()))
	if !slices.Equal(got, want) {
		c.t.Errorf("at the end segments at %d are readable, want %d", got, want)
	}
	if n := objects(); n != len(want) {
		c.t.Errorf("at the end there are %d objects for %d segments", n, len(want))
	}
	for _, s := range decode[segmentLine](c.t, c.done("ls", "--all", "--json")) {
		if s.State != metadata.CopySegmentFinished.String() && s.State != metadata.DeleteSegmentFinished.String() {
			c.t.Errorf("left behind: %+v", s)
		}
	}
	if left := c.done("gc", "--older-than", "0s", "--json"); left != "" {
		c.t.Errorf("gc has more to do: %s", left)
	}
	// Every byte, from the log start on.
	log := c.o.log
	for _, b := range c.o.batches {
		if b.header.LastOffset < c.logStart {
			log = log[len(b.raw):]
		}
	}
	if out := c.done("fetch", c.o.name, fmt.Sprint(max(c.logStart, c.o.bases[0])), "--format", "raw", "--max-bytes", "64MiB"); out != string(log) {
		c.t.Errorf("%d bytes, they differ from the %d bytes of the log files", len(out), len(log))
	}
	c.offsets += c.o.end + 1 - c.logStart
}

func (c *crashing) gc() {
	c.done("gc", "--apply", "--older-than", "0s", "--max-fraction", "1")
}

// one runs a command and kills it, if it does not come through before.
func (c *crashing) one() {
	before := maps.Clone(c.readable)
	may := map[int64]bool{} // what it may make unreadable
	var args []string
	switch n := c.r.IntN(10); {
	case n < 4 || len(before) == 0:
		args = []string{"copy", c.o.path}
	case n < 6:
		to := c.o.bases[c.r.IntN(len(c.o.bases)-2)] // two stay
		c.logStart = max(c.logStart, to)
		args = []string{"expire", c.o.name, "--log-start", fmt.Sprint(c.logStart), "--apply", "--delete-delay", "0s"}
		for base := range before {
			may[base] = base < c.logStart
		}
	case n < 8:
		segs := decode[segmentLine](c.t, c.done("ls", "--json"))
		seg := segs[c.r.IntN(len(segs))]
		args = []string{"rm", seg.SegmentID.String(), "--apply", "--delete-delay", "0s"}
		may[seg.StartOffset] = true
	default:
		args = []string{"gc", "--apply", "--older-than", "0s", "--max-fraction", "1"}
	}
	c.kill(args)
	c.readable = c.look()
	for base := range before {
		if !c.readable[base] && !may[base] {
			c.t.Errorf("%v: the segment at %d was readable and is not any more", args, base)
		}
	}
	if args[0] != "copy" {
		for base := range c.readable {
			if !before[base] {
				c.t.Errorf("%v: the segment at %d has become readable", args, base)
			}
		}
	}
}

// kill runs a command and kills it at an instant of the time that it takes.
func (c *crashing) kill(args []string) {
	usual := c.took[args[0]]
	if usual == 0 {
		usual = 300 * time.Millisecond
	}
	// The beginning, in which the program is loaded, is of little interest.
	wait := time.Duration((0.2 + c.r.Float64()) * float64(usual))
	cmd := c.process("main", args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &said
	began := time.Now()
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	timer := time.AfterFunc(wait, func() { _ = cmd.Process.Kill() }) // it may have ended by itself
	_ = cmd.Wait()                                                   // killed, or the state says
	timer.Stop()
	switch state := cmd.ProcessState; {
	case !state.Exited():
		c.kills++
		c.took[args[0]] = usual + usual/20 // so that the late instants come too
	case state.ExitCode() != statusDone && (c.fine == "" || !strings.Contains(said.String(), c.fine)):
		c.t.Errorf("%v: status %d: %s", args, state.ExitCode(), said.String())
	default:
		c.ended++
		c.took[args[0]] = (3*usual + time.Since(began)) / 4
	}
}

// look returns the segments that are readable; each is whole.
func (c *crashing) look() map[int64]bool {
	c.checks++
	got := map[int64]bool{}
	if _, err := os.Stat(c.meta); err != nil {
		return got // killed before anything
	}
	for _, s := range decode[segmentLine](c.t, c.done("ls", "--json")) {
		if got[s.StartOffset] {
			c.t.Errorf("offsets %d to %d are readable twice", s.StartOffset, s.EndOffset)
		}
		got[s.StartOffset] = true
		c.offsets += s.EndOffset - s.StartOffset + 1
	}
	if len(got) == 0 {
		return got
	}
	// Single segments that were deleted leave gaps. Nothing else may be found.
	v := c.try("verify", "--json")
	for line := range strings.Lines(v.out) {
		if !strings.Contains(line, "OFFSET_GAP") {
			c.t.Errorf("verify: %s", line)
		}
	}
	if v.status != statusDone && (v.status != statusDamage || v.out == "") {
		c.t.Errorf("verify: %+v", v)
	}
	return got
}
