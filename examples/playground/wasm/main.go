//go:build js && wasm

// Wasm is the engine in a browser. It defines one function for JavaScript:
//
//	sluicePlay(story, values) // "pause", {rate: 10}
//
// which returns a picture as JSON, or {"Error": …}.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall/js"
	"testing"
	"testing/synctest"

	"github.com/sluice-go/sluice/examples/playground/engine"
)

// main becomes a test, because only tests have bubbles, in which time is virtual. The test
// does not end; each picture has bubbles in it.
func main() {
	os.Args = os.Args[:1]
	everything := func(pattern, name string) (bool, error) { return true, nil }
	testing.Main(everything, []testing.InternalTest{{Name: "playground", F: serve}}, nil, nil)
}

// serve computes what JavaScript asks for, in the goroutine of the test: that of a call
// from JavaScript cannot enter a bubble.
func serve(t *testing.T) {
	requests, results := make(chan []js.Value), make(chan []byte)
	js.Global().Set("sluicePlay", js.FuncOf(func(_ js.Value, args []js.Value) any {
		requests <- args
		return string(<-results)
	}))
	for r := range requests {
		results <- play(t, r)
	}
}

func play(t *testing.T, args []js.Value) []byte {
	picture, err := compute(t, args)
	if err != nil {
		out, _ := json.Marshal(map[string]string{"Error": err.Error()})
		return out
	}
	out, err := json.Marshal(picture)
	if err != nil {
		panic(err)
	}
	return out
}

func compute(t *testing.T, args []js.Value) (*engine.Picture, error) {
	if len(args) != 2 || args[0].Type() != js.TypeString || args[1].Type() != js.TypeObject {
		return nil, fmt.Errorf("want a story and its values")
	}
	key := args[0].String()
	for _, story := range engine.Stories() {
		if story.Key != key {
			continue
		}
		values := map[string]float64{}
		for _, slider := range story.Sliders {
			if v := args[1].Get(slider.Key); v.Type() == js.TypeNumber {
				values[slider.Key] = v.Float()
			}
		}
		return story.Play(values, func(f func()) {
			synctest.Test(t, func(*testing.T) { f() })
		})
	}
	return nil, fmt.Errorf("no story %q", key)
}
