package pacer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
)

func TestPacer_SetRate_ReachesWaiters(t *testing.T) {
	change := map[string]struct {
		do   func(p *pacer.Pacer)
		want []time.Duration // departures of three callers; the change comes at 50 ms
	}{
		"faster":          {func(p *pacer.Pacer) { p.SetRate(limits.Rate{Count: 1000, Per: time.Second}) }, []time.Duration{0, 50 * ms, 51 * ms}},
		"a little faster": {func(p *pacer.Pacer) { p.SetRate(limits.Rate{Count: 1, Per: 80 * ms}) }, []time.Duration{0, 80 * ms, 160 * ms}},
		"slower":          {func(p *pacer.Pacer) { p.SetRate(limits.Rate{Count: 1, Per: time.Second}) }, []time.Duration{0, 1000 * ms, 2000 * ms}},
		"pause":           {func(p *pacer.Pacer) { p.PauseUntil(time.Now().Add(950 * ms)) }, []time.Duration{0, 1000 * ms, 1100 * ms}},
		"pause prolonged": {func(p *pacer.Pacer) {
			p.PauseUntil(time.Now().Add(950 * ms))
			p.PauseUntil(time.Now().Add(1950 * ms))
			p.PauseUntil(time.Now().Add(450 * ms))
		}, []time.Duration{0, 2000 * ms, 2100 * ms}},
		"pause taken back": {func(p *pacer.Pacer) {
			p.PauseUntil(time.Now().Add(time.Hour))
			time.Sleep(450 * ms)
			p.Resume()
		}, []time.Duration{0, 500 * ms, 600 * ms}},
		"pause taken back at once": {func(p *pacer.Pacer) {
			p.PauseUntil(time.Now().Add(time.Hour))
			p.Resume()
			p.Resume()
		}, []time.Duration{0, 100 * ms, 200 * ms}},
		"pause in the past": {func(p *pacer.Pacer) { p.PauseUntil(time.Now().Add(-time.Hour)) }, []time.Duration{0, 100 * ms, 200 * ms}},
		"pause for ever": {func(p *pacer.Pacer) {
			p.PauseUntil(time.Unix(1<<40, 0))
			time.Sleep(100 * 365 * 24 * time.Hour)
			p.Resume()
		}, []time.Duration{0, 100*365*24*time.Hour + 50*ms, 100*365*24*time.Hour + 150*ms}},
	}
	for name, c := range change {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, l := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second})), synclog.New()
				var want []synclog.Left
				for i, at := range c.want {
					l.Call(i, func() error { return p.Acquire(bg, 1) })
					want = append(want, synclog.At(i, at))
				}
				time.Sleep(50 * ms)
				c.do(p)
				time.Sleep(24 * time.Hour)
				l.Want(t, want...)
			})
		})
	}
}

func TestPacer_SetRate_FailsWaitersWithoutTime(t *testing.T) {
	change := map[string]func(p *pacer.Pacer){
		"slower": func(p *pacer.Pacer) { p.SetRate(limits.Rate{Count: 1, Per: time.Second}) },
		"pause":  func(p *pacer.Pacer) { p.PauseUntil(time.Now().Add(time.Second)) },
	}
	for name, change := range change {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, l := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second})), synclog.New()
				ctx, cancel := context.WithTimeout(bg, 500*ms)
				defer cancel()
				p.TryAcquire(1)
				l.Call(1, func() error { return p.Acquire(ctx, 1) })
				l.Call(2, func() error { return p.AcquireWithin(bg, 1, 300*ms) })
				l.Call(3, func() error { return p.AcquireWithin(bg, 1, time.Hour) })
				time.Sleep(50 * ms)
				change(p)
				l.Want(t,
					synclog.Failed(1, 50*ms, context.DeadlineExceeded),
					synclog.Failed(2, 50*ms, context.DeadlineExceeded),
				)
				if ctx.Err() != nil {
					t.Error("it waited for its deadline")
				}
				time.Sleep(time.Minute)
				if got := l.Sofar(); len(got) != 3 || got[2].Caller != 3 || got[2].Err != nil {
					t.Errorf("the third caller: %v", got)
				}
			})
		})
	}
}

