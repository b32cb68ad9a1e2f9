package programs_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/built"
)

// A program is a few gates and what is done to them. FuzzAdmission knows the exact instant of each
// call, so it is about features whose instants a model can compute. Programs have all features
// together, those that learn and share included, and their model (see book) knows only
// what must never be: too many in flight, a call in a pause, a lost permit, a call that waits for
// ever. Most defects so far were found there, where two features met.
//
// A program is drawn completely before it runs, so that it can be printed and made smaller.
type program struct {
	seed    uint64
	gates   []gatePlan // the first one may be the parent of others
	deeds   []deed
	away    bool // the store of peers fails now and then
	settles bool // calls are settled
	rates   bool // rates change
}

// A gatePlan is a gate. Limits and semaphores are those of the last gate and of one other.
type gatePlan struct {
	cfg       sluice.Config // without what only a run can make
	child     bool          // of the first gate
	peers     bool
	observed  bool // by somebody who calls back
	semaphore bool
	bucket    bool // limits
	window    bool
	slow      time.Duration // of a limit of tokens that counts, 0 for none,
	fails     bool          // and that fails now and then
}

// A deed is a step of a program.
type deed struct {
	does  deedKind
	gate  int
	d     time.Duration // of a pause, or a sleep
	n     int64         // the limit in flight, or the rate
	burst int64
	other int       // the gate whose snapshot is restored
	call  *callPlan // of calls
	then  time.Duration
}

type deedKind string

const (
	calls       deedKind = "call"
	pauses      deedKind = "PauseUntil"
	resumes     deedKind = "Resume"
	changesRate deedKind = "SetRate"
	changesRoom deedKind = "SetConcurrency"
	restores    deedKind = "Restore"
	looks       deedKind = "Stats"
	closes      deedKind = "Close"
	shutsDown   deedKind = "Shutdown"
	sleepsFor   deedKind = "sleep"
)

// A callPlan is a call and how it ends.
type callPlan struct {
	verb     verb
	n        int64
	deadline time.Duration // of its context, negative for none
	cancel   time.Duration // when it is cancelled, negative for never
	within   time.Duration // of AcquireWithin
	costs    sluice.Costs
	hold     time.Duration
	replies  []reply // of the server, one for each attempt; then it serves
	end      ending  // of Do and Retry

	settles []int64 // for a permit: in this order,
	tokens  int64   // and its tokens, which it has if there are costs
	before  bool    // it is settled before its release, not after
	ended   int     // how often Ended is called
	twice   bool    // it is released twice
}

type verb string

const (
	acquire verb = "Acquire"
	within_ verb = "AcquireWithin"
	try     verb = "TryAcquire"
	do      verb = "Do"
	retry   verb = "Retry"
)

// An ending is how the function of a call ends.
type ending string

const (
	returns ending = "returns"
	panics  ending = "panics"
	exits   ending = "exits"
)

// A reply is what a server says to a call: it serves it, or why not.
type reply struct {
	says string        // served, refused, wait, not found, failed, timeout, or exhausted
	wait time.Duration // with "wait"
}

// drawProgram returns the program of a seed.
func drawProgram(seed uint64) program {
	r := rand.New(rand.NewPCG(seed, 11))
	p := program{seed: seed, settles: oneIn(r, 2), rates: oneIn(r, 3), away: oneIn(r, 4)}
	last := r.IntN(3)
	for i := 0; i <= last; i++ {
		p.gates = append(p.gates, drawGate(r, i, i == last))
	}
	if i := 1 + r.IntN(4); i < len(p.gates) { // one gate at most
		p.gates[i].semaphore = true
	}
	for range 20 + r.IntN(80) {
		p.deeds = append(p.deeds, p.drawDeed(r))
	}
	return p
}

