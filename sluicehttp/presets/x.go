package presets

import (
	"net/http"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
)

// X returns a Config for the API of X. Each endpoint has a gate: its key is the host, the method
// and the path without ids and names of users. The end of a window of 15 minutes is waited for.
//
// X counts for each user: use a Transport for each.
func X() sluicehttp.Config {
	return sluicehttp.Config{
		Key:   func(req *http.Request) string { return endpoint(req, []string{"username"}, nil) },
		Retry: sluice.RetryPolicy{MaxServerWait: xWindow + time.Minute}, // clocks differ
	}
}

const xWindow = 15 * time.Minute
