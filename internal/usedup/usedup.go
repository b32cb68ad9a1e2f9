// Package usedup lets package sluicehttp pause a gate although no call was throttled now, or none as far as is
// known. Package sluice sets its variables.
package usedup

import "time"

// Pause is PauseUntil of a *sluice.Gate because a published limit is used up: no call was throttled, so that
// there is no rate to be measured.
var Pause func(gate any, until time.Time, why string)

// Hold is PauseUntil of a *sluice.Gate while a response is read that may be a throttle: if it is one, that is
// recorded when it is known. Until then there is no slow start.
var Hold func(gate any, until time.Time, why string)

// Restart pauses a *sluice.Gate until then after waits of others, and begins slowly, as after a wait of its own.
var Restart func(gate any, until time.Time, why string)
