package sluicehttp

import (
	"net/http"
	"slices"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// Inspectors returns an [Inspector] that calls all in order; each sees what those
// before it have noted. Those that are nil are left out. One transport can then serve
// several APIs: the Inspectors of this package act only on answers of their own API.
func Inspectors(all ...Inspector) Inspector {
	all = slices.DeleteFunc(slices.Clone(all), func(i Inspector) bool { return i == nil })
	return func(resp *http.Response, peek func() []byte, said *ratelimit.Snapshot) {
		for _, inspect := range all {
			inspect(resp, peek, said)
		}
	}
}
