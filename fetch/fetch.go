package fetch

import (
	"context"
	"errors"

	"github.com/segtier/segtier/segment"
)

// Fetch reads batches into res, which it releases first. It returns nil with at
// least one batch in res, or an error, one of those in the package comment, with
// res empty. An error that occurs behind the first batch only cuts the Result
// short: the next Fetch meets it.
//
// It waits for the store and for memory as long as ctx allows; what it had
// started goes on when ctx ends, for the next try.
func (r *Reader) Fetch(ctx context.Context, req Request, res *Result) error {
	if res == nil {
		return errNoResult
	}
	if r.o.Events.Fetched != nil {
		return r.tell(ctx, req, res)
	}
	return r.fetch(ctx, &req, res, terms{})
}

// terms are how a fetch is bounded when it is one of many. The zero terms are
// those of Fetch.
type terms struct {
	hard      bool // MaxBytes holds for the first batch too: errLimit if it does not fit
	impatient bool // memory is not waited for: errShort if there is none
}

func (r *Reader) fetch(ctx context.Context, req *Request, res *Result, t terms) error {
	in := res.begin()
	rd := reading{r: r, p: req.Partition, lineage: req.Lineage, logStart: req.LogStart, local: req.LocalLogStart, terms: t, tenant: req.Tenant}
	err := req.validate()
	if err == nil {
		err = rd.look()
	}
	if err == nil {
		err = rd.fill(ctx, req, in)
	}
	if err == nil && req.Isolation == ReadCommitted {
		err = rd.aborted(ctx, in)
	}
	if err != nil {
		res.Release()
		return err
	}
	r.ended(req, in)
	r.stats.fetches.Add(1)
	r.stats.bytes.Add(int64(in.size))
	return nil
}

// fill reads batches from one segment after the other until in has MaxBytes or
// the tier ends.
func (rd *reading) fill(ctx context.Context, req *Request, in *holding) error {
	offset, left := req.Offset, req.limit()
	var at place
	if err := rd.locate(offset, &at); err != nil {
		return err
	}
	for full := false; !full; {
		n, next, failure := rd.take(ctx, req, &at, offset, left, in)
		left -= n
		switch {
		case in.size == 0 && (errors.Is(failure, errShort) || errors.Is(failure, errLimit)):
			return failure
		case in.size == 0 && failure != nil:
			return rd.blame(ctx, rd.segment(&at), offset, failure)
		case in.size == 0:
			// The offset fell into the gap at the end of a segment.
			if err := rd.locate(next, &at); err != nil {
				return err
			}
		case failure != nil:
			rd.r.stats.cut.Add(1)
			full = true // the next fetch meets it
		case next < at.upper || left < segment.MinHeaderSize:
			full = true
		default:
			full = !rd.at(next, &at)
		}
		offset = next
	}
	return nil
}

// take appends batches of one segment to in: those from the first with
// LastOffset ≥ offset, up to limit bytes, but at least one if in is empty. It
// returns their bytes and where to go on: in this segment if that is below
// at.upper, else behind it. An error is as it came from below; see blame.
func (rd *reading) take(ctx context.Context, req *Request, at *place, offset, limit int64, in *holding) (n, next int64, err error) {
	r, p := rd.r, &in.pins
	alone := in.size == 0
	patient := alone && !rd.terms.impatient
	defer p.release()
	t, err := rd.tail(ctx, at, offset, &p.guess)
	if err != nil {
		return 0, offset, err
	}
	p.open(t)
	var waited wait
	from := t.from(offset)
	if alone { // else as it was for the segment before
		p.whose = whose{tenant: rd.tenant}
		waited = rd.ask(ctx, req, at, from, offset, limit, in)
		p.guess.Release() // among the leases by now, if there is anything to it
	}
	pos, h, found, err := r.find(ctx, p, from, offset, limit, patient)
	switch {
	case err != nil:
		return 0, offset, err
	case !found || h.LastOffset >= at.upper:
		return 0, at.upper, nil // nothing more here, or of another lineage
	case int64(h.Size) > limit && alone && rd.terms.hard:
		return 0, offset, errLimit
	case int64(h.Size) > limit && !alone:
		return 0, offset, nil // whole batches only
	}
	end := pos + int64(h.Size)
	want := min(max(end, pos+limit), t.Table.LogSize())
	p.restart(t.chunk(pos))
	if err := r.need(ctx, p, t.chunk(end-1), t.chunk(want-1), patient); err != nil {
		return 0, offset, err
	}
	// From here on there is something to return.
	for p.ready < len(p.leases) && r.await(ctx, p) == nil {
	}
	if p.end() < want {
		r.stats.cut.Add(1)
	}
	if alone {
		r.served(in.stream, &waited, p.end()-pos)
	}
	end, last := p.fit(pos, h, min(want, p.end()), at.upper)
	in.add(p, offset, pos, end, last+1)
	if next = last + 1; end == t.Table.LogSize() {
		next = at.upper
	}
	return end - pos, next, nil
}

