package sluicegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicegrpc"
)

// TestUnary_RetriesByCode: every code, for a call that may be sent twice and for others.
func TestUnary_RetriesByCode(t *testing.T) {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		for _, idempotent := range []bool{false, true} {
			inWorld(t, sluicegrpc.Config{Retry: seconds}, func(w *world) {
				w.unary = failing(1, failure(code))
				err := w.call(sluicegrpc.WithOverrides(w.Context(), sluicegrpc.Overrides{Idempotent: idempotent}))
				if code == codes.ResourceExhausted || idempotent && code == codes.Unavailable {
					w.wantCame(0, time.Second)
					wantCode(t, err, codes.OK)
				} else {
					w.wantCame(0)
					wantCode(t, err, code)
					if _, ok := err.(interface{ Unwrap() error }); ok {
						t.Errorf("%v: the error of gRPC came back as a %T", code, err)
					}
				}
			})
		}
	}
}

// TestUnary_ObeysServers: what a server says about retries, and when the calls come that
// fail once.
func TestUnary_ObeysServers(t *testing.T) {
	minute := time.Minute
	for _, test := range []struct {
		name       string
		code       codes.Code
		details    []*errdetails.RetryInfo
		pushback   []string
		idempotent bool
		want       []time.Duration
		paused     bool // all calls
	}{
		{"RetryInfo", codes.ResourceExhausted, []*errdetails.RetryInfo{after(minute)}, nil, false, []time.Duration{0, minute}, true},
		{"the longest RetryInfo", codes.ResourceExhausted, []*errdetails.RetryInfo{after(minute), after(ms)}, nil, false, []time.Duration{0, minute}, true},
		{"no RetryInfo", codes.ResourceExhausted, nil, nil, false, []time.Duration{0, time.Second}, false},
		{"negative RetryInfo", codes.ResourceExhausted, []*errdetails.RetryInfo{after(-minute)}, nil, false, []time.Duration{0, time.Second}, false},
		{"zero RetryInfo", codes.ResourceExhausted, []*errdetails.RetryInfo{after(0)}, nil, false, []time.Duration{0, time.Second}, false},
		{"pushback", codes.ResourceExhausted, nil, []string{"3000"}, false, []time.Duration{0, 3 * time.Second}, true},
		{"both", codes.ResourceExhausted, []*errdetails.RetryInfo{after(minute)}, []string{"3000"}, false, []time.Duration{0, minute}, true},
		{"pushback of 0", codes.ResourceExhausted, nil, []string{"0"}, false, []time.Duration{0, time.Second}, false},
		{"no by pushback", codes.ResourceExhausted, nil, []string{"-1"}, false, []time.Duration{0}, false},
		{"no by pushback, but a wait", codes.ResourceExhausted, []*errdetails.RetryInfo{after(minute)}, []string{"-1"}, false, []time.Duration{0}, true},
		{"malformed pushback", codes.ResourceExhausted, nil, []string{"soon"}, false, []time.Duration{0}, false},
		{"decimal pushback", codes.ResourceExhausted, nil, []string{"1.5"}, false, []time.Duration{0}, false},
		{"two pushbacks", codes.ResourceExhausted, nil, []string{"5", "5"}, false, []time.Duration{0}, false},
		{"Unavailable, RetryInfo", codes.Unavailable, []*errdetails.RetryInfo{after(minute)}, nil, true, []time.Duration{0, minute}, true},
		{"Unavailable, RetryInfo, unsafe", codes.Unavailable, []*errdetails.RetryInfo{after(minute)}, nil, false, []time.Duration{0}, true},
		{"Unavailable, pushback", codes.Unavailable, nil, []string{"3000"}, false, []time.Duration{0, 3 * time.Second}, true},
		{"Unavailable, no by pushback", codes.Unavailable, nil, []string{"-1"}, true, []time.Duration{0}, false},
		{"not retried, pushback", codes.NotFound, nil, []string{"3000"}, true, []time.Duration{0}, false},
		{"AlsoRetry", codes.Internal, nil, nil, true, []time.Duration{0, time.Second}, false},
		{"AlsoRetry, unsafe", codes.Internal, nil, nil, false, []time.Duration{0}, false},
		{"AlsoRetry, RetryInfo", codes.Internal, []*errdetails.RetryInfo{after(minute)}, nil, true, []time.Duration{0, minute}, false},
		{"AlsoRetry, pushback", codes.Internal, nil, []string{"3000"}, false, []time.Duration{0, 3 * time.Second}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, sluicegrpc.Config{Retry: seconds, AlsoRetry: []codes.Code{codes.Internal}}, func(w *world) {
				w.unary = func(ctx context.Context, n int) error {
					if n > 1 {
						return nil
					}
					s := status.New(test.code, "sorry")
					for _, d := range test.details {
						s, _ = s.WithDetails(d)
					}
					_ = grpc.SetTrailer(ctx, metadata.MD{"grpc-retry-pushback-ms": test.pushback})
					return s.Err()
				}
				ctx := sluicegrpc.WithOverrides(w.Context(), sluicegrpc.Overrides{Idempotent: test.idempotent})
				done := make(chan error)
				go func() { done <- w.call(ctx) }()
				time.Sleep(ms)
				if paused := !w.stats().PausedUntil.IsZero(); paused != test.paused {
					t.Errorf("paused: %v, want %v", paused, test.paused)
				}
				err := <-done
				w.wantCame(test.want...)
				if len(test.want) > 1 {
					wantCode(t, err, codes.OK)
				} else {
					wantCode(t, err, test.code)
				}
			})
		})
	}
}

