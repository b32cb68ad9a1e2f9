package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/gather"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

var semaphoreScript = strictScript("semaphore", "epoch")

// SemaphoreConfig configures a [Semaphore]. The zero value is usual.
type SemaphoreConfig struct {
	// Lease is the time after which permits that are not renewed are available again, such as
	// after a crash. 0 means 30 s; it is at least 100 ms and at most 52 days. In strict mode
	// machines should have the same Lease, except during a rolling deploy.
	Lease time.Duration

	// Poll is the average time between two requests for the callers that wait on a machine. 0 means
	// 50 ms.
	Poll time.Duration
}

// # How reliable is a lease?
//
// Permits that a machine took and never returned, because it crashed, must become available again.
// So they are leased for a time, and the holder prolongs that as long as it lives. With one Redis
// that loses no data and whose clock does not step:
//
//  1. No more than the limit is believed to be held at any time. A holder
//     believes from when it sent its request, which is earlier than the server
//     counts from, and for a little less than the lease.
//  2. The permits of a holder that died return within one lease.
//  3. A holder is notified before it stops believing, also when the server cannot be
//     reached: Lost is closed, contexts end.
//  4. To acquire, renew or release twice has the same effect as once, also if the first
//     request arrives after the second, up to a lease later.
//  5. Tokens rise strictly from grant to grant, also if the counter was lost.
//  6. If the server drops one of the keys, as one that evicts does, nothing is
//     leased twice: holders keep their permits, and nothing more is leased until all
//     leases of that moment would have ended. If it drops all keys, all is leased again.
//
// It cannot promise mutual exclusion. A holder whose machine stops for longer
// than the lease continues when it runs again, until it notices. If a clock is set
// forward, or a failover loses writes and the mode is not strict, everything
// may be leased twice, for one lease at most. Only the called server can exclude that, by
// rejecting tokens lower than one that it has seen. Leases keep a system running after a
// crash; tokens keep it safe. (M. Kleppmann: How to do distributed locking, 2016.
// Jepsen: etcd 3.4.3, 2020.)
//
//	server   │───────── lease ─────────│
//	holder  │──────── believes ───────│      from earlier, to earlier
//	         renews  ▲       ▲

// A Semaphore leases permits, at most limit at the same time on all machines together. It
// implements [limits.Semaphore]. A timer renews its leases.
//
// Callers of one machine are served in order; different machines compete. A release is noticed
// immediately on the same machine, and elsewhere with the next poll.
type Semaphore struct {
	store       *Store
	keys        []string
	lease, poll time.Duration
	freed       chan struct{} // of capacity 1: something was released here
	releases    gather.Gatherer[struct{}, *release]

	mu       sync.Mutex
	limit    int64
	held     map[string]*Lease
	renew    *time.Timer
	waiting  []*borrower
	returned []*release // to be released by the next script that asks
	asking   bool       // a goroutine asks for those that wait
	served   int        // of the callers for whom it asked last
}

// Semaphore returns the semaphore called name. It returns an error if name is empty, limit is
// negative or more than 10^15, or cfg is not possible. A limit of 0 leases nothing.
func (s *Store) Semaphore(name string, limit int64, cfg SemaphoreConfig) (*Semaphore, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	cfg.Lease, cfg.Poll = or(cfg.Lease, 30*time.Second), or(cfg.Poll, 50*time.Millisecond)
	switch {
	case cfg.Lease < 100*time.Millisecond || cfg.Lease > time.Duration(kinds.Longest/2):
		return nil, fmt.Errorf("sluiceredis: lease of %v: 100 ms to 52 days are possible", cfg.Lease)
	case cfg.Poll < 0:
		return nil, fmt.Errorf("sluiceredis: negative poll %v", cfg.Poll)
	}
	sem := &Semaphore{
		store: s, lease: cfg.Lease.Truncate(time.Microsecond), poll: cfg.Poll,
		held: make(map[string]*Lease), freed: make(chan struct{}, 1),
		keys: []string{s.key("sem1", name, "", "leases"), s.key("sem1", name, "", "token")},
	}
	sem.releases.Run = sem.releaseAll
	return sem, sem.SetLimit(limit)
}

// SetLimit changes the limit for requests of this machine from now on. If more than a lower limit
// is leased already, it stays leased. It returns an error and changes nothing if limit is negative
// or more than 10^15.
func (s *Semaphore) SetLimit(limit int64) error {
	if limit < 0 || limit > kinds.MostFixed {
		return fmt.Errorf("sluiceredis: limit of %d permits", limit)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = limit
	return nil
}

// most returns the limit.
func (s *Semaphore) most() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit
}

var _ limits.Semaphore = (*Semaphore)(nil)

// Acquire blocks until n permits are free and returns their lease, a [*Lease], which
// must be released. It waits no longer than longest, and not at all if that is ≤ 0;
// limits.Never sets no bound. n = 0 takes nothing and never blocks.
//
// It returns ErrTooLarge immediately if n is more than the limit, ctx.Err() if ctx ends,
// ErrTimeout after longest, and [ErrOutage] if the server did not answer, whatever the policy
// of the store. A request whose outcome is unknown is repeated: a lease has a name and is leased
// once. It panics if n < 0.
func (s *Semaphore) Acquire(ctx context.Context, n int64, longest time.Duration) (limits.Lease, error) {
	l, err := s.acquire(ctx, n, longest)
	if err != nil {
		return nil, err // not a nil *Lease in an interface
	}
	return l, nil
}

