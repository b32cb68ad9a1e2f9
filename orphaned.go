package sluice

import (
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// # What if all that the server is asked for is throttled for its own sake?
//
// Eight workers at eight such calls ask for nothing else, for as long as these wait. The gate cannot
// tell that from a server that throttles everybody, so it learns that nothing is accepted. After
// RetryPolicy.MaxServerWait the calls give up. If those that come next failed because of
// what these have learned, eight bad addresses would cost a batch all others. So after the first call
// that has given up, calls that were not throttled before wait and ask, one at a time, each as soon as
// the wait of the last one has ended:
//
//	0 s      8 calls   throttled, wait, throttled … asked after 1, 2, 4, 8, 24 … s
//	300 s    8 calls   give up
//	301 s    call 9    throttled, gives up, too
//	302 s    call 10   accepted: the gate forgets what the others taught it
//
// A server that throttles everybody throttles these, too. After mostOrphans of them, or as long again,
// all fail, as they would have without.

const (
	mostOrphans = 16
	leastAgain  = time.Second // between two of them, if the server sets no time
)

// orphaned is a rejection period whose calls have given up.
type orphaned struct {
	on    bool
	asked int           // calls that were throttled since
	next  time.Duration // when the next one may ask
}

// asksOthers notes that a call has given up because the server has accepted nothing for long.
func (g *Gate) asksOthers() {
	g.queue.Lock()
	defer g.queue.Unlock()
	l := g.learner
	if l == nil || l.orphaned.on || !l.isBlocked() {
		return
	}
	l.orphaned = orphaned{on: true, next: l.nextOrphan(g.queue.Now())}
	g.wake(g.queue.Now())
}

func (l *learner) nextOrphan(now time.Duration) time.Duration {
	return max(l.askedUntil, sat.Add(now, leastAgain))
}

// mayAskOthers reports whether calls that were not throttled before may ask a server that has accepted
// nothing for long.
func (l *learner) mayAskOthers() bool { return l != nil && l.orphaned.asked < mostOrphans }

// earlier returns the wait of a call that is held up by the rejections for wait.
func (l *learner) earlier(now, wait time.Duration) time.Duration {
	if o := &l.orphaned; o.on && o.asked < mostOrphans && wait != limits.Never {
		return min(wait, max(0, o.next-now))
	}
	return wait
}

// orphanRefused notes that the server has throttled a call.
func (l *learner) orphanRefused(now time.Duration) {
	if o := &l.orphaned; o.on {
		o.asked++
		o.next = l.nextOrphan(now)
	}
}

// orphanAccepted notes that the server accepted a call. If all that is known is from the time in which it did
// not, the memory forgets that, and reports that it did.
func (m *memory) orphanAccepted() bool {
	l := m.learner
	if !l.orphaned.on || l.isBlocked() {
		return false
	}
	l.orphaned = orphaned{}
	if l.more != nil || l.controller.Belief().Blockages > 1 {
		return false
	}
	m.forgetRefusals()
	m.search()
	return true
}
