package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// played plays a game in a bubble of this process.
func played(t *testing.T, server, clients string, lasts float64, seed uint64) (r *result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := &game{Server: server, Clients: clients, Seed: seed, Lasts: lasts, Most: 3, Workers: defaultWorkers, Jitter: defaultJitter}
		var err error
		if r, err = g.inBubble(g.handler(), t.Cleanup); err != nil {
			t.Fatal(err)
		}
	})
	return r
}

// A client that is told the rate gets it, loses nothing, and a seed repeats.
func TestGame_ToldGetsItsRate(t *testing.T) {
	for _, server := range []string{"xtime-20", "throttled-20b5", "failsafe-smooth-20"} {
		for _, client := range []string{"told", "xtime"} {
			r := played(t, server, client, 20, 1)
			if r.Goodput < .9 || r.Score < 90 || r.Done != r.Items || r.Lost > 0 {
				t.Errorf("%s, %s: score %.1f, goodput %.3f, %d of %d done, %d lost", server, client, r.Score, r.Goodput, r.Done, r.Items, r.Lost)
			}
			again := played(t, server, client, 20, 1)
			// Not to the bit: which of two goroutines runs first at one instant is left to chance.
			if math.Abs(r.Score-again.Score) > .5 || r.Items != again.Items {
				t.Errorf("%s, %s: one seed scores %.2f and %.2f", server, client, r.Score, again.Score)
			}
		}
	}
}

// It would not be a test if nobody could fail it.
func TestGame_PlainIsRefusedAndLoses(t *testing.T) {
	r := played(t, "xtime-20", "plain", 5, 1)
	if r.Refused < .5 || r.Lost == 0 || r.Score > 50 || r.Done+r.Lost != r.Items || r.Sent != r.Items || r.Why == "" {
		t.Errorf("a client without retries: %+v", r)
	}
}

// A client must not know where the windows of a server begin because a bubble begins there.
func TestGame_Handler_BeginsAtATimeOfItsOwn(t *testing.T) {
	starts := map[time.Duration]bool{}
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			(&game{Server: "xtime-20", Seed: seed}).handler()
			if took := time.Since(begin); took < time.Second || took > 11*time.Second || starts[took] {
				t.Errorf("seed %d begins after %v, others after %v", seed, took, starts)
			} else {
				starts[took] = true
			}
		})
	}
}

func TestGame_TwoClientsShareALimit(t *testing.T) {
	r := played(t, "xtime-200", "xtime+xtime", 5, 1)
	if len(r.Shares) != 2 || r.Items != 1040 {
		t.Fatalf("%+v", r)
	}
	if sum := r.Shares[0].PerSecond + r.Shares[1].PerSecond; sum < 150 || sum > 240 {
		t.Errorf("together %.0f of 200 per second: %v", sum, r.Shares)
	}
}

func TestGame_OnlyWhatMustNotBeSentTwiceIsNot(t *testing.T) {
	once := played(t, "nginx-503-post", "sluice", 5, 1)
	if once.Sent != once.Items {
		t.Errorf("%d requests for %d items that must not be sent twice", once.Sent, once.Items)
	}
	declared := played(t, "nginx-503-post-declared", "sluice", 5, 1)
	if declared.Sent == declared.Items {
		t.Error("a request that was declared idempotent was not sent again")
	}
}

// The command plays in processes of its own; a bad game ends one with an error.
func TestRun(t *testing.T) {
	file := t.TempDir() + "/zoo.json"
	var out, progress bytes.Buffer
	if err := run([]string{"-servers", "failsafe-smooth-20,down", "-clients", "told", "-for", "5", "-n", "2", "-o", file}, &out, &progress); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| failsafe-smooth-20 | told |", "| down | told |", "| go | told | 1 |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []result
	if err := json.Unmarshal(text, &all); err != nil || len(all) != 4 || all[0].Seed != 1 || all[1].Seed != 2 || strings.Count(string(text), "\n") != 4 {
		t.Errorf("%v, %d runs in\n%s", err, len(all), text)
	}
	var again bytes.Buffer
	if err := run([]string{"-read", file}, &again, &progress); err != nil || again.String() != out.String() {
		t.Errorf("%v: reading it prints\n%s\nand not\n%s", err, again.String(), out.String())
	}
	out.Reset()
	if err := run([]string{"-list"}, &out, &progress); err != nil || strings.Count(out.String(), "\n") != len(servers)+len(clients)+1 {
		t.Errorf("%v: the list is\n%s", err, out.String())
	}
	if _, err := playVirtual(&game{Server: "none", Clients: "told"}); err == nil || !strings.Contains(err.Error(), "no server is called none") {
		t.Errorf("a game at no server: %v", err)
	}
}

func TestParse_Refuses(t *testing.T) {
	for _, c := range []struct {
		args, want string
	}{
		{"x", "unexpected argument"},
		{"-for 0", "-for"},
		{"-for NaN", "-for"},
		{"-most 0.5", "-most"},
		{"-workers 0", "-workers"},
		{"-jitter -1", "-jitter"},
		{"-n 0", "-n"},
		{"-parallel -1", "-parallel"},
		{"-clients none", "no client is called none"},
		{"-servers none", "server or group is called none"},
		{"-servers grpc-20", "-real"},
	} {
		var out bytes.Buffer
		if err := run(strings.Fields(c.args), &out, &out); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.args, err, c.want)
		}
	}
	var out bytes.Buffer
	if err := run([]string{"-h"}, &out, &out); err != flag.ErrHelp || !strings.Contains(out.String(), "-servers") {
		t.Errorf("-h: %v, %s", err, out.String())
	}
}
