package memory

// A lent is a semaphore. Its leases do not expire: their holder is this process, and
// after a crash there is no other to lease to.
type lent struct {
	used   int64
	leases map[string]int64 // weights, by id
}

// Lend leases n permits of the semaphore called name to a lease of that id, and
// returns its token, or 0 if they are not free.
func (m *Memory) Lend(name, id string, n, limit int64) (token int64) {
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
	m.token = max(m.token+1, m.Server())
	return m.token
}

// Release takes a lease back. A semaphore that has leased nothing is discarded.
func (m *Memory) Release(name, id string) {
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

// Semaphores returns the number of semaphores that have leases.
func (m *Memory) Semaphores() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.semaphores)
}
