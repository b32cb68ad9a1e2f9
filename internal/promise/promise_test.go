package promise

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broken has, for each promise, subjects that break it.
var broken = map[string]map[string]Setup{
	"one_admission": {
		"takes from a quota before it waits for the rest": quotaFirst,
		"takes the slot before it waits for the rest":     naiveSetup(false),
	},
	"exact_cancellation": {"slots of cancelled calls are lost": naiveSetup(false)},
	"first_come":         {"the third call is overtaken": overtaken},
	"changes":            {"a change reaches later calls only": naiveSetup(false)},
	"never_early": {
		"a pause reaches later calls only": naiveSetup(false),
		"what a server says is not obeyed": deaf,
	},
	"no_herd":        {"all leave at the end of a pause": naiveSetup(true)},
	"never_hopeless": {"waits in vain": naiveSetup(false)},
	"true_to_rate": {
		"a little too fast": faster(95),
		"a little too slow": faster(105),
		"with a burst":      bursting,
	},
	"conservation": {"an error loses the permit": leaking},
	"paid_retries": {"retries as often as it likes": naiveSetup(false)},
	"server_wait":  {"waits as long as the server sets": patient},
	"throughput": {
		"a little too slow":                faster(106),
		"a pause never ends":               sleepy,
		"a refusal slows it down for ever": offended,
	},
	"fair": {
		"takes turns whatever the weights": withoutWeights,
		"first come, first served":         inOneQueue,
	},
}

// withoutWeights shares with a gate that has only its own weight.
func withoutWeights(tb testing.TB, l Limits) *Subject {
	s := withParent(tb, l)
	beside := s.Beside
	s.Beside = func(int64) *Subject { return beside(1) }
	return s
}

// inOneQueue shares with itself.
func inOneQueue(tb testing.TB, l Limits) *Subject {
	s := plain(tb, l)
	s.Beside = func(int64) *Subject { return s }
	return s
}

// A check must be able to fail.
func TestBrokenSubjectsAreFound(t *testing.T) {
	for _, p := range Promises {
		if len(broken[p.Name]) == 0 {
			t.Errorf("nothing shows that the check of %s can fail", p.Name)
		}
		for name, setup := range broken[p.Name] {
			t.Run(p.Name+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					wrong := judge(t, p, setup, false)
					if len(wrong) == 0 {
						t.Error("nothing was found to be wrong")
					}
					t.Log(strings.Join(wrong, "\n"))
				})
			})
		}
	}
}

// On the real clock fewer things are asserted, but these hold on any machine.
func TestBrokenSubjectsAreFoundByTheRealClock(t *testing.T) {
	for promise, setup := range map[string]Setup{
		"one_admission": quotaFirst,
		"first_come":    overtaken,
		"never_early":   deaf,
		"no_herd":       naiveSetup(true),
		"true_to_rate":  faster(50),
		"conservation":  leaking,
		"paid_retries":  naiveSetup(false),
	} {
		t.Run(promise, func(t *testing.T) {
			i := slices.IndexFunc(Promises, func(p Promise) bool { return p.Name == promise })
			if wrong := judge(t, Promises[i], setup, true); len(wrong) == 0 {
				t.Error("nothing was found to be wrong")
			}
		})
	}
}

