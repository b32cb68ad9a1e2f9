package sluice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/schedule"
	"github.com/sluice-go/sluice/limits"
)

// A Rate is how many calls, or how many units of cost, may leave per period.
type Rate = limits.Rate

// Config describes a [Gate]. Every field may be left out: the zero Config is a
// gate that lets everything through and can be paused.
type Config struct {
	// Name says which gate it is, in errors and in Stats.
	Name string

	// Concurrency is the most calls in flight. 0 means no limit.
	Concurrency int64

	// ConcurrencyUnit says what Concurrency counts. Empty means Calls.
	ConcurrencyUnit Unit

	// Rate is how often calls may leave, evenly spaced, and how many may leave
	// together after the gate was idle. The zero Rate means no limit.
	Rate Rate

	// RateUnit says what Rate counts. Empty means Calls.
	RateUnit Unit

	// CatchUp is that of pacer.Config: how much of a delay that Sluice itself
	// causes is made up for. 0 means 1 ms, negative nothing.
	CatchUp time.Duration

	// MaxWaiting is the most callers that may wait; more fail with
	// ErrQueueFull. 0 means no bound.
	MaxWaiting int

	// Quotas are further limits. A call takes from all of them or from none.
	// Those that are asked over a network are asked last, and as many as
	// possible in one step: see Joiner. What others than this gate give back to a
	// meter lets the first caller ask again at once if the meter is a Notifier,
	// as those of leaky and window are; otherwise it asks when the last answer of
	// the meter said so.
	Limits []Limit

	// Permits is a cap on calls in flight that is shared with others. To take
	// from it may need a round trip, so its permits are taken before the call
	// queues in the gate, and held while it waits there.
	Semaphore limits.Semaphore

	// Parent is a gate that the calls must pass, too, such as one for all
	// hosts together. A call is granted by this gate and by the parent (and
	// its parent) at one instant, or consumes nothing from either. The parent
	// cannot have Permits. If it is the gate of a Keyed, make this gate while it
	// is lent: within Keyed.Use or that Keyed's newGate. The Keyed then does not
	// forget it until this gate is closed, forgotten by a Keyed or garbage.
	Parent *Gate

	// Observer, if set, is told what happens in the gate. For a call that need
	// not wait that is about 0.1 µs, for two events, beside what the observer
	// takes.
	Observer Observer

	// RetryBudget is how many tokens the retry budget of Call holds at most.
	// 0 means 100, negative that retries need none. One retry costs 5, after
	// a timeout 10; with less than that there are none. Each 30 s in
	// which no call fails put a twentieth back, so an empty budget is full after
	// 10 min.
	RetryBudget int
}

// A Gate decides when a call may leave: when there is room in flight, its turn
// has come in time, every quota has enough left and nothing holds the gate
// paused. All of that is taken together at one instant, or nothing is: a call
// that waits, is refused or is cancelled takes nothing from any limit.
//
//	gate, err := sluice.New(sluice.Config{
//		Name:        "github",
//		Concurrency: 8,
//		Rate:        sluice.Rate{Count: 5000, Per: time.Hour},
//	})
//	…
//	err = gate.Do(ctx, func(ctx context.Context) error {
//		return fetch(ctx, url)
//	})
//
// Most programs need only [Gate.Do], or [RetryValue] if failures are to be retried.
//
// Calls leave strictly in the order in which they came, whatever they weigh;
// what one waits for, all behind it wait for. Changes of the rate, the
// concurrency and pauses reach everybody who waits at once.
//
// A Gate is safe for use by multiple goroutines, must be made by [New] and
// must not be copied. It starts no goroutine and need not be closed. Made in a
// testing/synctest bubble, it belongs to that bubble.
type Gate struct {
	name    string
	queue   queue.Queue
	quotas  []Limit
	permits limits.Semaphore
	parent  *Gate
	ask     queue.AskFunc // nil unless there are quotas or a parent

	questions []question // to its quotas and those of its parents

	observer Observer // nil if there is none
	watched  bool     // it or a parent has one
	plain    bool     // there is nothing to ask, and nobody to tell

	concurrencyUnit, rateUnit Unit
	maxWaiting                int

	tie      *tie         // to the parent; nil if there is none
	children atomic.Int64 // gates that have it as their parent
	lent     atomic.Int64 // how often Keyeds have it

	life    context.Context // ended by Close
	end     context.CancelFunc
	drained chan struct{} // closed when closed and nothing is in flight

	// Guarded by the queue's lock.
	limit    int64 // 0: none
	asked    Cause // the quota, or ByParent, that holds the head up, or ""
	rate     Rate  // as configured; the schedule's may be slower, see cool
	schedule schedule.Schedule
	why      string // of the pause
	budget   budget
	ramp     *ramp // or nil
	granted  uint64
	hold     holdTime

	lane   schedule.Lane // see slip
	flight flight        // permits out
	cost   atomic.Int64  // of those, if concurrency counts that

	atPermits atomic.Int64 // callers that wait for Config.Semaphore
	impaired  atomic.Bool  // whether successes have anything to mend in the budget
	ramping   atomic.Bool  // whether answers have anything to say to the ramp
	refused   [reasonOther + 1]atomic.Uint64
	retried   atomic.Uint64
	stranded  atomic.Uint64
	waits     waits
}

