package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/built"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// A pipes notes what is sent in pipelines.
type pipes struct {
	Client
	mu    sync.Mutex
	calls [][]ScriptCall
	fails error // of the first call of each
}

func (p *pipes) RunMany(ctx context.Context, calls []ScriptCall) []Reply {
	p.mu.Lock()
	p.calls = append(p.calls, calls)
	p.mu.Unlock()
	replies := p.Client.RunMany(ctx, calls)
	if p.fails != nil {
		replies[0] = Reply{Err: p.fails}
	}
	return replies
}

// takeCalls returns calls for buckets of 5 at 1 per second; a run is how many requests and
// what one takes.
func takeCalls(keys []string, runs ...string) []*sending {
	var all []*sending
	for _, key := range keys {
		args := append([]string{"bucket", format(5 * int64(time.Second)), " 5@1000000000", format(int64(len(runs) / 2))}, runs...)
		all = append(all, &sending{call: ScriptCall{takes[kinds.BucketKind], []string{key}, args}})
	}
	return all
}

// The short path for most buckets is the same rule as take_set, to which a second run
// leaves them.
func TestShortPathDoesWhatTakeSetDoes(t *testing.T) {
	built.SkipRaced(t)
	onBackends(t, func(t *testing.T, b *backend) {
		_, clock := b.freeze(t)
		random, shorter := rand.New(rand.NewPCG(1, 2)), 0
		for i := range 3000 {
			at := time.Duration(random.Int64N(int64(time.Hour)))
			clock.set(at)
			now := int64(epoch + at)
			depth := 1 + random.Int64N(int64(3*time.Second))
			if i%7 == 0 {
				depth = 1 + random.Int64N(kinds.Longest)
			}
			held := depth
			if i%3 != 0 {
				held = random.Int64N(depth + depth/4 + 1)
			}
			cost := 1 + random.Int64N(depth)
			if i%5 == 0 && held < depth {
				cost = depth - held // fits exactly
			}
			count := []string{"1", "1", "2", "5", format(random.Int64N(1 << 40))}[random.IntN(5)]
			tag := " 1@" + format(depth)
			state := format(now+held) + tag
			switch random.IntN(12) {
			case 0:
				state = format(now-random.Int64N(now)) + tag // over
			case 1:
				state += "+" + format(random.Int64N(1000)) // overdrawn
			case 3:
				state += "," + format(now+random.Int64N(depth)) + " 2@" + format(1+random.Int64N(depth/2+1)) // of another quota, too
			case 4:
				state = format(now+random.Int64N(depth)) + " 3@" + format(1+random.Int64N(depth/3+1)) // of another quota
			case 2:
				state = []string{"", "0", "x", "1e18", "-5", "179000000012345678", "9990000000123456789", "99999999999999999999", " 1790000000123456789", "1790000000123456789\n", "1790000000.23456789"}[random.IntN(11)]
			}
			a, c := b.prefix+" {a}", b.prefix+" {c}"
			for _, key := range []string{a, c} {
				if err := b.redis.Set(bg, key, state, 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
			old := &state
			if random.IntN(10) == 0 {
				old = nil
				b.redis.Del(bg, a, c)
			}
			want, err := clock.Run(bg, takes[kinds.BucketKind], []string{a}, []string{"bucket", format(depth), tag, "2", count, format(cost), "0", "1"})
			if err != nil {
				t.Fatal(err)
			}
			got, err := clock.Run(bg, takes[kinds.BucketKind], []string{c}, []string{"bucket", format(depth), tag, "1", count, format(cost)})
			if want[0] < 0 {
				want, got = want[:1], got[:1]
			}
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("%d: %q, depth %d, %s of %d: %d, %v, want %d", i, state, depth, count, cost, got, err, want)
			}
			x, y := b.redis.Get(bg, a).Val(), b.redis.Get(bg, c).Val()
			if x != y {
				t.Fatalf("%d: %q becomes %q and not %q", i, state, y, x)
			}
			if count != "1" {
				continue
			}
			// A short set says the same in fewer words.
			short := &taking{sending: sending{call: ScriptCall{Args: []string{format(cost), format(depth), tag}}}}
			d := b.prefix + " {d}"
			b.redis.Del(bg, d)
			if old != nil {
				b.redis.Set(bg, d, state, 0)
			}
			reply, err := clock.Run(bg, takes[kinds.BucketKind], []string{d}, short.call.Args)
			got = short.widen(reply)
			if want[0] < 0 {
				got = got[:1]
			}
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("%d: short: %q, depth %d, one of %d: %d, %v, want %d", i, state, depth, cost, got, err, want)
			}
			if z := b.redis.Get(bg, d).Val(); x != z {
				t.Fatalf("%d: short: %q becomes %q and not %q", i, state, z, x)
			}
			if len(reply) == 3 && reply[0] == 0 {
				shorter++
			}
		}
		if shorter < 500 {
			t.Errorf("%d replies of one integer: nothing is shown", shorter)
		}
	})
}

