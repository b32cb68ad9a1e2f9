package observe

import "sync"

// other is the name that all names beyond the limit of a Table share.
const other = "other"

// defaultNames is the number of names that a Table distinguishes by default.
const defaultNames = 100

// A Table holds a T, such as counters, for each name of a gate, up to a number of names. All other
// names share the T of the name "other", so that a gate for each host does not create an unlimited
// number of time series. Nothing is ever removed.
//
// A Table must be made by [NewTable], is safe for use by multiple goroutines, and must not be
// copied.
type Table[T any] struct {
	make   func(name string) T
	byName sync.Map // of T

	mu    sync.Mutex
	left  int // the number of further names that fit
	other func() T
}

// NewTable returns a Table for up to max names in addition to "other"; 0 means 100. It calls newT
// once for each name, at its first use. It panics if max < 0 or newT is nil.
func NewTable[T any](max int, newT func(name string) T) *Table[T] {
	switch {
	case max < 0:
		panic("observe: NewTable: max < 0")
	case newT == nil:
		panic("observe: NewTable: newT is nil")
	case max == 0:
		max = defaultNames
	}
	return &Table[T]{
		make:  newT,
		left:  max,
		other: sync.OnceValue(func() T { return newT(other) }),
	}
}

// Of returns the T of name.
func (t *Table[T]) Of(name string) T {
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
