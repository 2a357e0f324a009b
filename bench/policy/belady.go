package policy

import (
	"container/heap"
	"math"
)

// Belady returns the share of hits that no policy can exceed, knowing the whole
// trace: it keeps what is needed soonest, and does not insert what is needed
// later than all of that.
func Belady(t Trace) float64 {
	var trace []Chunk
	for a := range t.Accesses {
		trace = append(trace, a.Chunk)
	}
	if len(trace) == 0 {
		return 0
	}
	next := make([]int, len(trace)) // when the chunk is needed again
	seen := map[Chunk]int{}
	for i := len(trace) - 1; i >= 0; i-- {
		next[i] = math.MaxInt
		if j, ok := seen[trace[i]]; ok {
			next[i] = j
		}
		seen[trace[i]] = i
	}

	hits := 0
	here := map[Chunk]int{} // when each is needed next
	var order needs         // the same; what has changed since is stale
	for i, c := range trace {
		if _, ok := here[c]; ok {
			hits++
			delete(here, c)
		}
		if next[i] == math.MaxInt {
			continue
		}
		if len(here) == t.Capacity {
			for here[order[0].chunk] != order[0].at {
				heap.Pop(&order)
			}
			if order[0].at < next[i] {
				continue
			}
			delete(here, heap.Pop(&order).(need).chunk)
		}
		here[c] = next[i]
		heap.Push(&order, need{next[i], c})
	}
	return float64(hits) / float64(len(trace))
}

type need struct {
	at    int
	chunk Chunk
}

// needs is a heap, latest first.
type needs []need

func (h needs) Len() int           { return len(h) }
func (h needs) Less(i, j int) bool { return h[i].at > h[j].at }
func (h needs) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *needs) Push(x any) { *h = append(*h, x.(need)) }

// Pop implements heap.Interface.
func (h *needs) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
