package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A bubbler calls f in a testing/synctest bubble and returns when f has returned and all
// goroutines of the bubble have ended. In a bubble, time passes only while every
// goroutine waits, so libraries with goroutines and timers run in virtual time as they
// are.
type bubbler func(f func())

// asTest calls f in a test, which may have bubbles, and ends the program with the
// status that f returns. Package testing keeps a way to do that for systems that are not
// "go test". The alternative is a command that runs its own test binary, which would
// need the go command and the source when the league runs.
func asTest(f func(bubbler) int) {
	os.Args = os.Args[:1] // the flags are parsed, and package testing has others
	everything := func(pattern, name string) (bool, error) { return true, nil }
	testing.Main(everything, []testing.InternalTest{{
		Name: "league",
		F:    func(t *testing.T) { os.Exit(f(bubblesOf(t))) }, // here, or package testing prints PASS
	}}, nil, nil)
}

// bubblesOf returns the bubbler of a test.
func bubblesOf(t *testing.T) bubbler {
	return func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }
}

// A bubble is the clock of a world in a bubble. Events run as in a loop, in the same
// order, when their time has come. After an event that wakes a goroutine, no other event
// of that instant runs until all goroutines wait again, and the calls that they have sent
// meanwhile leave in the order of their wishes. So a seed repeats, as far as the
// libraries themselves do not depend on chance.
type bubble struct {
	mu      sync.Mutex // guards all of the game
	loop    loop
	begin   time.Time
	timer   *time.Timer
	next    time.Duration // for which the timer is set; 0 while events run
	woke    bool          // a goroutine may run since the last event
	pending []sending
	over    func() bool
	end     context.CancelFunc
}

// A sending is a call that is about to leave.
type sending struct {
	process, wish int
	leave         func()
}

func (b *bubble) now() time.Duration { return time.Since(b.begin) }

// at is called with the lock held, as all that changes the world is.
func (b *bubble) at(t time.Duration, f func()) {
	b.loop.at(t, f)
	b.wakeAt(t)
}

// wakeAt makes sure that run is called at t.
func (b *bubble) wakeAt(t time.Duration) {
	if t < b.next {
		b.next = t
		b.timer.Reset(t - b.now())
	}
}

func (b *bubble) run() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = 0
	for {
		b.settle()
		if b.over() {
			b.end()
			return
		}
		if len(b.loop.heap) == 0 || b.loop.heap[0].at > b.now() {
			break
		}
		e := b.loop.pop()
		b.loop.time = e.at
		e.f()
	}
	b.next = never
	if len(b.loop.heap) > 0 {
		b.wakeAt(b.loop.heap[0].at)
	}
}

// settle lets all goroutines run until they wait, and then their calls start.
func (b *bubble) settle() {
	for b.woke {
		b.woke = false
		b.mu.Unlock()
		synctest.Wait()
		b.mu.Lock()
		slices.SortStableFunc(b.pending, func(x, y sending) int {
			return cmp.Or(cmp.Compare(x.process, y.process), cmp.Compare(x.wish, y.wish))
		})
		for _, s := range b.pending {
			s.leave()
		}
		b.pending = b.pending[:0]
	}
}

// A process is a client whose calls pass a library. Each worker, and each caller of a
// Poisson demand, is a goroutine.
type process struct {
	*client
	number int
	bubble *bubble
	random *rand.Rand // its own, guarded by the lock of the world
	call   caller
	ctx    context.Context // done at the end of the world
	during sync.WaitGroup
}

// A caller makes one call through a library until it succeeds. It calls process.attempt
// for each attempt. If the world ends meanwhile, it returns any error.
type caller func(ctx context.Context, w *wish) error

// attempt sends a call and returns the reply to it. It returns an error only if the
// world ends before.
func (p *process) attempt(ctx context.Context, w *wish) (reply, error) {
	back, b := make(chan reply, 1), p.bubble
	b.mu.Lock()
	b.pending = append(b.pending, sending{p.number, w.number, func() {
		p.log.sent++
		p.upstream.call(w, func(r reply) {
			p.log.reply(b.now(), w, r)
			if r.outcome == granted {
				delete(p.open, w)
				p.granted++
			} else {
				w.tries++
			}
			back <- r
			b.woke = true
		})
	}})
	b.woke = true
	b.wakeAt(b.now())
	b.mu.Unlock()
	select {
	case r := <-back:
		return r, nil
	case <-ctx.Done():
		return plain, ctx.Err()
	}
}

