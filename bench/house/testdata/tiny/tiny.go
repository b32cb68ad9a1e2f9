// Package tiny is measured by the tests of house.
package tiny

import "example.com/tiny/inner"

// A Gate counts calls. Its budget and its ramp are limits.
type Gate struct {
	queue  inner.Queue
	budget budget
	ramp   ramp
}

type rule Gate

// Do calls f; seldom is for calls of which most do without.
func (g *Gate) Do(seldom bool, f func()) {
	(*rule)(g).admit()
	if seldom {
		g.seldom()
	}
	done := make(chan int)
	go elsewhere(done)
	<-done
	f()
}

func (r *rule) admit() {
	r.queue.Lock()
	defer r.queue.Unlock()
	r.budget.wait()
	r.ramp.wait()
}

func (g *Gate) seldom() { g.queue.Lock(); g.queue.Unlock() }

// elsewhere runs in another goroutine: it is counted, but it is no part of the order.
func elsewhere(c chan int) { c <- 1 }
