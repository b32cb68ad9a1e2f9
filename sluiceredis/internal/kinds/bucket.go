package kinds

import (
	"fmt"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/kind"
)

// A Bucket is a leaky bucket.
type Bucket struct {
	rule     kind.Bucket // of the whole, or of a share
	whole    *kind.Bucket
	interval int64 // the number of nanoseconds in which one unit leaks
	depth    int64 // and a full bucket

	tag, depthArg, unitArg string

	since  time.Time // when the rate came into force
	before int64     // interval of the rate before it, or its own
}

// NewBucket returns a bucket of a rate that comes into force now, in place of old if that
// is not nil. It returns an error if kind.NewBucket does, or if a full bucket takes longer
// than 104 days to drain.
func NewBucket(rate limits.Rate, old *Bucket) (*Bucket, error) {
	rule, err := kind.NewBucket(rate)
	if err != nil {
		return nil, fmt.Errorf("sluiceredis: %w", err)
	}
	if rule.Depth() > time.Duration(Longest) {
		return nil, fmt.Errorf("sluiceredis: rate of %v: a full bucket takes longer than 104 days to drain", rate)
	}
	b := &Bucket{rule: rule, whole: &rule, interval: int64(rule.Interval()), depth: int64(rule.Depth()), since: time.Now()}
	b.before = b.interval
	if old != nil {
		b.before = old.interval
	}
	b.depthArg, b.unitArg = Format(b.depth), Format(b.interval)
	b.tag = " " + brief(rule.Capacity()) + "@" + brief(b.interval) // which is in the value, behind the time
	return b, nil
}

// brief returns n > 0 in as few bytes as Lua reads without loss: 25000000 is 25e6. It is part
// of each key's value.
func brief(n int64) string {
	zeros := int64(0)
	for ; n%10 == 0; n /= 10 {
		zeros++
	}
	if text := Format(n) + "e" + Format(zeros); zeros > 2 {
		return text
	}
	for ; zeros > 0; zeros-- {
		n *= 10
	}
	return Format(n)
}

func (b *Bucket) Kind() Kind            { return BucketKind }
func (b *Bucket) Tag() string           { return b.tag }
func (b *Bucket) Limit() int64          { return b.rule.Capacity() }
func (b *Bucket) Most() int64           { return b.rule.Capacity() }
func (b *Bucket) AtOnce() int64         { return unlimited }
func (b *Bucket) Each() int64           { return b.interval }
func (b *Bucket) Counts() time.Duration { return time.Duration(b.depth) }

func (b *Bucket) Args(args []string, _ string) []string { return append(args, b.depthArg, b.tag) }

// Cost has the text for one unit, the amount of most calls.
func (b *Bucket) Cost(n int64) string {
	if n == 1 {
		return b.unitArg
	}
	return Format(n * b.interval)
}

func (b *Bucket) State(found []int64, _ int64, room *Room) State {
	if room == nil {
		return &BucketState{b, found[1]}
	}
	room.bucket = BucketState{b, found[1]}
	return &room.bucket
}

// leaked reports whether n units of a call that was admitted age ago may have leaked, by
// this rate or by a faster one before it.
func (b *Bucket) leaked(n int64, age time.Duration) bool {
	whole := int64(b.whole.Interval())
	return int64(max(0, age)) >= n*whole || age > time.Since(b.since) && int64(age)/b.before >= n
}

func (b *Bucket) Correction(delta int64, age time.Duration, _ int64) (add, arg int64, err error) {
	if delta < 0 && b.leaked(-delta, age) {
		return 0, 0, ErrStranded
	}
	return b.nanoseconds(delta), 0, nil
}

// nanoseconds returns delta ≥ −Most units as time, no more than any debt may be.
func (b *Bucket) nanoseconds(delta int64) int64 {
	if delta > Longest/b.interval {
		return Longest
	}
	return delta * b.interval
}

// Share has a capacity divided by m, rounded down, and m times the interval. So m shares hold no
// more than the bucket, and leak no faster. As time, the unit of a bucket, a share and the whole
// are about equally deep, and their levels can be compared.
func (b *Bucket) Share(m int64) Rule {
	rule, ok := b.whole.Share(m)
	if !ok {
		return nil
	}
	share := *b
	share.rule, share.interval, share.depth = rule, int64(rule.Interval()), int64(rule.Depth())
	share.unitArg = Format(share.interval)
	return &share
}

// A BucketState is the level of a bucket.
type BucketState struct {
	bucket *Bucket
	Level  int64
}

func (s *BucketState) Wait(n int64) time.Duration {
	if n == 0 {
		return 0
	}
	_, wait := s.bucket.rule.Fits(time.Duration(s.Level), n)
	return wait
}

func (s *BucketState) Take(n int64) (end int64) {
	s.Level += n * s.bucket.interval
	return 0
}

func (s *BucketState) Holds() (remaining, limit int64, reset time.Duration) {
	res := s.bucket.rule.Result(time.Duration(s.Level), 0)
	return res.Remaining, res.Limit, res.ResetAfter
}

// A BucketHeld is the state of a key in a process: the buckets of the rate used last and of
// all others, at a time. That of a share is of the whole.
type BucketHeld struct {
	BucketState
	pair      kind.BucketPair
	at, until time.Duration
	fresh     bool // it must be kept even if nothing is taken
}

func (b *Bucket) Open(old Held, now time.Duration, _ *Clock) Held {
	h, _ := old.(*BucketHeld)
	var pair kind.BucketPair
	if h != nil {
		pair = h.pair.After(now - h.at)
	}
	p, fresh := pair.By(b.whole)
	p.Own.Level, p.Rest.Level = min(p.Own.Level, Longest), min(p.Rest.Level, Longest)
	if h == nil || fresh { // which is not kept if the call only looks
		h = new(BucketHeld)
	}
	h.BucketState, h.pair, h.at, h.fresh = BucketState{b, p.Own.Level}, p, now, fresh
	return h
}

func (h *BucketHeld) Close(asked bool) (keep bool) {
	if h.Level == h.pair.Own.Level && !(asked && h.fresh) {
		return false
	}
	h.pair.Pour(h.Level - h.pair.Own.Level)
	h.until = h.at + time.Duration(min(Longest, max(h.pair.Own.Level, h.pair.Rest.Level)))
	return true
}

func (h *BucketHeld) Until() time.Duration { return h.until }

func (h *BucketHeld) Add(delta int64, age time.Duration, _ int64) (made int64, err error) {
	if delta < 0 && h.bucket.leaked(-delta, age) {
		return 0, ErrStranded
	}
	before, ns := h.Level, h.bucket.nanoseconds(delta)
	h.Level = min(max(0, before+ns), Longest)
	if h.Level == before+ns {
		return max(delta, -delta), nil
	}
	return Ceil(max(h.Level-before, before-h.Level), h.bucket.interval), nil
}

func (h *BucketHeld) Follow(found State, granted, _ int64) {
	b := h.bucket
	h.Level = max(h.Level, min(h.Level+min(granted, b.Limit())*b.interval, b.depth))
	if whole, ok := found.(*BucketState); ok {
		h.Level = max(h.Level, min(whole.Level, b.depth))
	}
}

// Owes owes of the last unit only the part that has not leaked yet.
func (h *BucketHeld) Owes(units, m int64) (held, add int64) {
	held = min(units, Ceil(h.Level, h.bucket.interval))
	return held, min(held*int64(h.bucket.whole.Interval()), Ceil(h.Level, m))
}

func (h *BucketHeld) Reset() { *h = BucketHeld{} }
