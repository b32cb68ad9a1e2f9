package leaky

import (
	"fmt"
	"time"

	"github.com/sluice-go/sluice/internal/kind"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/internal/snapshot"
	"github.com/sluice-go/sluice/limits"
)

// # How does a bucket describe itself for another process?
//
// Within a process it is one point in time, TAT, at which it will be empty. Noted as
// wall time, TAT alone would trust the wall clock with everything: put back by
// a year between two processes, it makes a bucket that needed an hour need a
// year and an hour. And one that is overdrawn by 280 years is empty at a time
// beyond 64 bits of Unix time. So two numbers are noted, the time of the note
// and how full the bucket was then:
//
//	level := level − max(0, now − at)     but not below 0
//
// A bucket of 4 hours, noted at 12:00:
//
//	restored at    13:00   16:00   12:00   09:00, the clock was put back
//	level          3 h     empty   4 h     4 h: its level then, and at most that
//
// A clock put forward leaks by the time it shows: a machine that was off looks the same.

// noted is the content of a snapshot of a bucket, sealed as a "bucket" by package
// internal/snapshot.
type noted struct {
	Capacity int64         `json:"capacity"`
	Count    int64         `json:"count"`
	Per      time.Duration `json:"per"`
	At       int64         `json:"at"`    // when, in Unix time
	Level    time.Duration `json:"level"` // the time it would take to drain; more than a full bucket if overdrawn

	// Rest is the bucket of earlier rates, if it still matters.
	Rest *notedRest `json:"rest,omitempty"`
}

type notedRest struct {
	Interval int64 `json:"interval"`
	Capacity int64 `json:"capacity"`
	Level    int64 `json:"level"`
}

// note returns the note for t, which is now.
func note(rate limits.Rate, p kind.BucketPair, t time.Time) noted {
	n := noted{rate.Burst, rate.Count, rate.Per, t.UnixNano(), time.Duration(p.Own.Level), nil}
	if p.Rest.Interval > 0 {
		n.Rest = &notedRest{p.Rest.Interval, p.Rest.Capacity, p.Rest.Level}
	}
	return n
}

// rate returns the rate of the bucket that n is about, or an error if there can be no
// such bucket.
func (n noted) rate() (limits.Rate, error) {
	rate := limits.Rate{Count: n.Count, Per: n.Per, Burst: n.Capacity}
	if _, err := kind.NewBucket(rate); err != nil || n.Capacity < 1 || n.Level < 0 || !n.Rest.possible() {
		return rate, snapshot.Impossible()
	}
	return rate, nil
}

func (r *notedRest) possible() bool {
	return r == nil || r.Level >= 0 && r.Interval > 0 && r.Capacity > 0 && r.Capacity <= int64(deepest)/r.Interval
}

// deepest is the longest time in which a full bucket may drain: see kind.NewBucket.
const deepest = time.Duration(1 << 62)

// rest returns the rest, at t, which is now.
func (n noted) rest(now time.Duration, t time.Time) *rest {
	if n.Rest == nil {
		return nil
	}
	level := max(0, n.Rest.Level-int64(snapshot.Age(t, n.At)))
	return &rest{kind.BucketState{Interval: n.Rest.Interval, Capacity: n.Rest.Capacity, Level: level}, now}
}

// tat returns the tat, at t, which is now, of the bucket that n is about.
func (n noted) tat(now time.Duration, t time.Time) time.Duration {
	return sat.Add(now, max(0, n.Level-snapshot.Age(t, n.At)))
}

// Snapshot returns the level of the bucket and its rate, as a JSON object of about 140 bytes, for
// [Bucket.Restore] in another process. Times are wall time.
//
// Units taken since can be taken again after a crash.
func (b *Bucket) Snapshot() []byte {
	b.setting.Lock()
	defer b.setting.Unlock()
	s, tat, _ := b.load()
	// Both clocks are read together, or their difference would be in the level.
	// If anything is taken between load and here, it comes after the snapshot.
	t := time.Now()
	return snapshot.Seal("bucket", note(s.rate, s.pair(tat, max(0, t.Sub(b.epoch))), t))
}

// Restore replaces the state of the bucket by a snapshot, without the units that have leaked since,
// by the wall clock. If the clock was put back in between, nothing has leaked.
//
// Restore returns [limits.ErrSnapshot], and changes nothing, if data is damaged, from another
// version or kind of limit, or of a bucket with another rate: 10 per 10 s is not 1 per second. For
// a new rate, restore at the old one and call [Bucket.SetRate].
//
// Restore a bucket before it is used: the units that it allowed earlier would be discarded.
func (b *Bucket) Restore(data []byte) error {
	n, err := snapshot.Open[noted](data, "bucket")
	if err != nil {
		return err
	}
	rate, err := n.rate()
	if err != nil {
		return err
	}
	b.setting.Lock()
	defer b.setting.Unlock()
	s := b.loaded()
	if s.rate != rate {
		return fmt.Errorf("%w: rate of %v, not %v", limits.ErrSnapshot, rate, s.rate)
	}
	s.tat.Swap(closed)
	t := time.Now()
	now := max(0, t.Sub(b.epoch))
	b.replace(s.rule, s.rate, n.tat(now, t), n.rest(now, t))
	return nil
}
