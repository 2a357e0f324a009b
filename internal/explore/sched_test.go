package explore_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/segment"
)

// turn is what becomes of a call.
type turn uint8

const (
	fine    turn = iota
	failed       // it fails and has no effect
	lost         // it takes effect, and fails
	stale        // a listing is what it was before the last change
	ancient      // a listing is what it was at the beginning
	late         // a delete succeeds, and takes effect later
	lie          // an upload succeeds, and there is nothing
	blind        // metadata is not ready
)

func (o turn) String() string {
	return [...]string{"", " FAILS", " LOSES ITS ANSWER", " IS STALE", " IS ANCIENT", " IS PUT OFF", " IS A LIE", " IS NOT READY"}[o]
}

// actor is a process that may be started: the shipped code, called in run.
type actor struct {
	name string
	run  func(ctx context.Context, p *proc) error
}

// scenario is a world and who acts in it.
type scenario struct {
	name      string
	quick     bool           // every schedule is followed in the short run too
	setup     func(w *world) // before anybody starts
	actors    []actor
	turns     []turn // what may become of calls, besides fine
	faults    int    // of those in one run at most
	crashes   int    // at most
	hours     int    // that may pass, at most
	switches  int    // to another actor although one could go on, at most; 0: as many as there are
	unclaimed bool   // nobody has claimed the prefix yet
	patient   bool   // the deleter's delay outlasts every read that had begun
	copies    int    // how many of the segments somebody has copied, or wanted to
	retains   bool   // somebody applies retention
	defeat    defeat // the guard that is taken out
}

// proc is one life of an actor.
type proc struct {
	w      *world
	i      int // its place among the actors
	life   int // from 0: how often it was started before
	actor  *actor
	cancel context.CancelCauseFunc
	seen   [sha256.Size]byte // digest of its calls and what they returned
	dead   bool              // every further call fails
	ended  bool
	err    error

	mu     sync.Mutex
	parked []*call // guarded by mu

	know     knowledge
	reading  *reading
	copies   []*copying
	hurt     int          // faults that it has met
	unheard  segment.UUID // was FINISHED by it, and the answer was lost
	retiring bool         // it moves the log start before it deletes
}

// call is one that waits for its turn.
type call struct {
	what  string
	turns []turn
	ready func() bool // nil: always
	next  chan turn
}

var errDead = errors.New("the process has ended")

// step waits until the scheduler lets the call go on, and returns what becomes of
// it. others is what may, besides fine, if the scenario has it.
func (p *proc) step(ready func() bool, what string, others ...turn) (turn, error) {
	c := &call{what: what, turns: []turn{fine}, ready: ready, next: make(chan turn)}
	for _, o := range others {
		if slices.Contains(p.w.sc.turns, o) {
			c.turns = append(c.turns, o)
		}
	}
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return fine, errDead
	}
	p.parked = append(p.parked, c)
	p.mu.Unlock()
	o := <-c.next
	if p.isDead() {
		return fine, errDead
	}
	if o != fine {
		p.hurt++
	}
	p.note(what + o.String())
	return o, nil
}

func (p *proc) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// note makes something part of what the process has seen.
func (p *proc) note(what string) {
	h := sha256.New()
	h.Write(p.seen[:])
	h.Write([]byte(what))
	h.Sum(p.seen[:0])
}

// answered notes what a call returned.
func (p *proc) answered(answer string, err error) {
	if err != nil {
		answer = "error " + kindOf(err)
	}
	p.note(answer)
	if p.w.verbose {
		p.w.trace = append(p.w.trace, "      = "+answer)
	}
}

// start begins a life of an actor.
func (w *world) start(i, life int) {
	ctx, cancel := context.WithCancelCause(w.t.Context())
	p := &proc{w: w, i: i, life: life, actor: &w.sc.actors[i], cancel: cancel}
	w.procs[i] = p
	w.running.Go(func() {
		err := p.actor.run(ctx, p)
		p.mu.Lock()
		p.ended, p.err = true, err
		p.mu.Unlock()
	})
}

// kill ends a life: none of its calls has an effect any more.
func (w *world) kill(p *proc) {
	p.mu.Lock()
	p.dead = true
	parked := p.parked
	p.parked = nil
	p.mu.Unlock()
	p.cancel(errDead)
	for _, c := range parked {
		c.next <- fine
	}
}

// option is something that may happen next.
type option struct {
	what   string
	actor  int // -1: nobody's
	fault  bool
	crash  bool
	happen func()
}

