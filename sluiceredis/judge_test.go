package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/outage"
)

// A notice is the begin of an outage, or its end: then err is nil.
type notice struct {
	server string
	err    error
}

// A heard is what a store has reported.
type heard struct {
	mu  sync.Mutex
	all []notice
}

func (h *heard) hear(server string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, notice{server, err})
}

// outages returns for each event whether it was the begin of an outage.
func (h *heard) outages() (begins []bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.all {
		begins = append(begins, e.err != nil)
	}
	return begins
}

var perHour = limits.Rate{Burst: 1_000_000, Count: 1, Per: sec}

// After so many failures in a row a server is not asked any more; then one call at
// a time finds out whether it is back, each time later, up to a bound; and then
// all ask again.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told heard
		s, l := newRemote().newStore(t, Config{Timeout: 200 * ms, ProbeInterval: 300 * ms, Notify: told.hear})
		b := newLeaky(t, s, "l", perHour)
		take := func() error { _, err := b.Take(bg, "k", 1); return err }
		if err := take(); err != nil {
			t.Fatal(err)
		}
		l.fail(errRefused)
		for i := range 3 {
			var away *outageError
			if err := take(); !errors.As(err, &away) || !away.sent || !errors.Is(err, errRefused) || !errors.Is(err, ErrOutage) {
				t.Errorf("failure %d: %v", i, err)
			}
			if want := []outage.Mode{outage.Asking, outage.Asking, outage.Away}[i]; s.breaker.Mode() != want {
				t.Errorf("after %d failures: %v", i+1, s.breaker.Mode())
			}
		}
		// Away: no call costs a round trip, or a moment.
		began, calls := time.Now(), l.calls.Load()
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				var away *outageError
				if err := take(); !errors.As(err, &away) || away.sent || errors.Is(err, errRefused) || away.retry <= 0 || away.retry > 50*ms {
					t.Errorf("while it is away: %v", err)
				}
			})
		}
		wg.Wait()
		if l.calls.Load() != calls || time.Since(began) != 0 {
			t.Errorf("%d calls in %v while the server was away", l.calls.Load()-calls, time.Since(began))
		}
		// Each while is as long as it should be, and ended by one probe.
		l.fail(nil)
		l.silent.Store(true)
		for i, longest := range []time.Duration{50 * ms, 100 * ms, 200 * ms, 300 * ms, 300 * ms} {
			since := time.Now()
			for take() != nil && l.calls.Load() == calls+int64(i) {
				time.Sleep(ms)
			}
			waited := time.Since(since) - 100*ms // for which its caller waited for the probe
			if waited < longest*3/4-ms || waited > longest+ms {
				t.Errorf("probe %d after %v, want up to %v", i, waited, longest)
			}
		}
		time.Sleep(300 * ms)
		calls = l.calls.Load()
		go func() { _ = take() }()
		synctest.Wait()
		if got := s.Stats(); s.breaker.Mode() != outage.Probing || got.Outages != 1 || got.Probes != 6 {
			t.Errorf("%+v", got)
		}
		began = time.Now()
		for range 1000 {
			if err := take(); !errors.Is(err, ErrOutage) {
				t.Fatal(err)
			}
		}
		if l.calls.Load() != calls+1 || time.Since(began) != 0 {
			t.Errorf("%d calls in %v during a probe", l.calls.Load()-calls, time.Since(began))
		}
		time.Sleep(sec)
		l.silent.Store(false)
		if err := take(); err != nil {
			t.Errorf("the server is back: %v", err)
		}
		for range 10 {
			if err := take(); err != nil {
				t.Errorf("the server is back: %v", err)
			}
		}
		got := s.Stats()
		if s.breaker.Mode() != outage.Asking || got.Outages != 1 || got.Probes != 7 || got.Rejected == 0 || s.breaker.Trouble() {
			t.Errorf("%+v", got)
		}
		synctest.Wait()
		if want := []bool{true, false}; !slices.Equal(told.outages(), want) || !errors.Is(told.all[0].err, errRefused) {
			t.Errorf("notified of %v", told.all)
		}
	})
}

