package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluiceredis"
)

// sharedGate returns a gate under the limit of all programs with this Redis and name.
func sharedGate(client sluiceredis.Client, name string, rate sluice.Rate) (*sluice.Gate, error) {
	store, err := sluiceredis.New(client, sluiceredis.Config{})
	if err != nil {
		return nil, err
	}
	pacer, err := store.Pacer(name, rate, sluiceredis.PacerConfig{})
	if err != nil {
		return nil, err
	}
	return sluice.New(sluice.Config{
		Name:     name,
		Limits:   []sluice.Limit{{Name: "shared", Limiter: pacer}}, // in place of Rate: rate
		Adaptive: sluice.Adaptive{Peers: store},                    // one 429 pauses all
	})
}

// Two programs have one slot in 50 s.
func TestSharedGate(t *testing.T) {
	m := miniredis.RunT(t)
	for i, want := range []bool{true, false} {
		r := redis.NewClient(&redis.Options{Addr: m.Addr(), ContextTimeoutEnabled: true})
		defer r.Close()
		client, err := sluiceredis.NewGoRedis(r)
		if err != nil {
			t.Fatal(err)
		}
		gate, err := sharedGate(client, "orders", sluice.Every(50*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer gate.Close()
		if _, ok := gate.TryAcquire(); ok != want {
			t.Errorf("program %d: %v, want %v", i+1, ok, want)
		}
	}
}

// The code of fleet.md is that of the test.
func TestFleetPage(t *testing.T) {
	page, err := os.ReadFile("fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("fleet_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "\nfunc sharedGate")
	code, _, ok := strings.Cut(code, "\n}\n")
	code = "```go\nfunc sharedGate" + code + "\n}\n```\n"
	if !ok || !strings.Contains(string(page), code) {
		t.Errorf("fleet.md does not have\n%s", code)
	}
}