// New returns the gate that cfg describes. It returns an error if a number is
// negative, the rate is neither zero nor one that [limits.ParseRate] would accept,
// its burst lasts longer than 146 years, a unit is none, a quota lacks its meter, or the parent has Permits.
func New(cfg Config) (*Gate, error) {
	g, err := newGate(cfg)
	if err != nil {
		return nil, fmt.Errorf("sluice: config of gate %q: %w", cfg.Name, err)
	}
	return g, nil
}

func newGate(cfg Config) (*Gate, error) {
	switch {
	case cfg.Concurrency < 0:
		return nil, fmt.Errorf("negative concurrency %d", cfg.Concurrency)
	case cfg.MaxWaiting < 0:
		return nil, fmt.Errorf("negative MaxWaiting %d", cfg.MaxWaiting)
	case cfg.Parent != nil && cfg.Parent.permits != nil:
		return nil, errors.New("a parent cannot have Permits: they would be held by calls that wait")
	}
	if err := cfg.ConcurrencyUnit.check("concurrency"); err != nil {
		return nil, err
	}
	if err := cfg.RateUnit.check("rate"); err != nil {
		return nil, err
	}
	s, err := schedule.New(schedule.Config{Rate: cfg.Rate, CatchUp: cfg.CatchUp})
	if err != nil {
		return nil, err
	}
	g := &Gate{
		name:            cfg.Name,
		permits:         cfg.Semaphore,
		parent:          cfg.Parent,
		observer:        cfg.Observer,
		watched:         cfg.Observer != nil || cfg.Parent != nil && cfg.Parent.watched,
		concurrencyUnit: cmp.Or(cfg.ConcurrencyUnit, Calls),
		rateUnit:        cmp.Or(cfg.RateUnit, Calls),
		maxWaiting:      cfg.MaxWaiting,
		drained:         make(chan struct{}),
		limit:           cfg.Concurrency,
		rate:            cfg.Rate,
		schedule:        *s,
	}
	g.budget = newBudget(cfg.RetryBudget)
	for i, q := range cfg.Limits {
		if err := q.check(); err != nil {
			return nil, fmt.Errorf("quota %d %q: %w", i, q.Name, err)
		}
		q.Unit = cmp.Or(q.Unit, Cost)
		g.quotas = append(g.quotas, q)
	}
	g.questions = questionsOf(g)
	if len(g.quotas) > 0 || g.parent != nil {
		g.ask = newPath(g, nil).asks[0]
	}
	g.plain = g.ask == nil && g.permits == nil && g.observer == nil
	g.lane.Init()
	g.life, g.end = context.WithCancel(context.Background())
	g.tie = newTie(g)
	r := (*rule)(g)
	var waits func(n int64)
	if g.observer != nil {
		waits = func(n int64) { g.tell(Event{Kind: EventQueued, N: n}) }
	}
	g.queue.Init(r, queue.Config{
		MaxWaiting: cfg.MaxWaiting,
		Waits:      waits,
		Refuse:     r.refuse,
		GiveUp:     r.giveUp,
		Blame:      r.blame,
		Weigh:      g.rateUnit.of,
		Fine:       r.fine,
		Latch:      r,
	})
	return g, nil
}

