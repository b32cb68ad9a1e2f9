package live

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/observe"
	quotas "github.com/sluice-go/sluice/window"
)

// A stage is gates and their callers.
type stage struct {
	t     *testing.T
	ctx   context.Context
	calls sync.WaitGroup
	gates []*sluice.Gate
	log   log
}

// A log keeps the values of one attribute.
type log struct {
	mu  sync.Mutex
	why []string
}

func (l *log) Enabled(context.Context, slog.Level) bool { return true }
func (l *log) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *log) WithGroup(string) slog.Handler            { return l }

func (l *log) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "why" || a.Key == "err" {
			l.why = append(l.why, a.Value.String())
		}
		return true
	})
	return nil
}

// has reports whether a line of the log has text.
func (l *log) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(strings.Join(l.why, "\n"), text)
}

// gate adds a gate whose events are logged.
func (s *stage) gate(cfg sluice.Config) *sluice.Gate {
	s.t.Helper()
	cfg.Observer = observe.NewLogger(slog.New(&s.log), observe.LoggerConfig{Every: -1})
	g := mustGate(s.t, cfg)
	s.gates = append(s.gates, g)
	return g
}

// load keeps n callers busy with calls of d. One whose call fails waits before the next.
func (s *stage) load(g *sluice.Gate, n int, d, after time.Duration) {
	for range n {
		s.calls.Go(func() {
			for s.ctx.Err() == nil {
				if g.Do(s.ctx, func(context.Context) error { s.sleep(d); return nil }) != nil {
					s.sleep(after)
				}
			}
		})
	}
}

func (s *stage) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
	}
}

// away is a limit and a semaphore in a Redis that is unavailable.
type away struct{}

var errAway = errors.New("sluiceredis: refused: the server at 10.0.0.7:6379 cannot be asked: dial tcp 10.0.0.7:6379: connection refused (redis://user:secret@10.0.0.7:6379/0)")

func (away) Admit(context.Context, int64) (time.Duration, error) { return 0, errAway }
func (away) Adjust(context.Context, int64, time.Duration) error  { return errAway }
func (away) Acquire(context.Context, int64, time.Duration) (limits.Lease, error) {
	return nil, errAway
}

