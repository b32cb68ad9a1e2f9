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

// A Unit is what a limit counts.
type Unit int

const (
	// DefaultUnit is Calls for concurrency and rate and Cost for quotas.
	DefaultUnit Unit = iota

	// Calls counts every call as 1, whatever n it is made with.
	Calls

	// Cost counts a call as its n, and later as what it was settled for.
	Cost
)

// of returns what a call of n counts.
func (u Unit) of(n int64) int64 {
	if u == Cost {
		return n
	}
	return min(n, 1)
}

func (u Unit) or(other Unit) Unit {
	if u == DefaultUnit {
		return other
	}
	return u
}

func (u Unit) check(what string) error {
	if u < DefaultUnit || u > Cost {
		return fmt.Errorf("%s: no such unit: %d", what, u)
	}
	return nil
}

// A Quota is one more limit of a gate.
type Limit struct {
	Name    string         // what messages call it
	Limiter limits.Limiter // required
	Unit    Unit           // DefaultUnit means Cost
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
