package sluiceredis

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/built"
	"github.com/sluice-go/sluice/limits"
)

// A windowQuota is a window as one program has it configured.
type windowQuota struct {
	limit  int64
	window time.Duration
	kind   string // log, anchored, aligned
	offset time.Duration
	set    bool // asked through a Set
}

// on returns how a program with that quota asks for a key of a name.
func (q windowQuota) on(t testing.TB, s *Store, name string) func(n int64) (limits.Result, error) {
	t.Helper()
	var of joinable
	var take func(n int64) (limits.Result, error)
	if q.kind == "log" {
		l := newLog(t, s, name, q.limit, q.window)
		of, take = l.on("k"), func(n int64) (limits.Result, error) { return l.Take(bg, "k", n) }
	} else {
		f := newFixed(t, s, name, FixedConfig{Limit: q.limit, Window: q.window, Aligned: q.kind == "aligned", Offset: q.offset})
		of, take = f.on("k"), func(n int64) (limits.Result, error) { return f.Take(bg, "k", n) }
	}
	if !q.set {
		return take
	}
	set, err := s.together(of)
	if err != nil {
		t.Fatal(err)
	}
	return func(n int64) (limits.Result, error) {
		d, err := set.all(bg, n)
		if err != nil {
			return limits.Result{}, err
		}
		return d.results()[0], nil
	}
}

// alone returns how many units the quota alone lets through at most within d: those of
// as many windows as d can touch.
func (q windowQuota) alone(d time.Duration) int64 {
	windows := int64((d + q.window - 1) / q.window)
	if q.kind != "log" {
		windows++
	}
	return q.limit * windows
}

// tooMany returns by how many units more were admitted in an interval than the laxest of
// the quotas alone lets through, in the worst of all intervals of the lengths of theirs
// and of some more; 0 if never.
func tooMany(grants []grant, quotas []windowQuota) (worst int64) {
	lengths := []time.Duration{ms, sec, 5 * sec}
	for _, q := range quotas {
		lengths = append(lengths, q.window)
	}
	for _, d := range lengths {
		most := int64(0)
		for _, q := range quotas {
			most = max(most, q.alone(d))
		}
		sum, first := int64(0), 0
		for _, g := range grants { // in order
			for sum += g.n; grants[first].at+d <= g.at; first++ {
				sum -= grants[first].n
			}
			worst = max(worst, sum-most)
		}
	}
	return worst
}

func TestTooMany(t *testing.T) {
	quotas := []windowQuota{{limit: 3, window: 10 * sec, kind: "log"}, {limit: 1, window: sec, kind: "log"}}
	for _, v := range []struct {
		grants []grant
		want   int64
	}{
		{[]grant{{0, 3}}, 0},
		{[]grant{{0, 4}}, 1},
		{[]grant{{0, 3}, {5 * sec, 1}}, 0}, // the second quota lets 10 through in 10 s
		{[]grant{{0, 3}, {sec - 1, 1}}, 1},
		{[]grant{{0, 3}, {sec, 3}}, 1}, // in 5 s
	} {
		if got := tooMany(v.grants, quotas); got != v.want {
			t.Errorf("%v: %d, want %d", v.grants, got, v.want)
		}
	}
}

// onClocks runs test on servers whose clock is set, and in this process in virtual
// time. open returns a store of another machine: in one process it is the same.
func onClocks(t *testing.T, test func(t *testing.T, open func() *Store, set func(at time.Duration))) {
	t.Run("redis", func(t *testing.T) {
		b := onRedis(t)
		s, clock := b.freeze(t)
		test(t, func() *Store { return b.storeOn(t, s.client) }, clock.set)
	})
	t.Run("in process", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, began := inThisProcess(t), time.Now()
			time.Sleep(time.Until(time.Unix(0, int64(epoch)))) // where set counts from
			began = time.Now()
			test(t, func() *Store { return s }, func(at time.Duration) { time.Sleep(time.Until(began.Add(at))) })
		})
	})
}