// What delays calls is said in one sentence: with its limit, its last error, and until when. It
// is the same in Stats, on the page, in the log and, as far as it concerns one call, in errors.
func TestStages(t *testing.T) {
	const ms = time.Millisecond
	rate := func(n int64, per time.Duration) sluice.Rate { return sluice.Rate{Count: n, Per: per} }
	raw := errAway.Error()
	outage := strings.ReplaceAll(raw, "user:secret@", "") // what is shown of it
	for name, c := range map[string]struct {
		stage func(s *stage)
		state state
		wait  string // Stats.Why
		page  string // what follows it there, or a whole sentence
		err   string // of a call that waits at most 5 s, if it fails, without the name of the gate
		log   string // what it has of those that wait
	}{
		"rate": {
			func(s *stage) { s.load(s.gate(sluice.Config{Rate: rate(10, time.Second)}), 200, ms, 0) }, waiting,
			"199 calls wait for the rate of 10/s, for another 19 s", "; a higher rate would help, if the server grants it.",
			"would have to wait 20s for the rate of 10/s, 5s were allowed", "waits for the rate of 10/s",
		},
		"slow rate": {
			func(s *stage) { s.load(s.gate(sluice.Config{Rate: rate(2, time.Minute)}), 30, ms, 0) }, waiting,
			"30 calls wait for the rate of 2/m, until 10:15:00 (14 min 48 s)", "; a higher rate would help, if the server grants it.",
			"would have to wait 15m18s for the rate of 2/m, until 10:15:30, 5s were allowed", "waits for the rate of 2/m, until 10:15:00",
		},
		"concurrency": {
			func(s *stage) { s.load(s.gate(sluice.Config{Concurrency: 4}), 40, 300*ms, 0) }, waiting,
			"36 calls wait for the concurrency of 4, until a call in flight ends", ", about 294 ms each, and the last is sent in about 2.6 s; a faster server or a higher Concurrency would help.",
			"", "waits for the concurrency of 4, until a call in flight ends",
		},
		"server hangs": {
			func(s *stage) { s.load(s.gate(sluice.Config{Concurrency: 4}), 40, time.Hour, 0) }, waiting,
			"36 calls wait for the concurrency of 4, until a call in flight ends", "; none has in the last 10 s: the server may hang.",
			"waited for the concurrency of 4 as long as allowed", "waits for the concurrency of 4, until a call in flight ends",
		},
		"Retry-After": {
			func(s *stage) {
				g := s.gate(sluice.Config{Concurrency: 20})
				var inFlight sync.WaitGroup // all are throttled, so that none lets others go first
				inFlight.Add(20)
				for range 20 {
					s.calls.Go(func() {
						start := sync.OnceFunc(inFlight.Done)
						_ = sluice.Retry(s.ctx, g, func(context.Context) error {
							start()
							inFlight.Wait()
							return sluice.ThrottledFor(errors.New("429 from https://u:secret@host/a?key=secret"), 5*time.Minute)
						}, sluice.RetryPolicy{MaxServerWait: time.Hour, MaxElapsed: -1})
					})
				}
			}, paused,
			"20 calls wait for the pause (429 from https://host/a), until 10:05:00 (4 min 48 s)", "; Resume would end it.",
			"would have to wait 4m48s for the pause (429 from https://host/a), until 10:05:00, 5s were allowed", "waits for the pause (429 from https://host/a), until 10:05:00",
		},
		"quota of a day": {
			func(s *stage) {
				day := limits.Must(quotas.NewFixed(quotas.Quota{Limit: 25, Per: quotas.Day}))
				s.load(s.gate(sluice.Config{Limits: []sluice.Limit{{Name: "day", Limiter: day}}}), 10, ms, 0)
			}, waiting,
			"10 calls wait for the limit day, at least until midnight (13 h 59 min)", "; cheaper calls, or a larger limit, would help.",
			"would have to wait 13h59m48s for the limit day, until midnight, 5s were allowed", "waits for the limit day, until midnight",
		},
		"sliding quota": {
			func(s *stage) {
				hour := limits.Must(quotas.NewSliding(quotas.Quota{Limit: 25, Window: time.Hour}))
				s.load(s.gate(sluice.Config{Limits: []sluice.Limit{{Name: "hour", Limiter: hour}}}), 1, 10*ms, 0)
			}, waiting,
			"1 call waits for the limit hour, until 11:00:00 (59 min 48 s)", "; cheaper calls, or a larger limit, would help.",
			"would have to wait 59m48s for the limit hour, until 11:00:00, 5s were allowed", "waits for the limit hour, until 11:00:00",
		},
		"Redis away, limit": {
			func(s *stage) {
				s.load(s.gate(sluice.Config{Limits: []sluice.Limit{{Name: "hour", Limiter: away{}}}}), 10, ms, 50*ms)
			}, refusing,
			"", "Refuses 200/s: a limit cannot decide; calls are sent again when it can, or if its outage policy lets them through (last error: limit hour: " + outage + ").",
			"limit hour: " + raw, "",
		},
		"Redis away, semaphore": {
			func(s *stage) { s.load(s.gate(sluice.Config{Semaphore: away{}}), 10, ms, 50*ms) }, refusing,
			"", "Refuses 200/s: a limit cannot decide; calls are sent again when it can, or if its outage policy lets them through (last error: semaphore: " + outage + ").",
			"semaphore: " + raw, "",
		},
		"retry budget": {
			func(s *stage) {
				g := s.gate(sluice.Config{RetryBudget: 20, Concurrency: 20})
				for range 20 {
					s.calls.Go(func() {
						for s.ctx.Err() == nil {
							_ = sluice.Retry(s.ctx, g, func(context.Context) error {
								s.sleep(20 * ms)
								return errors.New("503 service unavailable")
							}, sluice.RetryPolicy{Backoff: sluice.Constant(100 * ms)})
							s.sleep(10 * ms)
						}
					})
				}
			}, failing,
			"19 calls wait for the retry budget (calls are 100 ms apart after failures), at least for another 100 ms", "; each success halves that.",
			"", "waits for the retry budget (calls are 100 ms apart after failures)",
		},
		"queue full": {
			func(s *stage) {
				s.load(s.gate(sluice.Config{Rate: rate(5, time.Second), MaxWaiting: 10}), 60, 10*ms, 50*ms)
			}, refusing,
			"9 calls wait for the rate of 5/s, for another 1.8 s", "Refuses 996/s: the queue is as long as MaxWaiting allows; fewer callers or a larger MaxWaiting would help; 9 calls wait for the rate of 5/s, for another 1.8 s.",
			"", "waits for the rate of 5/s",
		},
		"deadlines": {
			func(s *stage) {
				g := s.gate(sluice.Config{Rate: rate(1, time.Second)})
				for range 20 {
					s.calls.Go(func() {
						for s.ctx.Err() == nil {
							ctx, cancel := context.WithTimeout(s.ctx, 300*ms)
							_ = g.Do(ctx, func(context.Context) error { return nil })
							cancel()
							s.sleep(100 * ms)
						}
					})
				}
			}, refusing,
			"", "Refuses 197/s: the calls would have to wait longer than they may; longer deadlines or fewer calls would help (last error: would have to wait 1s for the rate of 1/s, 300ms were allowed).",
			"", "would have to wait 1s for the rate of 1/s, 300ms were allowed",
		},
		"closed": {
			func(s *stage) {
				g := s.gate(sluice.Config{})
				g.Close()
				s.load(g, 2, ms, 10*ms)
			}, refusing,
			"", "Refuses 200/s: the gate is closed.",
			"closed", "",
		},
		"child": {
			func(s *stage) {
				all := mustGate(s.t, sluice.Config{Name: "all hosts", Rate: rate(3, time.Second)})
				s.load(s.gate(sluice.Config{Parent: all}), 20, ms, 0)
			}, waiting,
			`19 calls wait for the parent "all hosts", for the rate of 3/s, at least for another 333 ms`, "; a larger limit of the parent would help.",
			"", `waits for the parent "all hosts"`,
		},
		"parent": {
			func(s *stage) {
				all := s.gate(sluice.Config{Name: "all hosts", Rate: rate(3, time.Second)})
				for range 2 {
					child := s.gate(sluice.Config{Parent: all, Concurrency: 50})
					s.load(child, 20, ms, 0)
				}
			}, waiting,
			"2 calls wait for the rate of 3/s, for another 666 ms", "; a higher rate would help, if the server grants it; with those behind them in the gates below, 39 calls wait.",
			"", "waits for the rate of 3/s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(10 * time.Hour)
				ctx, cancel := context.WithCancel(bg)
				s := &stage{t: t, ctx: ctx}
				defer func() { cancel(); s.calls.Wait() }()
				c.stage(s)
				sample := sampler{sources: []iter.Seq[Gate]{FromGates(s.gates...)}}
				for range 12 {
					synctest.Wait()
					sample.take(time.Now())
					time.Sleep(time.Second)
				}
				synctest.Wait()
				sample.take(time.Now())
				v, stats := viewOf(sample.rows[0], sample.at, false), s.gates[0].Stats()
				want := c.page
				if !strings.HasPrefix(want, "Refuses") {
					want = c.wait + c.page
				}
				if v.State != c.state || v.Why != want {
					t.Errorf("page: %s: %s\nwant %s: %s", v.State, v.Why, c.state, want)
				}
				if got := stats.Why(); got != c.wait || !strings.Contains(stats.String(), c.wait) {
					t.Errorf("Stats: %s\n%v\nwant %s", got, stats, c.wait)
				}
				if strings.Contains(v.Why+stats.String(), "secret") {
					t.Errorf("%s\n%v", v.Why, stats)
				}
				if stats.LastError != "" && c.state == refusing && (!strings.Contains(v.Why, stats.LastError) || !strings.Contains(stats.String(), stats.LastError)) {
					t.Errorf("last error: %s", stats.LastError)
				}
				if !s.log.has(c.log) {
					t.Errorf("log: %q, want %q", s.log.why, c.log)
				}
				if c.err == "" {
					return
				}
				_, err := s.gates[0].AcquireWithin(ctx, 1, 5*time.Second)
				if got := errorText(err); !strings.HasSuffix(got, c.err) || !s.log.has(got) {
					t.Errorf("error: %s\nwant    %s", got, c.err)
				}
			})
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return "none"
	}
	return err.Error()
}