// float64 returns a random number of the process in [0, 1).
func (p *process) float64() float64 {
	p.bubble.mu.Lock()
	defer p.bubble.mu.Unlock()
	return p.random.Float64()
}

// sleep returns an error if the world ends before d is over.
func (p *process) sleep(ctx context.Context, d time.Duration) error {
	over, b := make(chan struct{}), p.bubble
	b.mu.Lock()
	b.at(b.now()+d, func() {
		close(over)
		b.woke = true
	})
	b.mu.Unlock()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// work makes one call after the other while there are any.
func (p *process) work() {
	for w := p.another(); w != nil; w = p.another() {
		if p.serve(w); p.ctx.Err() != nil {
			return
		}
	}
}

// serve makes one call. A library that gives up would fall out of the comparison without
// anybody noticing, so that is a mistake of the league.
func (p *process) serve(w *wish) {
	if err := p.call(p.ctx, w); err != nil && p.ctx.Err() == nil {
		panic(fmt.Sprintf("league: a call was given up: %v", err))
	}
}

// another returns the next wish of a worker, or nil.
func (p *process) another() *wish {
	p.bubble.mu.Lock()
	defer p.bubble.mu.Unlock()
	if p.left == 0 {
		return nil
	}
	if p.left > 0 {
		p.left--
	}
	return p.take()
}

// take makes a wish and returns it.
func (p *process) take() *wish {
	p.add()
	w := p.queue[len(p.queue)-1]
	p.queue = nil
	return w
}

// start begins the demand. It is called with the lock held.
func (p *process) start() {
	d := &p.world.Demand
	if len(d.Poisson) > 0 {
		p.arrivals()
		return
	}
	p.left = -1
	if d.Items > 0 {
		p.left = d.Items
	}
	for range d.Workers {
		p.begin(p.work)
	}
}

// begin starts a goroutine, after those that were started before wait.
func (p *process) begin(f func()) {
	p.bubble.at(p.bubble.now(), func() {
		p.during.Go(f)
		p.bubble.woke = true
	})
}

// arrivals schedules the next independent caller, as client.arrivals does.
func (p *process) arrivals() {
	p.nextArrival(func() {
		w := p.take()
		p.begin(func() { p.serve(w) })
	})
}

// playInBubble is play for a strategy that is a library.
func playInBubble(w *World, e entry, seed uint64, in bubbler) *game {
	var g *game
	in(func() {
		// A bubble begins at midnight.
		time.Sleep(seconds(math.Mod(math.Mod(w.Clock, 60)+60, 60)))
		ctx, end := context.WithCancel(context.Background())
		b := &bubble{begin: time.Now(), next: never, end: end}
		b.timer = time.AfterFunc(time.Hour, b.run)
		d := newDice(seed + w.Dice)
		b.mu.Lock()
		g = &game{world: w}
		b.over = g.over
		g.upstream = newUpstream(w, b, d)
		var all []*process
		for i := range max(1, w.Processes) {
			p := &process{
				client: &client{
					world: w, clock: b, dice: d, upstream: g.upstream,
					log: &log{}, open: map[*wish]struct{}{},
				},
				number: i, bubble: b, ctx: ctx, random: rand.New(rand.NewPCG(seed, 1000+uint64(i))),
			}
			g.clients, all = append(g.clients, p.client), append(all, p)
			b.at(seconds(float64(i)*w.Stagger), func() {
				p.call = e.library(p)
				p.start()
			})
		}
		b.mu.Unlock()
		select {
		case <-ctx.Done(): // all items are done
		case <-time.After(seconds(w.Seconds)):
		}
		b.mu.Lock()
		g.end = b.now()
		b.timer.Stop()
		b.over = func() bool { return true } // nothing happens any more
		b.mu.Unlock()
		end()
		for _, p := range all {
			p.during.Wait()
		}
	})
	return g
}
