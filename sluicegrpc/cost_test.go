package sluicegrpc_test

import (
	"context"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicegrpc"
)

// inTokens is inWorld with a gate that has 10 tokens together, and one more every 6 s. left
// returns how many there are.
func inTokens(t *testing.T, cfg sluicegrpc.Config, f func(w *world, left func() int64)) {
	t.Helper()
	inWorld(t, sluicegrpc.Config{}, func(w *world) {
		_ = w.conn.Close()
		bucket := limits.Must(leaky.New(limits.Rate{Count: 10, Per: time.Minute, Burst: 10}))
		cfg.Gate.Limits = []sluice.Limit{{Name: "tokens", Unit: "tokens", Limiter: bucket}}
		cfg.Retry = seconds
		w.connect("passthrough:test", cfg, w.dialer)
		f(w, func() int64 { synctest.Wait(); return bucket.Take(0).Remaining })
	})
}

// estimated is a Config.Cost: as many tokens as the server is asked for.
func estimated(_ string, request any) sluice.Costs {
	switch r := request.(type) {
	case *pb.SimpleRequest:
		return sluice.Costs{"tokens": int64(r.ResponseSize)}
	case *pb.StreamingOutputCallRequest:
		return sluice.Costs{"tokens": int64(r.ResponseParameters[0].Size)}
	case *pb.Empty:
		return sluice.Costs{"tokens": 6}
	}
	return sluice.Costs{"tokens": 7} // of streams on which the client sends several messages
}

// counted is a Config.Usage: the size of the message.
func counted(_ string, message any, used sluice.Costs) {
	switch m := message.(type) {
	case *pb.SimpleResponse:
		used["tokens"] = int64(len(m.Payload.Body)) / 2
	case *pb.StreamingOutputCallResponse:
		used["tokens"] = int64(len(m.Payload.Body))
	case *pb.StreamingInputCallResponse:
		used["tokens"] = int64(m.AggregatedPayloadSize)
	}
}

func asking(tokens int32) *pb.StreamingOutputCallRequest {
	return &pb.StreamingOutputCallRequest{ResponseParameters: []*pb.ResponseParameters{{Size: tokens}}}
}

func sized(n int) *pb.StreamingOutputCallResponse {
	return &pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: make([]byte, n)}}
}

// TestConfig_Cost: each call waits until its tokens are there.
func TestConfig_Cost(t *testing.T) {
	inTokens(t, sluicegrpc.Config{Cost: estimated}, func(w *world, left func() int64) {
		w.out = func(int, pb.TestService_StreamingOutputCallServer) error { return nil }
		var came []time.Duration
		for _, tokens := range []int32{6, 6, 10} {
			_, err := w.client.UnaryCall(w.Context(), &pb.SimpleRequest{ResponseSize: tokens})
			wantCode(t, err, codes.OK)
			came = append(came, time.Since(w.start))
		}
		// At 0 there are 4 left, at 12 s 6, and then 10 at 72 s.
		if want := []time.Duration{0, 12 * time.Second, 72 * time.Second}; !slices.Equal(came, want) {
			t.Errorf("calls left at %v, want %v", came, want)
		}
		s, err := w.client.StreamingOutputCall(w.Context(), asking(5))
		wantCode(t, err, codes.OK)
		wantCode(t, drain(s), codes.OK)
		w.wantCame(102 * time.Second)
		_, err = w.client.UnaryCall(w.Context(), &pb.SimpleRequest{ResponseSize: 11})
		wantCode(t, err, codes.ResourceExhausted) // can never leave
		_, err = w.client.UnaryCall(w.Context(), &pb.SimpleRequest{ResponseSize: -1})
		wantCode(t, err, codes.InvalidArgument)
		_, err = w.client.StreamingOutputCall(w.Context(), asking(-1))
		wantCode(t, err, codes.InvalidArgument)
		if got := left(); got != 0 {
			t.Errorf("%d tokens are left, want none", got)
		}
	})
}

