package crawl

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

const (
	attempts = 3 // how often a page is asked for that fails
	refusals = 4 // and one that is refused: 429 and the like

	// A host is set aside after so many requests in a row that were not answered well.
	// It is tried again after a while, which doubles, and given up after so many of those.
	asideAfter = 10
	asideMost  = 6
	asideFirst = 2 * time.Second
)

// newGates makes the gates: one for each host, whatever the scheme and port; above those of
// hosts with the same IP address one for that; and above them one for all. A request passes
// all of them at the same instant.
//
// The delay of a host is its greatest rate. A host that refuses requests nevertheless gets
// fewer: its gate finds out how many it allows (sluice.Adaptive).
func (c *crawler) newGates() (err error) {
	off := sluice.Adaptive{Disabled: true} // what one host refuses says nothing about the others
	c.all, err = sluice.New(sluice.Config{Name: "all hosts", Concurrency: c.o.jobs, Rate: c.o.rate, Adaptive: off})
	if err != nil {
		return err
	}
	c.addresses, err = sluice.NewKeyed(func(address netip.Addr) (*sluice.Gate, error) {
		inFlight := c.o.jobs
		if c.o.perHost < c.o.jobs/c.o.perAddress {
			inFlight = c.o.perHost * c.o.perAddress
		}
		return sluice.New(sluice.Config{
			Name: "address", Concurrency: inFlight, Rate: rateOf(c.o.delay / time.Duration(c.o.perAddress)), Parent: c.all, Adaptive: off,
		})
	}, sluice.KeyedConfig{Idle: time.Minute})
	if err != nil {
		return err
	}
	c.gates, err = sluice.NewKeyed(func(name string) (gate *sluice.Gate, err error) {
		address, ok := c.addressOf(name)
		if !ok {
			return c.newGate(name, c.all)
		}
		err = c.addresses.Use(address, func(parent *sluice.Gate) (err error) {
			gate, err = c.newGate(name, parent)
			return err
		})
		return gate, err
	}, sluice.KeyedConfig{Idle: time.Minute})
	return err
}

// newGate returns the gate of a host, which is to be given what is owed to it, see owe.
func (c *crawler) newGate(name string, parent *sluice.Gate) (*sluice.Gate, error) {
	return sluice.New(sluice.Config{
		Name:        name,
		Concurrency: c.o.perHost,
		Rate:        rateOf(c.o.delay),
		MaxCatchUp:  -1, // strict: no gap is ever shorter, even if we are late
		Parent:      parent,
		RetryBudget: -1, // a link is tried again behind the others
	})
}

// addressOf returns the IP address that stands for the server of a host: the least one, if
// it has several. It returns false if none is known, as behind a proxy, or none is needed.
func (c *crawler) addressOf(name string) (netip.Addr, bool) {
	if c.o.perAddress == 0 || c.lookup == nil {
		return netip.Addr{}, false
	}
	ctx, cancel := context.WithTimeout(c.begin, c.o.timeout)
	defer cancel()
	all, err := c.lookup(ctx, name)
	if err != nil || len(all) == 0 {
		return netip.Addr{}, false // the request will say why
	}
	return slices.MinFunc(all, netip.Addr.Compare).Unmap(), true
}

// recordOf is what is known of a host. It is called with the lock held.
func (c *crawler) recordOf(key string) hostRecord {
	id := idOf(key)
	if h := c.active[id]; h != nil {
		return h.hostRecord
	}
	var r hostRecord
	_, err := getJSON(c.store.db, hostKeyOf('h', id), &r)
	c.fail(err)
	return r
}

// Why the crawler itself pauses a gate.
const (
	delayBetween = "the delay between requests"
	delayAfter   = "the delay after a request"
)

