package main

import (
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicetest"
)

// options is the command line, checked.
type options struct {
	n           int
	rate        sluice.Rate
	concurrency int64
	workers     int
	url         string // "" for the built-in server
	naive       bool
	unknown     bool   // the gate is not told the rate
	out         string // "" for nothing, "-" for stdout
	json        bool
	live        string // an address, "" for none
	headers     string // a key of families

	redis     string // "" for limits of this process alone
	budget    string // the name that the limits are shared under
	named     bool   // by the user, and not for this run alone
	instances int
	share     share
}

// share is the part of the items that this process fetches. The zero share is all
// of them.
type share struct{ number, of int }

// String returns it as the flag has it.
func (s share) String() string {
	if s.of == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.number, s.of)
}

// parseShare reads "2/4".
func parseShare(text string) (s share, err error) {
	if text == "" {
		return s, nil
	}
	number, of, _ := strings.Cut(text, "/")
	s.number, err = strconv.Atoi(number)
	if err == nil {
		s.of, err = strconv.Atoi(of)
	}
	if err != nil || s.number < 1 || s.number > s.of {
		return share{}, fmt.Errorf("-share %s: want a share such as 2/4, from 1/4 to 4/4", text)
	}
	return s, nil
}

// has reports whether an item is in the share.
func (s share) has(id int) bool { return s.of == 0 || id%s.of == s.number-1 }

// items returns how many of n are.
func (s share) items(n int) int {
	if s.of == 0 {
		return n
	}
	return (n + s.of - s.number) / s.of
}

// families are the header fields in which the built-in server reports the number of remaining calls.
var families = map[string]sluicetest.HeaderStyle{
	"github": sluicetest.GitHub,
	"openai": sluicetest.OpenAI,
	"ietf":   sluicetest.Draft10,
	"none":   nil,
}

// ideal is N·T: what the items take at exactly the rate, however slow that is.
func (o options) ideal() time.Duration {
	ns := float64(o.share.items(o.n)) * float64(o.rate.Per) / float64(o.rate.Count)
	if ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}

// perSecond is the rate as a number.
func (o options) perSecond() float64 {
	return float64(o.rate.Count) / o.rate.Per.Seconds()
}

// flags are the values as given, before they are checked.
type flags struct {
	set *flag.FlagSet
	options
	rate  string
	per   time.Duration
	share string
}

func newFlags() *flags {
	f := &flags{set: flag.NewFlagSet("apiclient", flag.ContinueOnError)}
	f.set.SetOutput(io.Discard) // main prints what went wrong, once
	f.set.Usage = func() {}
	f.set.IntVar(&f.n, "n", 1000, "how many `items` to fetch: 0 to n-1")
	f.set.StringVar(&f.rate, "rate", "100", "the rate of the server and of the gate: a `count` per -per, or a whole rate such as 5/s, 300/20s or 5000/h")
	f.set.DurationVar(&f.per, "per", time.Second, "the period of a -rate that is only a count")
	f.set.Int64Var(&f.concurrency, "concurrency", 10, "how many `calls` the server and the gate allow in flight")
	f.set.IntVar(&f.workers, "workers", 64, "how many `goroutines` each pool has")
	f.set.StringVar(&f.url, "url", "", "fetch from this `address` instead of the built-in server; {} stands for the number of the item; without {} the same address is fetched n times")
	f.set.BoolVar(&f.naive, "naive", false, "fetch the items a second time with the naive pool (default: only from the built-in server)")
	f.set.BoolVar(&f.unknown, "unknown", false, "do not tell the gate the rate: it finds it by itself, and a second gate that is told it follows for comparison")
	f.set.StringVar(&f.out, "out", "items.jsonl", "the `file` for the items, replaced if it exists; - is stdout (progress and table then go to stderr), an empty name writes nothing")
	f.set.BoolVar(&f.json, "json", false, "print one JSON object on stdout instead of the table; progress and table go to stderr")
	f.set.StringVar(&f.headers, "headers", "ietf", "the `family` of header fields in which the built-in server reports its limits: github, openai, ietf or none")
	f.set.StringVar(&f.live, "live", "", "serve a web page that shows the gate while it is used, at this `address`, such as localhost:8080, or :0 for any free port of localhost")
	f.set.StringVar(&f.redis, "redis", "", "share the limits, in the Redis at this `address`, with all instances of the same -name")
	f.set.StringVar(&f.budget, "name", "", "the `name` under which the limits are shared (default: a new one)")
	f.set.IntVar(&f.instances, "instances", 1, "with -redis: how many `processes` fetch the items together")
	f.set.StringVar(&f.share, "share", "", "fetch only this `part` of the items, such as 2/4: the second of four")
	return f
}

// parseOptions returns flag.ErrHelp for -h and -help.
func parseOptions(args []string) (options, error) {
	f := newFlags()
	if err := f.set.Parse(args); err != nil {
		return options{}, err
	}
	given := make(map[string]bool)
	f.set.Visit(func(fl *flag.Flag) { given[fl.Name] = true })

	o := f.options
	if !given["naive"] {
		// Hammering is only ours to do at our own server.
		o.naive = o.url == ""
	}
	var err error
	if o.rate, err = parseRate(f.rate, f.per, given["per"]); err != nil {
		return options{}, err
	}
	if o.share, err = parseShare(f.share); err != nil {
		return options{}, err
	}
	if o.unknown && !given["headers"] {
		o.headers = "none" // which would tell the gate the rate
	}
	if o.instances > 1 && !given["naive"] {
		o.naive = false // it is what the instances do together that is shown
	}
	if f.set.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q", f.set.Arg(0))
	}
	if err := o.check(given); err != nil {
		return options{}, err
	}
	if o.redis != "" {
		if _, port, err := net.SplitHostPort(o.redis); err != nil || port == "" {
			return options{}, fmt.Errorf("-redis %s: want host:port, such as 127.0.0.1:6379", o.redis)
		}
		if o.named = o.budget != ""; !o.named {
			o.budget = "of run " + rand.Text()[:8]
		}
	}
	if o.url != "" {
		if err := checkURL(o.url); err != nil {
			return options{}, err
		}
	}
	return o, nil
}