// TestConfig_Cost_OfACall: the amount of sluice.Cost is that of limits that count cost.
func TestConfig_Cost_OfACall(t *testing.T) {
	cost := func(string, any) sluice.Costs { return sluice.Costs{sluice.Cost: 5} }
	gate := sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}, RateUnit: sluice.Cost}
	inWorld(t, sluicegrpc.Config{Gate: gate, Cost: cost}, func(w *world) {
		wantCode(t, w.call(w.Context()), codes.OK)
		wantCode(t, w.call(sluicegrpc.WithOverrides(w.Context(), sluicegrpc.Overrides{Cost: 2})), codes.OK)
		wantCode(t, w.call(w.Context()), codes.OK)
		w.wantCame(0, 5*time.Second, 7*time.Second)
	})
}

// TestConfig_Usage: what a call did not take is returned when it ends, and what it took in
// addition is a debt.
func TestConfig_Usage(t *testing.T) {
	cut := func(w *world) error { // after two of three messages
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		s, err := w.client.StreamingOutputCall(ctx, asking(8))
		wantCode(t, err, codes.OK)
		for range 2 {
			if _, err := s.Recv(); err != nil {
				return err
			}
		}
		return nil
	}
	for name, test := range map[string]struct {
		call func(w *world) error
		left int64
	}{
		"unary": {func(w *world) error {
			_, err := w.client.UnaryCall(w.Context(), &pb.SimpleRequest{ResponseSize: 8})
			return err
		}, 10 - 4},
		"stream": {func(w *world) error {
			s, err := w.client.StreamingOutputCall(w.Context(), asking(8))
			wantCode(t, err, codes.OK)
			return drain(s)
		}, 10 - 3},
		"more than estimated": {func(w *world) error {
			s, err := w.client.StreamingOutputCall(w.Context(), asking(1))
			wantCode(t, err, codes.OK)
			return drain(s)
		}, 10 - 3},
		"cut short": {cut, 10 - 2},
		"one response": {func(w *world) error {
			s, err := w.client.StreamingInputCall(w.Context())
			wantCode(t, err, codes.OK)
			_, err = s.CloseAndRecv()
			return err
		}, 10 - 2},
		"no response": {func(w *world) error {
			s, err := w.client.FullDuplexCall(w.Context())
			wantCode(t, err, codes.OK)
			wantCode(t, s.CloseSend(), codes.OK)
			if _, err = s.Recv(); err == io.EOF {
				return nil
			}
			return err
		}, 10 - 7},
	} {
		t.Run(name, func(t *testing.T) {
			inTokens(t, sluicegrpc.Config{Cost: estimated, Usage: counted}, func(w *world, left func() int64) {
				w.out = func(_ int, s pb.TestService_StreamingOutputCallServer) error {
					for n := range 3 {
						if err := s.Send(sized(n + 1)); err != nil {
							return err
						}
					}
					return nil
				}
				w.in = func(_ int, s pb.TestService_StreamingInputCallServer) error {
					return s.SendAndClose(&pb.StreamingInputCallResponse{AggregatedPayloadSize: 2})
				}
				w.both = func(int, pb.TestService_FullDuplexCallServer) error { return nil }
				wantCode(t, test.call(w), codes.OK)
				if got := left(); got != test.left {
					t.Errorf("%d tokens are left, want %d", got, test.left)
				}
			})
		})
	}
}

// TestConfig_Usage_Impossible: what cannot be true is ignored.
func TestConfig_Usage_Impossible(t *testing.T) {
	wrong := func(_ string, _ any, used sluice.Costs) { used["tokens"], used["others"] = -1, 2e9 }
	inTokens(t, sluicegrpc.Config{Cost: estimated, Usage: wrong}, func(w *world, left func() int64) {
		wantCode(t, w.call(w.Context()), codes.OK)
		if got := left(); got != 10-6 {
			t.Errorf("%d tokens are left, want 4", got)
		}
	})
}

