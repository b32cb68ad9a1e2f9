package sched

// Seed is the name of the seeded bug that is switched on, "" for none.
var Seed string

// Rewritten reports whether packages were rewritten. Without that their goroutines would block for good.
var Rewritten bool

// Seeded reports whether the seeded bug of that name is switched on.
func Seeded(name string) bool { return Seed == name }