// What a failure is, and what says nothing about the server.
func TestJudge(t *testing.T) {
	s := inThisProcess(t) // its timeout is 1 s
	done, cancel := context.WithCancel(bg)
	cancel()
	late, cancel := context.WithTimeout(bg, 0)
	defer cancel()
	reply := func(m string) error { return newServerError(m) }
	for _, v := range []struct {
		ctx  context.Context
		err  error
		took time.Duration
		want outage.Verdict
	}{
		{bg, nil, 0, outage.Answered},
		{bg, reply("ERR Error running script"), 0, outage.Answered},
		{bg, reply("NOAUTH Authentication required."), 0, outage.Unanswered}, // asking at every call will not help
		{bg, reply("WRONGPASS invalid username-password pair or user is disabled."), 0, outage.Unanswered},
		{bg, reply("ERR Protocol error: unauthenticated multibulk length"), 0, outage.Unanswered},
		{bg, reply("ERR invalid password"), 0, outage.Unanswered}, // before version 6
		{bg, reply("ERR Client sent AUTH, but no password is set"), 0, outage.Unanswered},
		{bg, reply("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"), 0, outage.Unanswered},
		{bg, reply("NOPERM this user has no permissions to run the 'evalsha' command"), 0, outage.Unanswered},
		{bg, reply("ERR The user executing the script can't run this command or subcommand"), 0, outage.Unanswered},
		{bg, reply("NOPERM this user has no permissions to access one of the keys used as arguments"), 0, outage.NotThese}, // of that limit only
		{bg, reply("ERR The user executing the script can't access at least one of the keys mentioned in the command arguments"), 0, outage.NotThese},
		{bg, reply("READONLY You can't write against a read only replica."), 0, outage.Unanswered},
		{bg, reply("LOADING Redis is loading the dataset in memory"), 0, outage.Unanswered},
		{bg, reply("CLUSTERDOWN The cluster is down"), 0, outage.Unanswered},
		{bg, reply("OOM command not allowed when used memory > 'maxmemory'."), 0, outage.Unanswered},
		{bg, reply("NOREPLICAS Not enough good replicas to write."), 0, outage.Unanswered},
		{bg, reply("MASTERDOWN Link with MASTER is down"), 0, outage.Unanswered},
		{bg, reply("TRYAGAIN Multiple keys request during rehashing of slot"), 0, outage.NotThese}, // only of that slot
		{bg, reply("MOVED 1234 10.0.0.1:6379"), 0, outage.NotThese},
		{bg, reply("ASK 1234 10.0.0.1:6379"), 0, outage.NotThese},
		{bg, reply("MISCONF Redis is configured to save RDB snapshots"), 0, outage.Unanswered},
		{bg, reply("BUSY Redis is busy running a script."), 0, outage.Unanswered},
		{bg, reply("ERR max number of clients reached"), 0, outage.Unanswered},
		{bg, errRefused, 0, outage.Unanswered},
		{bg, ambiguous(context.DeadlineExceeded), sec, outage.Unanswered},
		{bg, context.DeadlineExceeded, sec, outage.Unanswered}, // ours
		{done, ambiguous(context.Canceled), sec, outage.Nothing},
		{late, ambiguous(context.DeadlineExceeded), 99 * ms, outage.Nothing},
		{late, ambiguous(context.DeadlineExceeded), 100 * ms, outage.Unanswered},
	} {
		if got := s.judge(v.ctx, v.err, v.took); got != v.want {
			t.Errorf("%v after %v: %v, want %v", v.err, v.took, got, v.want)
		}
	}
}

// Keys that are on their way to another server of a cluster make nobody away, however
// often they are asked for; what becomes of the calls is for the policy to say.
func TestMovingSlotIsNotAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for policy, lets := range map[OutagePolicy]bool{FailClosed: false, FailOpen: true} {
			s, l := newRemote().newStore(t, Config{FailureThreshold: 2, OnOutage: policy})
			b := newLeaky(t, s, "l", perHour)
			l.fail(newServerError("TRYAGAIN Multiple keys request during rehashing of slot"))
			for range 5 {
				res, err := b.Take(bg, "k", 1)
				if res.Allowed() != lets || lets != (err == nil) || !lets && !errors.Is(err, ErrOutage) {
					t.Errorf("%v: %+v, %v", policy, res, err)
				}
			}
			if got := s.Stats(); s.breaker.Mode() != outage.Asking || got.Outages != 0 || got.Scripts != 5 {
				t.Errorf("%v: %+v", policy, got)
			}
		}
	})
}

