package batch

import (
	"context"
	"slices"
	"sync"
)

// A room bounds what runs at once by what the system has, such as file handles. Who finds nothing
// left waits until another one starts: each that leaves makes room for one. Its zero value is ready
// to use.
type room struct {
	mu      sync.Mutex
	inside  int
	exits   int
	waiting []chan struct{} // closed for one whose turn it is, in order
	crowded bool            // one had to wait
}

func (r *room) enter() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inside++
}

func (r *room) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exits++
	r.inside--
	if len(r.waiting) > 0 {
		close(r.waiting[0])
		r.waiting = r.waiting[1:]
		r.inside++
	}
}

// use calls f, again and again while it finds nothing left and another one starts or has left.
func (r *room) use(ctx context.Context, f func() (nothingLeft bool)) {
	r.enter()
	defer r.leave()
	for {
		exits := r.exited()
		if !f() || !r.wait(ctx, exits) {
			return
		}
	}
}

func (r *room) exited() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.exits
}

// wait returns true when another one has left since there were so many exits, and false if all
// others wait, too, or ctx is over: then nothing will be left.
func (r *room) wait(ctx context.Context, exits int) bool {
	r.mu.Lock()
	if r.exits != exits || r.inside == 1 {
		defer r.mu.Unlock()
		return r.exits != exits
	}
	r.inside--
	r.crowded = true
	turn := make(chan struct{})
	r.waiting = append(r.waiting, turn)
	r.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.waiting, turn); i >= 0 { // else it is inside already
		r.waiting = slices.Delete(r.waiting, i, i+1)
		r.inside++
	}
	return false
}

// says returns a line if one had to wait.
func (r *room) says() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.crowded {
		return nil
	}
	return []string{"fewer than -jobs ran at once, because the system had no room for more: too many open files or processes (see ulimit -n and ulimit -u)"}
}
