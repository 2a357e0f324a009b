package fetch

import (
	"slices"
	"time"

	"github.com/segtier/segtier/segment"
)

// ahead is what is fetched ahead of a stream. Positions are those of the logs of
// its segments laid end to end, from somewhere on.
type ahead struct {
	search search
	way    []leg        // the segments from the reader's to the frontier's
	at     int64        // position behind the last read
	front  int64        // up to which everything is here or on its way
	issued []piece      // fetched for this stream and not read yet, nearly in order
	flying []*flight    // of those, some of which may have ended
	was    int64        // front before the read that goes on
	from   int64        // where the sequence began
	window int64        // bytes that may be between at and front; 0: nothing yet
	unit   int64        // bytes of a run
	far    bool         // it catches up
	grows  bool         // there is memory for more runs, or for more that are shorter
	retry  int64        // position from which on it is worth while to ask for more
	next   segment.UUID // whose tail was asked for last
	again  int64        // position from which on it may be asked for again: it may have failed

	alone   bool          // it is a Stream's or a Cursor's; constant
	over    bool          // it was closed, or its place is another's: nothing more is fetched ahead
	hurry   float64       // 1 if it came back at once after each wait, -1 if never, fading
	waited  time.Time     // when the last wait ended
	stalled time.Duration // how long that was; 0: it is accounted for
	reading int           // reads that wait, as far as we know
}

// leg is a segment on a stream's way.
type leg struct {
	t     *tail
	start int64 // its position
	upper int64 // offset behind what may be read of it
	stop  int   // chunk behind that
}

// chunk returns the chunk that begins at a position or holds it; at the end of the
// log, the one behind the last.
func (l *leg) chunk(pos int64) int {
	if pos -= l.start; pos < l.t.Table.LogSize() {
		return l.t.chunk(pos)
	}
	return len(l.t.Table.Chunks)
}

// piece is positions [from, to).
type piece struct{ from, to int64 }

// enter moves the reader to chunk `to` of a segment, where the next read is
// expected, having read from chunk c on. A reader that comes from elsewhere begins
// anew. It returns what leave does.
func (a *ahead) enter(t *tail, upper int64, stop, c, to int) (wasted, saved int64) {
	i := 0
	for i < len(a.way) && a.way[i].t.id != t.id {
		i++
	}
	if i == len(a.way) {
		wasted, saved = a.leave()
		a.way = append(a.way, leg{t: t, upper: upper, stop: stop})
		a.at = t.Table.Start(c)
		a.front, a.from, a.retry = a.at, a.at, a.at
	} else {
		a.way = append(a.way[:0], a.way[i:]...)
	}
	l := &a.way[0]
	l.t, l.upper, l.stop = t, upper, stop // which may have been read anew: others look for flights there
	a.was = a.front
	a.at = l.start + min(t.Table.Start(to), t.Table.LogSize())
	a.front = max(a.front, a.at)
	return wasted + a.took(l.start+t.Table.Start(c)), saved
}

// took notes a read of [from, a.at), and returns how many bytes before it were jumped
// over. One that lies no further back than a window may come yet, from who reads
// several at a time.
func (a *ahead) took(from int64) (skipped int64) {
	for i := 0; i < len(a.issued); i++ {
		p := &a.issued[i]
		switch {
		case p.from >= a.at || p.to <= from && p.to > a.at-a.window:
		case p.to <= from:
			skipped += p.to - p.from
			a.issued = slices.Delete(a.issued, i, i+1)
			i--
		case p.from < from && p.to > a.at:
			a.issued = slices.Insert(a.issued, i+1, piece{a.at, p.to})
			a.issued[i].to = from
		case p.from < from:
			p.to = from
		case p.to > a.at:
			p.from = a.at
		default:
			a.issued = slices.Delete(a.issued, i, i+1)
			i--
		}
	}
	return skipped
}

// covers says whether a chunk is here or on its way for the stream, ahead of where it is.
func (a *ahead) covers(id segment.UUID, c int) bool {
	for i := range a.way {
		if l := &a.way[i]; l.t.id == id {
			pos := l.start + l.t.Table.Start(c)
			return a.at <= pos && pos < a.front
		}
	}
	return false
}

// leave forgets where the reader was and calls off what is on its way for it, if it
// is known to be one reader: who was found by his reads may be several. It returns how many bytes were fetched in vain, and how many will not be.
func (a *ahead) leave() (wasted, saved int64) {
	for _, p := range a.issued {
		wasted += p.to - p.from
	}
	for _, f := range a.flying {
		if a.alone {
			saved += f.callOff()
		}
	}
	clear(a.flying)
	a.flying = a.flying[:0]
	// What it has read of a run counts no more, nor does what it had demanded.
	saved = min(saved, wasted)
	wasted -= saved
	clear(a.way) // tails are memory
	a.way, a.issued, a.at, a.front, a.retry, a.again = a.way[:0], a.issued[:0], 0, 0, 0, 0
	return wasted, saved
}

// fly notes flights for the stream.
func (a *ahead) fly(flights []*flight) {
	live := a.flying[:0]
	for _, f := range a.flying {
		if !f.ended.Load() {
			live = append(live, f)
		}
	}
	clear(a.flying[len(live):])
	a.flying = append(live, flights...)
}