// Acquire blocks until a call of cost n may leave, behind everybody who came
// before, and returns its permit, which must be released when the call is
// done. n = 0 takes nothing and is granted at once.
//
// It returns ctx.Err() if ctx is done, also if that was so before the call. If
// it is known that the call cannot leave before the deadline of ctx it returns
// a [*WaitError], at once or as soon as a change makes it so. It returns
// [ErrTooLarge], [ErrQueueFull] or [ErrClosed] for the reasons given there, and
// the error of a quota or of Config.Semaphore that could not be asked. After an
// error every limit is as it would be without the call. It panics if n < 0.
func (g *Gate) Acquire(ctx context.Context, n int64) (*Permit, error) {
	return g.acquire(ctx, queue.Request{N: n, Max: queue.Forever})
}

// AcquireWithin is Acquire, but waits no longer than longest. As far as it can
// be known that the call cannot leave by then it returns a [*WaitError] at
// once, which says how long it would have to wait at least; otherwise
// [ErrTimeout] when the time is over. longest ≤ 0 does not block.
func (g *Gate) AcquireWithin(ctx context.Context, n int64, longest time.Duration) (*Permit, error) {
	return g.acquire(ctx, queue.Request{N: n, Max: longest})
}

// TryAcquire returns a permit and true if a call of cost n may leave now and
// nobody waits. Otherwise it changes nothing. It never waits for a limit, but
// asks quotas and Config.Semaphore, which may take a round trip. It panics if
// n < 0.
func (g *Gate) TryAcquire(n int64) (*Permit, bool) {
	mustNotBeNegative(n)
	if g.permits != nil || n == 0 {
		p, err := g.AcquireWithin(context.Background(), n, 0)
		return p, err == nil
	}
	ask, told := g.asking()
	now, ok := g.try(n, ask)
	if !ok {
		g.refused[reasonBusy].Add(1)
		told.tell()
		g.tell(Event{Kind: EventRefused, N: n, Reason: reasons[reasonBusy]})
		return nil, false
	}
	p := new(Permit)
	p.fill(g, n, now, nil)
	if g.watched {
		p.granted(told, 0)
	}
	return p, true
}

// try is TryAcquire for a positive n of a gate without Permits.
func (g *Gate) try(n int64, ask queue.AskFunc) (now time.Duration, ok bool) {
	if n == 1 && ask == nil {
		if now, v := g.slip(); v != schedule.Ask {
			return now, v == schedule.Leave
		}
	}
	return g.queue.Try(queue.Request{N: n, Ask: ask})
}

// Do calls f when a call of cost 1 may leave, as soon as Acquire returns, and
// releases the permit when f returns. It returns the error of Acquire or of f.
// Returning nil counts as a success for the retry budget, and an error marked with
// [Permanent] as a definite answer: see [RetryValue].
// If the error is marked with [RetryAfter] or [RetryAt] the gate is paused, as if by
// PauseUntil, before any other call leaves. If f panics the permit is released
// and the panic propagates.
func (g *Gate) Do(ctx context.Context, f func(ctx context.Context) error) error {
	if g.plain && ctx.Err() == nil {
		if now, v := g.slip(); v == schedule.Leave {
			defer g.leave(now)
			return g.ended(f(ctx), now, nil)
		}
	}
	var p Permit // nobody else gets to see it
	if err := p.acquire(ctx, g, &queue.Request{N: 1, Max: queue.Forever}); err != nil {
		return err
	}
	defer p.end()
	if p.lease != nil {
		var stop func()
		ctx, stop = p.watch(ctx)
		defer stop()
	}
	return g.ended(f(ctx), p.since, &p)
}

// ended applies err, the result of a call of Do, to the gate and returns it. since is
// when the call left and p its permit, nil if it has none.
func (g *Gate) ended(err error, since time.Duration, p *Permit) error {
	if err == nil {
		g.succeeded(true)
		return nil
	}
	permanent, throttled := marks(err)
	g.honor(err, throttled, since, p)
	answered := definite(err, permanent, throttled)
	p.answer(answered) // before the release, which takes what is not answered yet for a success
	switch {
	case answered:
		g.answered()
	case !errors.Is(err, context.Canceled):
		g.failed()
	}
	return err
}

func (g *Gate) acquire(ctx context.Context, r queue.Request) (*Permit, error) {
	p := new(Permit)
	if err := p.acquire(ctx, g, &r); err != nil {
		return nil, err
	}
	return p, nil
}

