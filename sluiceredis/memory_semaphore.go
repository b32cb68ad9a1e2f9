package sluiceredis

// A lent is a semaphore in memory. Its leases do not end by themselves: who holds
// them is this process, and if it crashes nobody is left to lend to.
type lent struct {
	used   int64
	leases map[string]int64 // weights, by id
}

// lend lends n permits of the semaphore called name to a lease of that id, and
// returns its token, or 0 if they are not free.
func (m *memory) lend(name, id string, n, limit int64) (token int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.semaphores[name]
	if s == nil {
		s = &lent{leases: map[string]int64{}}
	}
	if s.used > limit-n {
		return 0
	}
	s.used += n
	s.leases[id] = n
	m.semaphores[name] = s
	m.token = max(m.token+1, m.clock())
	return m.token
}

// release takes a lease back. A semaphore that has lent nothing is forgotten.
func (m *memory) release(name, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.semaphores[name]
	if s == nil {
		return
	}
	s.used -= s.leases[id]
	delete(s.leases, id)
	if len(s.leases) == 0 {
		delete(m.semaphores, name)
	}
}