// Failures count in a row; one that has ended before the server could answer, by the
// wish of its caller, is none.
func TestFailuresInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newRemote().newStore(t, Config{FailureThreshold: 2})
		b := newLeaky(t, s, "l", perHour)
		take := func(longest time.Duration) error {
			ctx, cancel := context.WithTimeout(bg, longest)
			defer cancel()
			_, err := b.Take(ctx, "k", 1)
			return err
		}
		for range 3 {
			l.fail(errRefused)
			_ = take(sec)
			l.fail(nil)
			if err := take(sec); err != nil || s.breaker.Mode() != outage.Asking {
				t.Fatalf("%v, %v", err, s.breaker.Mode())
			}
		}
		l.silent.Store(true)
		for range 10 {
			if err := take(50 * ms); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrOutage) {
				t.Fatalf("%v", err)
			}
		}
		if s.breaker.Mode() != outage.Asking {
			t.Error("callers in a hurry have the server be away")
		}
		for range 2 {
			if err := take(100 * ms); errors.Is(err, ErrOutage) || !errors.Is(err, ErrAmbiguous) {
				t.Errorf("a caller whose time is over: %v", err)
			}
		}
		if s.breaker.Mode() != outage.Away {
			t.Error("callers who had time do not")
		}
		// A probe whose caller gives up says nothing: the next call is one.
		time.Sleep(50 * ms)
		for i := range 3 {
			if err := take(10 * ms); errors.Is(err, ErrOutage) || s.Stats().Probes != uint64(i+1) || s.breaker.Mode() != outage.Away {
				t.Errorf("%v, %+v", err, s.Stats())
			}
		}
		l.silent.Store(false)
		if err := take(10 * ms); err != nil {
			t.Error(err)
		}
	})
}

// What was sent before a server was unavailable says nothing afterwards, either way.
func TestLateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newRemote()
		s, l := v.newStore(t, Config{FailureThreshold: 1})
		b := newLeaky(t, s, "l", perHour)
		l.silent.Store(true)
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() { _, _ = b.Take(bg, fmt.Sprint(i), 1) }) // 1 s
		}
		synctest.Wait()
		l.fail(errRefused)
		_, _ = b.Take(bg, "k", 1)
		if s.breaker.Mode() != outage.Away {
			t.Fatal("not away")
		}
		l.fail(nil)
		wg.Wait()
		if got := s.Stats(); s.breaker.Mode() != outage.Away || got.Outages != 1 || got.Probes != 0 {
			t.Errorf("%+v", got)
		}
		// An answer that was on its way is no probe.
		l.silent.Store(false)
		if _, err := b.Take(bg, "k", 1); err != nil || s.breaker.Mode() != outage.Asking {
			t.Fatalf("%v, %v", err, s.breaker.Mode())
		}
		l.delay.Store(int64(20 * ms))
		wg.Go(func() {
			if res, err := b.Take(bg, "slow", 1); err != nil || !res.Allowed() {
				t.Errorf("%+v, %v", res, err)
			}
		})
		synctest.Wait()
		l.fail(errRefused)
		_, _ = b.Take(bg, "k", 1)
		wg.Wait()
		if got := s.Stats(); s.breaker.Mode() != outage.Away || got.Outages != 2 {
			t.Errorf("%+v", got)
		}
	})
}

// placed is a line to several servers: the first letter of a limit's key says which.
type placed struct {
	*line
	downs sync.Map
}

func (p *placed) Pipelines() int          { return 0 }
func (p *placed) Sharded() bool           { return true }
func (p *placed) Place(key string) string { return key[strings.Index(key, "|")+1:][:1] }

func (p *placed) Run(ctx context.Context, s *Script, keys, args []string) ([]int64, error) {
	if _, down := p.downs.Load(p.Place(keys[0])); down {
		p.calls.Add(1)
		return nil, errRefused
	}
	return p.line.Run(ctx, s, keys, args)
}

// A server that is unavailable does not take the others with it, and one that nobody wants
// any more is discarded.
func TestServersAreAwayOnTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told heard
		p := &placed{line: &line{to: newRemote()}}
		s, err := New(p, Config{Notify: told.hear})
		if err != nil {
			t.Fatal(err)
		}
		b := newLeaky(t, s, "l", perHour)
		p.downs.Store("a", true)
		for range 5 {
			_, _ = b.Take(bg, "a1", 1)
			if _, err := b.Take(bg, "b1", 1); err != nil {
				t.Errorf("b is not away: %v", err)
			}
		}
		if p.calls.Load() != 3+5 {
			t.Errorf("%d calls", p.calls.Load())
		}
		var away *outageError
		if _, err := b.Take(bg, "a2", 1); !errors.As(err, &away) || away.server != "a" || !strings.Contains(err.Error(), "the server at a has been away for 0s: dial") {
			t.Errorf("%v", err)
		}
		if got := s.Stats(); s.breaker.Mode() != outage.Away || got.Outages != 1 {
			t.Errorf("%+v", got)
		}
		for range 11 { // its keys have moved
			time.Sleep(sec)
			if _, err := b.Take(bg, "b1", 1); err != nil {
				t.Error(err)
			}
		}
		if got := s.Stats(); s.breaker.Mode() != outage.Asking || s.breaker.Trouble() {
			t.Errorf("%+v", got)
		}
		synctest.Wait()
		if want := []bool{true, false}; !slices.Equal(told.outages(), want) || told.all[0].server != "a" {
			t.Errorf("%+v", told.all)
		}
	})
}

