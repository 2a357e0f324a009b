package testseg_test

import (
	"testing"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/segment"
)

// What the generator promises is there, over a few seeds.
func TestRandomIsVaried(t *testing.T) {
	var gaps, inner, empty, aborted, spanning, large, logAppend, unordered, epochs, beyond int
	for seed := range uint64(10) {
		log := testseg.Random(seed, testseg.Options{})
		epochs = max(epochs, len(log.Epochs))
		if err := log.Epochs.Validate(); err != nil {
			t.Fatal(err)
		}
		next, greatest := int64(0), int64(0)
		for _, s := range log.Segments {
			if s.Info().StartOffset != next {
				t.Fatalf("segment starts at %d, want %d", s.Info().StartOffset, next)
			}
			w := segment.Walker{}
			if _, err := w.Write(s.Log); err != nil || w.Close() != nil {
				t.Fatalf("seed %d: bad log: %v", seed, err)
			}
			for _, b := range s.Batches {
				h := b.Header
				switch {
				case h.BaseOffset > next:
					gaps++
				case h.Count == 0:
					empty++
				case int64(h.Count) <= h.LastOffset-h.BaseOffset:
					inner++
				}
				if h.Size > 4<<10 {
					large++
				}
				if h.LogAppendTime() {
					logAppend++
				}
				if h.MaxTimestamp < greatest {
					unordered++
				}
				greatest = max(greatest, h.MaxTimestamp)
				next = h.LastOffset + 1
			}
			for _, a := range s.Aborted {
				aborted++
				if a.FirstOffset < s.Info().StartOffset {
					spanning++
				}
			}
			if s.Info().EndOffset >= next {
				beyond++
			}
			next = s.Info().EndOffset + 1
		}
	}
	for what, n := range map[string]int{
		"gaps": gaps, "inner gaps": inner, "empty batches": empty, "aborted transactions": aborted, "spanning segments": spanning,
		"large batches": large, "log append time": logAppend, "unordered": unordered, "epochs": epochs - 1, "ends beyond the last record": beyond,
	} {
		if n == 0 {
			t.Errorf("no %s in ten seeds", what)
		}
	}
}
