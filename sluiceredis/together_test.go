package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// errAny stands for any error.
var errAny = errors.New("any")

func newSet(t testing.TB, s *Store, of ...joinable) *joint {
	t.Helper()
	set, err := s.together(of...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func (r *request) allowed() bool { return r != nil && r.granted() }

// refuses returns the result of the limit that does, or of any if none does.
func (r *request) refuses() limits.Result { return r.results()[max(0, r.by)] }

func (r *request) results() (all []limits.Result) {
	for _, p := range r.parts {
		all = append(all, p.res)
	}
	return all
}

func (r *request) units() (all []int64) {
	for _, p := range r.parts {
		all = append(all, p.n)
	}
	return all
}

func (r *request) retryAfter() time.Duration { return r.refuses().RetryAfter }
func (r *request) err() error                { return r.refuses().Err() }

// all takes n from each limit, and peek nothing.
func (t *joint) all(ctx context.Context, n int64) (*request, error) {
	return t.take(ctx, slices.Repeat([]int64{n}, len(t.limits))...)
}

func (t *joint) peek(ctx context.Context) (*request, error) { return t.all(ctx, 0) }

// adjust corrects each limit by delta.
func (t *joint) adjust(ctx context.Context, delta int64, age time.Duration) error {
	return errors.Join(t.AdjustAll(ctx, slices.Repeat([]int64{delta}, len(t.limits)), age)...)
}

// All of them or none, with what each of them says.
func TestTogether(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		burst := newLeaky(t, s, "api/burst", limits.Rate{Burst: 3, Count: 1, Per: sec}).on("")
		minute := newLog(t, s, "api/minute", 5, time.Minute).on("")
		day := newFixed(t, s, "api/day", FixedConfig{Limit: 6, Window: 24 * time.Hour}).on("")
		pace := newPacer(t, s, "api/pace", 10, sec, PacerConfig{}, 3)
		set := newSet(t, s, burst, minute, day, pace)
		res := func(remaining, limit int64, retry, reset time.Duration) limits.Result {
			return limits.Result{Remaining: remaining, Limit: limit, RetryAfter: retry, ResetAfter: reset}
		}
		for _, v := range []struct {
			at   time.Duration
			n    []int64
			by   int
			want [4]limits.Result
		}{
			{0, []int64{0, 0, 0, 0}, -1, [4]limits.Result{res(3, 3, 0, 0), res(5, 5, 0, 0), res(6, 6, 0, 0), res(3, 3, 0, 0)}},
			{0, []int64{2, 2, 1, 2}, -1, [4]limits.Result{
				res(1, 3, 0, 2*sec), res(3, 5, 0, time.Minute), res(5, 6, 0, 24*time.Hour), res(1, 3, 0, 200*ms)}},
			// The bucket rejects, and so none of the others has lost anything.
			{0, []int64{2, 3, 5, 1}, 0, [4]limits.Result{
				res(1, 3, sec, 2*sec), res(3, 5, 0, time.Minute), res(5, 6, 0, 24*time.Hour), res(1, 3, 0, 200*ms)}},
			// Two reject: the one that takes longer is named, although it is not the first.
			{sec, []int64{3, 4, 0, 0}, 1, [4]limits.Result{
				res(2, 3, sec, sec), res(3, 5, 59*sec, 59*sec), res(5, 6, 0, 24*time.Hour-sec), res(3, 3, 0, 0)}},
			// One never will: that is named, whatever the others say.
			{sec, []int64{3, 4, 7, 1}, 2, [4]limits.Result{
				res(2, 3, sec, sec), res(3, 5, 59*sec, 59*sec), res(5, 6, limits.Never, 24*time.Hour-sec), res(3, 3, 0, 0)}},
			{sec, []int64{1, 1, 1, 4}, -1, [4]limits.Result{
				res(1, 3, 0, 2*sec), res(2, 5, 0, time.Minute), res(4, 6, 0, 24*time.Hour-sec), res(0, 3, 0, 400*ms)}},
			// The next slot is 200 ms ahead.
			{sec, []int64{1, 1, 1, 1}, 3, [4]limits.Result{
				res(1, 3, 0, 2*sec), res(2, 5, 0, time.Minute), res(4, 6, 0, 24*time.Hour-sec), res(0, 3, 200*ms, 400*ms)}},
		} {
			clock.set(v.at)
			got, err := set.take(bg, v.n...)
			if err != nil || got.allowed() != (v.by < 0) || got.by != v.by || [4]limits.Result(got.results()) != v.want {
				t.Errorf("%v at %v: %+v, %v; want %d, %+v", v.n, v.at, got, err, v.by, v.want)
			}
			if v.by >= 0 && (got.retryAfter() != v.want[v.by].RetryAfter || got.err() != v.want[v.by].Err()) ||
				v.by < 0 && (got.retryAfter() != 0 || got.err() != nil) {
				t.Errorf("%v at %v: %v, %v", v.n, v.at, got.retryAfter(), got.err())
			}
		}
		if got := s.Stats(); got.Scripts != 7 || got.Decisions != 7 {
			t.Errorf("%+v", got)
		}
		// The same by other ways: each limit knows what the set has taken.
		if wait, err := burst.Admit(bg, 2); wait != sec || err != nil {
			t.Errorf("%v, %v", wait, err)
		}
		if d, err := set.peek(bg); err != nil || !d.allowed() || d.results()[1].Remaining != 2 {
			t.Errorf("%+v, %v", d, err)
		}
		if wait, which, err := set.AdmitAll(bg, []int64{1, 1, 9, 1}, nil); wait != 0 || which != 2 || err != limits.ErrTooLarge {
			t.Errorf("%v, %v, %v", wait, which, err)
		}
		for _, n := range [][]int64{{1, 1, 1}, {1, 1, 1, -1}} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%v does not panic", n)
					}
				}()
				_, _ = set.take(bg, n...)
			}()
		}
	})
}