func TestMistakesInTheTableAreFound(t *testing.T) {
	check := func(*check) {}
	promises := []Promise{{"a", "An a.", check}, {"b", "A b.", check}}
	good := fstest.MapFS{
		"docs/guarantees.md": {Data: []byte("# x\n\n## What is guaranteed\n\n- **An a.** Text. (`TestPromise/a`)\n- **A b.** (`TestPromise/b`)\n\n## Else\n\n- no\n")},
		"p_test.go":          {Data: []byte("func TestPromise(t *testing.T) {\n\tpromise.Run(t, \".\", nil)\n}")},
		"m/p_test.go":        {Data: []byte("func TestPromise(t *testing.T) {\n\tpromise.Run(t, \"m\", nil)\n}")},

		"sluiceredis/README.md":            {Data: []byte("# x\n\n## What is promised\n\nText.\n\n- **C.** (`TestC`)\n\n## Else\n\n- no\n")},
		"sluiceredis/internal/c/c_test.go": {Data: []byte("package x\n\nfunc TestC(t *testing.T) {}\n")},
	}
	features := []Feature{
		{Name: "x", Runs: []string{".", "m"}},
		{Name: "y", Runs: []string{"m"}, Never: map[string]string{"a": "because"}},
		{Name: "z", Never: map[string]string{"a": "because", "b": "because"}},
	}
	defer func(before map[cell]string) { pending = before }(pending)
	pending = map[cell]string{{"a", "x", "m"}: "for now"}
	if wrong := tableMistakes(good, promises, features); len(wrong) != 0 {
		t.Errorf("mistakes in a table that has none: %q", wrong)
	}
	for name, v := range map[string]struct {
		change func(files fstest.MapFS, p []Promise, f []Feature) ([]Promise, []Feature)
		want   string
	}{
		"a cell without a module": {func(files fstest.MapFS, p []Promise, f []Feature) ([]Promise, []Feature) {
			f[2].Never = map[string]string{"a": "because"}
			return p, f
		}, "the cell b/z is neither run in a module nor has a reason"},
		"an excuse without a reason": {func(files fstest.MapFS, p []Promise, f []Feature) ([]Promise, []Feature) {
			f[1].Never = map[string]string{"a": ""}
			return p, f
		}, "a/y is excused without a reason"},
		"an excuse for nothing": {func(files fstest.MapFS, p []Promise, f []Feature) ([]Promise, []Feature) {
			f[1].Never = map[string]string{"c": "because"}
			return p, f
		}, "c/y is excused without a reason, or does not exist"},
		"a module without a test": {func(files fstest.MapFS, p []Promise, f []Feature) ([]Promise, []Feature) {
			delete(files, "m/p_test.go")
			return p, f
		}, `no test in m calls promise.Run for "m"`},
		"a promise that docs/guarantees.md does not make": {func(files fstest.MapFS, p []Promise, f []Feature) ([]Promise, []Feature) {
			return append(p, Promise{"c", "A c.", check}), f
		}, `docs/guarantees.md does not promise "A c."`},
		"a promise that no test checks": {func(files fstest.MapFS, p []Promise, f []Feature) ([]Promise, []Feature) {
			return p[:1], f
		}, "docs/guarantees.md promises something that no test checks: **A b.**"},
		"a promise that does not name its test": {func(files fstest.MapFS, p []Promise, f []Feature) ([]Promise, []Feature) {
			p[0].Name = "b"
			return p[:1], f
		}, "does not say that \"An a.\" is checked by `TestPromise/b`"},
		"a promise of a module without a test": {func(files fstest.MapFS, p []Promise, f []Feature) ([]Promise, []Feature) {
			files["sluiceredis/README.md"] = &fstest.MapFile{Data: []byte("\n## What is promised\n\n- **C.** Text.\n")}
			return p, f
		}, "sluiceredis/README.md promises something and names no test: **C.** Text."},
		"a promise of a module by a test that is gone": {func(files fstest.MapFS, p []Promise, f []Feature) ([]Promise, []Feature) {
			delete(files, "sluiceredis/internal/c/c_test.go")
			return p, f
		}, "sluiceredis/README.md names TestC, which is no test there"},
		"two features of one name": {func(files fstest.MapFS, p []Promise, f []Feature) ([]Promise, []Feature) {
			return p, append(f, f[0])
		}, "the feature x is duplicate"},
		"a pending cell that does not exist": {func(files fstest.MapFS, p []Promise, f []Feature) ([]Promise, []Feature) {
			return p, f[1:]
		}, "the pending cell a/x of m does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			files := fstest.MapFS{}
			for file, data := range good {
				files[file] = data
			}
			p, f := v.change(files, slices.Clone(promises), slices.Clone(features))
			wrong := tableMistakes(files, p, f)
			if !slices.ContainsFunc(wrong, func(text string) bool { return strings.Contains(text, v.want) }) {
				t.Errorf("found %q, want %s", wrong, v.want)
			}
		})
	}
}

// ---- Broken subjects.

// quotaFirst takes from a quota and then waits for the gate.
func quotaFirst(tb testing.TB, l Limits) *Subject {
	_, quota := newBucket(1)
	s := plain(tb, l)
	s.Levels[0].Quotas = []Quota{quota}
	do := s.Do
	s.Do = func(ctx context.Context, ask Ask, f func() error) error {
		if quota.Left() == 0 {
			return errors.New("the quota is used up")
		}
		quota.Take(1)
		return do(ctx, ask, f)
	}
	return s
}

func overtaken(tb testing.TB, l Limits) *Subject {
	s := plain(tb, l)
	var mu sync.Mutex
	calls, do := 0, s.Do
	s.Do = func(ctx context.Context, ask Ask, f func() error) error {
		mu.Lock()
		calls++
		third := calls == 3
		mu.Unlock()
		if third {
			time.Sleep(2*l.Interval + 20*time.Millisecond)
		}
		return do(ctx, ask, f)
	}
	if l.Real { // the crowd would wait for the third to queue
		s.Levels[0].Control = busy{s.Levels[0].Control}
	}
	return s
}

// A busy control reports that all calls wait.
type busy struct{ Control }

func (b busy) Stats() sluice.Stats {
	s := b.Control.Stats()
	s.Waiting += 1000
	return s
}

