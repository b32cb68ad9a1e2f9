package queue

import "time"

// A TurnedAway is the error of a caller that is to wait in another queue. It has taken nothing.
type TurnedAway struct {
	Came time.Time // when the caller came: in the other queue it goes before those that came later
}

func (*TurnedAway) Error() string { return "turned away" }

// TurnAway ends the waits of the entries that have a label for which which returns true, with a
// *TurnedAway, and lets those behind them move up. A caller whose limits are just being asked
// keeps the units that they admit. which is called with the queue locked.
func (q *Queue) TurnAway(which func(label uint32) bool) {
	q.Lock()
	defer q.Unlock()
	q.Advance(q.Now())
	for w := q.front; w != nil; {
		next := w.next
		if w.rare != nil && w.rare.label != 0 && !isDone(w.done) && which(w.rare.label) {
			q.fail(w, &TurnedAway{Came: q.epoch.Add(w.came)})
		}
		w = next
	}
	q.Advance(q.Now())
	q.Kick()
}
