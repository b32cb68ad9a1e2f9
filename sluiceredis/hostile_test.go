package sluiceredis

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// Whatever is in a key, no limit changes it unless it is its own, the server
// lives on and the error says which key it is.

// texts are what no limit writes.
var texts = []string{
	"", "abc", "-1", "+1", "1.5", "1e9", " 1", "1 ", "\x00\xff", "99999999999999999999", "9223372036854775808",
	"1790000000000000000 x", "1790000000000000000 -5", "1790000000000000000 99999999999999999", "1 2 3", "nan", "{}", strings.Repeat("9", 10000),
	"1790000000000000000 5@e9", "1790000000000000000 5@1e9e1", "1790000000000000000 5@1e999", "1790000000000000000 0@1e999",
}

// others are keys of other types.
var others = map[string]func(c *redis.Client, key string) error{
	"list": func(c *redis.Client, key string) error { return c.LPush(bg, key, "x").Err() },
	"hash": func(c *redis.Client, key string) error { return c.HSet(bg, key, "a", "b").Err() },
	"set":  func(c *redis.Client, key string) error { return c.SAdd(bg, key, "a").Err() },
	"stream": func(c *redis.Client, key string) error {
		return c.XAdd(bg, &redis.XAddArgs{Stream: key, Values: []string{"a", "b"}}).Err()
	},
}

// A victim is a limit: the key that it looks at first, and ways to ask it.
type victim struct {
	name string
	key  string
	ask  map[string]func() error
	zset bool // its own keys are sorted sets
}

func victims(t *testing.T, b *backend) []victim {
	s := b.store(t)
	l := newLeaky(t, s, "hostile", limits.Rate{Burst: 5, Count: 1, Per: sec})
	g, f := newLog(t, s, "hostile", 5, sec), newFixed(t, s, "hostile", FixedConfig{Limit: 5, Window: sec})
	sem := newSemaphore(t, s, "hostile", 5, SemaphoreConfig{})
	lend := func() error {
		l, err := sem.acquire(bg, 1, 0)
		if err == nil {
			l.Release()
		}
		return err
	}
	p := newPacer(t, s, "hostile", 10, sec, PacerConfig{})
	return []victim{
		{"Leaky", s.key("b1", "hostile", "k", ""), map[string]func() error{
			"take":   func() error { _, err := l.Take(bg, "k", 1); return err },
			"peek":   func() error { _, err := l.Take(bg, "k", 0); return err },
			"add":    func() error { return l.on("k").Adjust(bg, 1, 0) },
			"return": func() error { return l.on("k").Adjust(bg, -1, 0) },
		}, false},
		{"Log", s.key("log1", "hostile", "k", ""), map[string]func() error{
			"take": func() error { _, err := g.Take(bg, "k", 1); return err },
			"peek": func() error { _, err := g.Take(bg, "k", 0); return err },
			"add":  func() error { return g.on("k").Adjust(bg, 1, 0) },
		}, true},
		{"Fixed", s.key("fixed1", "hostile", "k", ""), map[string]func() error{
			"take": func() error { _, err := f.Take(bg, "k", 1); return err },
			"peek": func() error { _, err := f.Take(bg, "k", 0); return err },
			"add":  func() error { return f.on("k").Adjust(bg, 1, 0) },
		}, false},
		{"Semaphore's leases", sem.keys[0], map[string]func() error{"lend": lend}, true},
		{"Semaphore's token", sem.keys[1], map[string]func() error{"lend": lend}, false},
		{"Pacer", p.key, map[string]func() error{
			"reserve": func() error { _, err := p.Reserve(bg, 1, sec); return err },
			"pause":   func() error { return p.PauseUntil(bg, time.Now().Add(sec)) },
			"cancel":  func() error { return cancelling(p) },
		}, false},
	}
}

// cancelling asks for slots to be returned, and returns what went wrong.
func cancelling(p *Pacer) error {
	_, err := p.store.askPacer(bg, "cancel", p.at(), 1, 1, 0)
	return err
}

func TestHostileData(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		for _, v := range victims(t, b) {
			put := map[string]func() error{}
			for name, f := range others {
				put[name] = func() error { return f(b.redis, v.key) }
			}
			if v.zset {
				for _, text := range texts {
					put["text "+text[:min(20, len(text))]] = func() error { return b.redis.Set(bg, v.key, text, 0).Err() }
				}
			} else {
				// Three numbers are what a pacer writes, and a semaphore next to its leases.
				for _, text := range texts {
					if v.name != "Pacer" && v.name != "Semaphore's token" || text != "1 2 3" {
						put[fmt.Sprintf("%.30q", text)] = func() error { return b.redis.Set(bg, v.key, text, 0).Err() }
					}
				}
				put["zset"] = func() error { return b.redis.ZAdd(bg, v.key, redis.Z{Score: 1, Member: "a"}).Err() }
			}
			for what, put := range put {
				for how, ask := range v.ask {
					b.redis.Del(bg, v.key)
					if err := put(); err != nil {
						t.Fatal(err)
					}
					before := b.dump(v.key)
					err := ask()
					var data *keyError
					if !errors.As(err, &data) || !errors.Is(err, ErrData) || data.key != v.key {
						t.Errorf("%s, %s of %s: %v", v.name, how, what, err)
					}
					if after := b.dump(v.key); after != before {
						t.Errorf("%s, %s of %s changed it: %s became %s", v.name, how, what, before, after)
					}
				}
			}
			b.redis.Del(bg, v.key)
			for how, ask := range v.ask {
				if err := ask(); err != nil && (how != "return" || err != errStranded) {
					t.Errorf("%s, %s of nothing: %v", v.name, how, err)
				}
			}
			b.redis.Del(bg, v.key)
		}
		if err := b.redis.Ping(bg).Err(); err != nil {
			t.Errorf("the server: %v", err)
		}
	})
}

