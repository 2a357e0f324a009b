package fetch_test

import (
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/testseg"
)

// Results are copied, kept, released twice and fetched into in any order: what
// is released is gone for every copy, and nothing that is done with a stale one
// reaches what a later Fetch has put into another.
func TestCopiesOfResults(t *testing.T) {
	log := testseg.Random(11, testseg.Options{Segments: 2, Batches: 20})
	rapid.Check(t, func(t *rapid.T) {
		x := newTier(t, log, tierOptions{chunk: 1000})
		defer x.close()
		all := x.batches()
		// grip is what one Fetch got; copies share it.
		type grip struct {
			live   bool
			offset int64
		}
		var results [3]fetch.Result
		var grips [3]*grip
		end := func(i int) {
			if grips[i] != nil {
				grips[i].live = false
			}
		}
		which := rapid.IntRange(0, len(results)-1)
		t.Repeat(map[string]func(*rapid.T){
			"fetch": func(t *rapid.T) {
				i := which.Draw(t, "into")
				offset := rapid.Int64Range(x.start(), all[len(all)-1].Header.LastOffset).Draw(t, "offset")
				if err := x.reader.Fetch(t.Context(), x.request(offset, 4000), &results[i]); err != nil {
					t.Fatal(err)
				}
				end(i)
				grips[i] = &grip{true, offset}
			},
			"fail": func(t *rapid.T) {
				i := which.Draw(t, "into")
				if err := x.reader.Fetch(t.Context(), x.request(x.start()-1, 4000), &results[i]); err == nil {
					t.Fatal("no error below the log start")
				}
				end(i)
			},
			"copy": func(t *rapid.T) {
				i, from := which.Draw(t, "to"), which.Draw(t, "from")
				if grips[i] != nil && grips[i].live && grips[i] != grips[from] {
					results[i].Release() // nobody else might
					end(i)
				}
				results[i], grips[i] = results[from], grips[from]
			},
			"release": func(t *rapid.T) {
				i := which.Draw(t, "which")
				results[i].Release()
				end(i)
			},
			"": func(t *rapid.T) {
				for i := range results {
					if grips[i] != nil && grips[i].live {
						x.check(&results[i], all, grips[i].offset, 4000)
						continue
					}
					if res := &results[i]; res.Size() != 0 || res.FirstOffset() != 0 || res.NextOffset() != 0 || len(res.AppendTo(nil)) != 0 {
						t.Fatalf("Result %d was released and holds %d bytes", i, res.Size())
					}
					for range results[i].Batches() {
						t.Fatalf("Result %d was released and has batches", i)
					}
				}
			},
		})
		for i := range results {
			results[i].Release()
		}
		if err := x.reader.Close(); err != nil { // joins what is fetched ahead
			t.Fatal(err)
		}
		for _, s := range x.segs {
			x.cache.Drop(s.ID)
		}
		if st := x.cache.Stats(); st.Used != 0 {
			t.Fatalf("memory is left: %+v", st)
		}
	})
}

// Two goroutines release copies of one Result: the memory is given back once.
func TestReleaseOfCopiesRaces(t *testing.T) {
	x := newTier(t, testseg.Random(4, testseg.Options{}), tierOptions{})
	defer x.close()
	for range 200 * soak() {
		var a fetch.Result
		if err := x.reader.Fetch(t.Context(), x.request(x.start(), 1<<14), &a); err != nil {
			t.Fatal(err)
		}
		b := a
		var wg sync.WaitGroup
		wg.Go(a.Release)
		wg.Go(b.Release)
		wg.Wait()
	}
	if err := x.reader.Close(); err != nil { // joins what is fetched ahead
		t.Fatal(err)
	}
	for _, s := range x.segs {
		x.cache.Drop(s.ID)
	}
	if st := x.cache.Stats(); st.Used != 0 {
		t.Fatalf("memory is left: %+v", st)
	}
}

// Batches whose Result is released under way stops: the memory is another's.
func TestBatchesEndsWithRelease(t *testing.T) {
	x := newTier(t, testseg.Random(4, testseg.Options{}), tierOptions{})
	defer x.close()
	var res fetch.Result
	if err := x.reader.Fetch(t.Context(), x.request(x.start(), 1<<20), &res); err != nil {
		t.Fatal(err)
	}
	n := 0
	for range res.Batches() {
		n++
		res.Release()
	}
	if n != 1 {
		t.Fatalf("%d batches after Release", n-1)
	}
}
