package sluiceredis

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/ext/peers"
	"github.com/sluice-go/sluice/sluiceredis/internal/gather"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
	"github.com/sluice-go/sluice/sluiceredis/internal/memory"
	"github.com/sluice-go/sluice/sluiceredis/internal/outage"
)

// Config configures a [Store]. The zero value is usual.
type Config struct {
	// Prefix begins every key. It must not contain braces. Empty means "sluice".
	Prefix string

	// Timeout is the longest wait for a reply of the server. 0 means 1 s.
	Timeout time.Duration

	// Strict treats every limit as used up when the server may have lost data: see Strict mode in
	// README.md. It must be the same on all machines, and needs the command INFO replication. The
	// first use of a server is treated as a loss, unless [Store.ConfirmIntact] was called.
	Strict bool

	// OnOutage is the policy of limits that have none of their own. 0 means FailClosed.
	OnOutage OutagePolicy

	// FailureThreshold is the number of scripts in a row after whose failure the server is
	// unavailable. 0 means 3. A script fails if the server cannot be reached, does not reply in
	// time, replies with an error such as LOADING or OOM, or rejects the credentials.
	FailureThreshold int

	// ProbeInterval is the longest time between two probes of an unavailable server. The time is
	// 50 ms at first and doubles with each failed probe. 0 means 1 s.
	ProbeInterval time.Duration

	// Instances is the number of instances of the program that share the limits, for LocalShare: 1
	// to 1000. 0 means that they count themselves, by a script every 3 s while they use the server;
	// an instance is included until it has sent none for 10 s. One that starts, or was idle for 10 s,
	// has no share, as with FailClosed, until it has counted twice.
	Instances int

	// Notify, if not nil, is called when an outage begins, with the error of the last script, and
	// when a later call finds that it has ended, with nil. server is its name by [Topology], or "".
	// It is called in its own goroutine, never twice at the same time, and may use the store.
	Notify func(server string, err error)
}

// A Store keeps limits in a Redis, for all machines that use the same one with the same prefix.
//
// A Store must be made by [New] and must not be copied. It need not be closed: its background work
// ends soon after the last call and the last lease. It, its limits and their leases are safe for use
// by multiple goroutines.
type Store struct {
	client  Client
	prefix  string
	timeout time.Duration
	strict  bool
	sharded bool

	takes  gather.Gatherer[sign, *request]
	pacers gather.Gatherer[sign, *pacing]

	ways    gather.Gatherer[uint64, *sending] // calls under way, by number
	most    uint64                            // their maximum number; 0: no bound, and nothing gathers
	nextWay atomic.Uint64

	stats counters

	breaker   *outage.Breaker
	pulse     outage.Pulse
	listened  atomic.Int64 // when the next caller listens, ns since the store was made
	hearings  sync.Pool    // of the store, because a channel of one synctest bubble must not get into another
	away      OutagePolicy
	places    func(key string) string // which server has a key; or nil
	alone     bool                    // there is no server
	mem       atomic.Pointer[memory.Memory]
	instances atomic.Int64 // 0: not known
	beats     beats

	groups peers.Groups // of Exchange, without a server

	id    string // of this store, in names that no other one gives
	names atomic.Uint64
}

