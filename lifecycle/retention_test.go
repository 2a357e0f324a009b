package lifecycle_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
)

// paper is a metadata store whose segments were never copied: for decisions that
// look at metadata alone.
type paper struct {
	*metadatatest.Mem

	view   *metadata.View
	events []string
}

func (m *paper) View(segment.Partition) (*metadata.View, error) { return m.view, nil }

func (m *paper) Publish(_ context.Context, ev metadata.Event) error {
	v, err := m.view.Apply(ev)
	if err == nil {
		m.view = v
		m.events = append(m.events, fmt.Sprintf("%s %d", ev.To(), ev.Segment().StartOffset))
	}
	return err
}

func (m *paper) LogStart(segment.Partition) (int64, bool) { return m.view.LogStart(), true }

func (m *paper) SetLogStart(_ context.Context, _ segment.Partition, offset int64, _ metadata.Writer) error {
	i := m.view.Info()
	i.LogStart = offset
	m.view = m.view.WithInfo(i)
	m.events = append(m.events, fmt.Sprintf("log start %d", offset))
	return nil
}

var (
	paperPartition = segment.Partition{Topic: "t", TopicID: segment.UUID{1}}
	oursFinished   = object.Location{ObjectSize: 1000, TailOffset: 100}.Append(nil)
	oursStarted    = []byte("P\x01 a fingerprint")
)

// rec is a segment on paper. Its id tells it from others; its epochs are given or
// those of the lineage.
func rec(id byte, state metadata.State, start, end, size, maxTime int64, epochs ...segment.EpochStart) *metadata.Segment {
	s := &metadata.Segment{
		Partition: paperPartition, ID: segment.UUID{id}, StartOffset: start, EndOffset: end,
		SizeBytes: size, MaxTimestamp: maxTime, State: state, Epochs: epochs, Custom: oursFinished,
	}
	if len(epochs) == 0 {
		s.Epochs = segment.Lineage{{Epoch: 0, Start: start}}
	}
	if state == metadata.CopySegmentStarted {
		s.Custom = oursStarted
	}
	return s
}

// expirer is an Expirer over segments on paper and an empty store that is theirs.
func expirer(t interface {
	Fatal(args ...any)
	Cleanup(f func())
}, now int64, o lifecycle.ExpirerOptions, segs ...*metadata.Segment,
) (*lifecycle.Expirer, *paper) {
	m := &paper{Mem: metadatatest.NewMem(), view: metadata.NewView(paperPartition, segs...)}
	clock := func() time.Time { return time.UnixMilli(now) }
	ep := endpointOn(t, clocked{owned(t, m.ID()), clock})
	del := atOnce(nil)
	del.Now = clock
	d, err := lifecycle.NewDeleter(m, ep, del)
	if err != nil {
		t.Fatal(err)
	}
	e, err := lifecycle.NewExpirer(d, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close(); _ = ep.Close() })
	return e, m
}

