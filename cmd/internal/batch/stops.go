package batch

import (
	"sync"
	"time"
)

// stops knows when the program was stopped, as by ^Z, and stops the commands that run with it.
// A limit of time does not include that time. Its zero value is ready to use.
type stops struct {
	mu     sync.Mutex
	since  time.Time // when it was stopped, zero while it runs
	total  time.Duration
	groups map[int]func() // of the processes of commands that run, and whom to tell that one asks for input
}

// begin and end are called before the program stops and after it continues.
func (s *stops) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Now()
	for group := range s.groups {
		stopGroup(group)
	}
}

func (s *stops) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total += time.Since(s.since)
	s.since = time.Time{}
	for group := range s.groups {
		continueGroup(group)
	}
}

// add adds the group of a command that has started, until remove is called. asks is called if it
// asks for input on the terminal.
func (s *stops) add(group int, asks func()) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups == nil {
		s.groups = make(map[int]func())
	}
	s.groups[group] = asks
	if !s.since.IsZero() {
		stopGroup(group)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.groups, group)
	}
}

// lookEvery is how often commands are looked at.
const lookEvery = 500 * time.Millisecond

// look tells those whose command asks for input on the terminal.
func (s *stops) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for group, asks := range s.groups {
		if asksTerminal(group) {
			asks()
		}
	}
}

// stopped returns for how long the program has been stopped.
func (s *stops) stopped() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return s.total
	}
	return s.total + time.Since(s.since)
}

// after calls f when the program has run for d, unless cancel is called before.
func (s *stops) after(d time.Duration, f func()) (cancel func()) {
	var mu sync.Mutex
	cancelled := false
	counted := s.stopped()
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(d, func() {
		mu.Lock()
		defer mu.Unlock()
		stopped := s.stopped()
		switch more := stopped - counted; {
		case cancelled:
		case more > 0:
			counted = stopped
			timer.Reset(more)
		default:
			f()
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		cancelled = true
		timer.Stop()
	}
}
