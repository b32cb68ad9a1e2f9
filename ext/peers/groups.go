package peers

import (
	"sync"
)

// Groups are the groups of gates in one process, by name. The zero Groups has none. It is safe
// for use by multiple goroutines.
type Groups struct {
	mu  sync.Mutex
	all map[string]*Group
}

// Exchange records a report to a group at now.
func (g *Groups) Exchange(now int64, group string, r Report) Reply {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all[group] == nil {
		for name, old := range g.all { // a new group is rare
			if old.over(now) {
				delete(g.all, name)
			}
		}
		if g.all == nil {
			g.all = map[string]*Group{}
		}
		g.all[group] = new(Group)
	}
	return g.all[group].Exchange(now, r)
}

// Has reports whether there is such a group.
func (g *Groups) Has(group string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all[group] != nil
}