func (s *Semaphore) acquire(ctx context.Context, n int64, longest time.Duration) (*Lease, error) {
	mustNotBeNegative(n)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n == 0 {
		return &Lease{lost: make(chan struct{})}, nil
	}
	if n > s.most() {
		return nil, limits.ErrTooLarge
	}
	if longest <= 0 {
		return s.try(ctx, n)
	}
	bounded := ctx
	if longest != limits.Never {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeoutCause(ctx, longest, limits.ErrTimeout)
		defer cancel()
	}
	l, err := s.queue(bounded, n)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		return nil, limits.ErrTimeout
	}
	return l, err
}

// try is acquire that does not wait.
func (s *Semaphore) try(ctx context.Context, n int64) (*Lease, error) {
	b, sent := &borrower{id: s.store.unique(), n: n}, time.Now()
	tokens, _, err := s.ask(ctx, []*borrower{b}, nil)
	switch {
	case errors.Is(err, ErrAmbiguous):
		go s.giveBack(b.id, true)
		return nil, err
	case err != nil:
		return nil, err
	case tokens[0] == 0:
		return nil, limits.ErrTimeout
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hold(b, tokens[0], sent), nil
}

// run runs the script of a semaphore, which replies so many integers; see
// lua/semaphore.lua.
func (s *Semaphore) run(ctx context.Context, integers int, what string, args ...string) ([]int64, error) {
	args = append([]string{what, format(int64(s.lease / time.Microsecond))}, args...)
	reply, err := s.store.run(ctx, semaphoreScript, s.keys, args)
	if err == nil {
		err = expect(semaphoreScript, reply, integers)
	}
	return reply, err
}

// believed is the time after sending a request for which a lease is believed to last: less than it
// does, by the drift of a clock and the delay of a timer.
func (s *Semaphore) believed() time.Duration { return s.lease - s.lease/1000 - 10*time.Millisecond }

// hold returns the lease of b with that token, which was asked for at sent, and begins to renew it. s is
// locked.
func (s *Semaphore) hold(b *borrower, token int64, sent time.Time) *Lease {
	l := &Lease{semaphore: s, id: b.id, n: b.n, token: token, late: b.unknown, lost: make(chan struct{})}
	s.held[l.id] = l
	if s.store.alone {
		return l // it lasts until it is released
	}
	l.until = sent.Add(s.believed())
	l.timer = time.AfterFunc(time.Until(l.until), l.lose)
	if s.renew == nil {
		s.renew = time.AfterFunc(s.lease/3, s.renewAll)
	}
	return l
}

// over reports whether l is not believed to last any more.
func (s *Semaphore) over(l *Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !l.until.IsZero() && !time.Now().Before(l.until)
}

// drop stops renewing l and reports whether it was held. Once dropped its end does
// not matter.
func (s *Semaphore) drop(l *Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[l.id] != l {
		return false
	}
	delete(s.held, l.id)
	if l.timer != nil {
		l.timer.Stop()
	}
	if len(s.held) == 0 && s.renew != nil {
		s.renew.Stop()
		s.renew = nil
	}
	return true
}

// mostRenewed is the maximum number of leases that one script renews.
const mostRenewed = 500

// renewAll renews every lease that is held here, and does so again in a while.
func (s *Semaphore) renewAll() {
	s.mu.Lock()
	leases := make([]*Lease, 0, len(s.held))
	for _, l := range s.held {
		leases = append(leases, l)
	}
	s.mu.Unlock()
	again := s.lease / 3
	for len(leases) > 0 {
		some := leases[:min(mostRenewed, len(leases))]
		leases = leases[len(some):]
		if !s.renewSome(some) {
			again = s.lease / 10 // while there is time
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.renew != nil {
		s.renew.Reset(again)
	}
}

func (s *Semaphore) renewSome(leases []*Lease) bool {
	var args []string
	for _, l := range leases { // with the lost lease, if it was
		args = append(args, l.id, format(l.n), format(l.token))
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.lease/3)
	defer cancel()
	sent := time.Now()
	reply, err := s.run(ctx, len(leases)+2, "renew", args...)
	if err != nil {
		return false
	}
	for i, l := range leases {
		if reply[1+i] == 0 {
			l.lose()
			continue
		}
		s.mu.Lock()
		held := s.held[l.id] == l
		// Of a lease that was lost the server does not know whether another had
		// it since. It had not, if this one was believed in until now.
		if reply[1+i] == 2 && !time.Now().Before(l.until) {
			held = false
		}
		if held {
			l.until = sent.Add(s.believed())
			l.timer.Reset(time.Until(l.until))
		}
		s.mu.Unlock()
		if !held { // it has ended, or was released, perhaps before this
			l.lose()
			go s.giveBack(l.id, l.late)
		}
	}
	return true
}

// giveBack releases the lease of that id, if there is one; late says that a request
// for it may still arrive. While the server is unavailable a timer tries again until the
// lease has ended on its own.
func (s *Semaphore) giveBack(id string, late bool) {
	s.giveBackBefore(&release{id, late, make(chan error, 1)}, time.Now().Add(s.lease))
}

func (s *Semaphore) giveBackBefore(r *release, ends time.Time) {
	defer s.ring()
	if s.store.alone {
		s.store.local().Release(s.keys[0], r.id)
		return
	}
	var away *outageError
	for range 2 {
		err := s.put(r)
		if err == nil {
			return
		}
		if errors.As(err, &away) && !away.sent {
			break
		}
	}
	if away != nil && time.Until(ends) > away.retry {
		time.AfterFunc(away.retry, func() { s.giveBackBefore(r, ends) })
	}
}