// acquire makes p the permit for a call of r, when that may leave. It and those it
// calls get r as a pointer: to copy it each time took a tenth of a call that need not
// wait.
func (p *Permit) acquire(ctx context.Context, g *Gate, r *queue.Request) error {
	mustNotBeNegative(r.N)
	switch {
	case r.N == 0:
		return g.nothing(ctx)
	case g.permits != nil:
		return p.acquireLent(ctx, g, r)
	}
	return p.enter(ctx, g, r, nil, 0)
}

// acquireLent is acquire for a gate with Config.Semaphore.
func (p *Permit) acquireLent(ctx context.Context, g *Gate, r *queue.Request) error {
	r.Max = max(0, r.Max)
	lease, asked, err := g.borrow(ctx, r)
	if err != nil {
		return g.refuse(r.N, err)
	}
	defer func() {
		if p.gate == nil { // refused, or a quota panicked
			lease.Release()
		}
	}()
	if r.Max != queue.Forever {
		r.Max = max(0, r.Max-asked)
	}
	return p.enter(ctx, g, r, lease, asked)
}

// enter waits in the queue of g. The call has waited for asked already.
func (p *Permit) enter(ctx context.Context, g *Gate, r *queue.Request, lease limits.Lease, asked time.Duration) error {
	var told *news
	r.Ask, told = g.asking()
	if r.N == 1 && r.Ask == nil && ctx.Err() == nil {
		if now, v := g.slip(); v == schedule.Leave {
			g.waited(asked)
			p.fill(g, 1, now, lease)
			if g.watched {
				p.granted(nil, asked)
			}
			return nil
		}
	}
	now, waited, err := g.queue.Acquire(ctx, *r)
	if err != nil {
		told.tell()
		return g.refuse(r.N, err)
	}
	g.waited(asked + waited)
	p.fill(g, r.N, now, lease)
	if g.watched {
		p.granted(told, asked+waited)
	}
	return nil
}

// borrow takes permits from Config.Semaphore and returns how long that took. It
// ends when the gate is closed.
func (g *Gate) borrow(ctx context.Context, r *queue.Request) (limits.Lease, time.Duration, error) {
	g.queue.Lock()
	err := g.queue.Closed()
	if err == nil && g.maxWaiting > 0 && g.queue.Len()+int(g.atPermits.Load()) >= g.maxWaiting {
		err = ErrQueueFull
	}
	began := g.queue.Now()
	g.queue.Unlock()
	if err != nil {
		return nil, 0, err
	}
	g.atPermits.Add(1)
	defer g.atPermits.Add(-1)
	asking, stop := context.WithCancel(errs.Honest(ctx))
	defer stop()
	defer context.AfterFunc(g.life, stop)()
	lease, err := g.permits.Acquire(asking, g.concurrencyUnit.of(r.N), r.Max)
	if err != nil && g.life.Err() != nil && ctx.Err() == nil {
		err = ErrClosed
	}
	return lease, g.queue.Now() - began, err
}

// nothing is what a call of n = 0 gets.
func (g *Gate) nothing(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return g.refuse(0, err)
	}
	if g.life.Err() != nil {
		return g.refuse(0, ErrClosed)
	}
	return nil
}

// waited counts how long a call had waited that was let through.
func (g *Gate) waited(d time.Duration) {
	if d > 0 {
		g.waits.add(d)
	}
}

// refuse counts the refusal of a call of cost n with err, puts the gate's name
// to it and tells of it.
func (g *Gate) refuse(n int64, err error) error {
	e := g.refusal(n, err)
	g.tell(e)
	return e.Err
}

// refusal is refuse, but for telling the event that it returns.
func (g *Gate) refusal(n int64, err error) Event {
	reason := reasonOf(err)
	g.refused[reason].Add(1)
	return Event{Kind: EventRefused, N: n, Reason: reasons[reason], Err: errs.Named(g.name, err)}
}

// SetRate changes the rate and its burst, also for callers that wait already; the zero
// Rate means no limit. What is owed is re-priced: the next call leaves as many new
// intervals after the last one as that weighed (1 unless the rate counts cost), or now
// if that has passed. What is stored for a burst stays that many calls, at most the
// new burst; a larger burst fills from now on. SetRate returns an error and changes
// nothing if New would return one for rate.
//
// It looks at every caller that waits, and nothing leaves meanwhile: about 10 ns for each
// and 40 ns for each with a deadline or a bound. PauseUntil does, too, and Settle
// where it brings the next slot later, which only a rate that counts cost does.
func (g *Gate) SetRate(rate Rate) error {
	var err error
	g.queue.Change(func(now time.Duration) {
		if err = g.schedule.SetRate(now, rate); err == nil {
			g.rate = rate
			if rate.Count > 0 { // which paces the calls from now on
				g.ramp = nil
			}
		}
	})
	if err != nil {
		return fmt.Errorf("sluice: %w", err)
	}
	return nil
}

