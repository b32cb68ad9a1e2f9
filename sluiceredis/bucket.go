package sluiceredis

import (
	"context"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// A Bucket is a leaky bucket for each key, shared by all machines. It allows the same calls as a
// bucket of package leaky, by the server's clock. It expires when it is empty.
type Bucket struct{ limiters }

// Bucket returns the buckets called name, one for each key. It returns an error if name is empty, if
// rate is not valid, or if a full bucket takes longer than 104 days to drain.
//
// The same name with another rate means the same keys: see [Bucket.SetRate]. onOutage, if given, is
// the policy of these buckets in place of that of the store; more than one panics.
func (s *Store) Bucket(name string, rate limits.Rate, onOutage ...OutagePolicy) (*Bucket, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	rule, err := kinds.NewBucket(rate, nil)
	if err != nil {
		return nil, err
	}
	b := new(Bucket)
	if err := b.init(s, "b1", name, rule, policyOf(onOutage)); err != nil {
		return nil, err
	}
	return b, nil
}

// SetRate changes the rate on this machine, for the calls that it makes. It returns an error and
// changes nothing if Bucket would return one.
//
// While machines use different rates, as in a rolling deploy, no more is allowed in any time than
// the laxest of them allows or, if none is, the largest burst with the highest rate. Once the last
// machine has changed, exactly the new rate applies.
//
// The number of units in use stays the same, but is at most the new burst. A rate with a smaller
// burst and more units per period waits until the units that the old one allowed have leaked at the
// old rate.
func (b *Bucket) SetRate(rate limits.Rate) error {
	old := b.limit.Load()
	rule, err := kinds.NewBucket(rate, old.Rule.(*kinds.Bucket))
	if err != nil {
		return err
	}
	b.limit.Store(newLimit(rule, old.away))
	return nil
}

// TakeRate is Take at a separate rate, such as the rate of a user's plan. Several rates may be used
// for one key: see [Bucket.SetRate]. It returns an error if Bucket would return one.
func (b *Bucket) TakeRate(ctx context.Context, key string, rate limits.Rate, n int64) (limits.Result, error) {
	rule, err := kinds.NewBucket(rate, nil)
	if err != nil {
		return limits.Result{}, err
	}
	a := b.at(key)
	a.limit = newLimit(rule, a.away)
	return b.store.take(ctx, a, n)
}