// options returns what may happen next. The first one is what happens when nobody
// interferes: who has gone last goes on, and nothing goes wrong.
func (w *world) options() []option {
	var fines, faults, crashes []option
	first := max(w.last, 0)
	for k := range w.procs {
		p := w.procs[(first+k)%len(w.procs)]
		p.mu.Lock()
		parked := slices.Clone(p.parked)
		p.mu.Unlock()
		slices.SortStableFunc(parked, func(a, b *call) int { return strings.Compare(a.what, b.what) })
		for _, c := range parked {
			if c.ready != nil && !c.ready() {
				continue
			}
			for _, o := range c.turns {
				opt := option{what: p.name() + " " + c.what + o.String(), actor: p.i, fault: o != fine, happen: func() {
					p.mu.Lock()
					p.parked = slices.DeleteFunc(p.parked, func(x *call) bool { return x == c })
					p.mu.Unlock()
					c.next <- o
				}}
				if o == fine {
					fines = append(fines, opt)
				} else {
					faults = append(faults, opt)
				}
			}
		}
		if len(parked) > 0 && w.crashes < w.sc.crashes {
			crashes = append(crashes, option{what: p.name() + " CRASHES", actor: p.i, crash: true, happen: func() {
				w.kill(p)
				synctest.Wait()
				w.start(p.i, p.life+1)
			}})
		}
	}
	if w.hours < w.sc.hours && w.calm() {
		fines = append(fines, option{what: "an hour passes", actor: -1, happen: func() {
			w.hours++
			<-time.After(time.Hour)
		}})
	}
	for _, key := range w.limbo {
		fines = append(fines, option{what: "the store deletes " + w.named(key), actor: -1, happen: func() { w.catchUp(key) }})
	}
	if w.sc.switches > 0 && w.switched >= w.sc.switches && len(fines) > 0 && fines[0].actor == w.last {
		fines = slices.DeleteFunc(fines, func(o option) bool { return o.actor != w.last && o.actor >= 0 })
	}
	all := fines
	if w.faults < w.sc.faults {
		all = append(all, faults...)
	}
	return append(all, crashes...)
}

// calm says that nobody waits for an answer that would time out.
func (w *world) calm() bool {
	for _, p := range w.procs {
		for _, c := range p.parked {
			if strings.HasPrefix(c.what, "get ") || strings.HasPrefix(c.what, "stat ") {
				return false
			}
		}
	}
	return true
}

func (p *proc) name() string {
	if p.life == 0 {
		return p.actor.name
	}
	return fmt.Sprintf("%s (life %d)", p.actor.name, p.life+1)
}

// outcome is what came of a run.
type outcome struct {
	steps    int
	reads    int
	finished bool // everybody has ended
	wrong    []string
	schedule []int
	trace    string // if something is wrong
}

// run makes a world and lets it run. choose says, of n options, which one happens
// now; less than 0 ends the run.
func run(t *testing.T, sc *scenario, verbose bool, choose func(w *world, options []option) int) (out outcome) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, 1)
		w := newWorld(t, sc, verbose)
		sc.setup(w)
		<-time.After(time.Hour) // what was set up is not new
		w.procs = make([]*proc, len(sc.actors))
		for i := range sc.actors {
			w.start(i, 0)
		}
		w.last = -1
		for {
			synctest.Wait()
			w.check()
			if len(w.wrong) > 0 {
				break
			}
			options := w.options()
			if len(options) == 0 {
				out.finished = true
				break
			}
			n := choose(w, options)
			if n < 0 || n >= len(options) {
				break
			}
			opt := options[n]
			if opt.actor >= 0 && w.last >= 0 && opt.actor != w.last && slices.ContainsFunc(options, func(o option) bool { return o.actor == w.last }) {
				w.switched++
			}
			if opt.fault {
				w.faults++
			}
			if opt.crash {
				w.crashes++
			}
			if opt.actor >= 0 {
				w.last = opt.actor
			}
			w.schedule = append(w.schedule, n)
			w.trace = append(w.trace, fmt.Sprintf("%4d %s", n, opt.what))
			w.steps++
			opt.happen()
		}
		for _, p := range w.procs {
			if p.ended && !p.dead && w.verbose {
				w.trace = append(w.trace, fmt.Sprintf("     %s ended: %v", p.name(), p.err))
			}
			w.told(p)
			w.kill(p)
		}
		w.running.Wait()
		if out.finished && len(w.wrong) == 0 {
			w.settle()
		}
		out.steps, out.reads = w.steps, w.reads
		out.wrong, out.schedule = w.wrong, w.schedule
		if len(w.wrong) > 0 || verbose {
			out.trace = fmt.Sprintf("SEGTIER_SCHEDULE='%s: %s'\n%s", sc.name, formatSchedule(w.schedule), strings.Join(w.trace, "\n"))
		}
		w.close()
	})
	return out
}

func formatSchedule(s []int) string { return strings.Trim(fmt.Sprint(s), "[]") }