// TestUnary_ThrottlePausesAllCallers: one call is throttled; nothing leaves until the time
// that the server has set, and then one call per interval.
func TestUnary_ThrottlePausesAllCallers(t *testing.T) {
	gate := sluice.Config{Rate: sluice.Rate{Count: 10, Per: time.Second}}
	inWorld(t, sluicegrpc.Config{Gate: gate, Retry: seconds}, func(w *world) {
		w.unary = failing(1, failure(codes.ResourceExhausted, after(time.Minute), &errdetails.QuotaFailure{
			Violations: []*errdetails.QuotaFailure_Violation{{Subject: "project:42", Description: "reads per minute"}},
		}))
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { wantCode(t, w.call(w.Context()), codes.OK) })
		}
		time.Sleep(ms)
		if why := w.stats().PausedWhy; !strings.Contains(why, "project:42: reads per minute") {
			t.Errorf("paused because %q, want the quota", why)
		}
		wg.Wait()
		w.wantCame(0, time.Minute, time.Minute+100*ms, time.Minute+200*ms, time.Minute+300*ms)
	})
}

// TestUnary_KeepsTheStatusOfTheServer: after the last attempt the caller gets what the
// server said, and why there is no other attempt.
func TestUnary_KeepsTheStatusOfTheServer(t *testing.T) {
	policy := seconds
	policy.MaxServerWait = time.Minute
	for _, test := range []struct {
		name string
		err  error
		why  error
		want []time.Duration
	}{
		{"attempts", failure(codes.Unavailable, &errdetails.DebugInfo{Detail: "x"}), sluice.ErrAttempts,
			[]time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}},
		{"too long a wait", failure(codes.ResourceExhausted, after(time.Hour)), sluice.ErrServerWait, []time.Duration{0}},
		{"an endless wait", failure(codes.ResourceExhausted, after(1<<62)), sluice.ErrServerWait, []time.Duration{0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, sluicegrpc.Config{Retry: policy, Idempotent: idempotent}, func(w *world) {
				w.unary = failing(100, test.err)
				err := w.call(w.Context())
				w.wantCame(test.want...)
				var why *sluice.RetryError
				if !errors.As(err, &why) || !errors.Is(why.Why, test.why) {
					t.Errorf("%v, want %v", err, test.why)
				}
				got, want := status.Convert(err), status.Convert(test.err)
				if got.Code() != want.Code() || got.Message() != "sorry" || len(got.Details()) != 1 {
					t.Errorf("the status is %v with %v, want %v", got, got.Details(), want)
				}
				if left := time.Until(w.stats().PausedUntil); left > 24*time.Hour {
					t.Errorf("paused for %v, want at most a day", left)
				}
			})
		})
	}
}

