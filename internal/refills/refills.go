// Package refills lets package sluicehttp tell a gate of findings from the remaining quota in responses. Package sluice
// sets its variable.
package refills

import "github.com/sluice-go/sluice/internal/adaptive"

// Tell tells a *sluice.Gate the finding from the last response.
var Tell func(gate any, r adaptive.Refill)