// A bucket is discarded when it is empty, and not before.
func TestTakeOfABucketExpires(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s := b.store(t)
		all := takeCalls([]string{b.prefix + "a"}, "2", format(int64(1500*time.Millisecond)))
		_ = s.sendAll(bg, 0, all[:1])
		left := b.redis.PTTL(bg, b.prefix+"a").Val()
		if left < 2900*time.Millisecond || left > 3002*time.Millisecond {
			t.Errorf("%v left of 3 s", left)
		}
	})
}

func TestManyBucketsShareAScript(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		p := &pipes{Client: b.client}
		s := b.storeOn(t, p)
		var keys []string
		for i := range 2*mostSets + 3 {
			keys = append(keys, fmt.Sprint(b.prefix, i))
		}
		b.redis.LPush(bg, keys[1], "a list")
		b.redis.Set(bg, keys[2], "hostile", 0)
		sec := format(int64(time.Second))
		all := takeCalls(keys, "3", sec)
		other := takeCalls([]string{b.prefix + "other"}, "1", sec, "2", format(2*int64(time.Second)))[0] // two costs
		again := takeCalls(keys[:1], "3", sec)[0]                                                        // after the first, in the same script
		all = slices.Insert(all, 40, other, again)
		_ = s.sendAll(bg, 0, all)

		if len(p.calls) != 1 {
			t.Fatalf("%d pipelines", len(p.calls))
		}
		var went []string
		for _, call := range slices.Concat(p.calls...) {
			went = append(went, fmt.Sprint(call.Script.Name, len(call.Keys)))
		}
		if want := []string{"take64", "take64", "take5"}; !slices.Equal(went, want) {
			t.Errorf("went as %v, want %v", went, want)
		}
		for _, c := range all {
			want := int64(3)
			switch key := c.call.Keys[0]; {
			case c == again:
				want = 2
			case key == keys[1], key == keys[2]:
				if code := c.reply.Ints[0]; key == keys[1] && code != wrongType || key == keys[2] && code != unreadable {
					t.Errorf("%s: %d", key, c.reply.Ints)
				}
				continue
			}
			if c.reply.Err != nil || len(c.reply.Ints) != 6 || c.reply.Ints[2] != want {
				t.Errorf("%s: %d, %v, want %d granted", c.call.Keys[0], c.reply.Ints, c.reply.Err, want)
			}
		}
		if got := b.redis.Get(bg, keys[2]).Val(); got != "hostile" {
			t.Errorf("a hostile key holds %q now", got)
		}
	})
}

// A script that fails has answered nobody, whichever buckets it was for; others in
// the pipeline are answered.
func TestSharedScriptFails(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		fails := errors.New("fails")
		s := b.storeOn(t, &pipes{Client: b.client, fails: fails})
		var keys []string
		for i := range mostSets + 2 {
			keys = append(keys, fmt.Sprint(b.prefix, i))
		}
		all := takeCalls(keys, "1", format(int64(time.Second)))
		_ = s.sendAll(bg, 0, all)
		for i, c := range all {
			if want := i < mostSets; errors.Is(c.reply.Err, fails) != want {
				t.Errorf("%d: %v", i, c.reply.Err)
			}
		}
	})
}

// On a cluster each bucket goes alone, and in strict mode they share an epoch.
func TestBucketsOfAClusterAndInStrictMode(t *testing.T) {
	for _, s := range []*Store{{strict: true}, {sharded: true}} {
		p := &pipes{Client: unreachable{}}
		s.client, s.timeout = p, sec
		all := takeCalls([]string{"a", "b"}, "1", "1")
		if s.strict {
			for _, c := range all {
				c.call.Keys, c.call.Args = append(c.call.Keys, "e"), append(c.call.Args, "epoch")
			}
		}
		_ = s.sendAll(bg, 0, all)
		var keys [][]string
		for _, c := range p.calls[0] {
			keys = append(keys, c.Keys)
		}
		if want := map[bool]string{true: "[[a b e]]", false: "[[a] [b]]"}[s.strict]; fmt.Sprint(keys) != want {
			t.Errorf("strict %v: %v, want %v", s.strict, keys, want)
		}
	}
}

// Callers of many keys at the same time are answered as if each were alone.
func TestManyKeysManyCallers(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		l, err := b.store(t).Bucket("many", limits.Rate{Burst: 3, Count: 1, Per: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		const keys, callers = 50, 200
		var granted [keys]int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for j := range 10 {
					k := (i + 7*j) % keys
					res, err := l.Take(bg, fmt.Sprint(k), 1)
					if err != nil {
						t.Error(err)
					}
					if res.Allowed() {
						mu.Lock()
						granted[k]++
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		for k, n := range granted {
			if n != 3 {
				t.Errorf("key %d: %d of 3 granted", k, n)
			}
		}
	})
}
