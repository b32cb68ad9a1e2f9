// Package reroute lets package sluicehttp change the gate of calls that wait, and of one that was
// admitted. Package sluice sets the functions; gate is a *sluice.Gate, permit a *sluice.Permit.
package reroute

import (
	"errors"
	"time"
)

// ErrTurnedAway is the error of RetryLoop.Next after TurnAway. The call has taken nothing. It
// continues with RetryLoop.Move, to another gate or the same, and Next, and keeps its place among
// the calls that were turned away.
//
// RetryLoop.Done with ErrTurnedAway returns the permit of the last Next and true: that attempt is
// not made and counts neither as an attempt nor as an answer. Its slot of the rate is lost.
var ErrTurnedAway = errors.New("sluice: turned away, to go on through another gate")

// Label gives the call that is passed a zero permit to RetryLoop.Next a label other than 0, by which
// TurnAway finds it while it waits.
var Label func(permit any, label uint32)

// TurnAway ends the waits of the calls that have a label for which which returns true: their
// RetryLoop.Next returns ErrTurnedAway. Nothing is taken, and Stats.Rejected does not count them;
// their event is EventRejected with the reason "moved". Calls without a label stay. which must
// return soon and must not use the gate.
var TurnAway func(gate any, which func(label uint32) bool)

// AdmittedAt returns when permit was admitted; the zero time if its n was 0.
var AdmittedAt func(permit any) time.Time

// Part returns a gate for a part of the calls of gate, such as those of one route: gate is its
// Parent, and it adds separate limits, a []sluice.Limit or nil. Adaptive, IsThrottle, Observer,
// MaxWaiting and RetryBudget are as in gate. It returns an error if gate has a Semaphore, or for
// limits that sluice.New rejects.
var Part func(gate any, name string, more any) (part any, err error)