// TestConfig_Cost_OfARefusedAttempt: it took nothing, and neither did one that was not sent.
// Otherwise the retry would have to wait for tokens until 12 s.
func TestConfig_Cost_OfARefusedAttempt(t *testing.T) {
	sorry := failure(codes.ResourceExhausted)
	inTokens(t, sluicegrpc.Config{Cost: estimated}, func(w *world, left func() int64) {
		w.unary = failing(1, sorry)
		wantCode(t, w.call(w.Context()), codes.OK)
		w.wantCame(0, time.Second)
	})
	inTokens(t, sluicegrpc.Config{Cost: estimated}, func(w *world, left func() int64) {
		w.out = func(n int, s pb.TestService_StreamingOutputCallServer) error {
			if n == 1 {
				return sorry
			}
			return nil
		}
		s, err := w.client.StreamingOutputCall(w.Context(), asking(6))
		wantCode(t, err, codes.OK)
		wantCode(t, drain(s), codes.OK)
		w.wantCame(0, time.Second)
	})
	inTokens(t, sluicegrpc.Config{Cost: estimated}, func(w *world, left func() int64) {
		w.refuse(true) // the connection: nothing is sent
		wantCode(t, w.call(sluicegrpc.WithOverrides(w.Context(), sluicegrpc.Overrides{NoRetry: true})), codes.Unavailable)
		if got := left(); got != 10 {
			t.Errorf("%d tokens are left, want 10", got)
		}
		w.refuse(false)
	})
}

// TestExhausted: which unit a QuotaFailure names.
func TestExhausted(t *testing.T) {
	all := sluice.Costs{"tokens": 700, "input": 200, "output": 500, "bytes": 1000}
	for quota, want := range map[string]sluice.Unit{
		"":                             "",
		"project:42: reads per minute": "",
		"Requests per minute":          sluice.Calls,
		"generativelanguage.googleapis.com/generate_requests_per_model":        sluice.Calls,
		"generativelanguage.googleapis.com/generate_content_token_count":       "tokens",
		"generativelanguage.googleapis.com/generate_content_input_token_count": "input",
		"GenerateContentOutputTokensPerMinute":                                 "output",
		"bytes of requests per day":                                            "bytes",
		"tokens, bytes and output":                                             "",
		"input or output":                                                      "",
	} {
		if got := sluicegrpc.Exhausted(all, quota); got != want {
			t.Errorf("%q names %q, want %q", quota, got, want)
		}
	}
	for want, costs := range map[sluice.Unit]sluice.Costs{
		"input_tokens": {"tokens": 2, "input_tokens": 1},
		"tokens":       {"tokens": 2, "points": 1},
		"":             {"points": 1},
	} {
		if got := sluicegrpc.Exhausted(costs, "input_tokens per minute"); got != want {
			t.Errorf("of %v, %q is named, want %q", costs, got, want)
		}
	}
	if got := sluicegrpc.Exhausted(nil, "requests per minute"); got != "" {
		t.Errorf("without costs, %q is named", got)
	}
}

// TestConfig_Cost_LearnsTheUnitThatWasRefused: the gate gets that unit, whether the text of the
// quota names it or its metric.
func TestConfig_Cost_LearnsTheUnitThatWasRefused(t *testing.T) {
	for _, violation := range []*errdetails.QuotaFailure_Violation{
		{Subject: "project:42", Description: "Output tokens per minute"},
		{Subject: "project:42", QuotaMetric: "example.com/output_tokens"},
	} {
		cost := func(string, any) sluice.Costs { return sluice.Costs{"tokens": 30, "output": 20} }
		inWorld(t, sluicegrpc.Config{Cost: cost}, func(w *world) {
			bucket := limits.Must(leaky.New(limits.Rate{Count: 60, Per: time.Second, Burst: 300}))
			w.unary = func(context.Context, int) error {
				if bucket.Take(30).Allowed() {
					return nil
				}
				return failure(codes.ResourceExhausted, &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{violation}})
			}
			var wg sync.WaitGroup
			for range 60 {
				wg.Go(func() { wantCode(t, w.call(w.Context()), codes.OK) })
			}
			wg.Wait()
			if l := w.stats().Learned; l == nil || l.Unit != "output" {
				t.Errorf("learned %v, want the limit of output", l)
			}
		})
	}
}

