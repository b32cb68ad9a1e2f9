package sluiceredis

import (
	"context"
	"errors"
)

// InProcess returns the [Client] for a store without a server: its limits are those of
// this process, and have the same methods, results and errors. So a program with a Redis
// in production and none in development differs in one argument of [New].
//
//	client := sluiceredis.InProcess()
//	if addr != "" {
//		client, err = sluiceredis.NewGoRedis(redis.NewClient(…))
//	}
//	store, err := sluiceredis.New(client, sluiceredis.Config{})
//
// Each store has its own limits, and state that no longer applies is discarded. A call takes about a
// microsecond and fails only if its context is done. Only the monotonic clock is used, except that
// aligned windows follow the wall clock. A lease lasts until it is released. A restart starts over.
//
// A program that never has a Redis should use packages leaky, window, pacer and
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
