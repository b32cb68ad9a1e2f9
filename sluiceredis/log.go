package sluiceredis

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
)

var (
	logTake   = script("log_take")
	logAdjust = script("log_adjust")
)

// mostInLog is the largest limit of a log. A script that notes that many at once
// keeps the server from everything else for some 100 ms.
const mostInLog = 100_000

// A Log admits at most limit in any window, for each key, on all machines
// together: it is a sliding window, and exact. Whatever window of that length one
// looks at, from t up to but not including t + window, at most limit were
// admitted in it, by the server's clock.
//
// It notes each unit it admits: one costs the server about 100 bytes, and a limit
// of 20,000 takes 2 MB for each key that uses it up. Beyond 10,000 a [Fixed] or
// [Leaky] is better. A refused call is not noted: it does not count and does not
// prolong the wait.
//
// A Log is safe for use by multiple goroutines.
type Log struct {
	store *Store
	name  string
	key   logKey
}

// A logKey is a log and how it is asked.
type logKey struct {
	key           string
	limit, window int64 // µs
}

// Log returns the logs called name. It returns an error if name is empty, limit
// or window is not positive, or limit is more than 100,000. A window is rounded
// up to a microsecond.
//
// The same name with another limit means the same logs: what was admitted stays.
// All programs must use the same window: a shorter one forgets what a longer one
// would have kept.
func (s *Store) Log(name string, limit int64, window time.Duration) (*Log, error) {
	if err := checkWindow(name, limit, window, mostInLog); err != nil {
		return nil, err
	}
	return &Log{s, name, logKey{limit: limit, window: microseconds(window)}}, nil
}

func (l *Log) at(key string) logKey {
	k := l.key
	k.key = l.store.key("log1", l.name, key, "")
	return k
}

// Take takes n from the log of key if n fit now, and otherwise changes nothing
// and says when they will. n = 0 takes nothing and is always allowed; an n beyond
// the limit never is, and Err of the result is then [leaky.ErrTooLarge]. Errors
// are those of [Leaky.Take]. It panics if n < 0.
func (l *Log) Take(ctx context.Context, key string, n int64) (leaky.Result, error) {
	mustNotBeNegative(n)
	a := asking{n: n}
	if err := l.store.logs.do(ctx, l.at(key), &a); err != nil {
		return leaky.Result{}, err
	}
	return a.result, nil
}

// Peek returns what Take of 0 does: the log as it is. It never writes.
func (l *Log) Peek(ctx context.Context, key string) (leaky.Result, error) {
	return l.Take(ctx, key, 0)
}

// On returns the log of key as a meter, for a sluice.Gate or sluice.Block.
func (l *Log) On(key string) *LogMeter { return &LogMeter{l, key} }

// A LogMeter is one log of a Log, as a sluice.Meter.
type LogMeter struct {
	log *Log
	key string
}

var _ sluice.Meter = (*LogMeter)(nil)

// Admit takes n and returns 0 if n fit now; otherwise it takes nothing and
// returns how long until they will. It returns ErrTooLarge if n is more than the
// limit, and the errors of Log.Take. It panics if n < 0.
func (m *LogMeter) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	return admit(m.log.Take(ctx, m.key, n))
}

// Adjust corrects by delta what a call took that was admitted age ago. A negative
// delta forgets the newest of those admitted at that time or before: its own,
// unless others were admitted in between. What has left the window is not given
// back; if that is all, Adjust returns [ErrStranded]. A positive delta takes now
// and without asking, beyond the limit if need be, at most 100,000.
func (m *LogMeter) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	if delta > mostInLog {
		return fmt.Errorf("sluiceredis: a correction by %d: at most %d", delta, mostInLog)
	}
	delta = max(delta, -m.log.key.limit)
	return m.log.store.adjustLog(context.WithoutCancel(ctx), m.log.at(m.key), delta, age)
}

func (s *Store) adjustLog(ctx context.Context, k logKey, delta int64, age time.Duration) error {
	if delta == 0 {
		return nil
	}
	age = min(max(0, age), time.Duration(longest))
	args := []string{format(k.window), format(delta), s.unique(), format(int64(age / time.Microsecond))}
	reply, err := s.run(ctx, logAdjust, []string{k.key}, args)
	if err == nil {
		err = expect(logAdjust, reply, 3)
	}
	return s.settled(delta, reply, err)
}

// settled counts what became of a correction by delta, of which a script replied
// how much was corrected.
func (s *Store) settled(delta int64, reply []int64, err error) error {
	if delta > 0 {
		return err
	}
	back := int64(0)
	if err == nil {
		back = reply[1]
	}
	s.stats.refunded.Add(uint64(back))
	s.stats.stranded.Add(uint64(-delta - back))
	if err == nil && back == 0 {
		return ErrStranded
	}
	return err
}

// takeFromLog has requests for one log answered, in order, at one instant.
func takeFromLog(s *Store, ctx context.Context, k logKey, requests []*asking) error {
	name, sent := s.unique(), time.Now()
	args := []string{format(k.limit), format(k.window), name}
	runs := 0
	inRuns(requests, k.limit, func(run []*asking) {
		args = append(args, format(run[0].n), format(int64(len(run))))
		runs++
	})
	reply, err := s.run(ctx, logTake, []string{k.key}, args)
	if err == nil {
		err = expect(logTake, reply, 5+2*runs)
	}
	if err != nil {
		return err
	}
	used, newest, now := reply[2], reply[3], reply[len(reply)-1]
	granted := reply[4 : len(reply)-1]
	wait, fit := make(map[*asking]int64), make(map[*asking]bool)
	inRuns(requests, k.limit, func(run []*asking) {
		for i, a := range run {
			if int64(i) < granted[0] {
				fit[a] = true
			} else {
				wait[a] = granted[1] - now
			}
		}
		granted = granted[2:]
	})
	for _, a := range requests {
		a.now, a.name, a.sent = now, name, sent
		a.result = leaky.Result{Allowed: a.n == 0 || fit[a], Limit: k.limit, RetryAfter: leaky.NoRetry}
		if fit[a] {
			used, newest = used+a.n, max(now, newest)
		} else if us, ok := wait[a]; ok {
			a.result.RetryAfter = time.Duration(us) * time.Microsecond
		}
		a.result.Remaining = max(0, k.limit-used)
		if used > 0 {
			a.result.ResetAfter = time.Duration(newest+k.window-now) * time.Microsecond
		}
	}
	s.stats.decisions.Add(uint64(len(requests)))
	s.stats.clamped.Add(uint64(reply[1]))
	return nil
}

// giveBackToLog gives back what was taken for callers who had gone.
func giveBackToLog(s *Store, k logKey, requests []*asking) {
	for _, a := range requests {
		_ = s.adjustLog(context.Background(), k, -a.granted(), 0) // counted if it fails
	}
}