// New returns a store in the Redis of client, or in this process if client is
// [InProcess]. It returns an error if client is nil or cfg is not possible.
func New(client Client, cfg Config) (*Store, error) {
	switch {
	case client == nil:
		return nil, errors.New("sluiceredis: no client")
	case strings.ContainsAny(cfg.Prefix, "{}"):
		return nil, fmt.Errorf("sluiceredis: prefix %q: braces belong to the rest of a key", cfg.Prefix)
	case cfg.Timeout < 0:
		return nil, fmt.Errorf("sluiceredis: negative timeout %v", cfg.Timeout)
	case !cfg.OnOutage.valid():
		return nil, fmt.Errorf("sluiceredis: no such policy: %v", cfg.OnOutage)
	case cfg.FailureThreshold < 0:
		return nil, fmt.Errorf("sluiceredis: negative number of failures %d", cfg.FailureThreshold)
	case cfg.ProbeInterval < 0:
		return nil, fmt.Errorf("sluiceredis: negative ProbeInterval %v", cfg.ProbeInterval)
	case cfg.Instances < 0 || cfg.Instances > mostInstances:
		return nil, fmt.Errorf("sluiceredis: %d instances: 0 to %d are possible", cfg.Instances, mostInstances)
	}
	s := &Store{client: client, prefix: cfg.Prefix, timeout: cfg.Timeout, strict: cfg.Strict}
	if s.prefix == "" {
		s.prefix = "sluice"
	}
	if s.timeout == 0 {
		s.timeout = time.Second
	}
	s.id = rand.Text()[:12]
	s.away = cfg.OnOutage
	if s.away == 0 {
		s.away = FailClosed
	}
	s.instances.Store(int64(cfg.Instances))
	s.beats.fixed = cfg.Instances > 0
	s.beats.wanted.Store(s.away == LocalShare)
	s.breaker = outage.New(cmp.Or(cfg.FailureThreshold, 3), or(cfg.ProbeInterval, time.Second), cfg.Notify)
	s.beats.made = time.Now()
	_, s.alone = client.(inProcess)
	s.takes.Run, s.takes.Undo, s.takes.Units, s.takes.MostUnits = s.takeOrElse, s.giveBack, (*request).bulk, kinds.SlidingAtOnce
	s.takes.Apart = func(r *request) bool { return r.times() > 1 }
	s.pacers.Run, s.pacers.Undo = s.reserveOrElse, s.giveBackSlots
	s.ways.Run, s.ways.Ended, s.ways.Patience = s.sendAll, ambiguous, (*sending).patience
	if t, ok := client.(Topology); ok {
		s.most, s.sharded, s.places = uint64(max(0, t.Pipelines())), t.Sharded(), t.Place
	}
	return s, nil
}

// unique returns a name that was not given before.
func (s *Store) unique() string { return s.id + strconv.FormatUint(s.names.Add(1), 36) }

// elapsed returns the time since the store was made.
func (s *Store) elapsed() time.Duration { return time.Since(s.beats.made) }

// local returns the memory of the store.
func (s *Store) local() *memory.Memory {
	if m := s.mem.Load(); m != nil {
		return m
	}
	s.mem.CompareAndSwap(nil, memory.New())
	return s.mem.Load()
}

// or returns d, or usual if that is 0.
func or(d, usual time.Duration) time.Duration {
	if d == 0 {
		return usual
	}
	return d
}

func format(n int64) string { return kinds.Format(n) }

// place returns the name of the server that has key, as far as the client tells.
func (s *Store) place(key string) string {
	if s.places == nil {
		return ""
	}
	return s.places(key)
}

// run runs a script that replies its code, and returns a code below 0 as an error about a key. It
// counts the outcome. If the server is unavailable, or could not be asked although there was time,
// the error is an outageError.
func (s *Store) run(ctx context.Context, script *Script, keys, args []string) ([]int64, error) {
	return s.runCall(ctx, &sending{call: ScriptCall{script, keys, args}})
}

// runCall is run of a call that was not sent before.
func (s *Store) runCall(ctx context.Context, c *sending) ([]int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	place := s.place(c.call.Keys[0])
	probe, no := s.breaker.Enter(place)
	if no != nil {
		return nil, &outageError{server: place, since: no.Since, retry: no.Retry, cause: no.Cause}
	}
	s.stats.scripts.Add(1)
	c.place, c.probe, c.sent = place, probe, time.Now()
	longest := s.timeout
	if deadline, ok := ctx.Deadline(); ok {
		longest = min(longest, deadline.Sub(c.sent))
	}
	patience := s.pulse.Patience(place, probe != nil, max(shortestPatience, s.timeout/10), longest)
	if s.listens(c, patience, longest) {
		return s.listen(ctx, c, patience, longest)
	}
	c.within.begin(ctx, c.sent.Add(s.timeout))
	return s.conduct(ctx, c)
}

