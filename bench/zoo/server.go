package main

import (
	"cmp"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
)

// The groups of servers. Each has means of its own.
const (
	goGroup   = "go"      // the Go middlewares that run in a bubble: the 23 of the first report
	moreGroup = "more"    // the same in further configurations
	short     = "short"   // 300 items at 50/s: how the start is
	words     = "words"   // ways to say no, as handlers that say what the real ones say
	guards    = "guards"  // servers whose errors are not refusals
	daemons   = "daemons" // programs of Debian, in real time
	npm       = "npm"     // packages for Node.js, in real time
	later     = "later"   // limiters and load shedders that were tried later
	keptGroup = "kept"    // more limiters, kept for a test of what was learned from the others
	clock     = "clock"   // Go servers that need a real clock or a network
)

var groups = []string{goGroup, moreGroup, short, words, guards, later, keptGroup, daemons, npm, clock}

// A server is a limiter in front of a handler. A file that calls add in an init function
// adds one; README.md has an example.
type server struct {
	name    string
	group   string
	limiter string // whose it is, and what of it
	says    string // how it says no
	limit   limit  // what it grants

	// handler returns the server. It calls o.work for each call that it grants, which takes
	// as long as a call takes. It may keep time with package time only, to run in a bubble.
	handler func(o *origin) http.Handler

	// start, if set, starts a program or anything else that needs a real clock, instead of
	// a handler. It returns the address to call.
	start func(r *real) (url string, err error)
	needs []need // what must be installed for that

	// What follows may be zero.

	service  float64                             // mean seconds of a call; 0: 5 to 30 ms
	times    func(mean float64, d *dice) float64 // draws the seconds of a call; nil: mean ± 70 %
	items    int                                 // how many items, whatever -for says
	request  request                             // GET /, if zero
	refuses  func(status int, body []byte) bool  // whether an answer is no success; nil: all but status 200
	bursts   bool                                // a client that is told the rate is told the burst, too
	once     bool                                // its requests must not be sent again after a 503
	declared bool                                // the user has declared its requests idempotent
}

// A request is what a client sends.
type request struct {
	method, path, contentType string
	body                      func(item int) string
}

const usual = .0175 // seconds of a call: 5 to 30 ms

// mean returns the mean seconds of a call.
func (s *server) mean() float64 { return cmp.Or(s.service, usual) }

// refused reports whether an answer is no success.
func (s *server) refused(status int, body []byte) bool {
	if s.refuses != nil {
		return s.refuses(status, body)
	}
	return status != http.StatusOK
}

// itemsFor returns how many items a run has.
func (s *server) itemsFor(lasts float64) int {
	return cmp.Or(s.items, s.limit.items(lasts))
}

var servers []*server

// add adds a server to the zoo. It panics if one has its name, or if it cannot be run.
func add(s server) {
	switch {
	case find(s.name) != nil:
		panic("zoo: two servers are called " + s.name)
	case !slices.Contains(groups, s.group):
		panic("zoo: " + s.name + ": no group " + s.group)
	case (s.handler == nil) == (s.start == nil):
		panic("zoo: " + s.name + " needs either a handler or a start")
	case s.limit.kind == "":
		panic("zoo: " + s.name + " has no limit")
	}
	servers = append(servers, &s)
}

// find returns the server of that name, or nil.
func find(name string) *server {
	i := slices.IndexFunc(servers, func(s *server) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return servers[i]
}

// choose returns the servers of a comma-separated list of names, groups and patterns of
// path.Match, in the order of the zoo; of an empty list all that run in virtual time, or all
// others.
func choose(list string, real bool) (chosen []*server, err error) {
	in := func(s *server) bool { return (s.start != nil) == real }
	if list != "" {
		named := map[*server]bool{}
		for _, word := range strings.Split(list, ",") {
			n := len(named)
			for _, s := range servers {
				matches, err := path.Match(word, s.name)
				switch {
				case err != nil:
					return nil, fmt.Errorf("%q: %w", word, err)
				case s.name == word && s.start != nil && !real:
					return nil, fmt.Errorf("%s needs a real clock: -real", word)
				case matches || s.group == word:
					named[s] = true
				}
			}
			if len(named) == n && find(word) == nil {
				return nil, fmt.Errorf("no further server or group is called %s, or matches it: -list", word)
			}
		}
		in = func(s *server) bool { return named[s] && (s.start == nil || real) }
	}
	for _, s := range servers {
		if in(s) {
			chosen = append(chosen, s)
		}
	}
	slices.SortStableFunc(chosen, func(a, b *server) int {
		return cmp.Compare(slices.Index(groups, a.group), slices.Index(groups, b.group))
	})
	return chosen, nil
}
