package sluicehttp

import (
	"net/http"
	"slices"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// Inspectors returns an [Inspector] that calls those given, in order, each with
// what the ones before it made of the answer. Those that are nil are left out.
// Each looks only at answers of its own API, so that one transport can serve
// several.
func Inspectors(all ...Inspector) Inspector {
	all = slices.DeleteFunc(slices.Clone(all), func(i Inspector) bool { return i == nil })
	return func(resp *http.Response, peek func() []byte, said *ratelimit.Snapshot) {
		for _, inspect := range all {
			inspect(resp, peek, said)
		}
	}
}
