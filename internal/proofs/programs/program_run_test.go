package programs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/ext/peers"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

// A programRun is a program that runs, in a bubble.
type programRun struct {
	program
	t     *testing.T
	start time.Time
	nodes []*programGate
	sem   *lentPlaces // of one gate, or nil
	tally *countedTokens

	mu     sync.Mutex
	wrong  []string
	tokens int64 // that calls of the last gate took
	twice  bool  // a call of Retry was refused twice
}

// A programGate is a gate with its book and its parent's.
type programGate struct {
	*book
	gate     *sluice.Gate
	up       *programGate
	unlisted bool       // its semaphore has no order
	counts   bool       // it has the limit that counts
	sets     sync.Mutex // is locked while its concurrency is set
}

var errOnPurpose = errors.New("on purpose")

func newRun(t *testing.T, p program) *programRun {
	x := &programRun{program: p, t: t, start: time.Now()}
	m := newMeeting()
	for i, plan := range p.gates {
		x.nodes = append(x.nodes, x.newGate(i, plan, m))
	}
	return x
}

func (x *programRun) newGate(i int, plan gatePlan, m *meeting) *programGate {
	cfg, n := plan.cfg, &programGate{}
	if plan.child {
		n.up = x.nodes[0]
		cfg.Parent = n.up.gate
	}
	if plan.peers {
		cfg.Adaptive.Peers = unsteady{m, x.away}
	}
	if plan.semaphore {
		x.sem = &lentPlaces{most: 30, r: rand.New(rand.NewPCG(x.seed, 77))}
		cfg.Semaphore, n.unlisted = x.sem, true
	}
	if plan.bucket {
		cfg.Limits = append(cfg.Limits, sluice.Limit{Name: "b", Limiter: limits.Must(leaky.New(limits.Rate{Count: 50, Per: time.Second, Burst: 5}))})
	}
	if plan.window {
		cfg.Limits = append(cfg.Limits, sluice.Limit{Name: "w", Limiter: limits.Must(window.NewSliding(window.Quota{Limit: 30, Window: time.Second}))})
	}
	if plan.slow > 0 {
		x.tally = &countedTokens{r: rand.New(rand.NewPCG(x.seed, 5)), trip: plan.slow, fails: plan.fails}
		n.counts = true
		cfg.Limits = append(cfg.Limits, sluice.Limit{Name: "c", Limiter: x.tally, Unit: "tokens"})
	}
	if plan.observed {
		cfg.Observer = x.observer(i)
	}
	n.gate, n.book = mustGate(x.t, cfg), newBook(cfg)
	return n
}

// observer returns an observer that calls methods of its gate, now and then.
func (x *programRun) observer(i int) func(sluice.Event) {
	r := rand.New(rand.NewPCG(x.seed, uint64(i)))
	var mu sync.Mutex
	return func(sluice.Event) {
		mu.Lock()
		what := r.IntN(12)
		mu.Unlock()
		g := x.nodes[i].gate
		switch what {
		case 0:
			_ = g.Stats().String()
		case 1:
			_ = g.Estimate(5)
		case 2:
			_ = g.Snapshot()
		case 3:
			if n := x.nodes[i]; n.sets.TryLock() { // otherwise it could undo what a deed sets
				_ = g.SetConcurrency(g.Stats().Concurrency)
				n.sets.Unlock()
			}
		case 4:
			if p, ok := x.nodes[0].gate.TryAcquire(0); ok {
				p.Release()
			}
		}
	}
}

func (x *programRun) now() time.Duration { return time.Since(x.start) }

func (x *programRun) errorf(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.wrong) < 6 {
		x.wrong = append(x.wrong, fmt.Sprintf("at %v: ", x.now())+fmt.Sprintf(format, args...))
	}
}

// play does all deeds, waits until all calls have ended, and returns what was wrong.
func (x *programRun) play() []string {
	var all sync.WaitGroup
	for _, d := range x.deeds {
		x.do(d, &all)
		time.Sleep(d.then)
	}
	x.await(&all)
	x.wantNothingLeft()
	x.wantTrue()
	x.wantAlive()
	for i := range x.nodes { // children first
		began := time.Now()
		if err := x.nodes[len(x.nodes)-1-i].gate.Shutdown(bg); err != nil || time.Since(began) > 2*time.Second {
			x.errorf("Shutdown took %v: %v", time.Since(began), err)
		}
	}
	return x.wrong
}

