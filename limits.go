package sluice

import (
	"errors"
	"fmt"

	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/limits"
)

// bellOf returns how limit tells of changes, nil if it does not.
func bellOf(limit limits.Limiter) *queue.Bell {
	n, ok := limit.(limits.Notifier)
	if !ok {
		return nil
	}
	b := queue.Bell(n.OnChange)
	return &b
}

// A Unit is what a limit counts. The empty Unit is the default of the field.
type Unit string

const (
	// Calls counts each call as 1, whatever its n.
	Calls Unit = "calls"

	// Cost counts a call as its n and, after Settle, as what it really cost.
	Cost Unit = "cost"
)

// of returns what a call of n counts.
func (u Unit) of(n int64) int64 {
	if u == Cost {
		return n
	}
	return min(n, 1)
}

// check returns an error unless u is empty, Calls or Cost. Later versions may accept
// other units.
func (u Unit) check(what string) error {
	switch u {
	case "", Calls, Cost:
		return nil
	}
	return fmt.Errorf("%s: unknown unit %q", what, u)
}

// A Quota is one more limit of a gate.
type Limit struct {
	Name    string         // what messages call it
	Limiter limits.Limiter // required
	Unit    Unit           // what it counts; empty means Cost
}

// limit returns what holds calls up if q does.
func (q *Limit) limit() Cause {
	if q.Name == "" {
		return "quota"
	}
	return Cause("quota " + q.Name)
}

func (q *Limit) check() error {
	if q.Limiter == nil {
		return errors.New("no meter")
	}
	return q.Unit.check("counts")
}
