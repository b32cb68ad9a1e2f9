package sluiceredis

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// # Could what callers see of a semaphore have happened one after the other?
//
// Several machines lease and return while their connections break, limits change
// and leases end. What each of them saw is recorded, and porcupine looks for an
// order in which one semaphore, which does one thing at a time, would have shown
// the same (Herlihy and Wing, Linearizability, 1990). A machine is one goroutine
// with a store, a connection and its own limit, so that all it saw can be told
// apart:
//
//	take      a lease came: there was room, and its token is above all before
//	refused   there was no room, at some instant of the call
//	release   what was held is free: within the call if the server answered, or else
//	          at any later time, for the lease ends by itself
//	end       the holder was told that its lease is lost, or should have been, if
//	          this machine had not stood still: what it held is free at some
//	          later time
//	may take  no answer came: something may have been lent, then or later,
//	may end   and may be free again at any time after that; and so twice, see there
//
// That a holder is told before others have what he held is the promise that costs
// most; it is why an "end" begins no earlier than that. That he is told as soon as
// the lease is not believed to last any more is shown where time is virtual.

// An event is one of these.
type event struct {
	what     string
	lease    int // its number in the history
	n, limit int64
	token    int64
}

// A lending is a semaphore that does one thing at a time.
type lending struct {
	token int64
	held  map[int]int64 // weights by lease
}

// room reports whether so many fit below a limit.
func (l lending) room(n, limit int64) bool {
	for _, w := range l.held {
		n += w
	}
	return n <= limit
}

func (l lending) with(e event, token int64) lending {
	held := maps.Clone(l.held)
	held[e.lease] = e.n
	return lending{token, held}
}

func (l lending) without(e event) lending {
	held := maps.Clone(l.held)
	delete(held, e.lease)
	return lending{l.token, held}
}

// after returns what l may be after e: nothing if that cannot be.
func (l lending) after(e event) []lending {
	_, held := l.held[e.lease]
	switch e.what {
	case "take":
		if l.room(e.n, e.limit) && e.token > l.token {
			return []lending{l.with(e, e.token)}
		}
	case "refused":
		if !l.room(e.n, e.limit) {
			return []lending{l}
		}
	case "release", "end":
		if held {
			return []lending{l.without(e)}
		}
	case "may take":
		if l.room(e.n, e.limit) {
			return []lending{l, l.with(e, l.token)} // of its token is known only that it is above
		}
		return []lending{l}
	case "may end":
		return []lending{l.without(e)}
	}
	return nil
}

var lenderModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{lending{held: map[int]int64{}}} },
	Step: func(state, in, _ any) (next []any) {
		for _, l := range state.(lending).after(in.(event)) {
			next = append(next, l)
		}
		return next
	},
	Equal: func(a, b any) bool {
		return a.(lending).token == b.(lending).token && maps.Equal(a.(lending).held, b.(lending).held)
	},
}).ToModel()

const (
	linearMachines = 4
	linearLease    = 200 * ms
)

// A lane is the way of one machine: a proxy, and a client behind it.
type lane struct {
	proxy   *redistest.Proxy
	backend *backend
}

func newLanes(t *testing.T) (lanes []lane) {
	addr := redistest.Shared(t).Addr
	for range linearMachines {
		p := redistest.NewProxy(t, addr)
		lanes = append(lanes, lane{p, newBackend(t, p.Addr)})
	}
	return lanes
}

// A witness records what one machine sees. It is its client as well: only there can be
// seen whether a release was answered, or put off because the server is unavailable.
type witness struct {
	Client
	began    time.Time
	id       int
	store    *Store
	sem      *Semaphore
	n        int // leases so far
	ops      []porcupine.Operation
	released sync.Map // the ids of leases of which the server has said so
}

// Run implements Client.
func (w *witness) Run(ctx context.Context, s *Script, keys, args []string) ([]int64, error) {
	reply, err := w.Client.Run(ctx, s, keys, args)
	if s == semaphoreScript && args[0] == "release" && err == nil {
		for i := 2; i < len(args); i += 2 {
			w.released.Store(args[i], true)
		}
	}
	if s == semaphoreScript && args[0] == "acquire" && err == nil {
		for i := 5; i < len(args); i += 2 {
			if args[i+1][0] == '-' {
				w.released.Store(args[i], true)
			}
		}
	}
	return reply, err
}

