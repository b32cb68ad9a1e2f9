package batch

import (
	"container/heap"
	"sort"
	"sync"
)

// slots are the numbers for {%}: take returns the lowest that is free. For commands there
// are never more than -jobs. Items of -url have one while they wait for their host, too,
// and so must not wait for a number: the numbers are not bounded.
type slots struct {
	mu   sync.Mutex
	free lowest
	most int
}

func (s *slots) take() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free.Len() > 0 {
		return heap.Pop(&s.free).(int)
	}
	s.most++
	return s.most
}

func (s *slots) give(slot int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	heap.Push(&s.free, slot)
}

// lowest is a heap of numbers.
type lowest struct{ sort.IntSlice }

func (l *lowest) Push(x any) { l.IntSlice = append(l.IntSlice, x.(int)) }

func (l *lowest) Pop() any {
	last := len(l.IntSlice) - 1
	x := l.IntSlice[last]
	l.IntSlice = l.IntSlice[:last]
	return x
}