func TestWhatCannotBeTogether(t *testing.T) {
	s, other := onMini(t), onMini(t)
	quota := limits.Rate{Burst: 3, Count: 1, Per: sec}
	second, day := newLeaky(t, s, "orders/second", quota), newLeaky(t, s, "orders/day", quota)
	for want, set := range map[string][]joinable{
		"no limits":        nil,
		"there twice":      {second.on("k"), day.on("k"), newLeaky(t, s, "orders/second", limits.Rate{Burst: 9, Count: 1, Per: sec}).on("k")},
		"share no tag":     {second.on("k"), day.on("l")},
		"share no tag: na": {second.on("k"), newLog(t, s, "other/day", 1, sec).on("k")},
		"another store":    {second.on("k"), newLeaky(t, other, "orders/day", quota).on("k")},
	} {
		if _, err := s.together(set...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if len(set) > 0 {
			var others []limits.Limiter
			for _, l := range set[1:] {
				others = append(others, l)
			}
			if set[0].Join(others...) != nil {
				t.Errorf("%s: joined", want)
			}
		}
	}
	if second.on("k").Join(limits.Must(leaky.New(limits.Rate{Count: 1, Per: sec, Burst: 1}))) != nil {
		t.Error("joined with what lives elsewhere")
	}
	if _, err := s.together(second.on("k"), newLog(t, s, "orders/second", 5, sec).on("k")); err != nil {
		t.Errorf("kinds of one name are different limits: %v", err)
	}
}

// onMini returns its own store in a miniredis.
func onMini(t *testing.T) *Store { return newBackend(t, redistest.Mini(t)).store(t) }

// Whatever is in one of the keys, the error says which, and all are as they were.
func TestHostileDataInOneOfSeveralKeys(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s := b.store(t)
		limits := []joinable{
			newLeaky(t, s, "f/a", limits.Rate{Burst: 5, Count: 1, Per: time.Hour}).on(""),
			newLog(t, s, "f/b", 5, time.Hour).on(""),
			newFixed(t, s, "f/c", FixedConfig{Limit: 5, Window: time.Hour}).on(""),
			newPacer(t, s, "f/d", 1, sec, PacerConfig{}, 5),
		}
		set := newSet(t, s, limits...)
		var keys []string
		for _, a := range set.form().spots {
			keys = append(keys, a.key)
		}
		gate, err := sluice.New(sluice.Config{Limits: []sluice.Limit{
			{Name: "a", Limiter: limits[0]}, {Name: "b", Limiter: limits[1]}, {Name: "c", Limiter: limits[2]}, {Name: "d", Limiter: limits[3]},
		}})
		if err != nil {
			t.Fatal(err)
		}
		for broken, name := range []string{"a", "b", "c", "d"} {
			for what, put := range map[string]func(key string) error{
				"list": func(key string) error { return b.redis.LPush(bg, key, "x").Err() },
				"text": func(key string) error { return b.redis.Set(bg, key, "x y", 0).Err() },
			} {
				b.redis.Del(bg, keys...)
				if d, err := set.all(bg, 1); err != nil || !d.allowed() {
					t.Fatalf("%+v, %v", d, err)
				}
				b.redis.Del(bg, keys[broken])
				if err := put(keys[broken]); err != nil {
					t.Fatal(err)
				}
				dump := func() (all []string) {
					for _, key := range keys {
						all = append(all, b.dump(key))
					}
					return all
				}
				before := dump()
				_, takes := set.all(bg, 1)
				_, peeks := set.peek(bg)
				_, asks := gate.AcquireWithin(bg, 1, 0)
				for how, err := range map[string]error{"take": takes, "peek": peeks, "adds": set.adjust(bg, 1, 0), "return": set.adjust(bg, -1, 0), "gate": asks} {
					var data *keyError
					if !errors.As(err, &data) || data.key != keys[broken] {
						t.Errorf("%s, %s in %s: %v", how, what, keys[broken], err)
					}
				}
				if !strings.Contains(asks.Error(), "limit "+name+":") {
					t.Errorf("the gate does not name the limit %s: %v", name, asks)
				}
				if after := dump(); !slices.Equal(before, after) {
					t.Errorf("%s in %s: %q became %q", what, keys[broken], before, after)
				}
			}
		}
	})
}

