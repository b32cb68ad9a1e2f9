// Package inspect lets the presets use inspectors of package sluicehttp, which sets them. A
// Transport uses them by itself for responses that look like their makers' by header and
// media type; as Config.Inspect they see all others, too.
package inspect

import (
	"net/http"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// A Func is a Config.Inspect.
type Func = func(resp *http.Response, peek func() []byte, said *ratelimit.Info)

var (
	AWS       Func // the codes of aws-sdk-go-v2 and MinIO, whatever the status from 400
	Anthropic Func // an overloaded_error with any status from 500, and the spend limit
	GitHub    Func // secondary limits
	Google    Func // the reasons in errors, and retryDelay
	GraphQL   Func // errors with the code THROTTLED or RATE_LIMITED; it peeks into every response of JSON
)

// All returns a Func that calls all, in order; each sees the changes of those before it.
func All(all ...Func) Func {
	return func(resp *http.Response, peek func() []byte, said *ratelimit.Info) {
		for _, inspect := range all {
			inspect(resp, peek, said)
		}
	}
}