// SetConcurrency changes the most calls in flight; 0 means no limit. Calls in
// flight beyond a lower limit finish, and none leave until there is room. It
// returns an error and changes nothing if limit < 0.
func (g *Gate) SetConcurrency(limit int64) error {
	if limit < 0 {
		return fmt.Errorf("sluice: negative concurrency %d", limit)
	}
	g.queue.Change(func(time.Duration) {
		g.limit = limit
		g.queue.Recheck()
	})
	return nil
}

// PauseUntil lets no call leave before t, those that wait already included.
// When the pause is over they leave one interval apart, in order, the first of
// them at t. Without a rate one call leaves at t, and more as calls are answered:
// twice as many with each round trip (slow start). Callers whose deadline makes that
// hopeless fail with a [*WaitError] now. A pause is only ever prolonged: a t
// before the end of the present one changes nothing. why shows in Stats. t is
// converted to monotonic time at the call, so setting the clock later does not
// move the end.
func (g *Gate) PauseUntil(t time.Time, why string) { g.pauseUntil(t, why, queue.Forever) }

// pauseUntil is PauseUntil because of a call that left at since.
func (g *Gate) pauseUntil(t time.Time, why string, since time.Duration) {
	g.queue.Lock()
	until := g.queue.Instant(g.queue.Now(), t)
	longer := until > g.schedule.Paused()
	g.queue.Unlock()
	if !longer { // Change is slow with many waiters, and each of them may bring such a pause
		return
	}
	var left time.Duration
	g.queue.Change(func(now time.Duration) {
		if until > g.schedule.Paused() {
			g.schedule.PauseUntil(until)
			g.why = why
			if left = until - now; left > 0 {
				g.slowStart(now, since, left)
			}
		}
	})
	if left > 0 {
		g.tell(Event{Kind: EventPaused, Wait: left, Why: why})
	}
}

// Resume ends a pause now. The callers that wait leave as after PauseUntil.
func (g *Gate) Resume() {
	paused := false
	g.queue.Adjust(func(now time.Duration) (later bool) {
		paused = g.schedule.Paused() > now
		g.schedule.Resume(now)
		return false
	})
	if paused {
		g.tell(Event{Kind: EventResumed})
	}
}

// Close closes the gate. Everybody who waits or comes later gets [ErrClosed].
// Calls in flight stay valid and release their permits as usual. Closing twice
// is harmless.
func (g *Gate) Close() {
	g.queue.Close(ErrClosed)
	g.end()
	g.tie.end()
	g.queue.Lock()
	defer g.queue.Unlock()
	g.checkDrained()
}

// Shutdown closes the gate and blocks until nothing is in flight any more, or
// until ctx is done: then it returns ctx.Err(), and the gate stays closed.
func (g *Gate) Shutdown(ctx context.Context) error {
	g.Close()
	select {
	case <-g.drained:
		return nil
	default:
	}
	select {
	case <-g.drained:
		return nil
	case <-ctx.Done():
		return errs.Done(ctx)
	}
}

// inFlight returns what is in flight, in the unit of the concurrency limit.
func (g *Gate) inFlight() int64 {
	if g.concurrencyUnit == Cost {
		return g.cost.Load()
	}
	return g.flight.calls()
}

// checkDrained is called with the queue locked when the gate was closed or
// something came back.
func (g *Gate) checkDrained() {
	if g.flight.calls() > 0 || g.queue.Closed() == nil {
		return
	}
	select {
	case <-g.drained:
	default:
		close(g.drained)
	}
}

// rule is a Gate as its queue sees it.
type rule Gate

func (r *rule) refuse(n int64) error {
	if r.limit > 0 && r.concurrencyUnit.of(n) > r.limit {
		return ErrTooLarge
	}
	return nil
}

// room reports whether n may be in flight.
func (r *rule) room(n int64) bool {
	return r.concurrencyUnit.of(n) <= r.mostInFlight()-(*Gate)(r).inFlight()
}