// Many callers of the same limits on several machines, in few scripts: a model
// repeats every answer.
func TestReplayOfConcurrentSets(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		type answer struct{ a, b, c limits.Result }
		// How many of each kind there are depends on how fast the server is. All
		// go on until there is something to be seen, within reason.
		kinds := []string{"true true true", "false true true", "true false true"}
		const enough, most = 20, 80 * 50
		var mu sync.Mutex
		by := map[string]int{}
		scarce := func() bool {
			return slices.ContainsFunc(kinds, func(kind string) bool { return by[kind] < enough })
		}
		var records []record[answer]
		var wg sync.WaitGroup
		var stores []*Store
		for range 3 {
			s := b.storeOn(t, slow{b.client, 300 * time.Microsecond})
			make := func() *joint { // each caller has its own set, and they are the same
				return newSet(t, s,
					newLeaky(t, s, "replay/a", limits.Rate{Burst: 7, Count: 2000, Per: sec}).on("k"),
					newLog(t, s, "replay/b", 20, 9*ms).on("k"),
					newFixed(t, s, "replay/c", FixedConfig{Limit: 50, Window: 25 * ms, Aligned: true}).on("k"))
			}
			for range 8 {
				set := make()
				wg.Go(func() {
					for i, more := 0, true; i < 80 || more && i < most; i++ {
						j, err := set.all(bg, 1+rand.Int64N(3))
						if err != nil {
							t.Error(err)
							return
						}
						r := j.results()
						mu.Lock()
						records = append(records, record[answer]{j.now, j.parts[0].n, answer{r[0], r[1], r[2]}})
						by[fmt.Sprint(r[0].Allowed(), r[1].Allowed(), r[2].Allowed())]++
						more = scarce()
						mu.Unlock()
					}
				})
			}
			stores = append(stores, s)
		}
		wg.Wait()
		var decisions uint64
		for _, s := range stores {
			got := s.Stats()
			if decisions += got.Decisions; got.Decisions < 8*80 || got.Scripts > got.Decisions/2 {
				t.Errorf("%d calls for %d decisions", got.Scripts, got.Decisions)
			}
		}
		if decisions != uint64(len(records)) {
			t.Errorf("%d decisions for %d callers", decisions, len(records))
		}
		model := func(old *[3]modelLimit, r record[answer]) (answer, *[3]modelLimit) {
			m := &[3]modelLimit{&modelBucket{7, 500_000, 0}, &modelLog{limit: 20, window: int64(9 * ms)}, &modelFixed{limit: 50, window: int64(25 * ms)}}
			if old != nil {
				bucket, log, fixed := *old[0].(*modelBucket), *old[1].(*modelLog), *old[2].(*modelFixed)
				log.at = slices.Clone(log.at)
				m = &[3]modelLimit{&bucket, &log, &fixed}
			}
			all := togetherModel(m[:], r.now*1000, []int64{r.n, r.n, r.n})
			return answer{all[0], all[1], all[2]}, m
		}
		if scarce() {
			t.Errorf("of %d are %v; little is shown", len(records), by)
		}
		if err := replay(slices.Clone(records), model); err != nil {
			t.Fatal(err)
		}
		broken := slices.Clone(records)
		broken[len(broken)/2].answer.b.Remaining++
		if replay(broken, model) == nil {
			t.Error("a falsified answer was explained")
		}
	})
}

