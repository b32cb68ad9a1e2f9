package sluiceredis

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/built"
	"github.com/sluice-go/sluice/internal/testkit/mixed"
	"github.com/sluice-go/sluice/limits"
)

// A byQuota is how a machine is asked whose quota that is.
type byQuota func(q limits.Rate, n int64) (limits.Result, error)

// machines are the ways to ask the bucket called name of s by a quota.
func machines(t *testing.T, s *Store, name string) map[string]byQuota {
	of := map[limits.Rate]*Bucket{}
	sets := map[limits.Rate]*joint{}
	asked := func(q limits.Rate) (*Bucket, *joint) {
		if of[q] == nil { // its own program for each
			of[q] = newLeaky(t, s, name+"/rate", q)
			sets[q] = newSet(t, s, of[q].on(""), newFixed(t, s, name+"/never", FixedConfig{Limit: 1 << 40, Window: 1000 * time.Hour}).on(""))
		}
		return of[q], sets[q]
	}
	one := newLeaky(t, s, name+"/rate", limits.Rate{Burst: 1, Count: 1, Per: sec})
	all := map[string]byQuota{
		"programs": func(q limits.Rate, n int64) (limits.Result, error) {
			l, _ := asked(q)
			return l.Take(bg, "", n)
		},
		"TakeRate": func(q limits.Rate, n int64) (limits.Result, error) { return one.TakeRate(bg, "", q, n) },
		"SetQuota": func(q limits.Rate, n int64) (limits.Result, error) {
			if err := one.SetRate(q); err != nil {
				return limits.Result{}, err
			}
			return one.Take(bg, "", n)
		},
		"Together": func(q limits.Rate, n int64) (limits.Result, error) {
			l, set := asked(q)
			if n > q.Burst {
				return l.Take(bg, "", n)
			}
			d, err := set.all(bg, n)
			if err != nil {
				return limits.Result{}, err
			}
			return d.results()[0], nil
		},
	}
	calls := 0
	all["mixed"] = func(q limits.Rate, n int64) (limits.Result, error) {
		calls++
		return all[[]string{"programs", "TakeRate", "Together", "SetQuota"}[calls%4]](q, n)
	}
	return all
}

// While some machines have one quota and others another, no more is let through in
// any window than the laxest of them allows alone, and each wait is right: on a
// server and in this process, each on its own and together with other limits.
func TestSeveralQuotas(t *testing.T) {
	built.SkipRaced(t)
	run := func(t *testing.T, s *Store, seeds uint64, sleep func(time.Duration)) {
		for i, quotas := range mixed.Sets {
			for seed := range seeds {
				for how, take := range machines(t, s, fmt.Sprint("several", i, seed)) {
					if seed%5 != uint64(len(how))%5 && seeds < 5 && how != "mixed" { // a sample
						continue
					}
					subject := mixed.Subject{Sleep: sleep, Take: func(q limits.Rate, n int64) limits.Result {
						res, err := take(q, n)
						if err != nil {
							t.Fatal(err)
						}
						return res
					}}
					if err := mixed.Run(seed, quotas, 200, subject); err != nil {
						t.Errorf("%s, set %d, seed %d: %v", how, i, seed, err)
					}
					sleep(24 * time.Hour * 30) // whatever was there is gone
				}
			}
		}
	}
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		at := time.Duration(0)
		run(t, s, 2, func(d time.Duration) {
			at += d
			clock.set(at)
		})
	})
	t.Run("in process", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { run(t, inThisProcess(t), 10, time.Sleep) })
	})
}

