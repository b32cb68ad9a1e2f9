package queue

// # How does a crowd sleep?
//
// The simplest waiter has an entry and a channel of its own. But the runtime keeps
// those who sleep on one channel in a line already, and a send wakes whoever is at
// its front. Callers who want 1, as long as it takes, whom nothing can cancel, want
// the same and never leave: which of them is next need not be known, only how many
// there are. They are a crowd: one entry of the queue, and one channel.
//
//	left   of those who have joined have not been told
//	room   takes a message for each who is told: nil, or why the wait has failed
//
// A number can also lie in the word of a Latch. While nobody but a crowd waits, the
// latch is open: to join is to count in the word and to sleep, to let one go is to
// count and to tell one, and nobody takes the lock. Who takes it finds the crowd in
// the queue, in front of whoever comes then. With an entry for each, a permit took
// 290 ns from one goroutine to the next, and with the lock 250, where a bare channel
// takes 200.
//
// A message may wait in the channel for a goroutine that has been counted and does
// not sleep yet, and who sends, for room there. Two who join at the same time may
// lie down in another order than they were counted; then that is the order in which
// they came.
type crowd struct {
	Waiter // without a channel: nobody attends it alone
	left   int
	room   chan error
}

// Room returns where the crowd sleeps. There must be one: somebody has joined it.
func (q *Queue) Room() chan error { return q.crowd.room }

// joinCrowd puts one more into the crowd, and reports false if there can be none: others
// wait, or it would mix the goroutines of a testing/synctest bubble with those
// outside.
func (q *Queue) joinCrowd() bool {
	switch {
	case q.front == nil && (!q.fine || q.Now() >= 0): // see attended
	case q.front == nil || !q.isCrowd(q.front) || q.front != q.back:
		return false
	}
	if q.crowd == nil {
		q.crowd = &crowd{room: make(chan error, 8)}
		q.crowd.n = 1
	}
	q.crowd.left++
	if q.front == nil {
		q.push(&q.crowd.Waiter)
	}
	return true
}

func (q *Queue) isCrowd(w *Waiter) bool { return q.crowd != nil && w == &q.crowd.Waiter }

// wakeUp takes the crowd of n out of the word of the latch and into the queue.
func (q *Queue) wakeUp(n int) {
	q.crowd.left = n
	q.push(&q.crowd.Waiter)
}

// layDown puts the crowd into the word of the latch, if nobody else waits and the word
// can hold it.
func (q *Queue) layDown() bool {
	if !q.isCrowd(q.front) || q.front != q.back || !q.cfg.Latch.Open(q.crowd.left) {
		return false
	}
	q.crowd.left = 0
	q.remove(&q.crowd.Waiter)
	return true
}

// tellCrowd tells n of the crowd that they were let through or have failed.
func (q *Queue) tellCrowd(n int, err error) {
	if q.crowd.left -= n; q.crowd.left == 0 {
		q.remove(&q.crowd.Waiter)
	}
	for range n {
		q.crowd.room <- err
	}
}
