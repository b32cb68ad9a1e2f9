package sluiceredis

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// # What is fuzzed?
//
// A random set of up to five limits of any kind, and a history of calls for random
// numbers, alone and many in one script, of corrections beyond the limit and of
// refunds, at random times. After each step every answer is that of the models, to
// the nanosecond: so all limits gave or none did.

// A togetherRun is one such history.
type togetherRun struct {
	t     testing.TB
	b     *backend
	clock *frozen
	store *Store
	name  string

	data   []byte
	now    time.Duration // since epoch, a multiple of 1 µs
	set    *joint
	models []modelLimit

	allowed, refused int
}

// next returns a number below n.
func (r *togetherRun) next(n int64) int64 {
	if len(r.data) == 0 {
		return 0
	}
	b := r.data[0]
	r.data = r.data[1:]
	return int64(b) % n
}

// limit adds a random limit.
func (r *togetherRun) limit(i int) joinable {
	name := fmt.Sprintf("%s/%d", r.name, i)
	limit := 1 + r.next(6)
	window := []time.Duration{1500 * time.Microsecond, 10 * ms, 70 * ms, sec}[r.next(4)]
	switch r.next(5) {
	case 0:
		q := limits.Rate{Burst: limit, Count: 1 + r.next(3), Per: window}
		r.models = append(r.models, &modelBucket{q.Burst, int64(q.Per) / q.Count, 0})
		return newLeaky(r.t, r.store, name, q).on("k")
	case 1:
		r.models = append(r.models, &modelLog{limit: limit, window: int64(window)})
		return newLog(r.t, r.store, name, limit, window).on("k")
	case 2:
		r.models = append(r.models, &modelFixed{limit: limit, window: int64(window), aligned: -1})
		return newFixed(r.t, r.store, name, FixedConfig{Limit: limit, Window: window}).on("k")
	case 3:
		r.models = append(r.models, &modelFixed{limit: limit, window: int64(window), aligned: int64(ms)})
		return newFixed(r.t, r.store, name, FixedConfig{Limit: limit, Window: window, Aligned: true, Offset: ms}).on("k")
	}
	burst, cfg := 1+r.next(3), PacerConfig{Horizon: 5 * window}
	p := newPacer(r.t, r.store, name, 1, window, cfg, burst)
	p.key = r.store.key("pacer1", name, "k", "") // so that it shares the tag
	r.models = append(r.models, &modelPacer{interval: int64(window), missed: (burst - 1) * int64(window), horizon: int64(cfg.Horizon)})
	return p
}

func (r *togetherRun) at() int64 { return int64(epoch + r.now) }

func (r *togetherRun) run() {
	var limits []joinable
	for i := range 1 + int(r.next(5)) {
		limits = append(limits, r.limit(i))
	}
	var err error
	if r.set, err = r.store.together(limits...); err != nil {
		r.t.Fatal(err)
	}
	r.clock.set(0)
	for len(r.data) > 0 {
		if step := r.next(8); step > 2 {
			r.now += []time.Duration{time.Microsecond, 300 * time.Microsecond, 1500 * time.Microsecond, 7 * ms, 300 * ms}[step-3]
			r.clock.set(r.now)
		}
		switch r.next(8) {
		case 0:
			r.adjust()
		case 1, 2, 3:
			r.take(1 + int(r.next(7)))
		default:
			r.take(1)
		}
	}
}

// take has so many requests decided in one script, and compares.
func (r *togetherRun) take(count int) {
	var requests []*request
	for i := range count {
		n := make([]int64, len(r.models))
		for k := range n {
			if i > 0 && r.next(2) == 0 { // runs are what is decided together
				copy(n, requests[i-1].units())
				break
			}
			n[k] = []int64{0, 0, 1, 1, 1, 2, 3, 7}[r.next(8)]
		}
		q := new(request)
		for k, a := range r.set.form().spots {
			q.parts = append(q.parts, part{spot: a, n: n[k]})
		}
		requests = append(requests, q)
	}
	if count == 1 {
		d, err := r.set.take(bg, requests[0].units()...)
		if err != nil {
			r.t.Fatal(err)
		}
		requests[0] = d
	} else if err := r.store.takeFromServer(bg, requests); err != nil {
		r.t.Fatal(err)
	}
	for _, j := range requests {
		r.compare(j)
	}
	last := requests[len(requests)-1]
	if count == 1 && last.granted() && len(r.data) > 0 && r.next(4) == 0 {
		r.giveBack(last.units())
	}
}

func (r *togetherRun) compare(j *request) {
	want := togetherModel(r.models, r.at(), j.units())
	all, by := true, -1
	for i, w := range want {
		if j.results()[i] != w {
			r.t.Fatalf("at %v, %v of %+v: limit %d: %+v, want %+v", r.now, j.units(), r.models, i, j.results()[i], w)
		}
		all = all && w.Allowed()
		if !w.Allowed() && (by < 0 || w.RetryAfter > want[by].RetryAfter) {
			by = i
		}
	}
	if d := j; d.granted() != all || d.by != by {
		r.t.Fatalf("at %v, %v: %+v; want %v by %d", r.now, j.units(), d, all, by)
	}
	if all {
		r.allowed++
	} else {
		r.refused++
	}
}

// giveBack returns what was taken just now.
func (r *togetherRun) giveBack(n []int64) {
	delta := make([]int64, len(n))
	for i := range n {
		delta[i] = -n[i]
	}
	before := r.store.Stats()
	for i, err := range r.set.AdjustAll(bg, delta, 0) {
		if err != nil {
			r.t.Fatalf("at %v, %v of limit %d: %v", r.now, delta, i, err)
		}
	}
	want := uint64(0)
	for i, m := range r.models {
		want += uint64(m.back(r.at(), n[i]))
	}
	if got := r.store.Stats(); got.Refunded-before.Refunded != want || got.Unreturned != before.Unreturned {
		r.t.Fatalf("at %v: %+v after %+v", r.now, got, before)
	}
	r.take(1)
}

// adjust takes more of each limit, without asking.
func (r *togetherRun) adjust() {
	delta := make([]int64, len(r.models))
	for i := range delta {
		delta[i] = r.next(4)
	}
	if errs := r.set.AdjustAll(bg, delta, 0); errs != nil {
		r.t.Fatal(errs)
	}
	for i, m := range r.models {
		m.add(r.at(), delta[i])
	}
}

func togetherData(seed uint64) []byte {
	rnd := rand.New(rand.NewPCG(seed, 7))
	data := make([]byte, 40+rnd.IntN(160))
	for i := range data {
		data[i] = byte(rnd.Uint32())
	}
	return data
}

func FuzzTogether(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(togetherData(seed))
	}
	b := newBackend(f, redistest.Mini(f))
	store, clock := b.freeze(f)
	runs := 0
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 300 {
			t.Skip("long enough")
		}
		runs++
		clock.t = t
		r := &togetherRun{t: t, b: b, clock: clock, store: store, name: fmt.Sprint("fuzz", runs), data: data}
		r.run()
	})
}

// The same on a real server, for a while; and most histories show something.
func TestTogetherAsTheModels(t *testing.T) {
	b := onRedis(t)
	store, clock := b.freeze(t)
	allowed, refused := 0, 0
	for seed := range uint64(150) {
		r := &togetherRun{t: t, b: b, clock: clock, store: store, name: fmt.Sprint("seed", seed), data: togetherData(1000 + seed)}
		r.run()
		allowed, refused = allowed+r.allowed, refused+r.refused
	}
	if allowed < 500 || refused < 500 {
		t.Errorf("%d allowed and %d refused: little is shown", allowed, refused)
	}
}
