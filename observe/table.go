package observe

import "sync"

// Other is the name under which a [Table] puts together what has no place of its
// own.
const Other = "other"

// DefaultMost is how many names metrics tell apart if nothing else is said.
const DefaultMost = 100

// A Table has a T for each name of a gate, such as its counters, but only for so
// many names. All further ones share one T, that of the name [Other]: a gate for
// each host that somebody thinks of must not become a time series for each. Nothing
// is ever forgotten, so a name that was once counted for itself always is.
//
// A Table is safe for use by multiple goroutines, must be made by [NewTable] and
// must not be copied. To find a name that is known takes no lock.
type Table[T any] struct {
	make   func(name string) T
	byName sync.Map // of T

	mu    sync.Mutex
	left  int // names that there is still room for
	other func() T
}

// NewTable returns a Table for most names beside Other; 0 means [DefaultMost]. newT
// makes the T of a name, when it is first asked for, once. It panics if most < 0 or
// newT is nil.
func NewTable[T any](most int, newT func(name string) T) *Table[T] {
	switch {
	case most < 0:
		panic("observe: NewTable: most < 0")
	case newT == nil:
		panic("observe: NewTable: newT is nil")
	case most == 0:
		most = DefaultMost
	}
	return &Table[T]{
		make:  newT,
		left:  most,
		other: sync.OnceValue(func() T { return newT(Other) }),
	}
}

// Of returns the T of name.
func (t *Table[T]) Of(name string) T {
	if v, ok := t.byName.Load(name); ok {
		return v.(T)
	}
	if name == Other {
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