// TestUnary_NotFoundAfterARetryIsBare: the error of a last attempt that is not retried.
func TestUnary_NotFoundAfterARetryIsBare(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Retry: seconds}, func(w *world) {
		w.unary = func(_ context.Context, n int) error {
			if n == 1 {
				return failure(codes.ResourceExhausted)
			}
			return failure(codes.NotFound)
		}
		err := w.call(w.Context())
		w.wantCame(0, time.Second)
		if _, wrapped := errors.AsType[*sluice.RetryError](err); wrapped || status.Code(err) != codes.NotFound {
			t.Errorf("%v, want NotFound alone", err)
		}
	})
}

// TestUnary_TooLargeIsNoThrottle: gRPC reports messages that are too large as
// ResourceExhausted, the client's own and those that come.
func TestUnary_TooLargeIsNoThrottle(t *testing.T) {
	cfg := sluicegrpc.Config{Retry: seconds, Idempotent: idempotent, AlsoRetry: []codes.Code{codes.ResourceExhausted}}
	inWorld(t, cfg, func(w *world) {
		_, err := w.client.UnaryCall(w.Context(), &pb.SimpleRequest{ResponseSize: 100}, grpc.MaxCallRecvMsgSize(10))
		wantCode(t, err, codes.ResourceExhausted)
		big := &pb.SimpleRequest{Payload: &pb.Payload{Body: make([]byte, 100)}}
		_, err = w.client.UnaryCall(w.Context(), big, grpc.MaxCallSendMsgSize(10))
		wantCode(t, err, codes.ResourceExhausted)
		if s := w.stats(); s.Retried != 0 || !s.PausedUntil.IsZero() || s.Admitted != 2 {
			t.Errorf("%d calls, %d retries, paused until %v; want 2, 0 and no pause", s.Admitted, s.Retried, s.PausedUntil)
		}
	})
}

// TestUnary_WhatWasNotSentIsSentAgain: no connection, so the server cannot have acted on the
// call, whatever the method.
func TestUnary_WhatWasNotSentIsSentAgain(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Retry: seconds}, func(w *world) {
		w.refuse(true)
		time.AfterFunc(1500*ms, func() { w.refuse(false) })
		wantCode(t, w.call(w.Context()), codes.OK)
		if w.calls() != 1 || w.stats().Retried == 0 {
			t.Errorf("%d calls came after %d retries, want 1 after some", w.calls(), w.stats().Retried)
		}
	})
}

// TestUnary_WhatWasSentIsNot: the server dies with the call.
func TestUnary_WhatWasSentIsNot(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Retry: seconds}, func(w *world) {
		w.unary = func(ctx context.Context, _ int) error {
			go w.server.Stop()
			<-ctx.Done()
			return nil
		}
		err := w.call(w.Context())
		w.wantCame(0)
		wantCode(t, err, codes.Unavailable)
	})
}

// TestUnary_OptionsLostOnTheWay: an interceptor that does not pass options on hides whether
// the call was sent, so it counts as sent.
func TestUnary_OptionsLostOnTheWay(t *testing.T) {
	deaf := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, _ ...grpc.CallOption) error {
		return invoke(ctx, method, req, reply, cc)
	}
	inWorld(t, sluicegrpc.Config{Retry: seconds}, func(w *world) {
		w.unary = failing(1, failure(codes.Unavailable))
		wantCode(t, w.call(w.Context()), codes.Unavailable)
		w.wantCame(0)
	}, grpc.WithChainUnaryInterceptor(deaf))
}

