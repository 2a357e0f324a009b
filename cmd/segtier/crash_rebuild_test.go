package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segtier/segtier/internal/gateway"
	"github.com/segtier/segtier/internal/testseg"
)

// A rebuild of metadata, killed as kill -9 does at any instant and gone on with by
// the same command: no object is lost, whoever collects meanwhile; what is readable
// is what was; and in the end every record is what it was.

func TestRebuildKilledAtAnyInstant(t *testing.T) {
	seed := crashSeed(t)
	rebuildCrashes(t, seed, crashKills(t)/4, func(int) (*bench, func() int) {
		b := newBench(t)
		return b, func() int { return countObjects(t, b.store) }
	})
}

func TestGatewayRebuildKilledAtAnyInstant(t *testing.T) {
	s := gateway.Start(t, gateway.Options{})
	seed := crashSeed(t)
	rebuildCrashes(t, seed, crashKills(t)/4, func(life int) (*bench, func() int) {
		prefix := fmt.Sprint("rebuild-", life)
		b := s3Bench(t, s, s.URL(), prefix)
		return b, func() int { return countObjects(t, filepath.Join(s.DataDir(), gateway.Bucket, prefix)) }
	})
}

func rebuildCrashes(t *testing.T, seed uint64, kills int, open func(life int) (*bench, func() int)) {
	t.Helper()
	took := map[string]time.Duration{}
	sum, refused, readable, lives := 0, 0, 0, 0
	for ; sum < kills && !t.Failed(); lives++ {
		b, objects := open(lives)
		log := testseg.Random(seed+uint64(lives), testseg.Options{Segments: crashSegments + 1, Batches: 6, Plain: true})
		dir, err := log.WriteDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		b.done("copy", dir)
		c := &crashing{bench: b, r: rand.New(rand.NewPCG(seed, uint64(lives))), o: oracleOf(t, dir), took: took, fine: "not empty"}
		records := b.done("ls", "--json")
		if err := os.Remove(b.meta); err != nil {
			t.Fatal(err)
		}
		// A request of a process that was killed may be carried out when it is dead: the
		// last one, that takes the rebuild's marker away, even behind the look of gc.
		for c.ended == 0 && !t.Failed() {
			c.kill([]string{"rebuild", "--apply"})
			if c.ended > 0 {
				break
			}
			// Nobody may take what is not known again yet for what nobody needs.
			o := b.try("gc", "--apply", "--unknown", "--older-than", "0s", "--max-fraction", "1")
			if o.status == statusDone && b.done("ls", "--json") == records {
				break // killed behind the last step
			} else if o.status != statusFailed {
				t.Errorf("gc beside an interrupted rebuild: %+v", o)
			}
			refused++
			if n := objects(); n != crashSegments {
				t.Errorf("%d objects, there were %d", n, crashSegments)
			}
			if _, err := os.Stat(b.meta); err != nil {
				continue // killed before anything
			}
			if o = b.try("ls", "--json"); o.status == statusDone {
				for line := range strings.Lines(o.out) {
					readable++
					if !strings.Contains(records, line) {
						t.Errorf("readable is %swhich it was not", line)
					}
				}
			} else {
				t.Errorf("ls: %+v", o)
			}
		}
		sum += c.kills
		if got := b.done("ls", "--json"); got != records {
			t.Errorf("records are\n%s\nwant\n%s", got, records)
		}
		b.done("verify")
		c.gc() // unfinished uploads of markers
		if left := b.done("gc", "--older-than", "0s", "--json"); left != "" {
			t.Errorf("gc has more to do: %s", left)
		}
		if out := b.done("fetch", c.o.name, fmt.Sprint(c.o.bases[0]), "--format", "raw", "--max-bytes", "64MiB"); !slices.Equal([]byte(out), c.o.log) {
			t.Errorf("%d bytes, they differ from the %d bytes of the log files", len(out), len(c.o.log))
		}
	}
	t.Logf("%d kills in %d rebuilds, gone on with until they came through; %d collections refused meanwhile, %d readable records compared", sum, lives, refused, readable)
}
