package sluiceredis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// Short sets that share a script, among them some that take_set must decide, are answered
// as each is alone.
func TestShortSetsShareAScript(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		_, clock := b.freeze(t)
		s := b.storeOn(t, clock)
		random := rand.New(rand.NewPCG(3, 4))
		now := int64(epoch)
		same := 0
		for round := range 60 {
			var joined, alone []*sending
			n := 2 + random.IntN(6)
			usual := round%10 == 1
			switch {
			case usual:
				n = 3 // whose reply is as long as that for one set with an error
			case round%10 == 0:
				n = mostSets
			}
			for i := range n {
				state := []string{
					"", "hostile", format(now+random.Int64N(int64(4*time.Second))) + " 5@1000000000",
					format(now+random.Int64N(int64(9*time.Second))) + " 5@1000000000", // fuller than full, too
					format(now+random.Int64N(int64(time.Second))) + " 7@500000000",
				}[random.IntN(5)]
				if usual {
					state = ""
				}
				cost, depth, tag := format(int64(time.Second)), format(5*int64(time.Second)), " 5@1000000000"
				if random.IntN(6) == 0 {
					cost, depth, tag = format(int64(time.Second/2)), format(7*int64(time.Second/2)), " 7@500000000"
				}
				list := random.IntN(20) == 0 && !usual
				for _, to := range []*[]*sending{&joined, &alone} {
					key := fmt.Sprintf("%s {%d} %d %d", b.prefix, round, i, len(joined)-len(alone))
					if list {
						b.redis.LPush(bg, key, "a list")
					} else if state != "" {
						b.redis.Set(bg, key, state, 0)
					}
					args := []string{cost, depth, tag}
					if i%9 == 8 { // one that is not short
						args = []string{"bucket", depth, tag, "1", "2", cost}
					}
					*to = append(*to, &sending{call: ScriptCall{takes[kinds.BucketKind], []string{key}, args}})
				}
			}
			call := joinSets(joined, false)
			for _, arg := range call.Args {
				if arg == "=" {
					same++
				}
			}
			var reply Reply
			reply.Ints, reply.Err = clock.Run(bg, call.Script, call.Keys, call.Args)
			splitSets(joined, reply)
			for i, c := range alone {
				_ = s.sendAll(bg, 0, []*sending{c})
				got, want := joined[i].reply, c.reply
				if got.Err != nil || want.Err != nil || !slices.Equal(got.Ints, want.Ints) {
					t.Fatalf("round %d, %d of %d, %q: %d, %v, alone %d, %v", round, i, n, c.call.Args, got.Ints, got.Err, want.Ints, want.Err)
				}
				x, y := b.redis.Get(bg, joined[i].call.Keys[0]).Val(), b.redis.Get(bg, c.call.Keys[0]).Val()
				if x != y {
					t.Fatalf("round %d, %d of %d: it holds %q, and %q alone", round, i, n, x, y)
				}
			}
		}
		if same < 100 {
			t.Errorf("%d sets were as the one before: nothing is shown", same)
		}
	})
}

// A granting is a client that admits whatever a short set asks for.
type granting struct{ unreachable }

func (granting) Pipelines() int      { return 1 }
func (granting) Sharded() bool       { return false }
func (granting) Place(string) string { return "" }

var grantedShort = []int64{0, -1 - 2*int64(time.Second) - 1, int64(epoch / time.Microsecond)}

func (granting) Run(ctx context.Context, _ *Script, _, args []string) ([]int64, error) {
	if at, ok := ctx.Deadline(); !ok || len(args) != shortArgs || time.Until(at) <= 0 {
		return nil, errRefused
	}
	return grantedShort, ctx.Err()
}

// A decision is the key, the request and its call: no timer and nothing else, if one
// caller asks.
func TestTakeAllocates(t *testing.T) {
	s, err := New(granting{}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Bucket("b", limits.Rate{Count: 1, Per: time.Second, Burst: 10})
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		if res, err := l.Take(bg, "k", 1); err != nil || !res.Allowed() || res.Remaining != 8 {
			t.Fatalf("%+v, %v", res, err)
		}
	}); n > 3 {
		t.Errorf("%v allocations", n)
	}
}
