// Package refills lets package sluicehttp tell a gate what the remaining quota in the responses shows. Package sluice
// sets its variable.
package refills

import "github.com/sluice-go/sluice/internal/adaptive"

// Tell tells a *sluice.Gate what the last response has shown of a bucket of its server.
var Tell func(gate any, r adaptive.Refill)