// A marked is a key of a context.
type marked struct{}

// TestStream_IsOpenedByItsMessage: with a Config.Cost, which must see the request. What comes
// earlier does not open it.
func TestStream_IsOpenedByItsMessage(t *testing.T) {
	var asked []any
	cost := func(_ string, request any) sluice.Costs {
		asked = append(asked, request)
		return nil
	}
	desc := &grpc.StreamDesc{ServerStreams: true}
	const method = "/grpc.testing.TestService/StreamingOutputCall"
	for name, test := range map[string]struct {
		first func(s grpc.ClientStream)
	}{
		"SendMsg": {func(s grpc.ClientStream) {}},
		"Trailer": {func(s grpc.ClientStream) {
			if s.Trailer() != nil {
				t.Error("there is a trailer")
			}
		}},
		"Context": {func(s grpc.ClientStream) { // interceptors before ours do so
			if s.Context().Value(marked{}) != "caller" {
				t.Error("the context is not that of the caller")
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			asked = nil
			inWorld(t, sluicegrpc.Config{Cost: cost}, func(w *world) {
				w.out = func(_ int, s pb.TestService_StreamingOutputCallServer) error {
					s.SetTrailer(metadata.Pairs("n", "1"))
					_ = s.SendHeader(metadata.Pairs("n", "2"))
					return s.Send(response)
				}
				s, err := w.conn.NewStream(context.WithValue(w.Context(), marked{}, "caller"), desc, method)
				wantCode(t, err, codes.OK)
				if len(asked) != 0 {
					t.Errorf("Cost was called with %v, too early", asked)
				}
				test.first(s)
				wantCode(t, s.SendMsg(request), codes.OK)
				wantCode(t, s.CloseSend(), codes.OK)
				if header, err := s.Header(); err != nil || !slices.Equal(header["n"], []string{"2"}) {
					t.Errorf("header %v, %v", header, err)
				}
				got := new(pb.StreamingOutputCallResponse)
				wantCode(t, s.RecvMsg(got), codes.OK)
				if err := s.RecvMsg(got); err != io.EOF {
					t.Error(err)
				}
				if len(asked) != 1 || asked[0] != any(request) {
					t.Errorf("Cost was called with %v, want the request", asked)
				}
				if s.Trailer().Get("n")[0] != "1" || s.Context() == nil {
					t.Errorf("trailer %v", s.Trailer())
				}
			})
		})
	}
}

// TestStream_IsNeverOpened: its context ends before, and OnFinish is called. Its methods
// return the error.
func TestStream_IsNeverOpened(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Cost: estimated}, func(w *world) {
		ctx, cancel := context.WithCancel(w.Context())
		var ended []error
		s, err := w.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, empty, grpc.OnFinish(func(err error) { ended = append(ended, err) }))
		wantCode(t, err, codes.OK)
		cancel()
		synctest.Wait()
		if len(ended) != 1 || status.Code(ended[0]) != codes.Canceled {
			t.Errorf("OnFinish was called with %v, want one Canceled", ended)
		}
		wantCode(t, s.SendMsg(request), codes.Canceled)
		wantCode(t, s.RecvMsg(nil), codes.Canceled)
		wantCode(t, s.CloseSend(), codes.Canceled)
		if header, err := s.Header(); header != nil || err != nil || s.Trailer() != nil || s.Context() != ctx {
			t.Errorf("header %v, %v, trailer %v, context %v", header, err, s.Trailer(), s.Context())
		}
		if w.calls() != 0 {
			t.Error("a call came")
		}
	})
}
