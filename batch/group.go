package batch

import (
	"container/heap"
	"container/list"
	"time"
)

// A place is one item, as the scheduler sees it.
type place struct {
	group   *group
	index   int64
	start   func(now time.Time) // runs the item
	cancel  func()              // ends it, once it was started
	refused error               // if not nil, the item ends with it, without an attempt

	began     time.Time
	left      time.Time // when the last attempt did; began if none has
	departed  bool      // an attempt has started
	inAttempt bool
	between   bool // in group.between, if epoch is that of the group
	epoch     int
	waiting   *list.Element // in scheduler.fresh, nil if not there
}

// A group is the scheduler's state of the items of one group.
type group struct {
	name   string
	held   []*place // in the order of the input
	out    map[*place]struct{}
	fresh  int // of out
	calls  int // of out: in an attempt
	inLine int // of fresh: in scheduler.fresh

	worked  bool      // an item was ok, or got a definite answer
	streak  int       // failed attempts in a row
	between int       // items whose attempt has ended, and which will be retried
	epoch   int       // counts items that were ok: attempts before do not count
	since   time.Time // when the first item of them started
	aside   bool
	failing bool
	why     error // the last failure
	failed  int   // probes in a row
	delay   time.Duration
	probeAt time.Time
	probing *place
	over    error // its items end without an attempt, as unfinished

	busyAt           *list.Element // in scheduler.busy
	readyAt, probeIn int           // in the heaps of the scheduler, from 1; 0: not there
	remembered       bool          // in scheduler.idle
}

// A groupHeap is a heap of groups that know where they are in it.
type groupHeap struct {
	groups []*group
	at     func(*group) *int // from 1; 0: not in the heap
	less   func(a, b *group) bool
}

func (h *groupHeap) Len() int           { return len(h.groups) }
func (h *groupHeap) Less(i, j int) bool { return h.less(h.groups[i], h.groups[j]) }

func (h *groupHeap) Swap(i, j int) {
	h.groups[i], h.groups[j] = h.groups[j], h.groups[i]
	*h.at(h.groups[i]), *h.at(h.groups[j]) = i+1, j+1
}

func (h *groupHeap) Push(g any) {
	h.groups = append(h.groups, g.(*group))
	*h.at(g.(*group)) = len(h.groups)
}

func (h *groupHeap) Pop() any {
	last := len(h.groups) - 1
	g := h.groups[last]
	h.groups[last] = nil
	h.groups = h.groups[:last]
	*h.at(g) = 0
	return g
}

// first returns the first group, or nil.
func (h *groupHeap) first() *group {
	if len(h.groups) == 0 {
		return nil
	}
	return h.groups[0]
}

// set puts g into the heap, or takes it out, or moves it.
func (h *groupHeap) set(g *group, in bool) {
	switch at := *h.at(g); {
	case in && at == 0:
		heap.Push(h, g)
	case in:
		heap.Fix(h, at-1)
	case at != 0:
		heap.Remove(h, at-1)
	}
}
