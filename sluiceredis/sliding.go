package sluiceredis

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/limits"
)

var logTake = strictScript("log_take", "log")

// mostInLog is the largest limit of a log.
const mostInLog = 100_000

// mostAtOnce is how many units one script takes from a log at most. They keep the
// server from everything else for some 20 ms; 100,000 took it half a second where it
// was busy.
const mostAtOnce = 10_000

// A Log admits at most limit in any window, for each key, on all machines
// together: it is a sliding window, and exact. Whatever window of that length one
// looks at, from t up to but not including t + window, at most limit were
// admitted in it, by the server's clock.
//
// It notes each unit it admits: one costs the server about 100 bytes and 2 µs, and a
// limit of 20,000 takes 2 MB for each key that uses it up. So one call takes at most
// 10,000 units, and beyond that a [Fixed] or [Bucket] is better. A refused call is not
// noted: it does not count and does not prolong the wait.
//
// Limit and window may be changed machine by machine. While machines ask one log by
// several windows, each admits only what all of these quotas allow; of one window the
// largest limit counts, and for its own window each machine goes by its own limit. A
// quota counts until no machine has used it for one to one and a quarter of its
// windows. One with a longer window than others had counts what was admitted from then
// on, and what the log still holds.
//
// A Log is safe for use by multiple goroutines.
type Sliding struct {
	store *Store
	name  string
	key   logKey
}

// A logKey is a log and how it is asked.
type logKey struct {
	key           string
	limit, window int64 // µs
	away          OutagePolicy
}

// args returns what the scripts want to know of the log, for a call of that name.
func (k *logKey) args(name string) []string {
	return []string{format(k.limit), format(k.window), name}
}

// Log returns the logs called name. It returns an error if name is empty, limit
// or window is not positive, or limit is more than 100,000. A window is rounded
// up to a microsecond.
//
// The same name with another limit or window means the same logs: what was admitted
// stays.
func (s *Store) Sliding(name string, limit int64, window time.Duration) (*Sliding, error) {
	if err := checkWindow(name, limit, window, mostInLog); err != nil {
		return nil, err
	}
	return &Sliding{s, name, logKey{limit: limit, window: microseconds(window)}}, nil
}

// OnOutage returns the same logs with a policy of their own for when the server
// cannot be asked. It panics if there is no such policy.
func (l *Sliding) OnOutage(p OutagePolicy) *Sliding {
	also := *l
	also.key.away = l.store.heed(p)
	return &also
}

func (l *Sliding) at(key string) logKey {
	k := l.key
	k.key = l.store.key("log1", l.name, key, "")
	return k
}

// Take takes n from the log of key if n fit now, and otherwise changes nothing
// and says when they will. n = 0 takes nothing and is always allowed; an n beyond
// the limit, or beyond 10,000, never is, and Err of the result is then
// [limits.ErrTooLarge]. Errors are those of [Bucket.Take]. It panics if n < 0.
func (l *Sliding) Take(ctx context.Context, key string, n int64) (limits.Result, error) {
	mustNotBeNegative(n)
	a := asking{n: n}
	if err := l.store.logs.do(ctx, l.at(key), &a); err != nil {
		return limits.Result{}, err
	}
	return a.result, nil
}

// Peek returns what Take of 0 does: the log as it is. It never writes.
func (l *Sliding) Peek(ctx context.Context, key string) (limits.Result, error) {
	return l.Take(ctx, key, 0)
}

// On returns the log of key as a meter, for a sluice.Gate or sluice.NewQueue.
func (l *Sliding) On(key string) *SlidingLimiter { return &SlidingLimiter{l, key} }

// A LogMeter is one log of a Log, as a limits.Limiter.
type SlidingLimiter struct {
	log *Sliding
	key string
}

var _ limits.Limiter = (*SlidingLimiter)(nil)

// Admit takes n and returns 0 if n fit now; otherwise it takes nothing and
// returns how long until they will. It returns ErrTooLarge if n is more than the
// limit or 10,000, and the errors of Log.Take. It panics if n < 0.
func (m *SlidingLimiter) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	return admit(m.log.Take(ctx, m.key, n))
}

// Adjust corrects by delta what a call took that was admitted age ago. A negative
// delta forgets the newest of those admitted at that time or before: its own,
// unless others were admitted in between. What has left the window is not given
// back; if that is all, Adjust returns [ErrStranded]. A positive delta takes now
// and without asking, beyond the limit if need be, at most 10,000.
func (m *SlidingLimiter) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	k := m.log.at(m.key)
	return m.log.store.adjustOne(ctx, &k, delta, age)
}

// takeFromLog has requests for one log answered, in order, at one instant.
func takeFromLog(s *Store, ctx context.Context, k logKey, requests []*asking) error {
	if err := s.tellLog(ctx, k); err != nil {
		return err
	}
	name, sent := s.unique(), time.Now()
	args := k.args(name)
	inRuns(requests, k.most(), func(run []*asking) {
		args = append(args, format(run[0].n), format(int64(len(run))))
	})
	reply, err := s.run(ctx, logTake, []string{k.key}, args)
	if err == nil {
		err = expect(logTake, reply, 5+len(args)-3)
	}
	if err != nil {
		return err
	}
	now := reply[len(reply)-1]
	found := logState{key: &k, used: reply[2], newest: reply[3], now: now}
	runs := reply[4 : len(reply)-1]
	when := make(map[*asking]int64) // those of a run fit that were refused
	inRuns(requests, k.most(), func(run []*asking) {
		for _, a := range run {
			when[a] = runs[1]
		}
		runs = runs[2:]
	})
	for _, a := range requests {
		a.now, a.name, a.sent = now, name, sent
		found.when = when[a]
		a.result = decide(&found, a.n)
	}
	s.keepLog(k, found.used-reply[2], found.used, now)
	s.stats.decisions.Add(uint64(len(requests)))
	s.stats.clamped.Add(uint64(reply[1]))
	return nil
}

// giveBackToLog gives back what was taken for callers who had gone.
func giveBackToLog(s *Store, k logKey, requests []*asking) {
	for _, a := range requests {
		s.adjust(context.Background(), []correction{{member: &k, delta: -a.granted(), age: time.Since(a.sent), end: a.now}}) // counted if it fails
	}
}