// owe makes the gate of h as slow as is known that it must be, which may be from an earlier
// run. The same host by http and by https has one gate, and both count, and so do other
// ports that are active. It returns all that is owed. It is called with the lock held.
func (c *crawler) owe(gate *sluice.Gate, h *host) (all hostRecord) {
	all = h.hostRecord
	if s, host, _ := strings.Cut(h.Key, "://"); s == "http" {
		all = all.and(c.recordOf("https://" + host))
	} else {
		all = all.and(c.recordOf("http://" + host))
	}
	for other := range c.sharing(nameOf(h.Key)) {
		all = all.and(other.hostRecord)
	}
	if err := gate.SetRate(rateOf(c.delayOf(all))); err != nil {
		panic(err) // package robots has looked at it
	}
	if len(all.Learned) > 0 && gate.Stats().Learned == nil {
		_ = gate.Restore(all.Learned) // or it learns again
	}
	if all.NotBefore.After(time.Now()) {
		why := delayBetween
		if all.Far {
			why = all.Last
		}
		gate.PauseUntil(all.NotBefore, why)
	}
	return all
}

// sharing returns the active hosts that have the gate of this name. It is called with the lock
// held.
func (c *crawler) sharing(name string) iter.Seq[*host] {
	return func(yield func(*host) bool) {
		for _, h := range c.active {
			if nameOf(h.Key) == name && !yield(h) {
				return
			}
		}
	}
}

// leaveIfFar makes all active hosts with the gate of owed leave, and reports true, if it asks to be
// left alone for longer than -max-wait: they would wait for that in the gate. It is called with
// the lock held.
func (c *crawler) leaveIfFar(owed hostRecord) bool {
	if !owed.Far || time.Until(owed.NotBefore) <= c.o.maxWait {
		return false
	}
	for h := range c.sharing(nameOf(owed.Key)) {
		h.leaving = true
		h.NotBefore = later(h.NotBefore, owed.NotBefore)
		if !h.Far {
			h.Far, h.Last = true, owed.Last
		}
		h.end()
	}
	return true
}

// and returns what is owed because of h or of other.
func (h hostRecord) and(other hostRecord) hostRecord {
	h.CrawlDelay = max(h.CrawlDelay, other.CrawlDelay)
	if other.Aside == 0 && other.RobotsTries == 0 { // or it waits because it does not work
		h.NotBefore = later(h.NotBefore, other.NotBefore)
	}
	if len(h.Learned) == 0 {
		h.Learned = other.Learned
	}
	if other.Far && !h.Far {
		h.Far, h.Last = true, other.Last
	}
	return h
}

// delayOf is the least time from one request to a host to the next.
func (c *crawler) delayOf(h hostRecord) time.Duration { return max(c.o.delay, h.CrawlDelay) }

// rateOf is no rate for no delay.
func rateOf(delay time.Duration) sluice.Rate {
	if delay <= 0 {
		return sluice.Rate{}
	}
	return sluice.Rate{Count: 1, Per: delay}
}

// An outcome is what came of asking for a page.
type outcome int

const (
	notAsked outcome = iota // or canceled: nothing is known
	answered
	askAgain // behind the other links of the host
	failed
)

// ask asks for an address through the gate of h. want says how many bytes of an answer to
// read. It counts in l how often it failed, or was refused. Nothing is asked after begin.
func (c *crawler) ask(begin context.Context, gate *sluice.Gate, h *host, l *link, address string, want func(*http.Response) int64) (answer, outcome) {
	queued := time.Now()
	permit, err := gate.Acquire(begin, 1)
	if err != nil {
		return answer{}, notAsked
	}
	defer permit.Release()
	sent := time.Now()
	c.departed(gate, h, sent)
	a := c.get(address, l, want)
	a.sent, a.waited, a.took = sent, sent.Sub(queued), time.Since(sent)
	if a.err != nil && c.calls.Err() != nil {
		return answer{}, notAsked
	}
	what, verdict := c.judge(gate, h, l, a)
	permit.Done(verdict)
	c.settle(gate, h, a)
	return a, what
}

// departed notes that a request starts now. The gate has spaced out its grants; this
// spaces out the departures, which may be later by as much as it took to wake up.
func (c *crawler) departed(gate *sluice.Gate, h *host, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.Requests++
	c.totals.Requests++
	if delay := c.delayOf(h.hostRecord); delay > 0 {
		h.NotBefore = now.Add(delay)
		gate.PauseUntil(h.NotBefore, delayBetween)
	}
}