// Two programs ask one name by different windows, in random order, for as much as they
// get: in no interval more is admitted than the laxer of both allows alone.
func TestMixedWindows(t *testing.T) {
	built.SkipRaced(t)
	for _, kind := range []string{"log", "anchored", "aligned"} {
		for i, quotas := range [][]windowQuota{
			{{limit: 50, window: 40 * sec}, {limit: 1, window: 500 * ms}},
			{{limit: 60, window: 60 * sec}, {limit: 10, window: sec}},
			{{limit: 10, window: 10 * sec}, {limit: 10, window: 7 * sec}},
			{{limit: 10, window: 10 * sec}, {limit: 10, window: 10 * sec, offset: 5 * sec}},
			{{limit: 20, window: 10 * sec}, {limit: 5, window: 10 * sec}},
			{{limit: 20, window: 10 * sec}, {limit: 8, window: 3 * sec}, {limit: 30, window: 17 * sec}},
		} {
			t.Run(fmt.Sprint(kind, " ", i), func(t *testing.T) {
				quotas := append([]windowQuota(nil), quotas...)
				for j := range quotas {
					quotas[j].set = (i+j)%3 == 0 // some ask by a set, and some not
					if quotas[j].kind = kind; kind != "aligned" {
						quotas[j].offset = 0
					}
				}
				onClocks(t, func(t *testing.T, open func() *Store, set func(at time.Duration)) {
					r := rand.New(rand.NewPCG(uint64(i), 1))
					var take []func(n int64) (limits.Result, error)
					for _, q := range quotas {
						take = append(take, q.on(t, open(), "mixed"))
					}
					var grants []grant
					for at := time.Duration(0); at < 90*sec; at += time.Duration(r.IntN(700)) * ms {
						set(at)
						for range 4 {
							j, n := r.IntN(len(quotas)), 1+r.Int64N(2)
							for {
								res, err := take[j](n)
								if err != nil {
									t.Fatal(err)
								}
								if !res.Allowed() {
									break
								}
								grants = append(grants, grant{at, n})
							}
						}
					}
					if by := tooMany(grants, quotas); by > 0 {
						t.Errorf("%d more than the laxer quota allows: %v", by, grants)
					}
					if len(grants) < 50 {
						t.Errorf("%d granted", len(grants))
					}
				})
			})
		}
	}
}

// A deploy replaces four machines one by one and changes the window: neither more than
// the laxer quota allows alone nor an outage. From one and a quarter of the old window
// after the last old machine on, the new quota is all there is.
func TestWindowChangesMachineByMachine(t *testing.T) {
	built.SkipRaced(t)
	for _, kind := range []string{"log", "anchored", "aligned"} {
		for _, change := range [][2]windowQuota{
			{{limit: 60, window: 20 * sec}, {limit: 3, window: sec}},
			{{limit: 3, window: sec}, {limit: 60, window: 20 * sec}},
			{{limit: 60, window: 20 * sec}, {limit: 5, window: 20 * sec}},
			{{limit: 40, window: 20 * sec}, {limit: 8, window: 10 * sec}},
		} {
			t.Run(fmt.Sprint(kind, " ", change[0].limit, "/", change[0].window, " to ", change[1].limit, "/", change[1].window), func(t *testing.T) {
				change[0].kind, change[1].kind = kind, kind
				onClocks(t, func(t *testing.T, open func() *Store, set func(at time.Duration)) {
					r := rand.New(rand.NewPCG(3, 4))
					machines := make([]func(n int64) (limits.Result, error), 4)
					for i := range machines {
						machines[i] = change[0].on(t, open(), "deploy")
					}
					var grants []grant
					at, last := time.Duration(0), time.Duration(0)
					var got [2]int // by the quota before, and by the one after
					var changed [4]int
					run := func(d time.Duration) {
						for end := at + d; at < end; at += 250 * ms {
							set(at)
							for _, i := range r.Perm(len(machines)) {
								for {
									res, err := machines[i](1)
									if err != nil {
										t.Fatal(err)
									}
									if !res.Allowed() {
										break
									}
									grants, last = append(grants, grant{at, 1}), at
									got[changed[i]]++
								}
							}
							if at-last > change[0].window+change[1].window {
								t.Fatalf("nothing is granted from %v to %v", last, at)
							}
						}
					}
					run(40 * sec)
					clear(got[:])
					for i := range machines {
						machines[i], changed[i] = change[1].on(t, open(), "deploy"), 1
						// With another limit only, the larger may start the smaller nothing.
						run(10 * sec)
						if i == 2 && change[0].window != change[1].window && (got[0] == 0 || got[1] == 0) {
							t.Errorf("an outage: %d granted by the old quota, %d by the new one", got[0], got[1])
						}
					}
					if by := tooMany(grants, change[:]); by > 0 {
						t.Errorf("%d more than the laxer quota allows", by)
					}
					run(change[0].window*5/4 + change[1].window)
					after := len(grants)
					run(2 * change[1].window)
					if by := tooMany(grants[after:], change[1:]); by > 0 {
						t.Errorf("%d more than the new quota allows", by)
					}
					if n := int64(len(grants) - after); n < change[1].limit {
						t.Errorf("%d granted in two windows of the new quota", n)
					}
				})
			})
		}
	}
}