func oneIn(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

func millis(r *rand.Rand, most int) time.Duration { return time.Duration(r.IntN(most)) * ms }

func drawRate(r *rand.Rand) sluice.Rate {
	return sluice.Rate{Count: 5 + r.Int64N(60), Per: time.Second, Burst: r.Int64N(4)}
}

func drawGate(r *rand.Rand, i int, last bool) gatePlan {
	p := gatePlan{cfg: sluice.Config{Name: fmt.Sprint("g", i)}, child: i > 0 && !oneIn(r, 3), observed: oneIn(r, 3)}
	if oneIn(r, 2) {
		p.cfg.Concurrency = 3 + r.Int64N(4)
		p.cfg.ConcurrencyUnit = []sluice.Unit{"", "", sluice.Cost}[r.IntN(3)]
	}
	if oneIn(r, 2) {
		p.cfg.Rate = drawRate(r)
		p.cfg.RateUnit = []sluice.Unit{"", "", sluice.Cost}[r.IntN(3)]
	}
	p.cfg.MaxCatchUp = []time.Duration{0, 0, -1, 5 * ms}[r.IntN(4)]
	p.cfg.TimerResolution = []time.Duration{0, 0, -1, 20 * ms}[r.IntN(4)]
	if oneIn(r, 8) {
		p.cfg.MaxWaiting = 5
	}
	switch a := &p.cfg.Adaptive; r.IntN(6) {
	case 0:
		a.Disabled = true
	case 1:
		a.Search, a.Start = true, sluice.Rate{Count: 20, Per: time.Second}
	case 2:
		p.peers = true
	case 3:
		p.peers, a.Search = true, true
		if oneIn(r, 2) {
			p.cfg.Name = "g0" // in the group of the first
		}
	}
	if last {
		p.bucket, p.window = oneIn(r, 4), oneIn(r, 4)
		if oneIn(r, 3) {
			p.slow, p.fails = []time.Duration{1, 2 * ms}[r.IntN(2)], oneIn(r, 2)
		}
	}
	return p
}

func (p *program) drawDeed(r *rand.Rand) deed {
	d := deed{does: calls, gate: r.IntN(len(p.gates))}
	switch k := r.IntN(40); {
	case k == 0:
		d.does, d.d = pauses, millis(r, 800)
	case k == 1:
		d.does = resumes
	case k == 2 && p.rates && p.gates[d.gate].cfg.Rate.Count > 0:
		rate := drawRate(r)
		d.does, d.n, d.burst = changesRate, rate.Count, rate.Burst
	case k == 3:
		d.does, d.n = changesRoom, []int64{0, 3, 4, 8}[r.IntN(4)]
	case k == 4:
		d.does, d.other = restores, r.IntN(len(p.gates))
	case k == 5:
		d.does, d.n = looks, r.Int64N(1000)
	case k == 6:
		d.does, d.d = sleepsFor, millis(r, 5000)
	case k == 7 && oneIn(r, 6):
		d.does = []deedKind{closes, shutsDown}[r.IntN(2)]
	default:
		d.call = p.drawCall(r)
		if oneIn(r, 2) {
			d.then = millis(r, 60)
		}
	}
	return d
}

func (p *program) drawCall(r *rand.Rand) *callPlan {
	c := &callPlan{n: 1, deadline: -1, cancel: -1, hold: millis(r, 200), end: returns}
	c.verb = []verb{acquire, acquire, acquire, acquire, within_, try, do, do, retry, retry}[r.IntN(10)]
	if oneIn(r, 3) {
		c.n = 1 + r.Int64N(3)
	}
	switch r.IntN(4) {
	case 0:
		c.deadline = millis(r, 3000)
	case 1:
		c.cancel = millis(r, 3000)
	}
	if oneIn(r, 3) {
		c.costs = sluice.Costs{"tokens": 1 + r.Int64N(9), "points": r.Int64N(3)}
	}
	if oneIn(r, 8) {
		c.hold = 0
	}
	c.within = millis(r, 2000)
	for range 5 {
		c.replies = append(c.replies, drawReply(r))
	}
	c.end = []ending{panics, exits, returns, returns, returns, returns, returns, returns, returns, returns, returns, returns}[r.IntN(12)]
	if p.settles && oneIn(r, 2) {
		for range 1 + r.IntN(2) {
			c.settles = append(c.settles, r.Int64N(6))
		}
		c.tokens = r.Int64N(12)
	}
	c.before, c.twice = oneIn(r, 2), oneIn(r, 5)
	c.ended = []int{0, 1, 1, 1, 2}[r.IntN(5)]
	return c
}

func drawReply(r *rand.Rand) reply {
	says := []string{"refused", "refused", "wait", "not found", "failed", "timeout", "exhausted"}
	if k := r.IntN(14); k < len(says) {
		return reply{says[k], millis(r, 400) + ms}
	}
	return reply{says: "served"}
}

func (p program) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, settles %v, rates change %v, peers fail %v\n", p.seed, p.settles, p.rates, p.away)
	for i, g := range p.gates {
		fmt.Fprintf(&b, "  gate %d: %s, concurrency %d %s, rate %v %s, catch up %v, grain %v, most waiting %d, off %v, search %v, peers %v, child %v, observed %v, semaphore %v, bucket %v, window %v, slow limit %v, fails %v\n",
			i, g.cfg.Name, g.cfg.Concurrency, g.cfg.ConcurrencyUnit, g.cfg.Rate, g.cfg.RateUnit, g.cfg.MaxCatchUp, g.cfg.TimerResolution, g.cfg.MaxWaiting,
			g.cfg.Adaptive.Disabled, g.cfg.Adaptive.Search, g.peers, g.child, g.observed, g.semaphore, g.bucket, g.window, g.slow, g.fails)
	}
	for _, d := range p.deeds {
		switch {
		case d.call != nil:
			fmt.Fprintf(&b, "  gate %d: %+v", d.gate, *d.call)
		case d.does == sleepsFor:
			fmt.Fprintf(&b, "  sleep %v", d.d)
		default:
			fmt.Fprintf(&b, "  gate %d: %s, %v, n %d, burst %d, other gate %d", d.gate, d.does, d.d, d.n, d.burst, d.other)
		}
		if d.then > 0 {
			fmt.Fprintf(&b, "; sleep %v", d.then)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// smaller returns p without the deeds that it does not need in order to be wrong.
func (p program) smaller(wrong func(program) bool) program {
	runs := 0
	for size := len(p.deeds) / 2; size > 0; size /= 2 {
		for i := 0; i+size <= len(p.deeds) && runs < 500; {
			q := p
			q.deeds = slices.Delete(slices.Clone(p.deeds), i, i+size)
			if runs++; wrong(q) {
				p = q
			} else {
				i += size
			}
		}
	}
	return p
}

// judge runs p and returns what was wrong.
func (p program) judge(t *testing.T) (wrong []string) {
	synctest.Test(t, func(t *testing.T) { wrong = newRun(t, p).play() })
	return wrong
}

// check fails t, with a small program, if p is wrong.
func (p program) check(t *testing.T) {
	t.Helper()
	wrong := p.judge(t)
	if len(wrong) == 0 {
		return
	}
	small := p.smaller(func(q program) bool { return len(q.judge(t)) > 0 })
	again := small.judge(t)
	t.Errorf("seed %d: %s\nof these %d deeds that is so of %d:\n%v%s",
		p.seed, strings.Join(wrong, "\n\t"), len(p.deeds), len(small.deeds), small, strings.Join(again, "\n\t"))
}

// TestPrograms runs random programs: a few thousand, and 35,000 with SLUICE_FULL. The race
// detector makes them seven times slower, and sees a thousand, or with SLUICE_FULL 2,000.
func TestPrograms(t *testing.T) {
	n := uint64(2000)
	switch {
	case os.Getenv("SLUICE_FULL") != "" && !built.Raced():
		n = 35_000
	case testing.Short():
		n = 200
	case built.Raced() && os.Getenv("SLUICE_FULL") == "":
		n = 1000
	}
	for seed := range n {
		if t.Failed() {
			break
		}
		drawProgram(seed).check(t)
	}
}

// FuzzPrograms runs programs of further seeds.
func FuzzPrograms(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(1_000_000 + seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { drawProgram(seed).check(t) })
}

// # The model
//
// The model of a program is a book of what happened at each gate. It computes nothing in advance: it
// looks through all entries, and says which cannot be.

// forever is later than all that happens.
const forever = time.Duration(math.MaxInt64)

// A book has the entries of one gate.
type book struct {
	cfg sluice.Config

	mu      sync.Mutex
	in      int64        // in flight, in calls or cost
	limits  []limitSince // in flight, oldest first
	pauses  []pausedSpan
	left    []departure
	closed  time.Duration
	arrived []arrival
}

// A limitSince is a limit in flight from an instant on; 0 means none.
type limitSince struct {
	at    time.Duration
	limit int64
}

type pausedSpan struct{ from, to time.Duration }

// An arrival is a call that came and left.
type arrival struct{ came, left time.Duration }

func newBook(cfg sluice.Config) *book {
	return &book{cfg: cfg, closed: forever, limits: []limitSince{{-1, cfg.Concurrency}}}
}

// leave enters a call of n that leaves at an instant, and returns what cannot be and how to enter
// its end. If settled is true, cost in flight may exceed the limit: a call may have been settled
// upwards.
func (b *book) leave(at time.Duration, n int64, settled bool) (wrong []string, end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := unitOf(b.cfg.ConcurrencyUnit, n)
	b.in += m
	if limit := b.limitAt(at); b.in > limit && !(settled && b.cfg.ConcurrencyUnit == sluice.Cost) {
		wrong = append(wrong, fmt.Sprintf("%s: %d in flight of %d", b.cfg.Name, b.in, limit))
	}
	if at > b.closed {
		wrong = append(wrong, fmt.Sprintf("%s: a call left, and the gate was closed at %v", b.cfg.Name, b.closed))
	}
	for _, p := range b.pauses {
		if p.from < at && at < p.to {
			wrong = append(wrong, fmt.Sprintf("%s: a call left in a pause from %v to %v", b.cfg.Name, p.from, p.to))
		}
	}
	b.left = append(b.left, departure{at: at, n: unitOf(b.cfg.RateUnit, n)})
	return wrong, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.in -= m
	}
}

// limitAt returns the limit in flight at an instant: the largest, if it was changed then.
func (b *book) limitAt(at time.Duration) (most int64) {
	for i, l := range b.limits {
		switch {
		case l.at > at || i+1 < len(b.limits) && b.limits[i+1].at < at:
		case l.limit == 0:
			return math.MaxInt64
		default:
			most = max(most, l.limit)
		}
	}
	return most
}

func (b *book) change(at time.Duration, limit int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limits = append(b.limits, limitSince{at, limit})
}

func (b *book) pause(from, to time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pauses = append(b.pauses, pausedSpan{from, to})
}

func (b *book) resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pauses = nil
}

func (b *book) close(at time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = min(b.closed, at)
}

func (b *book) arrive(came, left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.arrived = append(b.arrived, arrival{came, left})
}

// tooFast says where more left than the rate allows, which must not have changed: in any window W
// at most B + (W + MaxCatchUp)/T + n − 1 units.
func (b *book) tooFast() string {
	rate := b.cfg.Rate
	if rate.Count == 0 {
		return ""
	}
	catchUp := b.cfg.MaxCatchUp
	switch {
	case catchUp == 0:
		catchUp = 50 * time.Millisecond
	case catchUp < 0:
		catchUp = 0
	}
	heaviest := int64(1)
	slices.SortStableFunc(b.left, func(x, y departure) int { return cmp.Compare(x.at, y.at) })
	for _, d := range b.left {
		heaviest = max(heaviest, d.n)
	}
	for i := range b.left {
		sum := int64(0)
		for _, d := range b.left[i:] {
			sum += d.n
			window := d.at - b.left[i].at
			most := float64(max(1, rate.Burst)+heaviest-1) + float64(window+catchUp+2)*float64(rate.Count)/float64(rate.Per)
			if float64(sum) > most+1e-9 {
				return fmt.Sprintf("%s: %d units within %v from %v on, at %v", b.cfg.Name, sum, window, b.left[i].at, rate)
			}
		}
	}
	return ""
}

// overtaken says which call left before one that had come earlier.
func (b *book) overtaken() string {
	slices.SortStableFunc(b.arrived, func(x, y arrival) int { return cmp.Compare(x.came, y.came) })
	var last arrival // to leave, of those so far
	for _, a := range b.arrived {
		if a.left < last.left && a.came > last.came {
			return fmt.Sprintf("%s: a call that came at %v left at %v, before one that came at %v and left at %v",
				b.cfg.Name, a.came, a.left, last.came, last.left)
		}
		if a.left > last.left {
			last = a
		}
	}
	return ""
}
