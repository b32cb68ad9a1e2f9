// Package context is what package context is to rewritten code. The end of a context and of all
// that are made of it is one object, and one step.
package context

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/internal/explore/sched"
)

type (
	Context    = context.Context
	CancelFunc = context.CancelFunc
)

var (
	Canceled         = context.Canceled
	DeadlineExceeded = context.DeadlineExceeded

	Background    = context.Background
	WithValue     = context.WithValue
	WithoutCancel = context.WithoutCancel
	Cause         = context.Cause

	// These are in no scene.
	AfterFunc       = context.AfterFunc
	WithTimeout     = context.WithTimeout
	WithCancelCause = context.WithCancelCause
)

type cancelable struct {
	Context
	family   *sched.Object
	done     chan struct{}
	err      error
	children []*cancelable
}

type key struct{}

// WithCancel is context.WithCancel.
func WithCancel(parent Context) (Context, CancelFunc) {
	c := &cancelable{Context: parent, family: new(sched.Object), done: make(chan struct{})}
	if up, ok := parent.Value(key{}).(*cancelable); ok {
		c.family = up.family
		sched.Share(c.done, c.family)
		sched.Write("derive", c.family)
		if up.err != nil {
			c.end()
		} else {
			up.children = append(up.children, c)
		}
	} else {
		sched.Share(c.done, c.family)
	}
	return c, func() {
		sched.Write("cancel", c.family)
		c.end()
	}
}

func (c *cancelable) end() {
	if c.err != nil {
		return
	}
	c.err = Canceled
	close(c.done)
	for _, child := range c.children {
		child.end()
	}
}

func (c *cancelable) Done() <-chan struct{} { return c.done }

func (c *cancelable) Err() error {
	sched.Read("err", c.family)
	return c.err
}

func (c *cancelable) Value(k any) any {
	if k == (key{}) {
		return c
	}
	return c.Context.Value(k)
}

func (c *cancelable) Deadline() (time.Time, bool) { return c.Context.Deadline() }
