package plan

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/cmd/internal/learned"
	"github.com/sluice-go/sluice/limits"
)

// A plan is the end of a job, and the reason for it.
type plan struct {
	*options
	snapshot []byte // nil for none
	learned  *sluice.Learned
	now      time.Time
	end      sluice.Estimate
	next     *sluice.Estimate // without the limit that binds; nil if nothing else limits the job
}

// newPlan makes a plan that begins now.
func newPlan(o *options) (p *plan, err error) {
	p = &plan{options: o, now: time.Now()}
	if o.learned != "" {
		if err := p.readSnapshot(); err != nil {
			return nil, fmt.Errorf("-learned: %w", err)
		}
	}
	g, err := p.newGate("")
	if err != nil {
		return nil, err
	}
	if p.learned = g.Stats().Learned; p.snapshot != nil && p.learned == nil {
		return nil, fmt.Errorf("-learned: nothing had been learned when %s was written", o.learned)
	}
	p.end = p.estimate(g, o.items)
	if by := p.end.LimitedBy; by != "" && p.end.First != limits.Never {
		without, err := p.newGate(by)
		if err != nil {
			return nil, err
		}
		if e := p.estimate(without, o.items); e.LimitedBy != "" && e.Total != limits.Never {
			p.next = &e
		}
	}
	return p, nil
}

// estimate returns the estimate of g for so many calls.
func (p *plan) estimate(g *sluice.Gate, n int64) sluice.Estimate {
	return g.Estimate(n, sluice.ExpectedCall{Costs: p.costs, Duration: p.takes})
}

// newGate makes a gate with all limits but one, or with all of them.
func (p *plan) newGate(without limits.Cause) (*sluice.Gate, error) {
	var cfg sluice.Config
	if without != limits.ByRate {
		if cfg.Rate = p.rate; cfg.Rate.Count > 0 {
			cfg.Rate.Burst = p.burst
		}
	}
	if without != limits.ByConcurrency {
		cfg.Concurrency = p.jobs
	}
	for _, l := range p.limits {
		limiter, err := l.fresh()
		if err != nil {
			return nil, err
		}
		if l.cause() != without {
			cfg.Limits = append(cfg.Limits, sluice.Limit{Name: l.text, Limiter: limiter, Unit: l.unit})
		}
	}
	g, err := sluice.New(cfg)
	if err != nil {
		return nil, err
	}
	if p.snapshot != nil && without != limits.ByLearned {
		if err := g.Restore(p.snapshot); err != nil {
			return nil, fmt.Errorf("-learned: %w", err)
		}
	}
	return g, nil
}

// cause is the name of l in an estimate.
func (l *limit) cause() limits.Cause { return limits.Cause("limit " + l.text) }

// readSnapshot reads the file of -learned.
func (p *plan) readSnapshot() error {
	text, err := os.ReadFile(p.options.learned)
	if err != nil {
		return err
	}
	gates, err := learned.Parse(text)
	if err != nil || gates == nil {
		if p.gate != "" {
			return fmt.Errorf("%s is not the file of a proxy, so leave out -gate", p.options.learned)
		}
		p.snapshot = text
		return nil
	}
	names := slices.Sorted(maps.Keys(gates))
	if p.gate == "" && len(names) == 1 {
		p.gate = names[0]
	}
	if p.snapshot = gates[p.gate]; p.snapshot != nil {
		return nil
	}
	for i := range names {
		names[i] = cli.Plain(names[i], cli.MostOfItem)
	}
	switch {
	case len(names) == 0:
		return errors.New("nothing had been learned")
	case p.gate == "":
		return fmt.Errorf("give one of these as -gate: %s", strings.Join(names, ", "))
	}
	return fmt.Errorf("no gate %q, want one of %s", p.gate, strings.Join(names, ", "))
}