// check returns an error for values that make no sense. given has the names of the flags
// that were set.
func (o options) check(given map[string]bool) error {
	_, isFamily := families[o.headers]
	switch {
	case o.n <= 0:
		return fmt.Errorf("-n %d: must be above 0", o.n)
	case o.concurrency <= 0:
		return fmt.Errorf("-concurrency %d: must be above 0", o.concurrency)
	case o.workers <= 0:
		return fmt.Errorf("-workers %d: must be above 0", o.workers)
	case !isFamily:
		return fmt.Errorf("-headers %s: want github, openai, ietf or none", o.headers)
	case o.url != "" && given["headers"]:
		return errors.New("-headers concerns the built-in server: leave it out with -url")
	case o.live != "" && o.instances > 1:
		return errors.New("-live shows the gate of one process: leave it out with -instances")
	case o.out == "-" && o.json:
		return errors.New("-out - and -json: only one of them can have stdout")
	case o.unknown && (o.url != "" || o.redis != "" || o.instances > 1):
		return errors.New("-unknown compares two gates at the built-in server: leave out -url, -redis and -instances")
	case o.instances <= 0:
		return fmt.Errorf("-instances %d: must be above 0", o.instances)
	case o.budget != "" && o.redis == "":
		return errors.New("-name is the name of limits in a Redis: give -redis, too")
	case o.instances > 1:
		return o.checkInstances()
	}
	return nil
}

// checkInstances rejects what instances cannot do together.
func (o options) checkInstances() error {
	switch {
	case o.redis == "":
		return fmt.Errorf("-instances %d needs -redis: without one each process would have the whole rate for itself", o.instances)
	case o.url != "":
		return errors.New("-instances shows what the built-in server saw: for another server, start each process yourself, with -share and one -name")
	case o.share.of != 0:
		return errors.New("-instances divides the items itself: leave out -share")
	case o.naive:
		return errors.New("-naive compares two runs of one process: leave it out with -instances")
	case o.out == "-":
		return errors.New("-out -: the instances cannot share stdout")
	case o.instances > o.n:
		return fmt.Errorf("-instances %d: there are only %d items", o.instances, o.n)
	}
	return nil
}

// parseRate reads -rate, which is a count alone or a whole rate.
func parseRate(value string, per time.Duration, perGiven bool) (sluice.Rate, error) {
	if strings.Contains(value, "/") {
		if perGiven {
			return sluice.Rate{}, fmt.Errorf("-rate %s already names its period: leave out -per", value)
		}
		rate, err := limits.ParseRate(value)
		if err != nil {
			return sluice.Rate{}, fmt.Errorf("-rate: %w", err)
		}
		return rate, nil
	}
	count, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return sluice.Rate{}, fmt.Errorf("-rate %q: neither a count nor a rate such as 300/20s", value)
	}
	if count <= 0 {
		return sluice.Rate{}, fmt.Errorf("-rate %d: must be above 0", count)
	}
	if per <= 0 {
		return sluice.Rate{}, fmt.Errorf("-per %v: must be above 0", per)
	}
	return sluice.Rate{Count: count, Per: per}, nil
}

// checkURL rejects an address that no call could ever reach.
func checkURL(address string) error {
	u, err := url.Parse(itemURL(address, 0))
	if err != nil {
		return fmt.Errorf("-url: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("-url %s: want http://host/… or https://host/…", address)
	}
	return nil
}

// itemURL puts the number of an item in the place of {}.
func itemURL(address string, id int) string {
	return strings.ReplaceAll(address, "{}", strconv.Itoa(id))
}

// usage writes the help.
func usage(w io.Writer) {
	fmt.Fprint(w, `apiclient fetches items from a rate-limited HTTP API through a gate, fetches the same
items with a naive pool that retries at once, and prints both side by side.

	go run ./examples/apiclient [flags]

Each item becomes a line {"id":17,"body":…}. The body is the API's if that is JSON,
otherwise a string.

With -redis all processes with the same -name share the limits, through that Redis.
-instances 4 starts four of them and shows what the server saw. If the Redis does not
answer, an instance waits up to 10 s and makes no calls. The permits of an instance
that was killed are returned within 5 s.

	go run ./examples/apiclient -redis 127.0.0.1:6379 -instances 4

With -unknown the gate is not told the rate, by flags or (unless you set -headers) by
header fields, and finds it by itself. It is still told the concurrency. A second gate
that is told both fetches the same items for comparison.

Exit status: 0 if nothing was lost; 1 if something was lost or could not begin; 2 if
the flags are invalid; 130 if it was interrupted. Items that the naive pool loses do
not count. The first Ctrl-C lets calls in flight finish, the second cancels them.

`)
	f := newFlags()
	f.set.SetOutput(w)
	f.set.PrintDefaults()
}