func (x *programRun) do(d deed, all *sync.WaitGroup) {
	n := x.nodes[d.gate]
	switch d.does {
	case pauses:
		n.pause(x.now(), x.now()+d.d)
		n.gate.PauseUntil(time.Now().Add(d.d), "on purpose")
	case resumes:
		n.resume()
		n.gate.Resume()
	case changesRate:
		_ = n.gate.SetRate(sluice.Rate{Count: d.n, Per: time.Second, Burst: d.burst})
	case changesRoom:
		n.change(x.now(), d.n)
		n.sets.Lock()
		_ = n.gate.SetConcurrency(d.n)
		n.sets.Unlock()
	case restores:
		_ = n.gate.Restore(x.nodes[d.other].gate.Snapshot())
	case looks:
		_ = n.gate.Stats().String()
		_ = n.gate.Estimate(d.n)
	case closes:
		n.close(x.now())
		n.gate.Close()
	case shutsDown:
		n.close(x.now())
		all.Go(func() { _ = n.gate.Shutdown(bg) })
		synctest.Wait()
	case sleepsFor:
		time.Sleep(d.d)
	case calls:
		all.Go(func() { x.call(n, d.call) })
	}
}

// await waits until all calls have ended. No reason to wait is longer than a few minutes.
func (x *programRun) await(all *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
		return
	case <-time.After(longestProgram):
	}
	x.errorf("callers still wait")
	for _, n := range x.nodes {
		x.errorf("%v", n.gate)
		n.gate.Close()
	}
	<-done
}

const longestProgram = 4 * time.Hour

func (x *programRun) wantNothingLeft() {
	for _, n := range x.nodes {
		s := n.gate.Stats()
		if s.InFlight != 0 || s.Waiting != 0 || s.Pacing != 0 {
			x.errorf("at the end: %v", s)
		}
		if int(s.Admitted) != len(n.left) {
			x.errorf("%s: %d left by Stats, %d were seen", s.Name, s.Admitted, len(n.left))
		}
		if x.sem != nil && x.sem.lent != 0 {
			x.errorf("%d permits of the semaphore are lost", x.sem.lent)
		}
	}
	if x.tally != nil && x.tally.sum != x.tokens {
		x.errorf("the limit has counted %d tokens, calls took %d", x.tally.sum, x.tokens)
	}
}

func (x *programRun) wantTrue() {
	for _, n := range x.nodes {
		if why := n.tooFast(); why != "" && !x.settles && !x.rates {
			x.errorf("%s", why)
		}
		if why := n.overtaken(); why != "" && !n.unlisted {
			x.errorf("%s", why)
		}
	}
}

// wantAlive checks that a call of each gate that is open can leave soon.
func (x *programRun) wantAlive() {
	for _, n := range x.nodes {
		if n.closed < forever || n.up != nil && n.up.closed < forever {
			continue
		}
		n.gate.Resume()
		began := time.Now()
		p, err := n.gate.AcquireWithin(bg, 1, soon)
		for range 40 { // limits and semaphores fail now and then
			if err != nil && time.Since(began) < soon {
				p, err = n.gate.AcquireWithin(bg, 1, soon)
			}
		}
		if err != nil {
			x.errorf("%v is dead: %v after %v", n.gate, err, time.Since(began))
			continue
		}
		p.Release()
	}
}

// soon is how long a call waits at most when nobody else does.
const soon = 2 * time.Hour

// ---- Calls.

// A programCall is a call that runs.
type programCall struct {
	*callPlan
	x        *programRun
	n        *programGate
	ctx      context.Context
	came     time.Duration
	deadline time.Duration // forever if there is none
}

