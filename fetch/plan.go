package fetch

// span is chunks [from, to) of one segment.
type span struct{ from, to int }

func (s span) len() int { return s.to - s.from }

// planner cuts chunks that are to be fetched into runs, one GET each. It is pure:
// the same question has the same answer.
type planner struct {
	first int // chunks of the first GET of a demand, at most; ≥ 1
	unit  int // chunks of any other GET, at most; ≥ 1
	gap   int // chunks that are here already and may be fetched again to save a GET
	grid  bool
}

// runs cuts chunks, ascending, into runs that together hold each of them once.
// With grid, no run crosses a multiple of unit: so streams that come from
// different places soon ask for the same runs. Chunks in a run that were not asked
// for are a gap; there is none at a run's ends, and they are at most a quarter of
// it.
func (pl planner) runs(dst []span, chunks []int) []span {
	limit := pl.first
	if pl.grid {
		limit = pl.unit
	}
	for i := 0; i < len(chunks); {
		run := span{chunks[i], chunks[i] + 1}
		gaps := 0
		for i++; i < len(chunks); i++ {
			c := chunks[i]
			skip := c - run.to
			if c+1-run.from > limit || pl.grid && c/pl.unit != run.from/pl.unit ||
				skip > pl.gap || (gaps+skip)*4 > c+1-run.from {
				break
			}
			gaps += skip
			run.to = c + 1
		}
		dst = append(dst, run)
		limit = pl.unit
	}
	return dst
}

// nextRun is the next run to fetch for a stream whose frontier is chunk `from` of a
// segment of which chunks below `stop` may be read, with room for so many more
// chunks: up to the next multiple of unit, whole or not at all. It is empty if
// there is no room.
func nextRun(from, stop, unit, room int) span {
	to := min((from/unit+1)*unit, stop)
	if to <= from || to-from > room {
		return span{from, from}
	}
	return span{from, to}
}
