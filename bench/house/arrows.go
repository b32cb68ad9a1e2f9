package main

import (
	"go/types"
	"math/rand/v2"
	"path"
	"slices"
)

// Arrows are what the files of one package use of each other. An arrow leads from a file to
// another one that declares a function, a method, a type, a field, a constant or a variable
// that it names. If files can be put in an order in which all arrows lead down, each can be
// read without those above it. [arrows.up] is how many lead up at least.
type arrows struct {
	to [][]bool // from the file with the first index to that with the second
}

// arrowsOf finds the arrows of a package.
func (t *tree) arrowsOf(l *library) *arrows {
	index := make(map[string]int)
	for i, s := range l.sources {
		index[path.Base(s.name)] = i
	}
	a := &arrows{to: make([][]bool, len(l.sources))}
	for i := range a.to {
		a.to[i] = make([]bool, len(l.sources))
	}
	file := func(p types.Object) (int, bool) {
		i, ok := index[path.Base(t.files.Position(p.Pos()).Filename)]
		return i, ok
	}
	for name, object := range l.info.Uses {
		if _, imported := object.(*types.PkgName); imported || object.Pkg() != l.types {
			continue
		}
		from := index[path.Base(t.files.Position(name.Pos()).Filename)]
		if to, ok := file(object); ok && to != from {
			a.to[from][to] = true
		}
	}
	return a
}

// count returns the number of arrows.
func (a *arrows) count() (n int) {
	for _, row := range a.to {
		for _, is := range row {
			if is {
				n++
			}
		}
	}
	return n
}

// up returns how many arrows lead up in the best order of the files. It is found by moving
// single files until none has a better place, from 200 first orders; an order that is still
// better would be a surprise, but is not excluded.
func (a *arrows) up() int {
	random := rand.New(rand.NewPCG(1, 1)) // the same result each time
	least := a.count()
	for range 200 {
		least = min(least, a.upIn(a.improved(random.Perm(len(a.to)))))
	}
	return least
}

// upIn counts the arrows that lead up in an order.
func (a *arrows) upIn(order []int) (n int) {
	for i, above := range order {
		for _, below := range order[i+1:] {
			if a.to[below][above] {
				n++
			}
		}
	}
	return n
}

// improved moves files to better places while there are any.
func (a *arrows) improved(order []int) []int {
	for again := true; again; {
		again = false
		for i := range order {
			moved := order[i]
			rest := slices.Delete(slices.Clone(order), i, i+1)
			place, best, here := 0, 0, 0 // by how much more leads up than with moved on top
			now := 0
			for j, other := range rest {
				if j == i {
					now = here
				}
				if a.to[moved][other] {
					here++ // other is above it now
				}
				if a.to[other][moved] {
					here--
				}
				if here < best {
					place, best = j+1, here
				}
			}
			if i == len(rest) {
				now = here
			}
			if best < now {
				order, again = slices.Insert(rest, place, moved), true
			}
		}
	}
	return order
}