// digest is what tells two moments apart if anything may go on differently.
func (w *world) digest() [32]byte {
	var h strings.Builder
	fmt.Fprintln(&h, w.describe())
	fmt.Fprintln(&h, w.faults, w.crashes, w.hours, w.limbo)
	if w.sc.switches > 0 {
		fmt.Fprintln(&h, w.switched, w.last)
	}
	for _, p := range w.procs {
		fmt.Fprintln(&h, p.ended, p.life, p.hurt, p.seen, p.reading.digest())
		var parked []string
		for _, c := range p.parked {
			parked = append(parked, c.what)
		}
		slices.Sort(parked)
		fmt.Fprintln(&h, parked)
		for _, c := range p.copies {
			fmt.Fprintln(&h, c.base, c.ended)
		}
	}
	return sha256.Sum256([]byte(h.String()))
}

// replay runs a schedule again, and from its end on as if nobody interfered.
func replay(t *testing.T, sc *scenario, verbose bool, schedule []int) outcome {
	t.Helper()
	return run(t, sc, verbose, func(w *world, options []option) int {
		if n := len(w.schedule); n < len(schedule) {
			return schedule[n]
		}
		return 0
	})
}

// figures are what an exploration has seen.
type figures struct {
	runs, states, ends, steps, faults, crashes, reads int
}

func (f *figures) add(g figures) {
	f.runs, f.states, f.ends, f.steps = f.runs+g.runs, f.states+g.states, f.ends+g.ends, f.steps+g.steps
	f.faults, f.crashes, f.reads = f.faults+g.faults, f.crashes+g.crashes, f.reads+g.reads
}

func (f figures) String() string {
	return fmt.Sprintf("%d states, %d runs, %d of them to their end, %d steps, %d faults, %d crashes, %d reads", f.states, f.runs, f.ends, f.steps, f.faults, f.crashes, f.reads)
}

// explore tries every schedule, following each state once. It stops after most
// states; complete says that there were no more.
func explore(t *testing.T, sc *scenario, most int) (f figures, bad *outcome, complete bool) {
	t.Helper()
	type branch struct {
		choices []int
		state   [32]byte // in which the last of them is made
	}
	visited := map[[32]byte]struct{}{}
	stack := []branch{{}}
	for len(stack) > 0 {
		if len(visited) >= most {
			return f, nil, false
		}
		b := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		var taken []int
		f.runs++
		out := run(t, sc, false, func(w *world, options []option) int {
			if n := len(taken); n < len(b.choices) {
				if n == len(b.choices)-1 && w.digest() != b.state {
					t.Errorf("%s: the same choices led to another state: %s", sc.name, formatSchedule(b.choices))
					return -1
				}
				taken = append(taken, b.choices[n])
				f.tally(options[b.choices[n]], n == len(b.choices)-1)
				return b.choices[n]
			}
			state := w.digest()
			if _, ok := visited[state]; ok {
				return -1
			}
			visited[state] = struct{}{}
			for i := len(options) - 1; i > 0; i-- {
				stack = append(stack, branch{append(slices.Clone(taken), i), state})
			}
			taken = append(taken, 0)
			return 0
		})
		f.steps, f.reads = f.steps+out.steps, f.reads+out.reads
		f.states = len(visited)
		if out.finished {
			f.ends++
		}
		if len(out.wrong) > 0 {
			return f, &out, false
		}
		if t.Failed() {
			return f, nil, false
		}
	}
	return f, nil, true
}

func (f *figures) tally(o option, is bool) {
	if is && o.fault {
		f.faults++
	}
	if is && o.crash {
		f.crashes++
	}
}

// walk tries schedules at random, one for each seed.
func walk(t *testing.T, sc *scenario, from, seeds uint64) (f figures, bad *outcome) {
	t.Helper()
	states := map[uint64]struct{}{}
	for seed := from; seed < from+seeds; seed++ {
		r := rand.New(rand.NewPCG(seed, 0))
		f.runs++
		stay := r.IntN(5) // of 5 times in which nobody interferes
		out := run(t, sc, false, func(w *world, options []option) int {
			state := w.digest()
			states[binary.LittleEndian.Uint64(state[:])] = struct{}{}
			n := 0
			if r.IntN(5) >= stay {
				n = r.IntN(len(options))
			}
			// A fault is one of many options at each step: without this all of them
			// would be spent at the beginning.
			if (options[n].fault || options[n].crash) && r.IntN(6) > 0 {
				n = 0
			}
			f.tally(options[n], true)
			return n
		})
		f.steps, f.reads = f.steps+out.steps, f.reads+out.reads
		if out.finished {
			f.ends++
		}
		if len(out.wrong) > 0 {
			out.trace = fmt.Sprintf("seed %d, ", seed) + out.trace
			return f, &out
		}
	}
	f.states = len(states)
	return f, nil
}