// TestUnary_LeavesRetriesToTheServiceConfig: gRPC makes the attempts of a method with a
// retryPolicy, on one permit; throttles still pause.
func TestUnary_LeavesRetriesToTheServiceConfig(t *testing.T) {
	cfg := sluicegrpc.Config{Retry: seconds, Idempotent: idempotent}
	inWorld(t, cfg, func(w *world) {
		w.unary = failing(100, failure(codes.Unavailable))
		wantCode(t, w.call(w.Context()), codes.Unavailable)
		if w.calls() != 3 {
			t.Errorf("%d calls, want the 3 of the retryPolicy", w.calls())
		}
		if s := w.stats(); s.Admitted != 1 || s.Retried != 0 {
			t.Errorf("%d permits, %d retries; want 1 and 0", s.Admitted, s.Retried)
		}
	}, grpc.WithDefaultServiceConfig(retryPolicy))
	inWorld(t, cfg, func(w *world) { // a code that the policy does not have
		w.unary = failing(100, failure(codes.ResourceExhausted, after(time.Minute)))
		wantCode(t, w.call(w.Context()), codes.ResourceExhausted)
		w.wantCame(0)
		if w.stats().PausedUntil.IsZero() {
			t.Error("no pause")
		}
	}, grpc.WithDefaultServiceConfig(retryPolicy))
}

// TestUnary_LeavesRetriesToAnXDSRoute: its policy cannot be read, but gRPC says that it has
// used up its attempts.
func TestUnary_LeavesRetriesToAnXDSRoute(t *testing.T) {
	exhausted := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return fmt.Errorf("max retries exhausted: failed after 3 attempts: %w", invoke(ctx, method, req, reply, cc, opts...))
	}
	inWorld(t, sluicegrpc.Config{Retry: seconds, Idempotent: idempotent}, func(w *world) {
		w.unary = failing(1, failure(codes.Unavailable))
		wantCode(t, w.call(w.Context()), codes.Unavailable)
		w.wantCame(0)
	}, grpc.WithChainUnaryInterceptor(exhausted))
}

// TestUnary_IdempotencyLevel: methods that declare it may be sent twice.
func TestUnary_IdempotencyLevel(t *testing.T) {
	service := &descriptorpb.ServiceDescriptorProto{Name: proto.String("Levels")}
	for level := range descriptorpb.MethodOptions_IdempotencyLevel_name {
		service.Method = append(service.Method, &descriptorpb.MethodDescriptorProto{
			Name: proto.String(fmt.Sprint("Level", level)), InputType: proto.String(".grpc.testing.Empty"), OutputType: proto.String(".grpc.testing.Empty"),
			Options: &descriptorpb.MethodOptions{IdempotencyLevel: descriptorpb.MethodOptions_IdempotencyLevel(level).Enum()},
		})
	}
	if _, err := protoregistry.GlobalFiles.FindFileByPath("sluicegrpc/levels.proto"); err != nil { // not by -count
		register(t, service)
	}
	for method, want := range map[string]codes.Code{
		"Levels/Level0": codes.Unavailable, "Levels/Level1": codes.OK, "Levels/Level2": codes.OK, "Unknown/Level1": codes.Unavailable,
	} {
		inWorld(t, sluicegrpc.Config{Retry: seconds}, func(w *world) {
			w.unary = failing(1, failure(codes.Unavailable))
			if want == codes.OK { // of a handler that sends no message
				want = codes.Internal
			}
			wantCode(t, w.conn.Invoke(w.Context(), "/sluicegrpc.test."+method, &pb.Empty{}, &pb.Empty{}), want)
		})
	}
}

func register(t *testing.T, service *descriptorpb.ServiceDescriptorProto) {
	t.Helper()
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("sluicegrpc/levels.proto"), Package: proto.String("sluicegrpc.test"), Syntax: proto.String("proto3"),
		Dependency: []string{"grpc/testing/empty.proto"}, Service: []*descriptorpb.ServiceDescriptorProto{service},
	}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	if err := protoregistry.GlobalFiles.RegisterFile(file); err != nil {
		t.Fatal(err)
	}
}