// dump returns all there is to know of a key.
func (b *backend) dump(key string) string {
	ttl := b.redis.TTL(bg, key).Val()
	switch kind := b.redis.Type(bg, key).Val(); kind {
	case "string":
		return fmt.Sprint(kind, ttl, b.redis.Get(bg, key).Val())
	case "list":
		return fmt.Sprint(kind, ttl, b.redis.LRange(bg, key, 0, -1).Val())
	case "hash":
		return fmt.Sprint(kind, ttl, b.redis.HGetAll(bg, key).Val())
	case "set":
		return fmt.Sprint(kind, ttl, b.redis.SMembers(bg, key).Val())
	case "zset":
		return fmt.Sprint(kind, ttl, b.redis.ZRangeWithScores(bg, key, 0, -1).Val())
	default:
		return fmt.Sprint(kind, ttl, b.redis.XRange(bg, key, "-", "+").Val())
	}
}

// Numbers at the edges of what is exact are told from those beyond.
func TestNumbersAtTheEdges(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, _ := b.freeze(t)
		for _, v := range []struct {
			value string
			want  limits.Result
		}{
			{"0", limits.Result{Limit: 2, Remaining: 2}},
			{"9007199254740993", limits.Result{Limit: 2, Remaining: 2}}, // 2^53 + 1: 104 days after 1970
			{"0000000000000000001", limits.Result{Limit: 2, Remaining: 2}},
			{"1790000000000000001", limits.Result{Limit: 2, Remaining: 1, ResetAfter: 1}},
			{"1790000002000000000", limits.Result{Limit: 2, ResetAfter: 2 * sec}},
			{"1790000002000000001", limits.Result{Limit: 2, ResetAfter: 2 * sec}}, // fuller than full
			{"1799007199254740993", limits.Result{Limit: 2, ResetAfter: 2 * sec}}, // now + 2^53 + 1
			{"9223372036854775807", limits.Result{Limit: 2, ResetAfter: 2 * sec}},
		} {
			l := newLeaky(t, s, "edge", limits.Rate{Burst: 2, Count: 1, Per: sec})
			key, value := s.key("b1", "edge", "k", ""), v.value+" 2@1e9"
			b.redis.Set(bg, key, value, 0)
			if got, err := l.Take(bg, "k", 0); err != nil || got != v.want {
				t.Errorf("%s: %+v, %v; want %+v", v.value, got, err, v.want)
			}
			if after := b.redis.Get(bg, key).Val(); after != value {
				t.Errorf("%s became %s", value, after)
			}
			if v.want.Remaining > 0 {
				continue
			}
			if got, err := l.Take(bg, "k", 1); err != nil || got != (limits.Result{Limit: 2, RetryAfter: sec, ResetAfter: 2 * sec}) {
				t.Errorf("%s: %+v, %v", v.value, got, err)
			}
		}
		// The deepest bucket there is: exact to the nanosecond.
		deep := time.Duration(kinds.Longest)
		l := newLeaky(t, s, "deep", limits.Rate{Count: 1, Per: deep})
		if got, err := l.Take(bg, "k", 1); err != nil || got.ResetAfter != deep || !got.Allowed() {
			t.Errorf("%+v, %v", got, err)
		}
		if got, err := l.Take(bg, "k", 1); err != nil || got.ResetAfter != deep || got.RetryAfter != deep {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// Keys that look alike are different keys, and all parts share a slot.
func TestKeys(t *testing.T) {
	s := &Store{prefix: "p"}
	for _, v := range []struct{ name, key, part, want string }{
		{"orders", "acct42", "", "p:k:{orders|acct42}"},
		{"orders", "acct42", "w", "p:k:{orders|acct42}:w"},
		{"a|b", "{c}", "", "p:k:{a%7cb|%7bc%7d}"},
		{"a%7cb", "", "", "p:k:{a%257cb|}"},
		{"orders/day", "acct42", "", "p:k:{orders|acct42}:day"}, // with orders/second in one slot
		{"orders/day", "acct42", "w", "p:k:{orders|acct42}:day:w"},
		{"a/b/{c}", "", "", "p:k:{a/b|}:%7bc%7d"},
		{"orders", "a/b", "", "p:k:{orders|a/b}"},
		{"n", strings.Repeat("x", 128), "", "p:k:{n|" + strings.Repeat("x", 128) + "}"},
		{"n", strings.Repeat("x", 129), "", "p:k:{n|%h4fa5b0c04b6d4a8a1c3e8a2f1c0a9c5b}"},
	} {
		got := s.key("k", v.name, v.key, v.part)
		if len(v.key) > 128 {
			if len(got) != len(v.want) || got == s.key("k", v.name, v.key+"x", v.part) {
				t.Errorf("a long key: %s", got)
			}
			continue
		}
		if got != v.want {
			t.Errorf("%q %q: %s, want %s", v.name, v.key, got, v.want)
		}
		if _, tag, _ := strings.Cut(got, "{"); !strings.HasPrefix(tag, tagOf(got)+"}") || strings.Contains(tagOf(got), "}") {
			t.Errorf("%s: the tag is %s", got, tagOf(got))
		}
	}
}
