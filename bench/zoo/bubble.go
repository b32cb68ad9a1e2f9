package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// gameVariable has the game that this process is to play in a bubble, as JSON.
const gameVariable = "SLUICE_ZOO_GAME"

// playVirtual plays g in virtual time, in a process of its own: some limiters start
// goroutines that never end, for which a bubble would wait for ever, and some change global
// state. The process has one processor, so that little is left to chance.
func playVirtual(g *game) (*result, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(g)
	if err != nil {
		return nil, err
	}
	var out, said bytes.Buffer
	c := exec.Command(self)
	c.Env = append(os.Environ(), gameVariable+"="+string(text), "GOMAXPROCS=1")
	c.Stdout, c.Stderr = &out, io.MultiWriter(&said, os.Stderr)
	if !g.Trace {
		c.Stderr = &said
	}
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, said.Bytes()[:min(said.Len(), 2000)])
	}
	r := new(result)
	return r, json.Unmarshal(out.Bytes(), r)
}

// playHere is what the process of playVirtual does. It ends the program.
func playHere(text string) {
	g := new(game)
	err := json.Unmarshal([]byte(text), g)
	if err == nil && find(g.Server) == nil {
		err = errors.New("no server is called " + g.Server)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "zoo:", err)
		os.Exit(2)
	}
	os.Args = os.Args[:1] // package testing has flags of its own
	everything := func(pattern, name string) (bool, error) { return true, nil }
	testing.Main(everything, []testing.InternalTest{{Name: "zoo", F: func(t *testing.T) {
		synctest.Test(t, func(*testing.T) {
			h := g.handler()
			r, err := g.inBubble(h, func(func()) {})
			if err == nil {
				err = json.NewEncoder(os.Stdout).Encode(r)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "zoo:", err)
				os.Exit(1)
			}
			// The finalizer of ulule/limiter would send on a channel of the bubble.
			runtime.KeepAlive(h)
			os.Exit(0) // here, or the bubble waits for what is still running
		})
	}}}, nil, nil)
}

// handler returns the server of g. A bubble begins at midnight, where the windows of all
// limiters would begin, too: the server and the game begin up to 11 s later.
func (g *game) handler() http.Handler {
	time.Sleep(seconds(1 + 10*newDice(g.Seed, forStart).float()))
	s := find(g.Server)
	return s.handler(newOrigin(s, g.Seed))
}

// inBubble plays g in the bubble of the caller.
func (g *game) inBubble(h http.Handler, cleanup func(func())) (*result, error) {
	begin := time.Now()
	var trace func(string)
	if g.Trace {
		trace = func(why string) {
			fmt.Fprintf(os.Stderr, "%s %s %d %9.3f %s\n", g.Server, g.Clients, g.Seed, time.Since(begin).Seconds(), why)
		}
	}
	return g.play(&place{
		url:     "http://zoo.example",
		base:    &network{h, g.Jitter / 1000, newDice(g.Seed, forNetwork)},
		cleanup: cleanup,
	}, trace)
}
