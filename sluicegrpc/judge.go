package sluicegrpc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// A failure is how an attempt failed.
type failure struct {
	err    error          // for the client, unless there is something to add
	status *status.Status // of err
	marked error          // for sluice.RetryLoop

	refused bool // the server has not processed the attempt
}

// judge returns how the attempt with the context ctx failed that ended with err. committed
// reports that the client has seen a part of the response.
func (c *call) judge(ctx context.Context, err error, p *probe, committed bool) *failure {
	f := &failure{err: err, status: status.Convert(err), marked: err}
	if c.ctx.Err() != nil { // says nothing about the server, and gRPC may not have ended the attempt yet
		return f
	}
	cause := context.Cause(ctx)
	lost := cause == limits.ErrLeaseLost
	switch {
	case lost:
		f.status = status.New(codes.Aborted, limits.ErrLeaseLost.Error()+": "+f.status.Message())
		f.err = &callError{limits.ErrLeaseLost, f.status}
	case cause == errLate:
		f.status = status.New(codes.DeadlineExceeded, fmt.Sprintf("sluicegrpc: no response within the AttemptTimeout of %v", c.timeout))
		f.err = &callError{context.DeadlineExceeded, f.status}
	}
	code, said := f.status.Code(), read(f.status, p.trailer)
	// The server may notice the end of an AttemptTimeout first, and nothing else would end
	// the attempt before the call.
	late := cause == errLate || code == codes.DeadlineExceeded && c.timeout > 0 && p.unary
	large := code == codes.ResourceExhausted && oversize(f.status)
	throttled := code == codes.ResourceExhausted && !large || code == codes.Unavailable && said.wait > 0
	f.refused = throttled || p.unsent()
	switch wait := min(said.wait, c.i.longest()); {
	case throttled:
		f.marked = sluice.ThrottledFor(&quotaError{err, said.quota}, wait)
		if unit := exhausted(c.costs, said.quota+said.metric); unit != "" {
			f.marked = sluice.ThrottledBy(f.marked, unit)
		}
	case wait > 0:
		f.marked = sluice.RetryAfter(err, wait)
	case late:
		f.marked = &lateError{err}
	case code == codes.Unavailable && !lost && !p.unsent(): // as gRPC calls the 503 of a proxy
		f.marked = sluice.MaybeThrottled(err)
	}
	retryable := throttled || lost || late || code == codes.Unavailable || slices.Contains(c.i.cfg.AlsoRetry, code)
	switch {
	case !retryable, large, said.never, committed, c.o.NoRetry, c.retriedBelow(err),
		!throttled && c.i.cfg.Retry.Retryable != nil && !c.i.cfg.Retry.Retryable(f.err),
		// The server has not processed a call that was not sent or that it
		// rejected, and knows best whether one may come again.
		code != codes.ResourceExhausted && !p.unsent() && !said.again && !c.idempotent():
		if !throttled && !definite(f.status) {
			f.marked = sluice.RetryAfter(f.marked, 0) // or it would count as a sign that the server is well
		}
		f.marked = sluice.Permanent(f.marked)
	}
	return f
}

// definite reports whether a status shows that the server is well and the call was wrong.
func definite(s *status.Status) bool {
	switch s.Code() {
	case codes.Canceled, codes.Unknown, codes.DeadlineExceeded, codes.Internal, codes.Unavailable, codes.DataLoss:
		return false
	}
	return true // also ResourceExhausted, for a message that is too large
}

// oversize reports whether a status means that a message is too large, which gRPC itself
// reports as ResourceExhausted. Nothing but the text tells it apart from a throttle.
func oversize(s *status.Status) bool {
	m := s.Message()
	return strings.Contains(m, "larger than max") || // Go, C++ and everything that is built on it
		strings.Contains(m, "exceeds maximum size") || strings.Contains(m, "exceeds maximum:") // Java, C#
}

// retriedBelow reports whether gRPC itself retries calls of the method, because a service
// config has a retryPolicy for it. Only after the first attempt has it been resolved. (Of
// hedging grpc-go knows nothing.) The config of an xDS route cannot be read, but that gRPC
// has used up its attempts is in the error.
func (c *call) retriedBelow(err error) bool {
	return c.hasRetryPolicy() || strings.HasPrefix(err.Error(), "max retries exhausted")
}

func (c *call) hasRetryPolicy() bool {
	return c.cc != nil && c.cc.GetMethodConfig(c.method).RetryPolicy != nil
}

// idempotent reports whether the call may be sent twice.
func (c *call) idempotent() bool {
	return c.o.Idempotent || c.i.cfg.Idempotent != nil && c.i.cfg.Idempotent(c.method) || declared(c.method)
}

// declared reports whether the descriptor of a method has an idempotency_level.
func declared(method string) bool {
	name := strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return false
	}
	o, ok := d.Options().(*descriptorpb.MethodOptions)
	return ok && o.GetIdempotencyLevel() != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN
}

const maxPause = 24 * time.Hour

// longest returns the longest wait that a server can cause, so that a wrong number does not
// stop a program for ever.
func (i *Interceptor) longest() time.Duration { return max(maxPause, i.policy.MaxServerWait) }

// A said is the instruction of a server about retries.
type said struct {
	wait   time.Duration // 0: nothing
	again  bool          // pushback: the server wants another attempt
	never  bool          // pushback: it wants none
	quota  string        // the quota that was exceeded, for people
	metric string        // and for programs
}

// read reads the details of a status and the pushback in its trailer. If both name a wait,
// the longer one applies.
func read(s *status.Status, trailer metadata.MD) (r said) {
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			r.wait = max(r.wait, d.GetRetryDelay().AsDuration())
		case *errdetails.QuotaFailure:
			for _, v := range d.GetViolations() {
				r.metric += " " + v.GetQuotaMetric()
				r.quota = strings.Trim(r.quota+"; "+v.GetSubject()+": "+v.GetDescription(), "; ")
			}
		}
	}
	// gRFC A6: a value that is negative, malformed or repeated means no.
	values := trailer["grpc-retry-pushback-ms"]
	if len(values) == 0 {
		return r
	}
	millis, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || millis < 0 || len(values) > 1 {
		r.never = true
		return r
	}
	r.again = true
	r.wait = max(r.wait, time.Duration(min(millis, math.MaxInt64/int64(time.Millisecond)))*time.Millisecond)
	return r
}

// A quotaError is a throttle. Its text becomes the reason of the pause.
type quotaError struct {
	error
	quota string
}

// Error includes the quota.
func (e *quotaError) Error() string {
	if e.quota == "" {
		return e.error.Error()
	}
	return e.error.Error() + " (" + e.quota + ")"
}

// Unwrap returns the error of gRPC.
func (e *quotaError) Unwrap() error { return e.error }

// errLate is the cause with which a stream ends that exceeded its AttemptTimeout.
var errLate = errors.New("sluicegrpc: AttemptTimeout")

// A lateError is the error of an attempt that exceeded its AttemptTimeout.
type lateError struct{ error }

// Timeout reports true.
func (e *lateError) Timeout() bool { return true }

// Unwrap returns the error of gRPC.
func (e *lateError) Unwrap() error { return e.error }