// print prints the plan and returns the exit status.
func (p *plan) print(w io.Writer) (status int, err error) {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	job, they := calls(p.items), map[bool]string{true: "It is", false: "They are"}[p.items == 1]
	switch end := p.end; {
	case end.First == limits.Never:
		say("%s can never start: a call takes more than %s allows.", job, p.about(end.LimitedBy))
		return cli.ExitFailed, write(w, b.String())
	case end.Total == limits.Never:
		say("%s would take more than 292 years.", job)
		status = cli.ExitFailed
	default:
		say("%s: the end is at %s, in %s.", job, p.clock(end), rough(end.Total))
	}
	switch {
	case p.end.LimitedBy == "":
		say("Nothing makes a call wait.")
	case p.next == nil:
		say("%s limited by %s. Nothing else makes a call wait.", they, p.about(p.end.LimitedBy))
	default:
		say("%s limited by %s.", they, p.about(p.end.LimitedBy))
		say("Without that the end would be at %s, in %s, limited by %s.", p.clock(*p.next), rough(p.next.Total), p.about(p.next.LimitedBy))
	}
	if by := p.end.Unknown; by != "" {
		say("That is not certain: %s cannot be forecast now.", p.about(by))
	}
	if !p.by.IsZero() {
		switch early := p.by.Sub(p.now) - p.end.Total; {
		case early < 0:
			status = cli.ExitFailed
			say("That is too late for %s, by %s. %s would be done by then.", p.at(p.by), rough(-early), calls(p.doneBy()))
		case p.end.Unknown != "":
			status = cli.ExitFailed
			say("So it may be too late for %s.", p.at(p.by))
		default:
			say("That is in time for %s, with %s to spare.", p.at(p.by), rough(early))
		}
	}
	return status, write(w, b.String())
}

func write(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

// doneBy returns how many calls would be done by -by.
func (p *plan) doneBy() int64 {
	g, err := p.newGate("")
	if err != nil {
		return 0 // not reached: it was made before
	}
	left := p.by.Sub(p.now)
	low, high := int64(0), p.items
	for low < high {
		if n := high - (high-low)/2; p.estimate(g, n).Total <= left {
			low = n
		} else {
			high = n - 1
		}
	}
	return low
}

// clock returns when a job with an estimate ends.
func (p *plan) clock(e sluice.Estimate) string { return p.at(p.now.Add(e.Total)) }

// at returns a time of the local clock, never too early, with its date if that is another day.
func (p *plan) at(t time.Time) string {
	t = t.Add(time.Second - 1).Truncate(time.Second).In(time.Local)
	layout := time.TimeOnly
	if t.Format(time.DateOnly) != p.now.In(time.Local).Format(time.DateOnly) {
		layout = time.DateTime
	}
	return t.Format(layout)
}

// rough writes a time to be glanced at.
func rough(d time.Duration) string {
	const day = 24 * time.Hour
	if d < 2*day {
		return cli.Roughly(d)
	}
	text := fmt.Sprintf("%d days", d/day)
	if hours := d % day / time.Hour; hours > 0 {
		text += fmt.Sprintf(" %dh", hours)
	}
	return text
}

// calls returns a number of calls.
func calls(n int64) string {
	if n == 1 {
		return "1 call"
	}
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text + " calls"
}

// about names a limit, with its numbers.
func (p *plan) about(by limits.Cause) string {
	switch by {
	case limits.ByRate:
		return "the rate of " + p.rate.String()
	case limits.ByConcurrency:
		return fmt.Sprintf("%s at once, each of %s", calls(p.jobs), rough(p.takes))
	case limits.ByLearned:
		l := p.learned
		switch {
		case l == nil:
		case l.Window.Count > 0:
			return "the learned limit of " + l.Window.String()
		case l.Pace > 0:
			return fmt.Sprintf("the learned limit of %.3g/s", l.Pace)
		case l.Concurrency > 0:
			return fmt.Sprintf("the learned limit of %s at once", calls(l.Concurrency))
		}
	}
	if text, ok := strings.CutPrefix(string(by), "limit "); ok {
		return "the limit of " + text
	}
	return "the " + string(by)
}
