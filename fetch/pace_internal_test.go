package fetch

import (
	"testing"
	"time"

	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore/endpoint"
)

// Whose turn it is to have something fetched ahead: a reader that keeps pace goes before those
// that catch up, once it has read enough to be believed.
func TestWhoKeepsPace(t *testing.T) {
	for name, c := range map[string]struct {
		hint  Hint
		read  int64
		hurry float64
		want  endpoint.Class
	}{
		"it takes its time":            {Detect, keepsPace, -1, endpoint.TailPrefetch},
		"nothing is known of it":       {Detect, keepsPace, 0, endpoint.TailPrefetch},
		"it has read little":           {Detect, keepsPace - 1, -1, endpoint.Prefetch},
		"it is in a hurry":             {Detect, keepsPace, .1, endpoint.Prefetch},
		"a backfill, whatever it does": {Scan, keepsPace, -1, endpoint.Prefetch},
		"at the tail, by its own word": {Tail, 0, 1, endpoint.TailPrefetch},
	} {
		s := &stream{hint: c.hint}
		s.at, s.hurry = c.read, c.hurry
		if got := s.aheadClass(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Who comes back at once from each wait is in a hurry, who takes his time is not; several
// reads at a time are no hurry, whenever they come; and who did not wait says nothing.
func TestHurryOfAReader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			stalled, pause time.Duration
			reading        int
			least, most    float64
		}{
			"at once":            {100 * time.Millisecond, time.Millisecond, 0, .6, 1},
			"after a short wait": {8 * time.Millisecond, 3 * time.Millisecond, 0, -1, -.6},
			"after a pause":      {100 * time.Millisecond, atOnce, 0, -1, -.6},
			"several at a time":  {100 * time.Millisecond, time.Millisecond, 1, -1, -.6},
			"it did not wait":    {0, time.Millisecond, 0, 0, 0},
		} {
			s := new(stream)
			for range 10 {
				s.reading, s.stalled, s.waited = c.reading, c.stalled, time.Now()
				<-time.After(c.pause)
				s.pace()
			}
			if s.hurry < c.least || s.hurry > c.most {
				t.Errorf("%s: hurry %.2f, want %.1f to %.1f", name, s.hurry, c.least, c.most)
			}
		}
	})
}
