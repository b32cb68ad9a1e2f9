package sched

// Seed is the name of the seeded mistake that is switched on, "" for none.
var Seed string

// Rewritten reports whether packages were rewritten. Without that their goroutines would block for good.
var Rewritten bool

// Seeded reports whether the seeded mistake of that name is switched on.
func Seeded(name string) bool { return Seed == name }