// deaf retries immediately, whatever wait a server sets.
func deaf(tb testing.TB, l Limits) *Subject {
	s := plain(tb, l)
	call := s.Call
	s.Call = func(ctx context.Context, f func() error) error {
		return call(ctx, func() error {
			var wait *ServerWait
			if err := f(); errors.As(err, &wait) {
				return ErrDown
			} else {
				return err
			}
		})
	}
	return s
}

// patient waits for as long as a server sets.
func patient(tb testing.TB, l Limits) *Subject {
	l.Policy.MaxServerWait = -1
	return plain(tb, l)
}

func faster(percent time.Duration) Setup {
	return func(tb testing.TB, l Limits) *Subject {
		l.Interval = l.Interval * percent / 100
		return plain(tb, l)
	}
}

// sleepy does not come back from a pause on its own: Resume does nothing, and only a later pause ends
// an earlier one.
func sleepy(tb testing.TB, l Limits) *Subject {
	s := plain(tb, l)
	s.Levels[0].Control = deafToResume{s.Levels[0].Control}
	return s
}

// A deafToResume does not end pauses.
type deafToResume struct{ Control }

func (deafToResume) Resume() {}

// offended takes ten intervals for each call after a rejection, for ever.
func offended(tb testing.TB, l Limits) *Subject {
	s := plain(tb, l)
	do := s.Do
	s.Do = func(ctx context.Context, ask Ask, f func() error) error {
		return do(ctx, ask, func() error {
			err := f()
			var wait *ServerWait
			if errors.As(err, &wait) {
				_ = s.Levels[0].SetRate(sluice.Rate{Count: 1, Per: 10 * l.Interval})
			}
			return err
		})
	}
	return s
}

func bursting(tb testing.TB, l Limits) *Subject {
	cfg := l.Config()
	cfg.Rate.Burst = 2
	g := mustGate(tb, cfg)
	return OfGate(l, g, NewLevel("gate", g))
}

func leaking(tb testing.TB, l Limits) *Subject {
	l.Room *= 100
	g := mustGate(tb, l.Config())
	s := OfGate(l, g, NewLevel("gate", g))
	s.Do = func(ctx context.Context, ask Ask, f func() error) error {
		p, err := g.Acquire(ctx, 1)
		if err != nil {
			return err
		}
		if err := f(); err != nil {
			return err
		}
		p.Release()
		return nil
	}
	return s
}

// A naive is the simplest possible limiter: it claims a slot, and sleeps.
type naive struct {
	herd bool // a pause is waited for after the slot

	mu       sync.Mutex
	interval time.Duration
	next     time.Time
	paused   time.Time
	waiting  int64
}

func naiveSetup(herd bool) Setup {
	return func(tb testing.TB, l Limits) *Subject {
		n := &naive{herd: herd, interval: l.Interval}
		return &Subject{
			Do:     n.do,
			Call:   func(ctx context.Context, f func() error) error { return n.call(ctx, l.Policy, f) },
			Levels: []*Level{{Name: "naive", Control: n, Paced: true}},
			Paced:  true,
		}
	}
}

func (n *naive) do(ctx context.Context, ask Ask, f func() error) error {
	if ask.Within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ask.Within)
		defer cancel()
	}
	n.mu.Lock()
	slot := n.next
	if now := time.Now(); slot.Before(now) {
		slot = now
	}
	if !n.herd && slot.Before(n.paused) {
		slot = n.paused
	}
	n.next = slot.Add(n.interval)
	n.waiting++
	paused := n.paused
	n.mu.Unlock()
	leave := sync.OnceFunc(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.waiting--
	})
	defer leave()
	if n.herd && slot.Before(paused) {
		slot = paused
	}
	select {
	case <-time.After(time.Until(slot)):
		leave()
		return f()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// call makes four attempts, and applies a server wait to itself alone.
func (n *naive) call(ctx context.Context, policy sluice.RetryPolicy, f func() error) (err error) {
	for range 4 {
		err = n.do(ctx, Ask{}, f)
		wait := policy.Backoff(1, 0, 0)
		var refused *ServerWait
		switch {
		case err == nil:
			return nil
		case errors.As(err, &refused):
			wait = refused.After
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func (n *naive) SetRate(rate sluice.Rate) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.interval = rate.Interval()
	return nil
}

func (n *naive) SetConcurrency(int64) error { return nil }

func (n *naive) PauseUntil(t time.Time, why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paused = t
}

func (n *naive) Resume() { n.PauseUntil(time.Time{}, "") }

func (n *naive) Stats() sluice.Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return sluice.Stats{NextSlot: n.next, PausedUntil: n.paused.Add(time.Nanosecond), Pacing: n.waiting}
}