func (x *programRun) call(n *programGate, plan *callPlan) {
	defer func() {
		if v := recover(); v != nil && v != errOnPurpose {
			panic(v)
		}
	}()
	c := &programCall{callPlan: plan, x: x, n: n, ctx: bg, came: x.now(), deadline: forever}
	if plan.deadline >= 0 {
		ctx, cancel := context.WithTimeout(bg, plan.deadline)
		defer cancel()
		c.ctx, c.deadline = ctx, x.now()+plan.deadline
	}
	if plan.cancel >= 0 {
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		time.AfterFunc(plan.cancel, cancel)
		c.ctx = ctx
	}
	if plan.costs != nil {
		c.ctx = sluice.WithCosts(c.ctx, plan.costs)
	}
	switch plan.verb {
	case acquire, within_:
		c.acquire()
	case try:
		c.try()
	case do:
		c.do()
	case retry:
		c.retry()
	}
}

// leave enters that c leaves, with a cost of n, and returns how to enter its end. counted says
// whether its costs were counted, queued whether it had a place in the queue and a deadline.
func (c *programCall) leave(n int64, counted, queued bool) (end func()) {
	x, at := c.x, c.x.now()
	if queued && at > c.deadline {
		x.errorf("%s: a call left %v after its deadline", c.n.cfg.Name, at-c.deadline)
	}
	if queued {
		c.n.arrive(c.came, at)
	}
	if counted && c.n.counts {
		x.mu.Lock()
		x.tokens += c.costs["tokens"]
		x.mu.Unlock()
	}
	var ends []func()
	for node := c.n; node != nil; node = node.up {
		wrong, end := node.leave(at, n, x.settles)
		for _, why := range wrong {
			x.errorf("%s", why)
		}
		ends = append(ends, end)
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// failed enters that c did not leave.
func (c *programCall) failed(err error) {
	if at := c.x.now(); at > c.deadline {
		c.x.errorf("%s: a call failed %v after its deadline: %v", c.n.cfg.Name, at-c.deadline, err)
	}
}

// answer returns the error of an attempt, and enters the pause that it brings if that is certain.
func (c *programCall) answer(attempt int, certain bool) error {
	r := reply{says: "served"}
	if attempt < len(c.replies) {
		r = c.replies[attempt]
	}
	switch r.says {
	case "refused":
		return sluice.ThrottledFor(errBusy, 0)
	case "wait":
		if certain {
			c.n.pause(c.x.now(), c.x.now()+r.wait)
		}
		return sluice.ThrottledFor(errBusy, r.wait)
	case "not found":
		return sluice.Permanent(errors.New("404"))
	case "failed":
		return errors.New("500")
	case "timeout":
		return context.DeadlineExceeded
	case "exhausted":
		return sluice.ThrottledBy(sluice.ThrottledFor(errBusy, 0), "tokens")
	}
	return nil
}

func (c *programCall) acquire() {
	var p *sluice.Permit
	var err error
	if c.verb == within_ {
		p, err = c.n.gate.AcquireWithin(c.ctx, c.callPlan.n, c.within)
		late := c.x.now() - c.came - c.within
		if c.x.tally != nil {
			late -= c.x.tally.trip // it was on its way to a limit
		}
		if late > 0 {
			c.x.errorf("%s: AcquireWithin(%v) took %v longer: %v", c.n.cfg.Name, c.within, late, err)
		}
	} else {
		p, err = c.n.gate.Acquire(c.ctx, c.callPlan.n)
	}
	if err != nil {
		c.failed(err)
		return
	}
	end := c.leave(c.callPlan.n, true, true)
	time.Sleep(c.hold)
	if c.before {
		c.settle(p)
	}
	if c.ended > 0 {
		p.Done(c.answer(0, true))
	}
	if c.ended > 1 {
		p.Done(nil)
	}
	end()
	p.Release()
	if c.twice {
		p.Release()
		p.Done(sluice.ThrottledFor(errBusy, 0))
	}
	if !c.before {
		time.Sleep(c.hold / 2)
		c.settle(p)
	}
}

// settle settles a permit as planned. Of its tokens only the first word counts.
func (c *programCall) settle(p *sluice.Permit) {
	if c.settles == nil {
		return
	}
	for _, actual := range c.settles {
		p.Settle(actual)
	}
	if c.costs == nil {
		return
	}
	p.SettleCosts(sluice.Costs{"tokens": c.tokens})
	p.SettleCosts(sluice.Costs{"tokens": 1_000_000})
	if c.n.counts {
		c.x.mu.Lock()
		c.x.tokens += c.tokens - c.costs["tokens"]
		c.x.mu.Unlock()
	}
}

func (c *programCall) try() {
	if c.n.unlisted {
		return // it does not ask its semaphore
	}
	if p, ok := c.n.gate.TryAcquire(c.callPlan.n); ok { // which has no context, and so no costs
		end := c.leave(c.callPlan.n, false, false)
		time.Sleep(c.hold)
		end()
		p.Release()
	}
}

func (c *programCall) do() {
	ran := false
	err := c.n.gate.Do(c.ctx, func(context.Context) error {
		ran = true
		end := c.leave(1, true, true)
		time.Sleep(c.hold)
		end()
		switch c.end {
		case panics:
			panic(errOnPurpose)
		case exits:
			runtime.Goexit()
		}
		return c.answer(0, true)
	})
	if !ran {
		c.failed(err)
	}
}

func (c *programCall) retry() {
	attempt, refused := 0, 0
	_ = sluice.Retry(c.ctx, c.n.gate, func(context.Context) error {
		end := c.leave(1, true, false)
		time.Sleep(c.hold)
		end()
		if c.end == panics {
			panic(errOnPurpose)
		}
		// What a call is refused again may concern it alone, and so may the first refusals after
		// that of others.
		x := c.x
		x.mu.Lock()
		certain := refused == 0 && !x.twice
		x.mu.Unlock()
		err := c.answer(attempt, certain)
		attempt++
		if errors.Is(err, errBusy) {
			if refused++; refused > 1 {
				x.mu.Lock()
				x.twice = true
				x.mu.Unlock()
			}
		}
		return err
	}, sluice.RetryPolicy{MaxElapsed: 20 * time.Second})
}

// ---- Limits that count what they grant.

// countedTokens refuses now and then, takes some time, and counts what it has granted.
type countedTokens struct {
	trip  time.Duration
	fails bool

	mu  sync.Mutex
	r   *rand.Rand
	sum int64
}

func (c *countedTokens) Admit(ctx context.Context, n int64) (time.Duration, error) {
	select {
	case <-time.After(c.trip):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch k := c.r.IntN(30); {
	case k == 0 && c.fails:
		return 0, errors.New("the limit cannot decide")
	case k < 10:
		return time.Duration(1+c.r.IntN(50)) * ms, nil
	}
	c.sum += n
	return 0, nil
}

func (c *countedTokens) Adjust(_ context.Context, delta int64, _ time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sum += delta
	return nil
}

// lentPlaces is a limits.Semaphore without order, of which a call takes one place. It fails now and then.
type lentPlaces struct {
	most int

	mu   sync.Mutex
	r    *rand.Rand
	lent int
}

func (s *lentPlaces) Acquire(ctx context.Context, _ int64, longest time.Duration) (limits.Lease, error) {
	s.mu.Lock()
	k := s.r.IntN(20)
	s.mu.Unlock()
	if k == 0 {
		return nil, errors.New("the semaphore is away")
	}
	if k < 5 && longest > 0 {
		select {
		case <-time.After(ms):
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lent == s.most {
		return nil, limits.ErrTimeout
	}
	s.lent++
	return &lentPlace{s: s}, nil
}

type lentPlace struct {
	s    *lentPlaces
	back bool
}

func (l *lentPlace) Release() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.back {
		panic("a place was given back twice")
	}
	l.back = true
	l.s.lent--
}

func (*lentPlace) Lost() <-chan struct{} { return nil }

var errAway = errors.New("away")

// A meeting is a peers.Store of this process.
type meeting struct {
	began  time.Time
	groups peers.Groups
}

func newMeeting() *meeting { return &meeting{began: time.Now()} }

func (m *meeting) Exchange(_ context.Context, group string, r peers.Report) (peers.Reply, error) {
	return m.groups.Exchange(time.Since(m.began).Microseconds(), group, r), nil
}

// unsteady peers fail in a third of all exchanges, if fails is true.
type unsteady struct {
	*meeting
	away bool
}

func (u unsteady) Exchange(ctx context.Context, group string, r peers.Report) (peers.Reply, error) {
	if u.away && time.Now().UnixNano()%3 == 0 {
		return peers.Reply{}, errAway
	}
	return u.meeting.Exchange(ctx, group, r)
}