// conduct sends c, and notes the outcome.
func (s *Store) conduct(ctx context.Context, c *sending) ([]int64, error) {
	script, keys := c.call.Script, c.call.Keys
	said, cause := outage.Nothing, error(nil)
	defer func() { s.breaker.Leave(c.place, c.probe, said, cause) }() // also if the client panics
	defer c.within.end()
	reply, err := s.sendStrictly(c)
	took := time.Since(c.sent)
	left := c.hearing.end()
	if left {
		ctx = context.Background() // the caller waits no longer
	}
	if said, cause = outage.Answered, err; err != nil {
		said = s.judge(ctx, err, took)
	}
	if said == outage.Unanswered && s.silent(c, err, took) {
		said = outage.Silent
	}
	s.hears(c, said, err, took)
	switch {
	case left && err != nil: // and was told so
	case errors.Is(err, ErrAmbiguous):
		s.stats.ambiguous.Add(1)
	case err != nil:
		s.stats.failed.Add(1)
	case len(reply) == 0:
		return nil, fmt.Errorf("sluiceredis: %s replied nothing", script.Name)
	case reply[0] < 0:
		s.stats.data.Add(1)
		all, which := s.keysOf(script, keys), int64(0)
		if len(reply) == 3 {
			which = reply[2]
		}
		if which < 0 || which >= int64(len(all)) {
			return nil, fmt.Errorf("sluiceredis: %s replied about key %d of %d", script.Name, which, len(all))
		}
		return nil, dataError(all[which], reply[0])
	}
	if said > outage.Answered && ctx.Err() == nil {
		err = c.away(err)
	}
	return reply, err
}

// expect returns an error unless a script replied so many integers.
func expect(script *Script, reply []int64, n int) error {
	if len(reply) != n {
		return fmt.Errorf("sluiceredis: %s replied %d integers, not %d", script.Name, len(reply), n)
	}
	return nil
}

// A counters has the numbers that Stats returns.
type counters struct {
	scripts, decisions, ambiguous, failed, data, clamped, refunded, stranded, lost, leasesLost, epochs atomic.Uint64

	open, local, refused, reported atomic.Uint64
}

// Stats counts the work that a [Store] has done since it was made. All numbers except
// Unavailable and Instances only grow.
type Stats struct {
	Unavailable int64  // servers that are unavailable now
	Instances   int64  // the number of instances that share the limits; 0 if unknown
	Outages     uint64 // the number of outages
	Probes      uint64 // scripts that tested whether a server is back

	Scripts     uint64 // scripts run, each one round trip
	Decisions   uint64 // requests that they decided
	Ambiguous   uint64 // scripts that may or may not have run
	Failed      uint64 // scripts that certainly did not run
	InvalidKeys uint64 // keys found with unexpected data
	Repaired    uint64 // states repaired that were impossible, as after the server's clock stepped back
	Refunded    uint64 // units and slots returned
	Unreturned  uint64 // units that were too late to be returned
	LostSlots   uint64 // slots of pacers that stayed unused
	LeasesLost  uint64 // leases that ended before they were released
	Epochs      uint64 // in strict mode: possible losses of data that this store was the first to find

	FailedOpen     uint64 // requests let through uncounted, by FailOpen
	DecidedLocally uint64 // requests decided by local shares, or without a Redis
	Rejected       uint64 // requests rejected because the server did not answer
	Reported       uint64 // units of local shares that were later reported to the server
}

// Stats returns the work the store has done.
func (s *Store) Stats() Stats {
	c := &s.stats
	away, outages, probes := s.breaker.Counts()
	return Stats{
		Unavailable: away, Instances: s.instances.Load(), Outages: outages, Probes: probes,
		FailedOpen: c.open.Load(), DecidedLocally: c.local.Load(), Rejected: c.refused.Load(), Reported: c.reported.Load(),
		Scripts: c.scripts.Load(), Decisions: c.decisions.Load(),
		Ambiguous: c.ambiguous.Load(), Failed: c.failed.Load(), InvalidKeys: c.data.Load(),
		Repaired: c.clamped.Load(), Refunded: c.refunded.Load(), Unreturned: c.stranded.Load(),
		LostSlots: c.lost.Load(), LeasesLost: c.leasesLost.Load(), Epochs: c.epochs.Load(),
	}
}

// mustNotBeNegative is the rule of all our packages.
func mustNotBeNegative(n int64) {
	if n < 0 {
		panic(fmt.Sprintf("sluiceredis: n < 0: %d", n))
	}
}
