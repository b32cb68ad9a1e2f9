package sluicegrpc

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// A callError is an error of Sluice with the status that gRPC programs look at.
type callError struct {
	error
	status *status.Status
}

// Unwrap returns the error of Sluice.
func (e *callError) Unwrap() error { return e.error }

// GRPCStatus is used by package status.
func (e *callError) GRPCStatus() *status.Status { return e.status }

// refused returns the error for the client if err prevents the next attempt.
func (c *call) refused(err error) error {
	ended := c.ctx.Err()
	switch {
	case ended == context.Canceled, ended != nil && c.last == nil:
		return &callError{err, status.FromContextError(ended)}
	case c.last != nil:
		return &callError{err, c.last.status}
	}
	return &callError{err, refusal(c.key, err)}
}

// refusal returns the status for err, with which the gate of key rejected a call.
func refusal(key string, err error) *status.Status {
	s := status.New(codeOf(err), err.Error())
	if s.Code() == codes.Canceled || s.Code() == codes.Unavailable {
		return s
	}
	details := []protoadapt.MessageV1{&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{
		{Subject: key, Description: err.Error()},
	}}}
	if wait := waitOf(err); wait > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	if detailed, err := s.WithDetails(details...); err == nil {
		return detailed
	}
	return s
}

// codeOf returns the code for an error of a gate. For a closed gate it is the error of a closed
// grpc.ClientConn.
func codeOf(err error) codes.Code {
	for _, e := range []error{limits.ErrQueueFull, limits.ErrTooLarge, limits.ErrTooManyKeys, sluice.ErrServerWait} {
		if errors.Is(err, e) {
			return codes.ResourceExhausted
		}
	}
	switch {
	case errors.Is(err, limits.ErrClosed), errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded): // a *limits.WaitError
		return codes.DeadlineExceeded
	}
	return codes.Unavailable // a limit over a network
}

// waitOf returns the time that the call would have had to wait, or 0 if that is unknown.
func waitOf(err error) time.Duration {
	if wait, ok := errors.AsType[*limits.WaitError](err); ok && wait.Need != limits.Never {
		return wait.Need
	}
	if stopped, ok := errors.AsType[*sluice.RetryError](err); ok && !stopped.RetryAt.IsZero() {
		return time.Until(stopped.RetryAt)
	}
	return 0
}
