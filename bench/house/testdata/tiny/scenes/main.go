// Scenes makes calls of the package tiny.
package main

import (
	"os"
	"strconv"

	"example.com/tiny"
)

func main() {
	calls, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	var g tiny.Gate
	for range 200 { // with calls and without, so they do not count
		g.Do(true, func() {})
	}
	for i := range calls {
		if os.Args[1] == "panics" {
			panic("as asked")
		}
		measured(func() error { g.Do(os.Args[1] == "often" || i == 0, func() {}); return nil })
	}
}

func measured(call func() error) error { return call() }