// A gate asks what can be asked together in one script, settles in one, and returns what something
// else rejects.
func TestGateJoinsItsQuotas(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s := b.store(t)
		second := newLeaky(t, s, "orders/second", limits.Rate{Burst: 5, Count: 1, Per: time.Hour}).on("k")
		day := newFixed(t, s, "orders/day", FixedConfig{Limit: 3, Window: 24 * time.Hour}).on("k")
		other := newLog(t, s, "elsewhere", 2, time.Hour).on("k")
		gate, err := sluice.New(sluice.Config{Name: "api", Limits: []sluice.Limit{
			{Name: "second", Limiter: second}, {Name: "other", Limiter: other, Unit: sluice.Calls}, {Name: "day", Limiter: day, Unit: sluice.Calls},
			{Name: "here", Limiter: limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 5})), Unit: sluice.Calls},
		}})
		if err != nil {
			t.Fatal(err)
		}
		calls := func(want uint64, f func()) {
			t.Helper()
			before := s.Stats().Scripts
			f()
			if got := s.Stats().Scripts - before; got != want {
				t.Errorf("%d calls, want %d", got, want)
			}
		}
		var p *sluice.Permit
		calls(2, func() { p, err = gate.AcquireWithin(bg, 2, 0) })
		if err != nil {
			t.Fatal(err)
		}
		calls(1, func() { p.Settle(1) })
		calls(2, func() { _, err = gate.AcquireWithin(bg, 2, 0) })
		if err != nil {
			t.Fatal(err)
		}
		calls(3, func() { _, err = gate.AcquireWithin(bg, 1, 0) }) // two ask, and what one gave goes back
		if err == nil || !strings.Contains(err.Error(), "limit other") {
			t.Errorf("%v", err)
		}
		calls(1, func() { _, err = gate.AcquireWithin(bg, 4, 0) })
		if err == nil || !strings.Contains(err.Error(), "limit second") {
			t.Errorf("%v", err)
		}
		a, _ := s.take(bg, second.at(), 0)
		d, _ := s.take(bg, day.at(), 0)
		o, _ := s.take(bg, other.at(), 0)
		if a.Remaining != 2 || d.Remaining != 1 || o.Remaining != 0 || gate.Stats().Unreturned != 0 {
			t.Errorf("%+v %+v %+v, %d stranded", a, d, o, gate.Stats().Unreturned)
		}
	})
}

// What is returned to a set is what each limit would return.
func TestTogetherAdjust(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		bucket := newLeaky(t, s, "f/a", limits.Rate{Burst: 5, Count: 1, Per: sec}).on("")
		log := newLog(t, s, "f/b", 5, 3*sec).on("")
		fixed := newFixed(t, s, "f/c", FixedConfig{Limit: 5, Window: 2 * sec}).on("")
		pace := newPacer(t, s, "f/d", 1, sec, PacerConfig{Horizon: 5 * sec}, 5)
		set := newSet(t, s, bucket, log, fixed, pace)
		remain := func(want ...int64) {
			t.Helper()
			d, err := set.peek(bg)
			var got []int64
			for _, r := range d.results() {
				got = append(got, r.Remaining)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%v remain, %v; want %v", got, err, want)
			}
		}
		take := func(n int64) {
			t.Helper()
			if d, err := set.all(bg, n); err != nil || !d.allowed() {
				t.Errorf("%d: %+v, %v", n, d, err)
			}
		}
		adjust := func(age time.Duration, delta []int64, want ...error) {
			same := func(got, want error) bool { return got == want || got != nil && want == errAny }
			t.Helper()
			if got := set.AdjustAll(bg, delta, age); !slices.EqualFunc(got, want, same) {
				t.Errorf("%v after %v: %v, want %v", delta, age, got, want)
			}
		}
		clock.set(0)
		take(2)
		adjust(0, []int64{-2, -2, -2, -2})
		remain(5, 5, 5, 5)
		take(2)
		adjust(0, []int64{-1, 0, -2, -1}, nil, nil, nil, errStranded) // slots are returned whole
		remain(4, 3, 5, 3)
		adjust(0, []int64{0, 0, 0, -2})
		adjust(0, []int64{0, 0, 0, -2}, nil, nil, nil, errStranded) // and once
		remain(4, 3, 5, 5)
		take(1)
		if _, err := pace.Reserve(bg, 1, 0); err != nil { // the slot after it is taken
			t.Fatal(err)
		}
		adjust(0, []int64{-1, -1, -1, -1}, nil, nil, nil, errStranded)
		remain(4, 3, 5, 3)
		clock.set(2 * sec)
		adjust(2*sec, []int64{-1, -2, -1, -1}, errStranded, nil, errStranded, errStranded) // it has leaked, its window has ended
		remain(5, 5, 5, 5)
		adjust(0, []int64{7, 8, 9, 3})
		remain(0, 0, 0, 2)
		clock.set(5 * sec)
		remain(1, 5, 5, 5) // 4 of 7 still in the bucket
		adjust(0, []int64{0, kinds.SlidingAtOnce + 1, 0, 6}, nil, errAny, nil, limits.ErrTooLarge)
		if got := s.Stats(); got.Refunded != 8+3+2+3+2 || got.Unreturned != 1+2+1+3 {
			t.Errorf("%+v", got)
		}
	})
}

