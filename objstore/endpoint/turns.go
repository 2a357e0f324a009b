package endpoint

import (
	"container/list"
	"slices"
)

// turns is a node of the tree of those who wait: its children take turns. Leaves
// are streams, whose waiters are served in the order of asking. A node is there as
// long as somebody below it waits.
//
// It is a deficit round-robin: who has the turn may take a quantum more than
// before, goes on until what it is owed is less than what it wants next, and goes
// to the back. A child that is passed over, because it may not go now, keeps its
// place and its turn.
type turns struct {
	key     turnKey
	depth   int
	parent  *turns
	place   *list.Element // in parent.order
	quantum int64
	owed    int64
	turn    bool // it has had its quantum in this turn

	children map[turnKey]*turns
	order    list.List // of *turns, the one whose turn it is in front
	waiters  []*waiter // of a leaf
}

// turnKey names a child: a line or a stream by its number, a tenant by its name.
type turnKey struct {
	number uint64
	name   string
}

// How deep the nodes of the tree are.
const (
	lineDepth = iota + 1
	tenantDepth
	streamDepth
)

func (t *turns) empty() bool { return t.order.Len() == 0 && len(t.waiters) == 0 }

// child returns the node of a key below t. A new one has its turn after all others.
func (t *turns) child(key turnKey, quantum int64) *turns {
	if c := t.children[key]; c != nil {
		return c
	}
	c := &turns{key: key, depth: t.depth + 1, parent: t, quantum: quantum}
	if t.children == nil {
		t.children = make(map[turnKey]*turns)
	}
	t.children[key] = c
	c.place = t.order.PushBack(c)
	return c
}

// add appends a waiter to a leaf.
func (t *turns) add(w *waiter) { t.waiters = append(t.waiters, w) }

// remove takes a waiter from a leaf, and with the last one the nodes that are then
// empty.
func (t *turns) remove(w *waiter) {
	i := slices.Index(t.waiters, w)
	t.waiters = slices.Delete(t.waiters, i, i+1)
	for n := t; n.parent != nil && n.empty(); n = n.parent {
		n.parent.order.Remove(n.place)
		delete(n.parent.children, n.key)
	}
}

// charge has a leaf and those above it pay for what a waiter takes.
func (t *turns) charge(cost int64) {
	for n := t; n.parent != nil; n = n.parent {
		n.owed -= cost
	}
}

// next returns the waiter whose turn it is, passing over nodes that passed says
// may not go now; nil if all are passed over.
func (t *turns) next(passed func(*turns) bool) *waiter {
	if len(t.waiters) > 0 {
		return t.waiters[0]
	}
	for e := t.order.Front(); e != nil; {
		c := e.Value.(*turns)
		following := e.Next()
		var w *waiter
		if !passed(c) {
			w = c.next(passed)
		}
		if w == nil {
			e = following
			continue
		}
		if !c.turn {
			c.turn = true
			c.owed += c.quantum
		}
		if c.owed >= w.n+requestCost {
			return w
		}
		// It comes again behind the others, in this very loop if they may not go.
		c.turn = false
		t.order.MoveToBack(e)
		if following != nil {
			e = following
		}
	}
	return nil
}