// Only those whom the change makes hopeless fail, counted without those who fail
// before them.
func TestPacer_SetRate_FailsNoMoreThanItMust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second})), synclog.New()
		p.TryAcquire(1)
		for i, most := range []time.Duration{2 * time.Second, 500 * ms, 2 * time.Second, 2 * time.Second, 3 * time.Second} {
			l.Call(i, func() error { return p.AcquireWithin(bg, 1, most) })
		}
		p.SetRate(limits.Rate{Count: 1, Per: time.Second}) // slots at 1, 2, 3 … s
		time.Sleep(time.Minute)
		l.Want(t,
			synclog.At(0, time.Second),
			synclog.Failed(1, 0, context.DeadlineExceeded),
			synclog.At(2, 2*time.Second), // moved up
			synclog.Failed(3, 0, context.DeadlineExceeded),
			synclog.At(4, 3*time.Second),
		)
	})
}

func TestPacer_PauseUntil_EndsWithNothingStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := mustNew(t, limits.Rate{Count: 10, Per: time.Second, Burst: 5}, pacer.Config{}), synclog.New()
		time.Sleep(time.Hour) // full burst
		p.PauseUntil(time.Now().Add(30 * time.Second))
		l.Start = time.Now()
		var want []synclog.Left
		for i := range 64 {
			l.Call(i, func() error { return p.Acquire(bg, 1) })
			want = append(want, synclog.At(i, 30*time.Second+time.Duration(i)*100*ms))
		}
		time.Sleep(time.Hour)
		l.Want(t, want...)
	})
}

func TestPacer_Resume_LeavesNothingStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := mustNew(t, limits.Rate{Count: 10, Per: time.Second, Burst: 5}, pacer.Config{}), synclog.New()
		time.Sleep(time.Hour) // full burst
		p.PauseUntil(time.Now().Add(time.Hour))
		l.Start = time.Now()
		for i := range 3 {
			l.Call(i, func() error { return p.Acquire(bg, 1) })
		}
		time.Sleep(time.Second)
		p.Resume()
		time.Sleep(time.Hour)
		l.Want(t, synclog.At(0, time.Second), synclog.At(1, 1100*ms), synclog.At(2, 1200*ms))
	})
}

func TestPacer_SetRate_KeepsWhatIsStored(t *testing.T) {
	for name, c := range map[string]struct {
		idle  time.Duration
		taken int64
		count int64 // the new rate, per second; it was 10/s
		burst int64 // the new burst; it was 5
		want  int
	}{
		"full, slower":           {time.Hour, 0, 1, 5, 5},
		"full, faster":           {time.Hour, 0, 1000, 5, 5},
		"2 left, slower":         {time.Hour, 3, 1, 5, 2},
		"2 left, faster":         {time.Hour, 3, 1000, 5, 2},
		"2 stored since, slower": {100 * ms, 0, 1, 5, 2},
		"2 stored since, faster": {100 * ms, 0, 1000, 5, 2},
		"none stored, faster":    {time.Hour, 7, 1000, 5, 1}, // its slot is now
		"none stored, slower":    {time.Hour, 7, 1, 5, 0},
		"full, smaller burst":    {time.Hour, 0, 10, 3, 3},
		"full, no burst":         {time.Hour, 0, 1, 0, 1},
		"full, larger burst":     {time.Hour, 0, 1000, 9, 5},
		"2 left, larger burst":   {time.Hour, 3, 10, 9, 2},
		"2 left, smaller burst":  {time.Hour, 3, 10, 2, 2},
		"2 left, no burst":       {time.Hour, 3, 10, 1, 1},
		"none left, no burst":    {time.Hour, 5, 1, 1, 0},
		"owed, larger burst":     {time.Hour, 9, 10, 100, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := mustNew(t, limits.Rate{Count: 10, Per: time.Second, Burst: 5}, pacer.Config{})
				time.Sleep(c.idle)
				p.TryAcquire(c.taken)
				if c.taken > 5 {
					time.Sleep(50 * ms) // on the way to the slot
				}
				p.SetRate(limits.Rate{Count: c.count, Per: time.Second, Burst: c.burst})
				got := 0
				for p.TryAcquire(1) {
					got++
				}
				if got != c.want {
					t.Errorf("%d leave at once, want %d", got, c.want)
				}
			})
		})
	}
}