// A statusError is an answer that counts as a failure: too many requests, or something
// wrong at the server.
type statusError struct{ status int }

func (e *statusError) Error() string {
	return fmt.Sprintf("%d %s", e.status, http.StatusText(e.status))
}

// judge decides what an answer means for the link, and what the gate is to learn from it.
func (c *crawler) judge(gate *sluice.Gate, h *host, l *link, a answer) (what outcome, verdict error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	said, _ := ratelimit.Parse(a.status, a.header, now)
	switch {
	case a.err == nil && (said.Throttled || a.status == http.StatusServiceUnavailable && said.RetryAt.After(now)):
		return c.refused(h, l, a, said, now)
	case a.failure() != nil:
		return c.failed(h, l, a, now)
	}
	if until, source := said.PauseUntil(); !until.IsZero() { // the last one that it allows until then
		h.NotBefore = later(h.NotBefore, until)
		if until.Sub(now) > c.o.maxWait {
			h.Far, h.Last = true, source
		}
		gate.PauseUntil(until, source)
	}
	h.Granted++
	h.Bad, h.Aside = 0, 0
	if a.status < 400 { // a server is often quick to say no
		h.latency = a.took
	}
	return answered, nil
}

// refused decides about a link that the server refused: too many requests.
//
// The whole host waits, as long as it asks. But a link that is refused again although
// others were granted in between is refused for itself, and that must not slow down the
// others.
func (c *crawler) refused(h *host, l *link, a answer, said ratelimit.Info, now time.Time) (outcome, error) {
	h.Refused++
	c.totals.Refused++
	refusal := &statusError{a.status}
	h.Last = refusal.Error()
	itself := l.Refused > 0 && h.Granted > l.Granted
	if h.Aside == 0 {
		l.Refused++
	}
	l.Granted = h.Granted
	what := askAgain
	if l.Refused >= refusals {
		what = failed
	}
	wait := max(backoff(l.Refused), said.RetryAt.Sub(now))
	l.NotBefore = now.Add(min(wait, c.o.maxWait))
	if itself {
		return what, sluice.Permanent(refusal) // which says nothing about the others
	}
	h.Bad++
	if said.RetryAt.Sub(now) > c.o.maxWait {
		h.Far = true
	}
	h.NotBefore = later(h.NotBefore, said.RetryAt)
	return what, sluice.ThrottledFor(refusal, time.Until(said.RetryAt))
}

// failed decides about a link that was not answered well.
func (c *crawler) failed(h *host, l *link, a answer, now time.Time) (outcome, error) {
	h.Bad++
	err := a.failure()
	h.Last = a.cause()
	if a.hopeless() {
		l.Tries++
		return failed, sluice.Permanent(err)
	}
	if h.Aside == 0 { // then it is the host
		l.Tries++
	}
	if l.Tries >= attempts {
		return failed, err
	}
	l.NotBefore = now.Add(backoff(l.Tries))
	return askAgain, err
}

// backoff is how long a link waits after so many attempts. It is behind the others then, so
// this matters only if there are few.
func backoff(n int) time.Duration { return time.Second / 4 << min(n, 7) }

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// settle makes the gate and the host wait as the answer wants it. A request that failed,
// which is often quick, never makes it wait for less than one that did not.
func (c *crawler) settle(gate *sluice.Gate, h *host, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.o.factor > 0 {
		wait := c.o.maxDelay
		if s := c.o.factor * max(a.took, h.latency).Seconds(); s < wait.Seconds() {
			wait = time.Duration(s * float64(time.Second))
		}
		h.NotBefore = later(h.NotBefore, now.Add(wait))
		gate.PauseUntil(now.Add(wait), delayAfter)
	}
	if h.Bad >= asideAfter {
		h.Aside++
		h.leaving = true
		h.Gone = h.Aside > asideMost
		h.NotBefore = later(h.NotBefore, now.Add(asideFirst<<(h.Aside-1)))
	}
	if h.NotBefore.Sub(now) > longWait {
		h.leaving = true
		c.leaveIfFar(h.hostRecord)
	}
}
