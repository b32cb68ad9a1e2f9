// Package contend makes room between goroutines that change the same word.
//
// # What does the loser of a compare-and-swap do?
//
// The simplest loser loads the word again and tries again, at once. But what
// costs on several processors is not the attempt: it is the cache line with
// the word, which must travel to whoever changes it, for longer than a whole
// decision takes. Two who want it at once send it to and fro, and decide 8
// million times a second where one alone decides 20 million times.
//
// So the loser steps back for a moment, and the winner, who has the line, makes
// some more calls of 40 ns with it. A goroutine cannot sleep for so short a
// time. It reads the clock, as everybody here must before trying again anyway,
// and touches nothing that others change meanwhile: once after the first loss,
// twice after the second, and so on, up to 16 times. On two processors that
// all want one word, a decision takes 50 ns instead of 120.
//
// The winner has the advantage then, and may keep it for a millisecond. So who
// has lost Enough takes a way on which it cannot lose: the lock.
//
// Source: the exponential back-off of T. E. Anderson, The performance of spin
// lock alternatives for shared-memory multiprocessors, 1990.
package contend

import "time"

// Enough losses in a row are that.
const Enough = 8

// most is how many readings of the clock a loser waits for at most.
const most = 16

// Lost steps back for a moment, after as many losses in a row. It returns how
// many there are with this one. It is safe for use by multiple goroutines.
func Lost(losses int) int {
	for range min(1<<losses, most) {
		_ = time.Now()
	}
	return losses + 1
}
