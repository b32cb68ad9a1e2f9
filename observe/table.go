package observe

import "sync"

// other is the name that all names beyond the limit of ByName share.
const other = "other"

// defaultNames is the number of names that ByName distinguishes by default.
const defaultNames = 100

// ByName returns a function that returns a T, such as counters, for each name of a gate, up to max
// names; 0 means 100. All other names share the T of the name "other", so that time series are
// bounded. newT is called once for each name, at its first use. Nothing is ever removed. The
// function is safe for use by multiple goroutines. ByName panics if max < 0 or newT is nil.
func ByName[T any](max int, newT func(name string) T) (of func(name string) T) {
	switch {
	case max < 0:
		panic("observe: ByName: max < 0")
	case newT == nil:
		panic("observe: ByName: newT is nil")
	case max == 0:
		max = defaultNames
	}
	t := &table[T]{
		make:  newT,
		left:  max,
		other: sync.OnceValue(func() T { return newT(other) }),
	}
	return t.of
}

type table[T any] struct {
	make   func(name string) T
	byName sync.Map // of T

	mu    sync.Mutex
	left  int // the number of further names that fit
	other func() T
}

// of returns the T of name.
func (t *table[T]) of(name string) T {
	if v, ok := t.byName.Load(name); ok {
		return v.(T)
	}
	if name == other {
		return t.other()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if v, ok := t.byName.Load(name); ok {
		return v.(T)
	}
	if t.left == 0 {
		return t.other()
	}
	v := t.make(name)
	t.byName.Store(name, v)
	t.left--
	return v
}
