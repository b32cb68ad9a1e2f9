// Package shared has what processes share through a Redis.
package shared

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis"
)

// Open returns the store in the Redis at a URL, which need not be there. notify is called when it is
// unavailable, and with nil when it is back. Close its client at the end.
func Open(url string, notify func(err error)) (store *sluiceredis.Store, client *redis.Client, err error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, nil, errors.New("want a URL, such as redis://localhost:6379/0") // err may show the password
	}
	o.ContextTimeoutEnabled = true // NewGoRedis demands it
	redis.SetLogger(silent{})      // it would write a line for each dial
	client = redis.NewClient(o)
	c, err := sluiceredis.NewGoRedis(client)
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	store, err = sluiceredis.New(c, sluiceredis.Config{Notify: func(_ string, err error) { notify(err) }})
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return store, client, nil
}

// silent is a logger of go-redis.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// patient is a pacer as a limit. It does not embed it, as a gate would use other methods of it.
type patient struct{ pacer *sluiceredis.Pacer }

// Patient returns a pacer as a limit of a gate whose calls wait while the Redis is unavailable, instead of
// failing.
func Patient(pacer *sluiceredis.Pacer) limits.Limiter { return patient{pacer} }

// askAgain is the interval at which a Redis that does not answer is asked.
const askAgain = 200 * time.Millisecond

// Admit implements limits.Limiter.
func (p patient) Admit(ctx context.Context, n int64) (time.Duration, error) {
	wait, err := p.pacer.Admit(ctx, n)
	if errors.Is(err, sluiceredis.ErrOutage) && ctx.Err() == nil {
		return askAgain, nil
	}
	return wait, err
}

// Adjust implements limits.Limiter.
func (p patient) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	return p.pacer.Adjust(ctx, delta, age)
}
