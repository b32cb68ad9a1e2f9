package sluiceredis

import (
	"math"
	"slices"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// A log in memory is a kind.Sliding for each window that it is asked by, with
// the same units in all of them. As in lua/log.lua, each quota that counts must have
// room for what is admitted.

// logQuotas are the quotas by which a log is asked.
type logQuotas []logQuota

// A logQuota counts until an instant, since the map was made.
type logQuota struct {
	window, limit int64
	until         time.Duration
}

func (q logQuotas) over(now time.Duration) bool {
	return !slices.ContainsFunc(q, func(one logQuota) bool { return one.until > now })
}

// others returns the quotas of windows other than that of k that count at now, one
// for each window, with the largest limit.
func (q logQuotas) others(k *logKey, now time.Duration) (others []logKey) {
	for _, one := range q {
		if one.window == k.window || one.until <= now {
			continue
		}
		if i := slices.IndexFunc(others, func(o logKey) bool { return o.window == one.window }); i >= 0 {
			others[i].limit = max(others[i].limit, one.limit)
			continue
		}
		others = append(others, logKey{key: k.key, limit: one.limit, window: one.window})
	}
	return others
}

// note returns q with that of k noted at now, and without those that do not count any
// more. fresh says that nothing of that window was there.
func (q logQuotas) note(k *logKey, now time.Duration) (noted logQuotas, fresh bool) {
	noted, fresh = make(logQuotas, 0, len(q)+1), true
	for _, one := range q {
		if one.until <= now {
			continue
		}
		fresh = fresh && one.window != k.window
		if one.window != k.window || one.limit != k.limit {
			noted = append(noted, one)
		}
	}
	length := micro(min(k.window, math.MaxInt64/4000))
	return append(noted, logQuota{k.window, k.limit, now + length + length/4}), fresh
}

// stale reports whether the quota of k is not noted, or not for a window from now.
func (q logQuotas) stale(k *logKey, now time.Duration) bool {
	return !slices.ContainsFunc(q, func(one logQuota) bool {
		return one.window == k.window && one.limit == k.limit && one.until >= now+micro(min(k.window, math.MaxInt64/4000))
	})
}

// log returns the logs of a window.
func (m *memory) log(micros int64) *slidings {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.logs[micros]
	if l == nil {
		l = newSlidings(time.Duration(min(micros, math.MaxInt64/1000)) * time.Microsecond)
		m.logs[micros] = l
	}
	return l
}

// takeFromLog has requests for one log answered, in order.
func (m *memory) takeFromLog(k logKey, requests []*asking) (err error) {
	asks := slices.ContainsFunc(requests, func(a *asking) bool { return a.n > 0 && a.n <= k.most() })
	full := m.quotas.Update(k.key, func(q logQuotas, now time.Duration) logQuotas {
		others := q.others(&k, now)
		if asks && q.stale(&k, now) {
			var fresh bool
			if q, fresh = q.note(&k, now); fresh {
				m.inherit(&k, others)
			}
		}
		for _, a := range requests {
			a.now, a.sent = m.clock(), time.Now()
			a.result = m.takeLog(&k, others, a.n)
			if a.result.Err() == limits.ErrTooManyKeys {
				err = limits.ErrTooManyKeys
				break
			}
		}
		return q
	})
	if err == nil {
		err = full
	}
	return err
}

// inherit has the log of a window, of which nothing is known, begin with what those
// of others hold, as if it had been admitted now.
func (m *memory) inherit(k *logKey, others []logKey) {
	used := func(k *logKey) int64 { return mostInLog - m.log(k.window).TakeLimit(k.key, mostInLog, 0).Remaining }
	most := int64(0)
	for _, o := range others {
		most = max(most, used(&o))
	}
	if more := most - used(k); more > 0 {
		_ = m.log(k.window).Adjust(k.key, more, 0) // an error means 2²⁹ keys
	}
}

// takeLog takes n from the log of k, if others have room for them, too.
func (m *memory) takeLog(k *logKey, others []logKey, n int64) limits.Result {
	own := m.log(k.window)
	res := own.TakeLimit(k.key, k.limit, 0)
	wait := time.Duration(0)
	fits := func(o *logKey, room int64) {
		if n > room {
			retry := m.log(o.window).TakeLimit(k.key, o.limit, n).RetryAfter
			if retry == limits.Never { // until that quota does not count any more
				retry = micro(o.window)
			}
			wait = max(wait, retry)
		}
	}
	if n > k.most() {
		wait = limits.Never
	} else {
		fits(k, res.Remaining)
	}
	room := int64(math.MaxInt64) // of the others
	for i := range others {
		o := m.log(others[i].window).TakeLimit(k.key, others[i].limit, 0)
		if wait != limits.Never {
			fits(&others[i], o.Remaining)
		}
		room = min(room, o.Remaining)
		if o.Remaining < res.Remaining {
			res.Remaining, res.ResetAfter = o.Remaining, o.ResetAfter
		}
	}
	if n == 0 || wait != 0 {
		res.RetryAfter = wait
		return res
	}
	res = own.TakeLimit(k.key, k.limit, n)
	if res.Allowed() {
		for _, o := range others {
			_ = m.log(o.window).Adjust(k.key, n, 0) // an error means 2²⁹ keys
		}
		res.Remaining = min(res.Remaining, room-n)
	}
	return res
}

// adjustLog adds to a log without asking, or takes out of it what was admitted age
// ago, and returns how many units: none if they have left the window.
func (m *memory) adjustLog(k logKey, delta int64, age time.Duration) (made int64, err error) {
	if delta < 0 && int64(age/time.Microsecond) >= k.window {
		return 0, nil
	}
	full := m.quotas.Update(k.key, func(q logQuotas, now time.Duration) logQuotas {
		others := q.others(&k, now)
		if q.stale(&k, now) && delta > 0 {
			var fresh bool
			if q, fresh = q.note(&k, now); fresh {
				m.inherit(&k, others)
			}
		}
		for _, o := range append(others, k) {
			err = m.log(o.window).Adjust(k.key, delta, age)
		}
		return q
	})
	if err == nil {
		err = full
	}
	return max(delta, -delta), err
}