// A deploy replaces four machines one by one, and callers ask as fast as they can.
func TestDeploy(t *testing.T) {
	built.SkipRaced(t)
	at := func(capacity, count int64) limits.Rate {
		return limits.Rate{Burst: capacity, Count: count, Per: sec}
	}
	for _, v := range []struct{ before, after limits.Rate }{
		{at(100, 50), at(20, 50)}, {at(20, 50), at(100, 50)}, {at(50, 50), at(50, 5)}, {at(50, 5), at(50, 50)},
		{at(100, 50), at(20, 5)}, {at(20, 5), at(100, 50)}, {at(100, 1), at(10, 50)}, {at(10, 50), at(100, 1)},
	} {
		t.Run(fmt.Sprint(v.before, " to ", v.after), func(t *testing.T) {
			deploy := func(t *testing.T, four [4]*Store, sleep func(time.Duration)) {
				var seconds [9]int64
				var machines [4]*Bucket
				for i, s := range four {
					machines[i] = newLeaky(t, s, "deploy", v.before)
				}
				const step = 20 * ms
				for now := time.Duration(0); now < 9*sec; now += step {
					for i, l := range machines {
						if now == time.Duration(2+i)*sec {
							if i%2 == 0 { // a new process, or the old one is told
								machines[i] = newLeaky(t, four[i], "deploy", v.after)
							} else if err := l.SetRate(v.after); err != nil {
								t.Fatal(err)
							}
						}
						for range 2 {
							res, err := machines[i].Take(bg, "api", 1)
							if err != nil {
								t.Fatal(err)
							}
							if res.Allowed() {
								seconds[now/sec]++
							}
						}
					}
					sleep(step)
				}
				lax := max(v.before.Burst+v.before.Count, v.after.Burst+v.after.Count)
				for i, n := range seconds {
					if n > lax {
						t.Errorf("%d in second %d, the laxer quota allows %d: %v", n, i, lax, seconds)
					}
				}
				if n := seconds[8]; n < v.after.Count-1 || n > v.after.Count {
					t.Errorf("%d in the last second, the new quota allows %d: %v", n, v.after.Count, seconds)
				}
			}
			t.Run("redis", func(t *testing.T) {
				b := onRedis(t)
				var four [4]*Store
				s, clock := b.freeze(t)
				four[0] = s
				for i := range 3 {
					four[i+1] = b.storeOn(t, clock)
				}
				now := time.Duration(0)
				deploy(t, four, func(d time.Duration) {
					now += d
					clock.set(now)
				})
			})
			t.Run("in process", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := inThisProcess(t)
					deploy(t, [4]*Store{s, s, s, s}, time.Sleep)
				})
			})
		})
	}
}

// A quota that changes while a share of it is kept, on some machines and not on others,
// admits no more than (1 + i/M) times what the laxer one does, in any window.
func TestSharesOfSeveralQuotas(t *testing.T) {
	const m = 4
	lax := limits.Rate{Burst: 18, Count: 10, Per: sec}
	for which, other := range []limits.Rate{{Burst: 6, Count: 10, Per: sec}, {Burst: 18, Count: 2, Per: sec}, {Burst: 5, Count: 3, Per: sec}} {
		for i := range int64(m + 1) {
			for seed := range uint64(6) {
				synctest.Test(t, func(t *testing.T) {
					r := rand.New(rand.NewPCG(seed, uint64(i)))
					v, began := newRemote(), time.Now()
					var grants []grant
					machines, lines := make([]*Bucket, m), make([]*line, m)
					for j := range machines {
						var s *Store
						s, lines[j] = v.newStore(t, Config{OnOutage: LocalShare, Instances: m, Timeout: 100 * ms, FailureThreshold: 2})
						machines[j] = newLeaky(t, s, "l", lax)
					}
					for range 600 {
						time.Sleep(time.Duration(r.IntN(60)) * ms)
						j := r.IntN(m)
						switch {
						case r.IntN(15) == 0:
							if err := machines[j].SetRate([]limits.Rate{lax, other}[r.IntN(2)]); err != nil {
								t.Fatal(err)
							}
						case int64(j) < i && r.IntN(10) == 0: // only the first i are ever cut off
							if lines[j].fail(errRefused); r.IntN(2) == 0 {
								lines[j].fail(nil)
							}
						}
						n := 1 + r.Int64N(3)
						res, err := machines[r.IntN(m)].Take(bg, "k", n)
						if err != nil {
							t.Fatal(err)
						}
						if res.Allowed() {
							grants = append(grants, grant{time.Since(began), n})
						}
					}
					if by := breaks(grants, lax.Burst, 100*ms, m, i); by > 0 {
						t.Errorf("quota %d, %d cut off, seed %d: too much by %v", which, i, seed, time.Duration(by))
					}
				})
			}
		}
	}
}

// Machines with different rates for one pacer reserve slots that are never closer
// together than an interval of the faster one.
func TestPacerOfTwoRates(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		slow, fast := newPacer(t, s, "rates", 10, sec, PacerConfig{}), newPacer(t, s, "rates", 100, sec, PacerConfig{})
		r := rand.New(rand.NewPCG(1, 1))
		last := int64(0)
		for at := time.Duration(0); at < 20*sec; at += time.Duration(r.IntN(150)) * ms {
			clock.set(at)
			p, interval := slow, 100*ms
			if r.IntN(2) == 0 {
				p, interval = fast, 10*ms
			}
			res, err := p.Reserve(bg, 1, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if res.slot < last {
				t.Fatalf("at %v a slot is %v too early", at, time.Duration(last-res.slot))
			}
			last = res.slot + int64(interval)
		}
	})
}
