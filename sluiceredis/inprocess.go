package sluiceredis

import (
	"context"
	"errors"
)

// InProcess returns the [Client] for a store without a server, such as in development:
//
//	client := sluiceredis.InProcess()
//	if addr != "" {
//		client, err = sluiceredis.NewGoRedis(redis.NewClient(…))
//	}
//	store, err := sluiceredis.New(client, sluiceredis.Config{})
//
// Each store has its own limits, which a restart resets. A call fails only if its context is done.
// Aligned windows follow the wall clock, everything else the monotonic clock. A lease lasts until
// it is released. A program that never has a Redis should use packages leaky, window, pacer and
// semaphore.
func InProcess() Client { return inProcess{} }

// inProcess is the client of a store without a server.
type inProcess struct{}

var errNoServer = errors.New("sluiceredis: limits of this process have no server to run scripts")

// Run implements Client.
func (inProcess) Run(context.Context, *Script, []string, []string) ([]int64, error) {
	return nil, errNoServer
}

// RunMany implements Client.
func (inProcess) RunMany(_ context.Context, calls []ScriptCall) []Reply {
	replies := make([]Reply, len(calls))
	for i := range replies {
		replies[i].Err = errNoServer
	}
	return replies
}
