package sluicehttp

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// SetRandom replaces the source of jitter.
func (t *Transport) SetRandom(f func() float64) { t.random = f }

// Unwrap returns the base transport.
func (t *Transport) Unwrap() http.RoundTripper {
	t.init()
	return t.base
}

// NeverWritten reports whether err came before anything was written.
var NeverWritten = neverWritten

// StreamCode returns the code of an error of an HTTP/2 stream.
func StreamCode(err error) (code uint32, ok bool) {
	var stream streamError
	ok = errors.As(err, &stream)
	return stream.Code, ok
}

// StreamError returns one.
func StreamError(code uint32) error { return streamError{Code: code} }

// Claims returns of how many limits claims are kept, of all keys.
func (t *Transport) Claims() (n int) {
	for _, st := range t.states.Range {
		n += len(st.(*state).claimed)
	}
	return n
}

// PausedServers returns how many servers are remembered to have paused all calls.
func (t *Transport) PausedServers() int {
	t.global.mu.Lock()
	defer t.global.mu.Unlock()
	return len(t.global.paused)
}

// KeyOf returns the key of a request for u.
func KeyOf(u *url.URL) string { return destination(&http.Request{URL: u}).host }

// ErrNoRetry is the reason for a request with Overrides.NoRetry.
var ErrNoRetry = errNoRetry

// OverridesFrom returns the overrides in ctx.
func OverridesFrom(ctx context.Context) Overrides { return *overridesOf(ctx) }

// RefillRates returns the rates per minute of a bucket that is said to hold most, after each
// response that shows what remains and in how many seconds it is full.
func RefillRates(most float64, seen ...[2]float64) (rates []float64) {
	var r refillRate
	for _, s := range seen {
		rates = append(rates, 60*r.of(most, s[0], time.Duration(s[1]*float64(time.Second))))
	}
	return rates
}

// ThrottledBy returns the unit of the limit that has refused a request with costs, as the
// response says.
func Exhausted(costs sluice.Costs, said ratelimit.Info) sluice.Unit {
	return (&spending{costs: costs}).exhausted(&said)
}

// Charges returns how many attempts are remembered for published limits, of all keys.
func (t *Transport) Charges() (n int) {
	for _, st := range t.states.Range {
		if p := st.(*state).published; p != nil {
			p.mu.Lock()
			n += len(p.charges)
			p.mu.Unlock()
		}
	}
	return n
}

// A State is the state of a key, for its tests.
type State struct{ *state }

// StateOf returns the state of one key of t.
func StateOf(t *Transport) (st State) {
	for _, s := range t.states.Range {
		st.state = s.(*state)
	}
	return st
}

func (st State) Pin() bool    { return st.pin() }
func (st State) Unpin()       { st.unpin() }
func (st State) Retire() bool { return st.retire() }
func (st State) Revive()      { st.revive() }

// KeyedEvery is how often Pin fails.
const KeyedEvery = keyedEvery

// MakersInSuccess returns the places in the table of those makers that refuse with status 200, as
// the table has them and as the transport uses them.
func MakersInSuccess() (table, used []int) {
	for i := range makers {
		if makers[i].fine != "" || makers[i].name == "MediaWiki" {
			table = append(table, i)
		}
	}
	return table, []int{graphQLMaker, jsonRPCMaker, slackMaker, mediaWikiMaker, googleMapsMaker, etherscanMaker,
		krakenMaker, bybitMaker, vkMaker, vonageMaker, marketoMaker, mondayMaker}
}

// SeeRoute makes the route of req known, as a request does.
func (t *Transport) SeeRoute(req *http.Request) {
	c := call{t: t, req: req}
	_ = t.use(destination(req), func(st *state) error {
		st.scopes.note(&c)
		return nil
	})
}

// UnseenWords returns the words for too many calls that no stem lets through.
func UnseenWords() (unseen []string) {
	for _, word := range slices.Concat(tooManyWords, limitWords) {
		if !hasAny(word, limitStems) {
			unseen = append(unseen, word)
		}
	}
	return unseen
}