// find looks for the first batch of the segment with LastOffset ≥ offset, of whose
// header it returns Size and LastOffset and, if it had to look at it, the rest, and
// leaves the window beginning at its chunk or before. Up to limit bytes from
// there on are asked for on the way. It begins with chunk c: the batch starts there or,
// if the offset fell into a gap, is the first of a later one; see tail.from.
func (r *Reader) find(ctx context.Context, p *pins, c int, offset, limit int64, patient bool) (pos int64, h segment.Header, found bool, err error) {
	table := &p.t.Table
	for ; c < len(table.Chunks); c++ {
		pos := table.Chunks[c].FirstBatch
		if pos < 0 {
			continue
		}
		p.restart(c)
		want := min(pos+limit, table.LogSize())
		if err := r.need(ctx, p, c, p.t.chunk(want-1), patient); err != nil {
			return 0, h, false, err
		}
		n := p.notes(c)
		if at, size, last, ok := n.find(offset); ok {
			return at, segment.Header{Size: size, LastOffset: last, BaseOffset: -1}, true, nil
		}
		pos = n.seek(pos, offset)
		for end := table.Start(c) + table.Len(c); pos < end; pos += int64(h.Size) {
			pos = p.skip(pos, offset)
			if pos >= end {
				break
			}
			if h, err = r.header(ctx, p, pos, patient); err != nil {
				return 0, h, false, err
			}
			if h.LastOffset >= offset {
				return pos, h, true, nil
			}
		}
	}
	return 0, h, false, nil
}

// fit returns the end of the last whole batch that ends at or before limit and
// has no offset from upper on, and its last offset. The batch at pos with header
// h fits; everything up to limit is ready.
func (p *pins) fit(pos int64, h segment.Header, limit, upper int64) (end, last int64) {
	end = pos + int64(h.Size)
	// Look in the last chunk in which a batch starts that fits; those before it
	// fit too.
	c := p.t.chunk(limit - 1)
	for ; c >= p.first; c-- {
		from := p.t.Table.Chunks[c].FirstBatch
		if from < 0 || from >= limit {
			continue
		}
		if from <= end {
			break
		}
		if e, l, exact, ok := p.notes(c).fit(limit, upper); exact {
			return e, l
		} else if ok {
			return p.walk(e, l, limit, upper)
		}
		if e, l := p.walk(from, 0, limit, upper); e > from {
			return e, l
		}
		limit = from // ends exactly there
	}
	if c >= p.first {
		if e, l, exact, ok := p.notes(c).fit(limit, upper); ok && e > end {
			if exact {
				return e, l
			}
			return p.walk(e, l, limit, upper)
		}
	}
	return p.walk(end, h.LastOffset, limit, upper)
}

// walk goes from batch to batch, beginning at from, behind the one with the last
// offset last, as long as they fit.
func (p *pins) walk(from, last, limit, upper int64) (int64, int64) {
	for from < limit && p.headerEnd(from) <= p.end() {
		size, l, ok := p.peek(from)
		if !ok {
			h, err := p.parse(from)
			if err != nil {
				break // it is for the fetch that begins here
			}
			size, l = int(h.Size), h.LastOffset
		}
		if from+int64(size) > limit || l >= upper {
			break
		}
		from, last = from+int64(size), l
	}
	return from, last
}
