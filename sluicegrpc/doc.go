// Package sluicegrpc puts gates in front of a gRPC client. An [Interceptor] paces calls, limits the
// number in flight, retries transient failures, and honors the servers' instructions about retries.
//
//	interceptor, err := sluicegrpc.New(sluicegrpc.Config{
//		Gate: sluice.Config{Concurrency: 8, Rate: sluice.Rate{Count: 10, Per: time.Second}},
//	})
//	…
//	conn, err := grpc.NewClient(target,
//		grpc.WithTransportCredentials(creds),
//		grpc.WithChainUnaryInterceptor(interceptor.Unary),
//		grpc.WithChainStreamInterceptor(interceptor.Stream),
//	)
//
// There is a gate for each target; all connections to it share the gate. [ByMethod] or another
// Config.Key group calls differently, and [WithOverrides] does so for single calls. Health checks
// and server reflection (/grpc.health. and /grpc.reflection.) pass without a gate.
//
// In a chain, interceptors before this one see a call once, those behind it each attempt. So
// interceptors that sign calls come behind it. They must pass call options on.
//
// # What is in flight
//
// The permit of a unary call is held during each attempt, also while gRPC waits for a connection
// (grpc.WaitForReady), the permit of a stream until it ends, see [Interceptor.Stream].
//
// A deadline covers the queue, pauses and all attempts. A call that cannot start before it fails
// immediately. RetryPolicy.AttemptTimeout limits each attempt of a unary call; the server sees the
// deadline of the attempt.
//
// # Retries
//
// Calls that the server has not processed (ResourceExhausted, or never sent) are retried, others
// with Unavailable only if they are idempotent; so are streams of which the client has seen
// nothing. If a service config has a retryPolicy for the method, gRPC retries and the interceptor
// does not.
//
// docs/grpc.md has the tables: codes, times, streams, and the codes of rejections.
package sluicegrpc