// mostInFlight returns the limit, as large as can be if there is none.
func (r *rule) mostInFlight() int64 {
	if r.limit == 0 {
		return math.MaxInt64
	}
	return r.limit
}

// places returns how many calls may be in flight, as far as a flight counts.
func (r *rule) places() int64 { return min(r.mostInFlight(), inFlight) }

// wait returns how long n would wait at the head of the queue.
func (r *rule) wait(now time.Duration, n int64) queue.Wait {
	if !r.room(n) {
		return queue.Wait{For: queue.Forever}
	}
	wait := queue.Surely(r.schedule.Wait(now, 0))
	wait.For = max(wait.For, r.budget.wait(now), r.ramp.wait(now)) // which answers make shorter
	return wait
}

// Admit implements queue.Rule: the one place where the limits of a gate are
// decided, all of them or none.
func (r *rule) Admit(now, due time.Duration, n int64) time.Duration {
	if !r.enter(n) {
		return queue.Forever
	}
	wait := r.depart(now, due, n)
	if wait > 0 {
		r.exit(n)
	}
	return wait
}

// enter takes the room for n, if there is room. Looking at it first and taking it
// then is not enough: a call on its way past the lock may enter in between, see
// slip.
func (r *rule) enter(n int64) bool {
	if r.concurrencyUnit != Cost {
		return r.flight.add(r.places())
	}
	if !r.room(n) || !r.flight.add(inFlight) {
		return false
	}
	r.cost.Add(n)
	return true
}

// exit undoes enter, with the lock still held: nobody who missed the room
// meanwhile waits for it without asking again under the lock.
func (r *rule) exit(n int64) {
	r.flight.leave()
	if r.concurrencyUnit == Cost {
		r.cost.Add(-n)
	}
}

// depart lets n, which has entered, leave at now and returns 0, or changes nothing
// and returns how long to wait.
func (r *rule) depart(now, due time.Duration, n int64) time.Duration {
	if wait := max(r.budget.wait(now), r.ramp.wait(now)); wait > 0 {
		return max(wait, r.schedule.Wait(now, 0))
	}
	if wait := r.schedule.Admit(now, due, r.rateUnit.of(n)); wait > 0 {
		return wait
	}
	r.budget.leave(now)
	r.ramp.leave(now)
	r.asked = ""
	r.granted++
	return 0
}

// fine implements queue.Config.Fine: a timer may be 1 ms late.
func (r *rule) fine() bool {
	interval := r.schedule.Interval()
	return interval > 0 && interval <= 100*time.Millisecond
}

// blame implements queue.Config.Blame.
func (r *rule) blame(now, need time.Duration, n int64) Cause {
	switch {
	case need > 0:
		return r.slowest(now, need)
	case r.queue.Len() == 0:
		return r.holdsUp(now, n)
	}
	return r.holds(now)
}

// slowest returns what most of a wait of need is for that the schedule adds up to.
func (r *rule) slowest(now, need time.Duration) Cause {
	if paused := max(0, r.schedule.Paused()-now); paused > need-paused {
		return ByPause
	}
	return ByRate
}

// holds returns the limit that holds the head of the queue up, or ByNothing.
func (r *rule) holds(now time.Duration) Cause {
	by := ByNothing
	r.queue.Each(func(n int64) bool {
		by = r.holdsUp(now, n)
		return false
	})
	return by
}

// holdsUp returns the limit that holds up a call of n at the head of the queue, or
// ByNothing.
func (r *rule) holdsUp(now time.Duration, n int64) Cause {
	switch wait := r.wait(now, n).For; {
	case !r.room(n):
		return ByConcurrency
	case wait > 0 && r.ramp.wait(now) >= wait:
		return BySlowStart
	case wait > 0 && r.budget.wait(now) >= wait:
		return ByRetryBudget
	case wait > 0:
		return r.slowest(now, wait)
	case r.asked != "":
		return r.asked
	}
	return ByNothing
}

// Forecast implements queue.Rule. It is what the rate and a pause add up to. When
// permits come back is not known, and neither is how long the spacing of the retry
// budget lasts: multiplied by the calls ahead it was many times the wait that it
// turned out to be, and refused calls that would have left in time.
func (r *rule) Forecast(now time.Duration, ahead int64) time.Duration {
	return r.schedule.Wait(now, ahead)
}

func mustNotBeNegative(n int64) {
	if n < 0 {
		panic(fmt.Sprintf("sluice: n < 0: %d", n))
	}
}