func (w *witness) now() int64 { return int64(time.Since(w.began)) }

func (w *witness) add(e event, call, ret int64) {
	w.ops = append(w.ops, porcupine.Operation{ClientId: w.id, Input: e, Call: call, Return: ret})
}

// lend leases, holds and returns, once.
func (w *witness) lend(random *rand.Rand, holdsLong time.Duration) {
	w.n++
	e := event{lease: w.id*1000 + w.n, n: 1 + random.Int64N(2), limit: w.sem.most()}
	longest := time.Duration(0)
	if random.IntN(2) == 0 {
		longest = 60 * ms
	}
	before, call := w.store.Stats(), w.now()
	l, err := w.sem.acquire(bg, e.n, longest)
	ret, after := w.now(), w.store.Stats()
	unknown := after.Ambiguous > before.Ambiguous
	// What was leased without an answer and is leased again to who asks again is one
	// lease, unless the first had ended by then.
	if unknown && (err != nil || ret-call > int64(linearLease/2)) {
		ghost := e
		ghost.lease += 500
		ghost.what = "may take"
		w.add(ghost, call, math.MaxInt64)
		ghost.what = "may end"
		w.add(ghost, call, math.MaxInt64)
	}
	if err != nil {
		if !unknown && after.Failed == before.Failed && after.Decisions > before.Decisions {
			e.what = "refused"
			w.add(e, call, ret)
		}
		return
	}
	e.what, e.token = "take", l.Token()
	w.add(e, call, ret)

	told, over := make(chan int64, 1), make(chan struct{})
	go func() {
		select {
		case <-l.Lost():
			told <- w.now()
		case <-over:
		}
		close(told)
	}()
	holds := time.Duration(random.Int64N(int64(4 * ms)))
	if random.IntN(4) == 0 {
		holds = holdsLong
	}
	select {
	case <-time.After(holds):
	case <-l.Lost():
	}
	call = w.now()
	l.Release()
	ret = w.now()
	select {
	case <-l.Lost(): // before it was released
		e.what = "end"
		w.add(e, min(<-told, int64(w.sem.ends(l).Sub(w.began))), math.MaxInt64)
	default:
		e.what = "release"
		if _, answered := w.released.Load(l.id); !answered {
			ret = math.MaxInt64
		}
		w.add(e, call, ret)
	}
	close(over)
}

// ends returns until when l was believed to last.
func (s *Semaphore) ends(l *Lease) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.until
}

// A breaking breaks the ways of machines until stop is closed, and says how long
// one lease in four is held meanwhile.
type breaking struct {
	run   func(lanes []lane, stop <-chan struct{})
	holds time.Duration
}

var (
	whole   = breaking{func([]lane, <-chan struct{}) {}, linearLease * 5 / 4}
	briefly = breaking{breakBriefly, 10 * ms}
	badly   = breaking{breakBadly, linearLease * 5 / 4}
)

// breakBriefly loses replies for so long that they are asked for again.
func breakBriefly(lanes []lane, stop <-chan struct{}) {
	for {
		p := lanes[rand.IntN(len(lanes))].proxy
		p.Set(redistest.Fault{DropReply: true})
		time.Sleep(22 * ms) // the timeout is 20
		p.Set(redistest.Fault{})
		select {
		case <-stop:
			return
		case <-time.After(rand.N(40 * ms)):
		}
	}
}

// breakBadly breaks a way for up to two leases, in one of several ways.
func breakBadly(lanes []lane, stop <-chan struct{}) {
	for {
		p := lanes[rand.IntN(len(lanes))].proxy
		p.Set([]redistest.Fault{{DropReply: true}, {DropCalls: true}, {Refuse: true}, {}}[rand.IntN(4)])
		if rand.IntN(2) == 0 {
			p.Reset()
		}
		select {
		case <-stop:
		case <-time.After(rand.N(2 * linearLease)):
		}
		p.Set(redistest.Fault{})
		p.Reset()
		select {
		case <-stop:
			return
		case <-time.After(rand.N(20 * ms)):
		}
	}
}

