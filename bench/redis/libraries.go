package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/goredisstore.v9"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis"
	"github.com/sluice-go/sluice/sluiceredis/rueidisclient"
)

// capacity of every bucket. One unit leaks in a second: no bucket is ever empty,
// and none full.
const capacity = 8_000_000

// A library is one way to ask a Redis.
type library struct {
	name  string // library/client
	keeps bool   // something for each key
	open  func(addr string) (ask func(ctx context.Context, key string) error, end func(), err error)
}

var libraries = []library{
	{"sluice/go-redis", true, func(addr string) (ask, func(), error) {
		client := goRedis(addr)
		adapter, err := sluiceredis.NewGoRedis(client)
		return sluice(adapter, err, func() { _ = client.Close() })
	}},
	{"sluice/rueidis", true, func(addr string) (ask, func(), error) {
		client, closes, err := rueidisclient.New(rueidis.ClientOption{InitAddress: []string{addr}})
		return sluice(client, err, closes)
	}},
	{"redis_rate/go-redis", true, func(addr string) (ask, func(), error) {
		client := goRedis(addr)
		l, limit := redis_rate.NewLimiter(client), redis_rate.Limit{Rate: 1, Burst: capacity, Period: time.Second}
		return func(ctx context.Context, key string) error {
			res, err := l.Allow(ctx, key, limit)
			return granted(err == nil && res.Allowed == 1, err)
		}, func() { _ = client.Close() }, nil
	}},
	{"throttled/go-redis", true, func(addr string) (ask, func(), error) {
		client := goRedis(addr)
		store, err := throttledstore.NewCtx(client, "throttled:")
		if err != nil {
			return nil, nil, err
		}
		l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(1), MaxBurst: capacity})
		return func(ctx context.Context, key string) error {
			limited, _, err := l.RateLimitCtx(ctx, key, 1)
			return granted(!limited, err)
		}, func() { _ = client.Close() }, err
	}},
	{"decision/go-redis", false, onGoRedis(decision.script, decision.args...)},
	{"decision/rueidis", false, onRueidis(decision.script, decision.args...)},
	{"script/go-redis", false, onGoRedis(bare, "1790000000123456789", "100000000")},
	{"script/rueidis", false, onRueidis(bare, "1790000000123456789", "100000000")},
	{"empty/go-redis", false, onGoRedis("return {1}")},
	{"empty/rueidis", false, onRueidis("return {1}")},
	{"ping/go-redis", false, func(addr string) (ask, func(), error) {
		client := goRedis(addr)
		return func(ctx context.Context, _ string) error { return client.Ping(ctx).Err() }, func() { _ = client.Close() }, nil
	}},
	{"ping/rueidis", false, func(addr string) (ask, func(), error) {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
		return func(ctx context.Context, _ string) error {
			return client.Do(ctx, client.B().Ping().Build()).Error()
		}, client.Close, err
	}},
}

type ask = func(ctx context.Context, key string) error

// bare makes the calls of a decision, with what Sluice would write.
const bare = `
local time = redis.call('TIME')
local value = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {0, tonumber(time[1]), tonumber(time[2])}`

// decision is what sluice asks a server of one bucket.
var decision = func() (asked struct {
	script string
	args   []string
}) {
	spy := spy(func(s *sluiceredis.Script, args []string) { asked.script, asked.args = s.Text, args })
	ask, _, err := sluice(spy, nil, nil)
	if err == nil {
		err = ask(context.Background(), "key")
	}
	if !errors.Is(err, errSpy) {
		panic(fmt.Sprint("sluice does not ask any more: ", err))
	}
	return asked
}()

// A spy is a client without a server that hears what it is asked.
type spy func(s *sluiceredis.Script, args []string)

var errSpy = errors.New("there is no server")

func (hear spy) Run(_ context.Context, s *sluiceredis.Script, _, args []string) ([]int64, error) {
	hear(s, args)
	return nil, errSpy
}

func (spy) RunMany(context.Context, []sluiceredis.ScriptCall) []sluiceredis.Reply {
	panic("one call at a time")
}

func goRedis(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DisableIdentity: true})
}

func sluice(client sluiceredis.Client, err error, end func()) (ask, func(), error) {
	if err != nil {
		return nil, nil, err
	}
	store, err := sluiceredis.New(client, sluiceredis.Config{})
	if err != nil {
		return nil, nil, err
	}
	l, err := store.Bucket("bench", limits.Rate{Count: 1, Per: time.Second, Burst: capacity})
	return func(ctx context.Context, key string) error {
		res, err := l.Take(ctx, key, 1)
		return granted(res.Allowed(), err)
	}, end, err
}

func onGoRedis(text string, args ...string) func(addr string) (ask, func(), error) {
	return func(addr string) (ask, func(), error) {
		client, script := goRedis(addr), redis.NewScript(text)
		var all []any
		for _, arg := range args {
			all = append(all, arg)
		}
		return func(ctx context.Context, key string) error {
			return script.Run(ctx, client, []string{key}, all...).Err()
		}, func() { _ = client.Close() }, nil
	}
}

func onRueidis(text string, args ...string) func(addr string) (ask, func(), error) {
	return func(addr string) (ask, func(), error) {
		script := rueidis.NewLuaScript(text)
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
		return func(ctx context.Context, key string) error {
			return script.Exec(ctx, client, []string{key}, args).Error()
		}, client.Close, err
	}
}

var errRefused = errors.New("refused, and the bucket is not full")

func granted(ok bool, err error) error {
	if err == nil && !ok {
		return errRefused
	}
	return err
}

// keys are those of the works.
var keys = func() (keys []string) {
	for i := range 10_000 {
		keys = append(keys, fmt.Sprintf("user:%07d", i))
	}
	return keys
}()