// What was taken for callers who gave up meanwhile is returned by all limits.
func TestGoneCallersOfASetGiveBack(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		d := door{b.client, make(chan struct{}), make(chan struct{})}
		s := b.storeOn(t, d)
		set := newSet(t, s,
			newLeaky(t, s, "f/a", limits.Rate{Burst: 100, Count: 1, Per: time.Hour}).on(""), newLog(t, s, "f/b", 100, time.Hour).on(""),
			newFixed(t, s, "f/c", FixedConfig{Limit: 100, Window: time.Hour}).on(""), newPacer(t, s, "f/d", 1, sec, PacerConfig{}, 100))
		var first, gone sync.WaitGroup
		first.Go(func() { _, _ = set.all(bg, 1) })
		<-d.came
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		for range 5 {
			gone.Go(func() {
				if _, err := set.all(ctx, 3); err != context.Canceled {
					t.Error(err)
				}
			})
		}
		for s.takes.Waiting(set.form().sign) < 5 {
			runtime.Gosched()
		}
		d.pass <- struct{}{}
		<-d.came
		cancel()
		gone.Wait()
		d.pass <- struct{}{}
		for range 5 {
			<-d.came
			d.pass <- struct{}{}
		}
		first.Wait()
		// The last one is returned at about this time.
		for late := time.Now().Add(10 * time.Second); s.Stats().Refunded < 60 && time.Now().Before(late); {
			runtime.Gosched()
		}
		other := b.store(t)
		got := newFixed(t, other, "f/c", FixedConfig{Limit: 100, Window: time.Hour})
		if res, err := got.Take(bg, "", 0); err != nil || res.Remaining != 99 || s.Stats().Refunded != 60 || s.Stats().Unreturned != 0 {
			t.Errorf("%+v, %v, %+v", res, err, s.Stats())
		}
	})
}

// A set asks by the quotas and rates that its limits have now, and returns slots
// that are as long as they were when it took them.
func TestASetFollowsItsLimits(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		l := newLeaky(t, s, "f/l", limits.Rate{Burst: 5, Count: 1, Per: sec})
		p := newPacer(t, s, "f/p", 10, sec, PacerConfig{}, 11)
		set := newSet(t, s, l.on(""), p)
		take := func(n int64, wait time.Duration, limits ...int64) {
			t.Helper()
			d, err := set.all(bg, n)
			if err != nil || d.retryAfter() != wait || d.results()[0].Limit != limits[0] || d.results()[1].Limit != limits[1] {
				t.Errorf("%+v, %v", d, err)
			}
		}
		take(2, 0, 5, 11)
		take(2, 0, 5, 11)
		if err := p.SetRate(limits.Rate{Count: 1, Per: sec, Burst: 2}); err != nil {
			t.Fatal(err)
		}
		take(0, 0, 5, 2)
		if errs := set.AdjustAll(bg, []int64{0, -2}, 0); errs != nil { // two slots of 100 ms
			t.Error(errs)
		}
		if d, err := set.peek(bg); err != nil || d.results()[1].ResetAfter != 200*ms {
			t.Errorf("%+v, %v", d, err)
		}
		if err := l.SetRate(limits.Rate{Burst: 10, Count: 2, Per: sec}); err != nil {
			t.Fatal(err)
		}
		take(1, 0, 10, 2)
		take(1, 200*ms, 10, 2)
		clock.set(200 * ms)
		take(6, 300*ms, 10, 2) // it holds 2.3 s of 5, and six are three more
	})
}
