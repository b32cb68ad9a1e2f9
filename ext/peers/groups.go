package peers

import (
	"sync"
)

// Groups are the groups of gates in one process, by name. The zero Groups has none. It is safe
// for use by multiple goroutines.
type Groups struct {
	mu  sync.Mutex
	all map[string]*group
}

// Exchange records a report to the group of that name at now, in microseconds on one clock.
func (g *Groups) Exchange(now int64, name string, r Report) Reply {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all[name] == nil {
		for other, old := range g.all { // a new group is rare
			if old.over(now) {
				delete(g.all, other)
			}
		}
		if g.all == nil {
			g.all = map[string]*group{}
		}
		g.all[name] = new(group)
	}
	return g.all[name].exchange(now, r)
}