// linearHistory records a history of a new semaphore; alter changes the scripts.
func linearHistory(t *testing.T, lanes []lane, alter func(Client) Client, faults breaking) []porcupine.Operation {
	began := time.Now()
	prefix := fmt.Sprint("linear ", rand.Uint64())
	stop := make(chan struct{})
	var aside, wg sync.WaitGroup
	aside.Go(func() { faults.run(lanes, stop) })
	witnesses := make([]witness, len(lanes))
	for i, lane := range lanes {
		w := &witnesses[i]
		w.Client, w.began, w.id = alter(lane.backend.client), began, i
		s, err := New(w, Config{Prefix: prefix, Timeout: 20 * ms})
		if err != nil {
			t.Fatal(err)
		}
		w.store, w.sem = s, newSemaphore(t, s, "s", 3, SemaphoreConfig{Lease: linearLease, Poll: 2 * ms})
		wg.Go(func() {
			random := rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))
			for range 6 {
				if random.IntN(4) == 0 {
					if err := w.sem.SetLimit(2 + random.Int64N(3)); err != nil {
						t.Error(err)
					}
				}
				w.lend(random, faults.holds)
			}
		})
	}
	wg.Wait()
	close(stop)
	aside.Wait()
	var all []porcupine.Operation
	for i := range witnesses {
		all = append(all, witnesses[i].ops...)
	}
	return all
}

// linearHistories checks histories until the time is up, and returns the first
// that is impossible.
func linearHistories(t *testing.T, lasting time.Duration, alter func(Client) Client, faults breaking) (bad []porcupine.Operation) {
	t.Helper()
	lanes := newLanes(t)
	seen := map[string]int{}
	checked, unknown := 0, 0
	for begin := time.Now(); time.Since(begin) < lasting; {
		history := linearHistory(t, lanes, alter, faults)
		switch porcupine.CheckOperationsTimeout(lenderModel, history, 5*sec) {
		case porcupine.Illegal:
			// Seldom enough that all histories are checked the shorter way first.
			if porcupine.CheckOperationsTimeout(lenderModel, twice(history), 5*sec) == porcupine.Illegal {
				return history
			}
		case porcupine.Unknown:
			unknown++
		}
		checked++
		for _, op := range history {
			seen[op.Input.(event).what]++
		}
	}
	if checked == unknown || seen["take"] == 0 || seen["refused"] == 0 {
		t.Errorf("%d histories, of which %d took too long to check, with %v: nothing is shown", checked, unknown, seen)
	}
	t.Logf("%d histories, %d of them took too long to check: %v", checked, unknown, seen)
	return nil
}

// twice returns history if what was asked for without an answer came twice: a copy of the request on another
// connection may be late, and arrive when the first has been taken back already. One of some hundred runs shows that.
func twice(history []porcupine.Operation) []porcupine.Operation {
	all := slices.Clone(history)
	for _, op := range history {
		if strings.HasPrefix(op.Input.(event).what, "may ") {
			all = append(all, op)
		}
	}
	return all
}

// historyText writes a history in the order of the calls.
func historyText(history []porcupine.Operation) string {
	history = slices.SortedFunc(slices.Values(history), func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	for _, op := range history {
		until := time.Duration(op.Return).String()
		if op.Return == math.MaxInt64 {
			until = "…"
		}
		fmt.Fprintf(&b, "%12v … %-12s machine %d: %+v\n", time.Duration(op.Call), until, op.ClientId, op.Input)
	}
	return b.String()
}

// asItIs alters nothing.
func asItIs(c Client) Client { return c }

func TestSemaphoreIsLinearizable(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	lasting := sec
	if long {
		lasting = time.Minute
	}
	for name, faults := range map[string]breaking{"whole": whole, "broken briefly": briefly, "broken badly": badly} {
		t.Run(name, func(t *testing.T) {
			if bad := linearHistories(t, lasting, asItIs, faults); bad != nil {
				t.Errorf("not linearizable:\n%s", historyText(bad))
			}
		})
	}
}
