// Package defaults has the defaults that more than one package applies.
package defaults

import "time"

// MaxServerWait is the default of sluice.RetryPolicy.MaxServerWait.
const MaxServerWait = 5 * time.Minute
