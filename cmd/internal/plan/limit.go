package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

// A limit is a -limit.
type limit struct {
	text  string // as it was given
	unit  sluice.Unit
	fresh func() (limits.Limiter, error)
}

// addLimit adds a -limit.
func (o *options) addLimit(text string) error {
	l, err := parseLimit(text)
	if err == nil {
		_, err = l.fresh()
	}
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(o.limits, func(other limit) bool { return other.text == l.text }):
		return fmt.Errorf("%s is given twice", l.text)
	}
	o.limits = append(o.limits, l)
	return nil
}

// calendars are the periods of calendar windows.
var calendars = map[string]window.Calendar{
	"m": window.Minute, "min": window.Minute, "minute": window.Minute, "h": window.Hour, "hour": window.Hour,
	"d": window.Day, "day": window.Day, "week": window.Week, "month": window.Month,
}

// parseLimit parses a rate and the words behind it.
func parseLimit(text string) (l limit, err error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return l, errors.New("want a rate, such as 500/m")
	}
	given := map[string]string{}
	for _, word := range words[1:] {
		name, value, ok := strings.Cut(word, "=")
		switch name {
		case "unit", "type", "burst", "zone":
		default:
			return l, fmt.Errorf("%s: want unit=, type=, burst= or zone=", word)
		}
		if _, twice := given[name]; twice || !ok || value == "" {
			return l, fmt.Errorf("%s: want it once, with a value", word)
		}
		given[name] = value
	}
	l = limit{text: strings.Join(words, " "), unit: sluice.Unit(cmp.Or(given["unit"], string(sluice.Calls)))}
	if !isUnit(string(l.unit)) {
		return l, fmt.Errorf("unit=%s: want a word in lower case", l.unit)
	}
	kind := cmp.Or(given["type"], "bucket")
	switch {
	case given["burst"] != "" && kind != "bucket":
		return l, fmt.Errorf("burst= is for a bucket, and not for type=%s", kind)
	case given["zone"] != "" && kind != "calendar":
		return l, fmt.Errorf("zone= is for a calendar, and not for type=%s", kind)
	case kind == "calendar":
		return l, l.calendar(words[0], given["zone"])
	}
	var rate sluice.Rate
	if err := cli.Rate(&rate).Set(words[0]); err != nil {
		return l, err
	}
	if rate.Count == 0 {
		return l, errors.New("want a rate, such as 500/m")
	}
	quota := window.Quota{Limit: rate.Count, Window: rate.Per}
	switch kind {
	case "bucket":
		rate.Burst = rate.Count
		if text := given["burst"]; text != "" {
			if rate.Burst, err = strconv.ParseInt(text, 10, 64); err != nil || rate.Burst < 1 {
				return l, fmt.Errorf("burst=%s: want a number above 0", text)
			}
		}
		l.fresh = func() (limits.Limiter, error) { return leaky.New(rate) }
	case "fixed":
		l.fresh = func() (limits.Limiter, error) { return window.NewFixed(quota) }
	case "sliding":
		l.fresh = func() (limits.Limiter, error) { return window.NewSliding(quota) }
	default:
		return l, fmt.Errorf("type=%s: want bucket, fixed, sliding or calendar", kind)
	}
	return l, nil
}

// calendar makes l a limit per calendar window.
func (l *limit) calendar(rate, zone string) (err error) {
	count, per, _ := strings.Cut(rate, "/")
	quota := window.Quota{Per: calendars[per]}
	if quota.Limit, err = strconv.ParseInt(count, 10, 64); err != nil || quota.Limit < 1 || quota.Per == "" {
		return fmt.Errorf("%s: want a number per m, h, day, week or month", rate)
	}
	if quota.Location, err = time.LoadLocation(zone); err != nil {
		return fmt.Errorf("zone=%s: no such time zone", zone)
	}
	l.fresh = func() (limits.Limiter, error) { return window.NewFixed(quota) }
	return nil
}
