package plan

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/internal/cli"
)

// options is the command line, checked.
type options struct {
	items   int64
	costs   sluice.Costs
	takes   time.Duration
	rate    sluice.Rate
	burst   int64
	jobs    int64
	limits  []limit
	learned string // a file, "" for none
	gate    string // the name of a gate in it
	by      time.Time
}

func newFlags(o *options) *cli.Flags {
	f := cli.NewFlags()
	o.costs = sluice.Costs{}
	f.Group("Job")
	f.Int64(&o.items, "items", 0, "how many `items` there are, each of which is a call")
	f.Func("cost", "the amount of a unit that a call takes: `UNIT=N`, such as tokens=1500\nIt may be repeated. It is the mean of all calls.", o.addCost)
	f.Var(cli.Duration(&o.takes), "takes", "how much `time` a call takes")
	f.Func("by", "the `time` by which the job has to end, such as 06:00 or '2027-01-31 06:00'\nWithout a date it is the next time that the clock shows this.", o.setBy)

	f.Group("Limits")
	f.Var(cli.Rate(&o.rate), "rate", "how often calls may start, evenly spaced: a `rate` such as 5/s, 300/20s or 5000/h")
	f.Int64(&o.burst, "burst", 1, "how many `calls` of -rate may start together after an idle time\nThe first one is included.")
	f.Int64(&o.jobs, "jobs", 0, "how many `calls` may run at once")
	f.Func("limit", "a further `limit`, such as 500/m or '200000/m unit=tokens type=fixed'\nIt may be repeated.", o.addLimit)
	f.String(&o.learned, "learned", "", "a `file` with learned limits\nIt is the learned.json of sluice proxy -state, or a snapshot of a gate.")
	f.String(&o.gate, "gate", "", "the `name` of the gate in -learned, if there are several")
	return f
}

// others are flags of other commands and programs.
var others = map[string]string{"n": "items", "j": "jobs", "P": "jobs", "deadline": "by", "until": "by", "time": "takes", "latency": "takes", "state": "learned"}

// parseOptions returns flag.ErrHelp for -h and -help, and otherwise errors that match cli.ErrUsage.
func parseOptions(args []string) (*options, error) {
	o := new(options)
	f := newFlags(o)
	if err := f.Parse(args, others); err != nil {
		return nil, err
	}
	err := o.check()
	if all := f.Args(); err == nil && len(all) > 0 {
		err = fmt.Errorf("unexpected %q", all[0])
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	return o, nil
}

func (o *options) check() error {
	switch {
	case o.items < 1:
		return fmt.Errorf("-items %d: must be above 0", o.items)
	case o.burst < 1:
		return fmt.Errorf("-burst %d: must be above 0", o.burst)
	case o.jobs < 0:
		return fmt.Errorf("-jobs %d: must not be negative", o.jobs)
	case o.takes < 0:
		return fmt.Errorf("-takes %v: must not be negative", o.takes)
	case o.jobs > 0 && o.takes == 0:
		return errors.New("-jobs without -takes: give the time that a call takes")
	case o.gate != "" && o.learned == "":
		return errors.New("-gate without -learned")
	case o.rate.Count == 0 && o.jobs == 0 && len(o.limits) == 0 && o.learned == "":
		return errors.New("nothing limits the job: give a -rate, -limit, -jobs or -learned")
	}
	for _, l := range o.limits {
		if _, given := o.costs[l.unit]; !given && l.unit != sluice.Calls {
			return fmt.Errorf("-limit %s: give the amount that a call takes, such as -cost %s=100", l.text, l.unit)
		}
	}
	return nil
}

// addCost adds a -cost.
func (o *options) addCost(text string) error {
	unit, number, ok := strings.Cut(text, "=")
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case !ok || err != nil || n < 0 || !isUnit(unit):
		return errors.New("want a unit and a number, such as tokens=1500")
	case unit == string(sluice.Calls):
		return errors.New("each call is one of calls")
	case unit == string(sluice.Cost) && n == 0:
		return errors.New("the cost must be above 0")
	}
	if _, twice := o.costs[sluice.Unit(unit)]; twice {
		return fmt.Errorf("%s is given twice", unit)
	}
	o.costs[sluice.Unit(unit)] = n
	return nil
}

// isUnit reports whether text can be a sluice.Unit.
func isUnit(text string) bool {
	return text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

// setBy sets -by.
func (o *options) setBy(text string) error {
	now := time.Now()
	for _, layout := range []string{"15:04", time.TimeOnly} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			o.by = time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.Local)
			if !o.by.After(now) {
				o.by = time.Date(now.Year(), now.Month(), now.Day()+1, t.Hour(), t.Minute(), t.Second(), 0, time.Local)
			}
			return nil
		}
	}
	for _, layout := range []string{"2006-01-02 15:04", time.DateTime, time.DateOnly, time.RFC3339} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			if o.by = t; !t.After(now) {
				return errors.New("that time is over")
			}
			return nil
		}
	}
	return errors.New("want a time such as 06:00, '2027-01-31 06:00' or 2027-01-31T06:00:00Z")
}
