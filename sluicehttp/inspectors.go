package sluicehttp

import (
	"net/http"
	"slices"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// Inspectors returns an [Inspector] that calls all, in order, except those that are nil; each sees
// the changes of those before it.
func Inspectors(all ...Inspector) Inspector {
	all = slices.DeleteFunc(slices.Clone(all), func(i Inspector) bool { return i == nil })
	return func(resp *http.Response, peek func() []byte, said *ratelimit.Info) {
		for _, inspect := range all {
			inspect(resp, peek, said)
		}
	}
}