func endpointOn(t interface{ Fatal(args ...any) }, s objstore.Store) *endpoint.Endpoint {
	ep, err := endpoint.New(s, endpoint.Options{Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	return ep
}

// clocked is a store with a clock.
type clocked struct {
	objstore.Store

	now func() time.Time
}

func (s clocked) Stat(ctx context.Context, key string) (objstore.Info, error) {
	info, err := s.Store.Stat(ctx, key)
	info.Now = s.now()
	return info, err
}

// owned is an empty store that belongs to the metadata with this id.
func owned(t interface{ Fatal(args ...any) }, id string) objstore.Store {
	store := storetest.NewMem()
	marker, err := object.Owner{MetadataID: id}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := put(store, object.OwnerKey, string(marker)); err != nil {
		t.Fatal(err)
	}
	return store
}

// model is Kafka's rule, as naively as it can be written down, with what the
// Expirer does otherwise by intent marked as such.
type model struct {
	l        segment.Lineage
	logStart int64
	logEnd   int64
	cutoff   int64
	limit    int64
	local    int64
	copying  map[int64]bool
	segs     []*metadata.Segment
}

// within is kafka.md's lineage check, rule by rule.
func (m *model) within(s *metadata.Segment, l segment.Lineage) bool {
	filter := func(in segment.Lineage) map[int32]int64 {
		out := map[int32]int64{}
		for i, e := range in {
			if i+1 == len(in) || in[i+1].Start != e.Start {
				out[e.Epoch] = e.Start
			}
		}
		return out
	}
	sg, led := filter(s.Epochs), filter(l)
	sk, lk := slices.Sorted(maps.Keys(sg)), slices.Sorted(maps.Keys(led))
	after := func(keys []int32, e int32) (int32, bool) {
		for _, k := range keys {
			if k > e {
				return k, true
			}
		}
		return 0, false
	}
	last := sk[len(sk)-1]
	if last < lk[0] || last > lk[len(lk)-1] || s.EndOffset >= m.logEnd {
		return false
	}
	first, ok := int32(0), false
	for _, e := range sk {
		if e >= lk[0] && !ok {
			first, ok = e, true
		}
	}
	if !ok {
		return false
	}
	for _, e := range sk {
		if e < first {
			continue
		}
		at, known := led[e]
		if !known {
			return false
		}
		if e == first && e != lk[0] && sg[e] < at {
			return false
		}
		next, more := after(lk, e)
		if e == last {
			if more && s.EndOffset > led[next]-1 {
				return false
			}
			continue
		}
		snext, _ := after(sk, e)
		if !more || snext != next || sg[snext] != led[next] {
			return false
		}
	}
	return true
}

// truncate is LeaderEpochFileCache.truncateFromStart.
func (m *model) truncate() segment.Lineage {
	var gone, kept segment.Lineage
	for _, e := range m.l {
		if e.Start <= m.logStart {
			gone = append(gone, e)
		} else {
			kept = append(kept, e)
		}
	}
	if len(gone) > 0 {
		e := gone[len(gone)-1]
		kept = append(segment.Lineage{{Epoch: e.Epoch, Start: m.logStart}}, kept...)
	}
	var out segment.Lineage
	for i, e := range kept { // without empty epochs
		if i+1 == len(kept) || kept[i+1].Start != e.Start {
			out = append(out, e)
		}
	}
	return out
}

// list returns the segments that have offsets of an epoch. Kafka lists one also in
// epochs that are empty in it, and so may meet it before lower ones.
func (m *model) list(epoch int32) (segs []*metadata.Segment) {
	for _, s := range m.segs {
		for i, e := range s.Epochs {
			if e.Epoch == epoch && (i+1 == len(s.Epochs) || s.Epochs[i+1].Start > e.Start) {
				segs = append(segs, s)
			}
		}
	}
	slices.SortFunc(segs, func(a, b *metadata.Segment) int {
		return cmp.Or(cmp.Compare(a.StartOffset, b.StartOffset), slices.Compare(a.ID[:], b.ID[:]))
	})
	return segs
}

// expire returns why which segments go, and the log start.
func (m *model) expire() (map[segment.UUID]lifecycle.Cause, int64) {
	chosen := map[segment.UUID]lifecycle.Cause{}
	l := m.truncate()
	mine := func(s *metadata.Segment) bool { return len(s.Custom) > 0 && (s.Custom[0] == 'L' || s.Custom[0] == 'P') }
	remaining := int64(0)
	if m.limit >= 0 {
		total := m.local
		for _, s := range m.segs {
			if s.State == metadata.CopySegmentFinished && mine(s) && m.within(s, l) { // otherwise than in Kafka: mine
				total += s.SizeBytes
			}
		}
		remaining = max(0, total-m.limit)
	}
	newStart := m.logStart
walk:
	for _, e := range l {
		for _, s := range m.list(e.Epoch) {
			all := true // all epochs of s are at most the first of l
			for _, x := range s.Epochs {
				all = all && x.Epoch <= l[0].Epoch
			}
			_, done := chosen[s.ID]
			switch {
			case s.State == metadata.CopySegmentStarted && m.copying[s.StartOffset]:
				if m.within(s, l) { // otherwise than in Kafka: only those of the history stop it
					break walk
				}
			case s.State == metadata.DeleteSegmentStarted:
				if mine(s) {
					chosen[s.ID] = lifecycle.BeganDeletion
				}
			case done:
			case all && s.EndOffset < m.logStart:
				if mine(s) {
					chosen[s.ID] = lifecycle.BelowLogStart
				}
			case !m.within(s, l):
			case !mine(s): // otherwise than in Kafka, which knows no other plugins
				break walk
			case s.MaxTimestamp >= 0 && s.MaxTimestamp <= m.cutoff:
				chosen[s.ID] = lifecycle.RetentionTime
				if s.State == metadata.CopySegmentFinished { // otherwise than in Kafka: FINISHED alone counts
					remaining = max(0, remaining-s.SizeBytes)
					newStart = max(newStart, s.EndOffset+1)
				}
			case s.State == metadata.CopySegmentStarted: // otherwise than in Kafka: it stops nothing
			case remaining > 0 && remaining-s.SizeBytes >= 0:
				chosen[s.ID] = lifecycle.RetentionSize
				remaining -= s.SizeBytes
				newStart = max(newStart, s.EndOffset+1)
			default:
				break walk
			}
		}
	}
	for _, s := range m.segs {
		dead := true
		for _, x := range s.Epochs {
			dead = dead && x.Epoch < l[0].Epoch
		}
		switch {
		case !mine(s):
		case s.State == metadata.DeleteSegmentStarted: // otherwise than in Kafka: wherever it is
			chosen[s.ID] = lifecycle.BeganDeletion
		case dead && (s.State != metadata.CopySegmentStarted || !m.copying[s.StartOffset]):
			chosen[s.ID] = lifecycle.DeadEpochs
			if s.EndOffset < m.logStart { // otherwise than in Kafka: what is first is named
				chosen[s.ID] = lifecycle.BelowLogStart
			}
		}
	}
	return chosen, newStart
}

// drawModel draws a history and segments, most of which belong to it.
func drawModel(t *rapid.T) *model {
	m := &model{copying: map[int64]bool{}, cutoff: -1, limit: -1, logEnd: math.MaxInt64}
	at, epoch := int64(0), int32(0)
	for range rapid.IntRange(1, 5).Draw(t, "epochs") {
		m.l = append(m.l, segment.EpochStart{Epoch: epoch, Start: at})
		epoch += int32(rapid.IntRange(1, 2).Draw(t, "epoch"))
		at += rapid.Int64Range(0, 20).Draw(t, "epoch length")
	}
	end := at + 20
	if rapid.Bool().Draw(t, "ends") {
		m.logEnd = rapid.Int64Range(1, end).Draw(t, "log end")
	}
	m.logStart = rapid.Int64Range(0, min(m.logEnd, end)).Draw(t, "log start")
	if rapid.Bool().Draw(t, "by time") {
		m.cutoff = rapid.Int64Range(0, 30).Draw(t, "cutoff")
	}
	if rapid.Bool().Draw(t, "by size") {
		m.limit, m.local = rapid.Int64Range(1, 60).Draw(t, "limit"), rapid.Int64Range(0, 10).Draw(t, "local")
	}
	next := int64(0)
	for i := range rapid.IntRange(0, 10).Draw(t, "segments") {
		start := next
		if rapid.IntRange(0, 3).Draw(t, "follows") == 0 {
			start = rapid.Int64Range(0, end).Draw(t, "start")
		}
		last := start + rapid.Int64Range(0, 12).Draw(t, "length")
		next = last + 1
		state := rapid.SampledFrom([]metadata.State{
			metadata.CopySegmentFinished, metadata.CopySegmentFinished, metadata.CopySegmentFinished,
			metadata.CopySegmentStarted, metadata.DeleteSegmentStarted,
		}).Draw(t, "state")
		epochs := m.l.Range(start, last)
		if rapid.IntRange(0, 3).Draw(t, "diverges") == 0 {
			epochs = segment.Lineage{{Epoch: int32(rapid.IntRange(0, 8).Draw(t, "other epoch")), Start: start}}
			for pos := start; pos < last && rapid.Bool().Draw(t, "one more"); {
				pos += rapid.Int64Range(0, last-pos).Draw(t, "from")
				epochs = append(epochs, segment.EpochStart{Epoch: epochs[len(epochs)-1].Epoch + int32(rapid.IntRange(1, 2).Draw(t, "step")), Start: pos})
			}
		}
		s := rec(byte(i+1), state, start, last, rapid.Int64Range(0, 15).Draw(t, "size"), rapid.Int64Range(-1, 40).Draw(t, "time"), epochs...)
		if rapid.IntRange(0, 15).Draw(t, "foreign") == 0 {
			s.Custom = nil
		}
		if rapid.IntRange(0, 3).Draw(t, "copying") == 0 {
			m.copying[start] = true
		}
		m.segs = append(m.segs, s)
	}
	return m
}

// TestExpireIsKafkasRule holds the Expirer against the model over random
// histories, and then what it did against what it decided.
func TestExpireIsKafkasRule(t *testing.T) {
	rounds := 10 // of a hundred histories each
	if os.Getenv("SEGTIER_SOAK") != "" {
		rounds = 1000
	}
	for range rounds {
		rapid.Check(t, expireAsKafka)
	}
}

func expireAsKafka(t *rapid.T) {
	m := drawModel(t)
	const now = 1000
	req := lifecycle.ExpireRequest{
		Partition: paperPartition, Writer: writer, Lineage: m.l, LogStart: m.logStart, LogEnd: m.logEnd, ReportOnly: true,
		RetentionBytes: m.limit, LocalBytes: func(int64) (int64, error) { return m.local, nil },
	}
	if m.cutoff >= 0 {
		req.RetentionMs = now - m.cutoff
	}
	o := lifecycle.ExpirerOptions{Copying: func(_ segment.Partition, start int64) bool { return m.copying[start] }}
	e, meta := expirer(t, now, o, m.segs...)
	got, err := e.Expire(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	want, logStart := m.expire()
	defer func() {
		if t.Failed() {
			t.Logf("leader epochs %v from %d to %d, cutoff %d, limit %d, local %d", m.l, m.logStart, m.logEnd, m.cutoff, m.limit, m.local)
			for _, s := range m.segs {
				t.Logf("%d-%d %s %v, %d bytes, time %d, copied %v: want %q", s.StartOffset, s.EndOffset, s.State, s.Epochs, s.SizeBytes, s.MaxTimestamp, m.copying[s.StartOffset], want[s.ID])
			}
		}
	}()
	if got.LogStart != logStart || len(got.Expired) != len(want) || got.More {
		t.Errorf("log start %d, %d segments; want %d, %d", got.LogStart, len(got.Expired), logStart, len(want))
	}
	for _, x := range got.Expired {
		if want[x.Segment.ID] != x.Cause {
			t.Errorf("segment %d-%d %s: %q, want %q", x.Segment.StartOffset, x.Segment.EndOffset, x.Segment.State, x.Cause, want[x.Segment.ID])
		}
	}
	if len(meta.events) > 0 {
		t.Errorf("a report did %v", meta.events)
	}
	req.ReportOnly = false
	before := meta.view
	if _, err := e.Expire(context.Background(), req); err != nil {
		t.Fatal(err)
	}
	for s := range before.All() {
		now, _ := meta.view.Get(s.ID)
		if cause := want[s.ID]; cause != "" && now.State != metadata.DeleteSegmentFinished || cause == "" && now.State != s.State {
			t.Errorf("segment %d-%d is in %s", s.StartOffset, s.EndOffset, now.State)
		}
	}
	if len(want) > 0 && !slices.Contains(slices.Collect(maps.Values(want)), lifecycle.BeganDeletion) && meta.view.LogStart() != logStart {
		t.Errorf("the log start is %d, want %d", meta.view.LogStart(), logStart)
	}
}
