package presets

import (
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/internal/inspect"
)

// AWS returns a Config for the APIs of Amazon Web Services and compatible ones, such as other object
// stores. Throttles are recognized by their code, whatever their status from 400. They are sent again
// by the transport, as are other failures of a GET or PUT; the rest is left to the SDK, which signs
// them again. A signature expires after 5 minutes, so no attempt begins later than 4 minutes after
// the first, nor after a longer wait than 1 minute.
//
// AWS publishes no limits: a Gate.Rate near that of the service avoids most throttles.
func AWS() sluicehttp.Config {
	return sluicehttp.Config{
		Inspect: inspect.AWS,
		Retry:   sluice.RetryPolicy{MaxServerWait: time.Minute, MaxElapsed: 4 * time.Minute},
	}
}
