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
// There is a gate for each target; all connections to it share the gate. [ByService],
// [ByMethod] or another Config.Key group calls differently, and [With] does so for single
// calls. Health checks and server reflection (/grpc.health. and /grpc.reflection.) pass without
// a gate.
//
// In a chain, interceptors before this one see a call once, those behind it see each attempt.
// So interceptors that sign calls come behind it. They must pass call options on, because
// these show whether a failed call was sent, and how a stream ended.
//
// # What is in flight
//
// The permit of a unary call is held during each attempt, also while gRPC waits for a
// connection (grpc.WaitForReady). The permit of a stream is held until the stream ends, see
// [Interceptor.Stream]. Between two attempts no permit is held.
//
// A deadline covers the queue, pauses and all attempts. A call that cannot start before its
// deadline fails immediately. RetryPolicy.AttemptTimeout bounds each attempt of a unary call; the
// server sees the deadline of the attempt. If the client of a stream sends a single message,
// it bounds the time until the client has received the first message or, by Header, the header;
// the server sees a stream that is canceled. Other streams have no AttemptTimeout.
//
// # Costs
//
// Config.Cost returns the amounts that a call takes of limits that count more than calls, such as
// LLM tokens; those are in Config.Gate.Limits, with a Unit. A call waits until they are there. When
// it ends, Config.Usage corrects the estimate by the response: the rest is returned,
// immediately and also if a stream was cut short, or becomes debt. An attempt that the server
// throttled, or that was not sent, took nothing. For a single call, sluice.WithCosts does the same
// as Config.Cost.
//
//	Cost: func(method string, request any) sluice.Costs {
//		r, ok := request.(*pb.GenerateRequest)
//		if !ok {
//			return nil
//		}
//		return sluice.Costs{"tokens": int64(len(r.Prompt)/4) + r.MaxTokens}
//	},
//	Usage: func(method string, message any, used sluice.Costs) {
//		if m, ok := message.(*pb.GenerateResponse); ok && m.Usage != nil {
//			used["tokens"] = m.Usage.Total
//		}
//	},
//
// # What is retried
//
//	                                  idempotent     others
//	Unavailable, nothing was sent     yes            yes
//	Unavailable                       yes            with a pushback ≥ 0
//	ResourceExhausted                 yes            yes: it was refused
//	a message that is too large       no             no
//	AttemptTimeout, lost permit       yes            no
//	Config.AlsoRetry                  yes            with a pushback ≥ 0
//	all other codes                   no             no
//	pushback < 0, malformed or twice  no             no
//
// A call is idempotent if its method has an idempotency_level in its descriptor, which most
// services do not set, or if Config.Idempotent or [Overrides] says so. gRPC itself sends a
// call again that the server has not seen, as one attempt. Messages that are too large have
// the code ResourceExhausted; only the text of the error tells them apart.
//
// A stream is retried if it could not be opened, or if the client has seen nothing of the response
// yet. The client's messages are sent again, of several messages copies, in order; after 256 KiB of
// these, the bound of gRPC's own retries, the stream is not retried any more. Nor is it if one of
// them is not of protobuf, or was lost because the server sent a header and then ended the stream.
// (gRPC's own retries, gRFC A6, end whenever the header arrives.) While a connection is down, gRPC
// fails calls without sending them and dials only from time to time; calls with grpc.WaitForReady
// wait instead of using up their attempts. From the second attempt on, the metadata
// grpc-previous-rpc-attempts counts those before.
//
// # What servers say
//
//	ResourceExhausted with a time    the gate is paused until then, for all calls; then
//	                                 calls leave at the pace
//	Unavailable with a time          the same
//	ResourceExhausted without one    RetryPolicy.Throttled; slow start
//	Unavailable without one          a failure, unless they come in bursts while other calls
//	                                 are granted: see sluice.MaybeThrottled
//	AlsoRetry with a time            only this call waits
//
// The time is taken from a google.rpc.RetryInfo in the details of the status, or of the trailer
// grpc-retry-pushback-ms; of two times the later applies, and at most a day. 0 means no time. A
// google.rpc.QuotaFailure becomes part of Stats.PausedWhy. With a Config.Cost, the unit that it
// names is the one whose limit the gate learns: "input_tokens_per_minute" names input.
//
// # Who retries
//
// gRPC retries automatically if a service config has a retryPolicy for the method. Then an
// Interceptor leaves all retries of the method to gRPC, which makes them on one permit and
// does not pass the gate again; the gate is still paused by what reaches the client. The
// Interceptor reads the current config, whether a resolver has sent it or
// grpc.WithDefaultServiceConfig has set it. To let the gate pace each attempt, remove the
// retryPolicy. Limits of this:
//
//   - grpc.WithDisableRetry cannot be seen: with it and a retryPolicy no call is retried.
//   - The policy of an xDS route cannot be seen. A call for which gRPC has used up its
//     attempts is not retried; one that ended before may be.
//   - grpc-go ignores a hedgingPolicy, and so does an Interceptor.
//   - A retry by a loop above, such as that of go-grpc-middleware, is charged to the retry
//     budget if its metadata says that it is one (grpc-previous-rpc-attempts or
//     x-retry-attempty). The loops of gax, which Google's clients use, do not say so.
//
// # Errors
//
// After a failed call the error has the status of the last attempt. It is the error of gRPC
// itself, or one that also matches a [*sluice.RetryError]. A rejection by the gate has one of
// these codes, and matches the error of the gate:
//
//	DeadlineExceeded    the wait cannot end before the deadline, or it has passed
//	ResourceExhausted   too many calls wait; the cost is larger than a limit; the server
//	                    asks for a longer wait than RetryPolicy.MaxServerWait; too many keys
//	Canceled            the context was cancelled, or the gate was closed
//	Unavailable         a limit could not decide, such as one in a Redis
//	Aborted             the permit, lent by a Semaphore, was lost
//
// The details of the first two are a QuotaFailure, whose subject is the gate, and a
// RetryInfo if it is known when to retry. So a server that returns such an error to its
// own client tells it the time.
package sluicegrpc
