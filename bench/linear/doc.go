// Package linear has no code, only tests: that what goroutines observe of a
// semaphore and of a pacer while they use it at the same time could also have been
// observed of one that does one thing after the other (Herlihy and Wing,
// Linearizability: A Correctness Condition for Concurrent Objects, 1990).
//
// The tests record each call and its result, with their times, and have porcupine look for
// an order that a sequential model allows and that keeps to those times. A call that may
// wait is two operations of the model, entering the queue and what ends the wait, both
// within the times of the call. That makes first come, first served part of what is
// checked, and of TryAcquire that it never overtakes. One more is possible for a call whose
// context ended: a semaphore may have handed it permits, which others saw in flight, and it
// gave them back. All calls have contexts that can be canceled: others share a channel, in
// which they are in order from when their goroutines sleep, and a model does not see that.
//
//	go test ./bench/linear                 half a second for each kind of history
//	go test ./bench/linear -for 10m        as long as you like
package linear