// TestUnary_HedgingIsNothing: grpc-go ignores a hedgingPolicy, so there is no other who
// retries.
func TestUnary_HedgingIsNothing(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Retry: seconds, Idempotent: idempotent}, func(w *world) {
		w.unary = failing(1, failure(codes.Unavailable))
		wantCode(t, w.call(w.Context()), codes.OK)
		w.wantCame(0, time.Second)
	}, grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 3, "hedgingDelay": "0.1s"}}]}`))
}

// TestUnary_NumbersItsAttempts: in the metadata of gRPC's own.
func TestUnary_NumbersItsAttempts(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Retry: seconds}, func(w *world) {
		w.unary = failing(2, failure(codes.ResourceExhausted))
		wantCode(t, w.call(w.Context()), codes.OK)
		if got := strings.Join(w.previous, ","); got != ",1,2" {
			t.Errorf("previous attempts: %q, want ,1,2", got)
		}
	})
}

// TestUnary_RetryOfAnOuterLoopIsPaidFor: by the budget, and keeps its number.
func TestUnary_RetryOfAnOuterLoopIsPaidFor(t *testing.T) {
	for _, key := range []string{"grpc-previous-rpc-attempts", "x-retry-attempty"} {
		inWorld(t, sluicegrpc.Config{Retry: seconds}, func(w *world) {
			wantCode(t, w.call(metadata.AppendToOutgoingContext(w.Context(), key, "1")), codes.OK)
			if got := w.stats().RetryTokens; got != 100 { // 5 are paid, and put back by the success
				t.Errorf("%d tokens are left, want 100", got)
			}
			w.unary = failing(100, failure(codes.NotFound))
			wantCode(t, w.call(metadata.AppendToOutgoingContext(w.Context(), key, "1")), codes.NotFound)
			if got := w.stats().RetryTokens; got != 95 {
				t.Errorf("%d tokens are left, want 95", got)
			}
			wantCode(t, w.call(metadata.AppendToOutgoingContext(w.Context(), key, "0")), codes.NotFound)
			if got := w.stats().RetryTokens; got != 95 {
				t.Errorf("%d tokens are left, want 95", got)
			}
		})
	}
}

// TestConfig_Retryable: it may forbid a retry, and is not called for throttles.
func TestConfig_Retryable(t *testing.T) {
	policy := seconds
	policy.Retryable = func(err error) bool {
		if status.Code(err) != codes.Unavailable {
			t.Errorf("called with %v", err)
		}
		return false
	}
	inWorld(t, sluicegrpc.Config{Retry: policy, Idempotent: idempotent}, func(w *world) {
		w.unary = failing(1, failure(codes.Unavailable))
		wantCode(t, w.call(w.Context()), codes.Unavailable)
		w.wantCame(0)
		w.came = nil
		w.unary = failing(1, failure(codes.ResourceExhausted))
		wantCode(t, w.call(w.Context()), codes.OK)
		w.wantCame(0, time.Second)
	})
}

// TestUnary_FailureOfTheServerIsNoAnswer: Internal does not show that the server is well, so
// it does not end the spacing after an empty budget, but NotFound does.
func TestUnary_FailureOfTheServerIsNoAnswer(t *testing.T) {
	for code, spaced := range map[codes.Code]bool{codes.Internal: true, codes.Unknown: true, codes.NotFound: false} {
		inWorld(t, sluicegrpc.Config{Gate: sluice.Config{RetryBudget: 1}, Retry: seconds, Idempotent: idempotent}, func(w *world) {
			w.unary = func(_ context.Context, n int) error {
				if n == 1 {
					return failure(codes.Unavailable)
				}
				return failure(code)
			}
			wantCode(t, w.call(w.Context()), codes.Unavailable)
			before := w.stats().Spacing
			wantCode(t, w.call(w.Context()), code)
			if got := w.stats().Spacing; before != time.Second || (got == before) != spaced {
				t.Errorf("%v: the spacing went from %v to %v", code, before, got)
			}
		})
	}
}
