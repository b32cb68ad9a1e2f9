// Package usedup lets package sluicehttp pause a gate because of a published limit.
package usedup

import "time"

// Pause is PauseUntil of a *sluice.Gate because a published limit is used up: no call was throttled, so that
// there is no rate to be measured. Package sluice sets it.
var Pause func(gate any, until time.Time, why string)