// Who comes during a call that hangs waits for no longer than calls may take, and
// who comes while the server is unavailable for nobody.
func TestNobodyWaitsForAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newRemote().newStore(t, Config{FailureThreshold: 1, OnOutage: FailOpen})
		b := newLeaky(t, s, "l", perHour)
		l.silent.Store(true)
		began := time.Now()
		var wg sync.WaitGroup
		var longest atomic.Int64
		for range 100 {
			wg.Go(func() {
				res, err := b.Take(bg, "k", 1)
				if err != nil || !res.Allowed() {
					t.Errorf("%+v, %v", res, err)
				}
				longest.Store(max(longest.Load(), int64(time.Since(began))))
			})
		}
		wg.Wait()
		if got := time.Duration(longest.Load()); got != sec || l.calls.Load() != 1 {
			t.Errorf("the last waited for %v, %d calls", got, l.calls.Load())
		}
		time.Sleep(50 * ms)
		go func() { _, _ = b.Take(bg, "k", 1) }()
		synctest.Wait()
		if s.breaker.Mode() != outage.Probing {
			t.Fatal(s.breaker.Mode())
		}
		began = time.Now()
		if res, err := b.Take(bg, "k", 1); err != nil || !res.Allowed() || time.Since(began) != 0 {
			t.Errorf("%+v, %v after %v", res, err, time.Since(began))
		}
		time.Sleep(sec)
	})
}

// A client that panics during a probe leaves nothing behind.
func TestProbeThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newRemote()
		c := &panics{line: &line{to: v}}
		s, err := New(c, Config{FailureThreshold: 1})
		if err != nil {
			t.Fatal(err)
		}
		b := newLeaky(t, s, "l", perHour)
		c.fail(errRefused)
		_, _ = b.Take(bg, "k", 1)
		time.Sleep(50 * ms)
		c.fail(nil)
		c.now.Store(true)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_, _ = b.Take(bg, "k", 1)
		}()
		c.now.Store(false)
		if _, err := b.Take(bg, "k", 1); err != nil {
			t.Errorf("the next is no probe: %v", err)
		}
	})
}

type panics struct {
	*line
	now atomic.Bool
}

func (p *panics) Run(ctx context.Context, s *Script, keys, args []string) ([]int64, error) {
	if p.now.Load() {
		panic("client")
	}
	return p.line.Run(ctx, s, keys, args)
}

// Notify is called in order, by one goroutine at a time, and may use the store: also the
// key for which another call waits meanwhile.
func TestNotifyMayUseTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *Store
		var got []string
		notify := func(err error) {
			got = append(got, fmt.Sprint(err != nil, " ", s.Stats().Unavailable))
			_, _ = newLeaky(t, s, "l", perHour).Take(bg, "k", 1)
		}
		s, l := newRemote().newStore(t, Config{FailureThreshold: 1, Notify: func(_ string, err error) { notify(err) }})
		b := newLeaky(t, s, "l", perHour)
		l.fail(errRefused)
		_, _ = b.Take(bg, "k", 1)
		synctest.Wait()
		time.Sleep(50 * ms)
		l.fail(nil)
		l.delay.Store(int64(ms))
		if _, err := b.Take(bg, "k", 1); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * ms) // those that Notify makes take as long
		synctest.Wait()
		if want := []string{"true 1", "false 0"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		l.delay.Store(0)
		// A change that Notify makes is reported afterwards.
		got = nil
		notify = func(err error) {
			got = append(got, fmt.Sprint(err != nil))
			if err != nil {
				l.fail(nil)
				time.Sleep(50 * ms)
				_, _ = b.Take(bg, "k", 1)
				got = append(got, "done")
			}
		}
		l.fail(errRefused)
		_, _ = b.Take(bg, "k", 1)
		time.Sleep(50 * ms)
		synctest.Wait()
		if want := []string{"true", "done", "false"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
