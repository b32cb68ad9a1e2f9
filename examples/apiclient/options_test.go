package main

import (
	"errors"
	"flag"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
)

func TestParseOptions(t *testing.T) {
	defaults := options{
		n: 1000, rate: sluice.Rate{Count: 100, Per: time.Second},
		concurrency: 10, workers: 64, naive: true, out: "items.jsonl", headers: "ietf", instances: 1,
	}
	tests := []struct {
		args string
		want func(*options)
	}{
		{"", func(*options) {}},
		{"-n 7 -concurrency 2 -workers 3 -out x -json", func(o *options) {
			o.n, o.concurrency, o.workers, o.out, o.json = 7, 2, 3, "x", true
		}},
		{"-rate 300 -per 20s", func(o *options) { o.rate = sluice.Rate{Count: 300, Per: 20 * time.Second} }},
		{"-rate 300/20s", func(o *options) { o.rate = sluice.Rate{Count: 300, Per: 20 * time.Second} }},
		{"-per 1m", func(o *options) { o.rate.Per = time.Minute }},
		{"-rate 5/s", func(o *options) { o.rate.Count = 5 }},
		{"-naive=false", func(o *options) { o.naive = false }},
		{"-url http://example.com/{}", func(o *options) { o.url, o.naive = "http://example.com/{}", false }},
		{"-url http://example.com/{} -naive", func(o *options) { o.url = "http://example.com/{}" }},
		{"-out -", func(o *options) { o.out = "-" }},
		{"-out=", func(o *options) { o.out = "" }},
		{"-headers github", func(o *options) { o.headers = "github" }},
		{"-unknown", func(o *options) { o.unknown, o.headers = true, "none" }},
		{"-unknown -headers ietf", func(o *options) { o.unknown = true }},
		{"-headers none", func(o *options) { o.headers = "none" }},
		{"-redis h:1 -name b", func(o *options) { o.redis, o.budget, o.named = "h:1", "b", true }},
		{"-redis h:1 -name b -instances 4", func(o *options) {
			o.redis, o.budget, o.named, o.instances, o.naive = "h:1", "b", true, 4, false
		}},
		{"-share 2/4", func(o *options) { o.share = share{2, 4} }},
		{"-out= -json", func(o *options) { o.out, o.json = "", true }},
	}
	for _, tt := range tests {
		want := defaults
		tt.want(&want)
		got, err := parseOptions(strings.Fields(tt.args))
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", tt.args, got, err, want)
		}
	}
}

func TestParseOptionsRefuses(t *testing.T) {
	tests := []struct {
		args string
		says string
	}{
		{"-n 0", "-n 0"},
		{"-unknown -url http://x/", "-unknown"},
		{"-unknown -redis h:1", "-unknown"},
		{"-n -3", "-n -3"},
		{"-n x", "-n"},
		{"-workers 0", "-workers 0"},
		{"-workers -1", "-workers -1"},
		{"-concurrency 0", "-concurrency 0"},
		{"-concurrency -1", "-concurrency -1"},
		{"-rate 0", "-rate 0"},
		{"-rate -5", "-rate -5"},
		{"-rate fast", "fast"},
		{"-rate 1.5", "1.5"},
		{"-rate 300/20s -per 20s", "-per"},
		{"-rate 300/20s -per 1s", "-per"}, // given, even as the default
		{"-rate 0/s", "-rate"},
		{"-rate 300/", "-rate"},
		{"-per 0s", "-per 0s"},
		{"-per -1s", "-per -1s"},
		{"-per soon", "-per"},
		{"-out - -json", "stdout"},
		{"-url example.com/{}", "-url"},
		{"-url ftp://example.com/{}", "-url"},
		{"-url http:///{}", "-url"},
		{"-url http://[::1/{}", "-url"},
		{"-headers gitlab", "-headers gitlab"},
		{"-headers=", "-headers"},
		{"-headers none -url http://example.com/{}", "-headers"},
		{"-instances 0", "-instances 0"},
		{"-instances 4 -redis h:1 -live :0", "-live"},
		{"-instances 4", "needs -redis"},
		{"-instances 4 -redis h:1 -url http://example.com/{}", "start each process yourself"},
		{"-instances 4 -redis h:1 -share 1/2", "-share"},
		{"-instances 4 -redis h:1 -naive", "-naive"},
		{"-instances 4 -redis h:1 -out -", "-out -"},
		{"-instances 4 -redis h:1 -n 3", "only 3 items"},
		{"-redis h", "host:port"},
		{"-redis h:", "host:port"},
		{"-name b", "-redis"},
		{"-share 0/4", "-share 0/4"},
		{"-share 5/4", "-share 5/4"},
		{"-share 2", "-share 2"},
		{"-share a/b", "-share a/b"},
		{"-bogus", "bogus"},
		{"more", "more"},
	}
	for _, tt := range tests {
		_, err := parseOptions(strings.Fields(tt.args))
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q: error %v, want one that says %q", tt.args, err, tt.says)
		}
		if errors.Is(err, flag.ErrHelp) {
			t.Errorf("%q: taken for a call for help", tt.args)
		}
	}
}

func TestIdeal(t *testing.T) {
	tests := []struct {
		n    int
		rate sluice.Rate
		want time.Duration
	}{
		{1000, sluice.Rate{Count: 100, Per: time.Second}, 10 * time.Second},
		{30, sluice.Rate{Count: 300, Per: 20 * time.Second}, 2 * time.Second},
		{math.MaxInt, sluice.Rate{Count: 1, Per: time.Hour}, math.MaxInt64},
	}
	for _, tt := range tests {
		if got := (options{n: tt.n, rate: tt.rate}).ideal(); got != tt.want {
			t.Errorf("%d items at %v: %v, want %v", tt.n, tt.rate, got, tt.want)
		}
	}
}

func TestItemURL(t *testing.T) {
	for address, want := range map[string]string{
		"http://h/{}":        "http://h/12",
		"http://h/{}?too={}": "http://h/12?too=12",
		"http://h/same":      "http://h/same",
	} {
		if got := itemURL(address, 12); got != want {
			t.Errorf("itemURL(%q) = %q, want %q", address, got, want)
		}
	}
}

// Each item is in one share, and shares differ by one item at most.
func TestShares(t *testing.T) {
	for _, n := range []int{1, 4, 7, 100} {
		for of := 1; of <= 5; of++ {
			all := 0
			for number := 1; number <= of; number++ {
				s, has := share{number, of}, 0
				for id := range n {
					if s.has(id) {
						has++
					}
				}
				if has != s.items(n) || has < n/of || has > n/of+1 {
					t.Errorf("%v of %d items: %d, and it says %d", s, n, has, s.items(n))
				}
				all += has
			}
			if all != n {
				t.Errorf("%d shares of %d items have %d", of, n, all)
			}
		}
	}
	if whole := (share{}); !whole.has(3) || whole.items(9) != 9 {
		t.Error("no share is not everything")
	}
}

// A run without a -name shares its limits with no other.
func TestEachRunHasABudgetOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for range 3 {
		o, err := parseOptions([]string{"-redis", "h:1"})
		if err != nil || o.budget == "" || seen[o.budget] {
			t.Errorf("%q, %v", o.budget, err)
		}
		seen[o.budget] = true
	}
}
