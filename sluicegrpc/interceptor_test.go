package sluicegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicegrpc"
	"github.com/sluice-go/sluice/window"
)

// tenth is a gate of one call every 100 ms.
var tenth = sluice.Config{Rate: sluice.Rate{Count: 10, Per: time.Second}}

// one is a gate with one call in flight.
var one = sluice.Config{Concurrency: 1}

// keys returns the keys of the gates, in order.
func keys(i *sluicegrpc.Interceptor) (all []string) {
	i.Gates().Stats(func(key string, _ sluice.Stats) bool {
		all = append(all, key)
		return true
	})
	slices.Sort(all)
	return all
}

// wantKeys checks the keys of the gates.
func (w *world) wantKeys(want ...string) {
	w.Helper()
	if got := keys(w.i); !slices.Equal(got, want) {
		w.Errorf("the gates are %q, want %q", got, want)
	}
}

func TestNew_Errors(t *testing.T) {
	gates, err := sluice.NewKeyed(func(string) (*sluice.Gate, error) { return sluice.New(one) })
	if err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []sluicegrpc.Config{
		{Gate: sluice.Config{Concurrency: -1}},
		{Gate: one, Gates: gates},
		{AlsoRetry: []codes.Code{codes.OK}},
		{AlsoRetry: []codes.Code{codes.Canceled}},
		{AlsoRetry: []codes.Code{99}},
	} {
		if _, err := sluicegrpc.New(cfg); err == nil {
			t.Errorf("no error for %+v", cfg)
		}
	}
}

// TestConfig_Gate: the calls of all connections to a target share a gate.
func TestConfig_Gate(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Gate: tenth}, func(w *world) {
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { wantCode(t, w.call(w.Context()), codes.OK) })
		}
		wg.Wait()
		w.wantCame(0, 100*ms, 200*ms)
		w.wantKeys(target)
	})
}

// TestConfig_Key: by target and method; one name for all calls; and none.
func TestConfig_Key(t *testing.T) {
	for _, test := range []struct {
		name string
		key  func(ctx context.Context, target, method string) string
		want []string
	}{
		{"target", nil, []string{target}},
		{"method", sluicegrpc.ByMethod, []string{target + empty, target + "/grpc.testing.TestService/UnaryCall"}},
		{"one name", func(context.Context, string, string) string { return "all" }, []string{"all"}},
		{"none", func(context.Context, string, string) string { return "" }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, sluicegrpc.Config{Key: test.key}, func(w *world) {
				wantCode(t, w.call(w.Context()), codes.OK)
				_, err := w.client.UnaryCall(w.Context(), &pb.SimpleRequest{})
				wantCode(t, err, codes.OK)
				w.wantKeys(test.want...)
			})
		})
	}
}

// Connections can have the same target as given and different canonical ones, because the
// default schemes of Dial and NewClient differ.
func TestConfig_Key_CanonicalTarget(t *testing.T) {
	insecurely := grpc.WithTransportCredentials(insecure.NewCredentials())
	created, err := grpc.NewClient("localhost:1", insecurely)
	if err != nil {
		t.Fatal(err)
	}
	defer created.Close()
	dialed, err := grpc.Dial("localhost:1", insecurely) //lint:ignore SA1019 users have it
	if err != nil {
		t.Fatal(err)
	}
	defer dialed.Close()
	i := limits.Must(sluicegrpc.New(sluicegrpc.Config{}))
	for _, cc := range []*grpc.ClientConn{created, dialed, created} {
		err := i.Unary(context.Background(), "/a.Service/Method", nil, nil, cc,
			func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	if got, want := keys(i), []string{created.CanonicalTarget(), dialed.CanonicalTarget()}; !slices.Equal(got, want) || got[0] == got[1] {
		t.Errorf("gates of %q, want %q", got, want)
	}
}

// TestUnary_HealthChecksPass: while no call may start.
func TestUnary_HealthChecksPass(t *testing.T) {
	inWorld(t, sluicegrpc.Config{}, func(w *world) {
		pause(t, w.i, target, time.Hour)
		_, err := grpc_health_v1.NewHealthClient(w.conn).Check(w.Context(), &grpc_health_v1.HealthCheckRequest{})
		wantCode(t, err, codes.OK)
		ctx, cancel := context.WithCancel(w.Context())
		watch, err := grpc_health_v1.NewHealthClient(w.conn).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		wantCode(t, err, codes.OK)
		if _, err = watch.Recv(); err != nil {
			t.Error(err)
		}
		cancel()
		reflection := "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
		stream, err := w.conn.NewStream(w.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, reflection)
		wantCode(t, err, codes.OK)
		wantCode(t, stream.RecvMsg(&pb.Empty{}), codes.Unimplemented)
		if got := w.stats().Admitted; got != 0 {
			t.Errorf("%d calls were granted, want none", got)
		}
	})
}

// pause pauses the gate of key, as a program can by hand.
func pause(t testing.TB, i *sluicegrpc.Interceptor, key string, d time.Duration) {
	t.Helper()
	err := i.Gates().Use(key, func(gate *sluice.Gate) error {
		gate.PauseUntil(time.Now().Add(d), "maintenance")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestUnary_RefusalHasAStatus: code, details and error of each rejection.
func TestUnary_RefusalHasAStatus(t *testing.T) {
	full, err := leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 5})
	if err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	passed, cancel := context.WithTimeout(t.Context(), -1)
	defer cancel()
	for _, test := range []struct {
		name  string
		cfg   sluicegrpc.Config
		ctx   context.Context // in place of one with a deadline in 10 s
		o     sluicegrpc.Overrides
		pause time.Duration
		code  codes.Code
		is    error
		wait  time.Duration // in RetryInfo
		quota bool
	}{
		{name: "deadline", pause: time.Minute, code: codes.DeadlineExceeded, is: context.DeadlineExceeded, wait: time.Minute, quota: true},
		{name: "too long a pause", cfg: sluicegrpc.Config{Retry: sluice.RetryPolicy{MaxServerWait: time.Second}}, pause: time.Minute,
			code: codes.ResourceExhausted, is: sluice.ErrServerWait, wait: time.Minute, quota: true},
		{name: "too large", cfg: sluicegrpc.Config{Gate: sluice.Config{Limits: []sluice.Limit{{Limiter: full}}}},
			o: sluicegrpc.Overrides{Cost: 6}, code: codes.ResourceExhausted, is: limits.ErrTooLarge, quota: true},
		{name: "limit", cfg: sluicegrpc.Config{Gate: sluice.Config{Limits: []sluice.Limit{{Limiter: broken{}}}}},
			code: codes.Unavailable, is: errBroken},
		{name: "endless", cfg: sluicegrpc.Config{Retry: sluice.RetryPolicy{MaxServerWait: -1}}, pause: limits.Never,
			code: codes.DeadlineExceeded, is: context.DeadlineExceeded, quota: true},
		{name: "late", ctx: passed, code: codes.DeadlineExceeded, is: context.DeadlineExceeded},
		{name: "done", ctx: cancelled, code: codes.Canceled, is: context.Canceled},
		{name: "negative cost", o: sluicegrpc.Overrides{Cost: -1}, code: codes.InvalidArgument},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, test.cfg, func(w *world) {
				ctx := test.ctx
				if ctx == nil {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(w.Context(), 10*time.Second)
					defer cancel()
				}
				if test.pause > 0 {
					pause(t, w.i, target, test.pause)
				}
				ended := 0
				err := w.call(sluicegrpc.WithOverrides(ctx, test.o), grpc.OnFinish(func(error) { ended++ }))
				wantCode(t, err, test.code)
				if test.is != nil && !errors.Is(err, test.is) {
					t.Errorf("%v does not match %v", err, test.is)
				}
				wait, quota := detailsOf(err)
				if wait != test.wait || (quota == target) != test.quota {
					t.Errorf("RetryInfo %v, quota %q; want %v, %v", wait, quota, test.wait, test.quota)
				}
				if w.calls() > 0 || time.Since(w.start) > 0 {
					t.Errorf("%d calls came, after %v; want none, at once", w.calls(), time.Since(w.start))
				}
				if ended != 1 {
					t.Errorf("OnFinish was called %d times, want once", ended)
				}
			})
		})
	}
}

// detailsOf returns the wait and the quota in the details of an error.
func detailsOf(err error) (wait time.Duration, quota string) {
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			wait = d.GetRetryDelay().AsDuration()
		case *errdetails.QuotaFailure:
			quota = d.GetViolations()[0].GetSubject()
		}
	}
	return wait, quota
}

var errBroken = errors.New("broken")

// A broken limiter cannot decide.
type broken struct{ limits.Limiter }

func (broken) Admit(context.Context, int64) (time.Duration, error) { return 0, errBroken }

// TestUnary_RefusalOfARetry: the caller learns what the server said, and why there is no
// other attempt.
func TestUnary_RefusalOfARetry(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Retry: seconds, Idempotent: idempotent}, func(w *world) {
		w.unary = failing(1, failure(codes.Unavailable))
		time.AfterFunc(500*ms, func() { _ = w.i.Shutdown(w.Context()) })
		err := w.call(w.Context())
		wantCode(t, err, codes.Unavailable)
		if !errors.Is(err, limits.ErrClosed) || time.Since(w.start) != 500*ms {
			t.Errorf("%v after %v, want ErrClosed after 500ms", err, time.Since(w.start))
		}
	})
}

// TestUnary_QueueFull: the code of a gate that has enough waiting calls.
func TestUnary_QueueFull(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Gate: sluice.Config{Concurrency: 1, MaxWaiting: 1}}, func(w *world) {
		w.unary = func(context.Context, int) error { time.Sleep(time.Second); return nil }
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { wantCode(t, w.call(w.Context()), codes.OK) })
			synctest.Wait()
		}
		err := w.call(w.Context())
		wantCode(t, err, codes.ResourceExhausted)
		if !errors.Is(err, limits.ErrQueueFull) {
			t.Error(err)
		}
		wg.Wait()
	})
}

// TestUnary_EndsWithItsContext: in the queue, in the backoff and in an attempt.
func TestUnary_EndsWithItsContext(t *testing.T) {
	for _, test := range []struct {
		name  string
		cause error
		code  codes.Code
	}{
		{"cancelled", context.Canceled, codes.Canceled},
		{"deadline", context.DeadlineExceeded, codes.DeadlineExceeded},
	} {
		ended := func(w *world) (context.Context, context.CancelFunc) {
			if test.cause == context.DeadlineExceeded {
				return context.WithTimeout(w.Context(), 500*ms)
			}
			ctx, cancel := context.WithCancel(w.Context())
			time.AfterFunc(500*ms, cancel)
			return ctx, cancel
		}
		want := func(w *world, err error, calls int, after time.Duration) {
			wantCode(t, err, test.code)
			if w.calls() != calls || time.Since(w.start) != after {
				t.Errorf("%d calls came, %v; want %d, %v", w.calls(), time.Since(w.start), calls, after)
			}
		}
		t.Run(test.name+" in the queue", func(t *testing.T) {
			inWorld(t, sluicegrpc.Config{Gate: one}, func(w *world) {
				w.unary = func(context.Context, int) error { time.Sleep(time.Second); return nil }
				var wg sync.WaitGroup
				wg.Go(func() { wantCode(t, w.call(w.Context()), codes.OK) })
				synctest.Wait()
				ctx, cancel := ended(w)
				defer cancel()
				err := w.call(ctx)
				want(w, err, 1, 500*ms)
				if !errors.Is(err, test.cause) {
					t.Errorf("%v does not match %v", err, test.cause)
				}
				wg.Wait()
			})
		})
		t.Run(test.name+" in an attempt", func(t *testing.T) {
			inWorld(t, sluicegrpc.Config{Gate: one, Idempotent: idempotent}, func(w *world) {
				w.unary = func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }
				ctx, cancel := ended(w)
				defer cancel()
				err := w.call(ctx)
				want(w, err, 1, 500*ms)
				if _, wrapped := errors.AsType[*sluice.RetryError](err); wrapped {
					t.Errorf("%v, want the error of gRPC", err)
				}
				w.wantInFlight(0)
				if s := w.stats(); s.Retried != 0 || s.RetryTokens != 100 {
					t.Errorf("%d retries, %d tokens; want 0, 100", s.Retried, s.RetryTokens)
				}
			})
		})
	}
	inWorld(t, sluicegrpc.Config{Retry: seconds, Idempotent: idempotent}, func(w *world) {
		w.unary = failing(1, failure(codes.Unavailable))
		ctx, cancel := context.WithCancel(w.Context())
		time.AfterFunc(500*ms, cancel)
		wantCode(t, w.call(ctx), codes.Canceled)
		w.wantCame(0)
	})
	inWorld(t, sluicegrpc.Config{Retry: seconds, Idempotent: idempotent}, func(w *world) {
		w.unary = failing(1, failure(codes.Unavailable))
		ctx, cancel := context.WithTimeout(w.Context(), 500*ms)
		defer cancel()
		err := w.call(ctx) // not after the backoff, which cannot end in time
		wantCode(t, err, codes.Unavailable)
		if _, ok := errors.AsType[*limits.WaitError](err); !ok || time.Since(w.start) > 0 {
			t.Errorf("%v after %v, want a WaitError at once", err, time.Since(w.start))
		}
	})
}

// TestUnary_ContextOfOneCallIsNotThatOfAnother: failsafe-go#136.
func TestUnary_ContextOfOneCallIsNotThatOfAnother(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Retry: sluice.RetryPolicy{AttemptTimeout: time.Minute}}, func(w *world) {
		w.unary = func(ctx context.Context, n int) error {
			select {
			case <-time.After(time.Duration(n) * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		var wg sync.WaitGroup
		for range 5 {
			ctx, cancel := context.WithCancel(w.Context())
			wg.Go(func() {
				defer cancel()
				wantCode(t, w.call(ctx), codes.OK)
			})
			synctest.Wait()
		}
		wg.Wait()
	})
}

// TestConfig_AttemptTimeout: a call that may be sent twice is, and the server knows the
// deadline of each attempt; others end. go-grpc-middleware#261.
func TestConfig_AttemptTimeout(t *testing.T) {
	policy := seconds
	policy.AttemptTimeout = 2 * time.Second
	for _, safe := range []bool{true, false} {
		inWorld(t, sluicegrpc.Config{Gate: one, Retry: policy, Idempotent: func(string) bool { return safe }}, func(w *world) {
			w.unary = func(ctx context.Context, n int) error {
				if deadline, _ := ctx.Deadline(); time.Until(deadline) > 2*time.Second {
					t.Errorf("%v are left to attempt %d, want at most 2s", time.Until(deadline), n)
				}
				if n < 3 {
					<-ctx.Done()
				}
				return ctx.Err()
			}
			err := w.call(w.Context())
			if safe {
				wantCode(t, err, codes.OK)
				w.wantCame(0, 3*time.Second, 6*time.Second)
				if got := w.stats().RetryTokens; got != 100-2*10+5 {
					t.Errorf("%d tokens are left, want 85: a timeout costs 10", got)
				}
			} else {
				wantCode(t, err, codes.DeadlineExceeded)
				w.wantCame(0)
			}
		})
	}
}

// TestConfig_AttemptTimeout_NoticedByTheServer: it may be first to do so.
func TestConfig_AttemptTimeout_NoticedByTheServer(t *testing.T) {
	policy := seconds
	policy.AttemptTimeout = 2 * time.Second
	inWorld(t, sluicegrpc.Config{Retry: policy, Idempotent: idempotent}, func(w *world) {
		w.unary = failing(1, failure(codes.DeadlineExceeded))
		wantCode(t, w.call(w.Context()), codes.OK)
		w.wantCame(0, time.Second)
	})
}

// TestWith_AttemptTimeout: it replaces that of the policy, negative means none.
func TestWith_AttemptTimeout(t *testing.T) {
	policy := seconds
	policy.AttemptTimeout = 2 * time.Second
	inWorld(t, sluicegrpc.Config{Retry: policy, Idempotent: idempotent}, func(w *world) {
		w.unary = func(ctx context.Context, n int) error {
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Second):
			}
			return ctx.Err()
		}
		wantCode(t, w.call(sluicegrpc.WithOverrides(w.Context(), sluicegrpc.Overrides{AttemptTimeout: -1})), codes.OK)
		wantCode(t, w.call(sluicegrpc.WithOverrides(w.Context(), sluicegrpc.Overrides{AttemptTimeout: 11 * time.Second})), codes.OK)
		w.wantCame(0, 10*time.Second)
		wantCode(t, w.call(sluicegrpc.WithOverrides(w.Context(), sluicegrpc.Overrides{AttemptTimeout: time.Second, NoRetry: true})), codes.DeadlineExceeded)
		if got := time.Since(w.start); got != 21*time.Second {
			t.Errorf("after %v, want 21s", got)
		}
	})
}

// TestUnary_WaitForReady: a call that waits for a connection is in flight meanwhile.
func TestUnary_WaitForReady(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Gate: one}, func(w *world) {
		w.refuse(true)
		var wg sync.WaitGroup
		wg.Go(func() { wantCode(t, w.call(w.Context(), grpc.WaitForReady(true)), codes.OK) })
		w.wantInFlight(1)
		w.refuse(false)
		wg.Wait()
		if s := w.stats(); s.Admitted != 1 || s.Retried != 0 {
			t.Errorf("%d granted, %d retries; want 1, 0", s.Admitted, s.Retried)
		}
	})
}

// TestUnary_UnclearRefusals: a proxy that rejects with 503, which gRPC calls Unavailable, is
// learned although it says no more.
func TestUnary_UnclearRefusals(t *testing.T) {
	// With 4 attempts one call in 10,000 is rejected each time by chance, since the backoff
	// is random and one call in eight is rejected.
	policy := sluice.RetryPolicy{Attempts: 10}
	inWorld(t, sluicegrpc.Config{Retry: policy, Idempotent: func(string) bool { return true }}, func(w *world) {
		var mu sync.Mutex
		level, last, refused := 0., w.start, 0
		w.unary = func(context.Context, int) error {
			mu.Lock()
			now := time.Now()
			level, last = max(0, level-20*now.Sub(last).Seconds()), now
			granted := level+1 <= 10
			if granted {
				level++
			} else {
				refused++
			}
			mu.Unlock()
			time.Sleep(5 * ms)
			if !granted {
				return failure(codes.Unavailable)
			}
			time.Sleep(20 * ms)
			return nil
		}
		var failed, next atomic.Int64
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				for next.Add(1) <= 200 {
					if w.call(w.Context()) != nil {
						failed.Add(1)
					}
				}
			})
		}
		all.Wait()
		if n := failed.Load(); n > 0 || refused > 50 {
			t.Errorf("%d of 200 calls failed, %d were refused", n, refused)
		}
	})
}

// TestUnary_OptionsOfTheCaller: header, trailer and OnFinish are those of the last attempt,
// and OnFinish is called once.
func TestUnary_OptionsOfTheCaller(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Retry: seconds}, func(w *world) {
		w.unary = func(ctx context.Context, n int) error {
			md := metadata.Pairs("n", []string{"", "1", "2"}[n])
			_ = grpc.SetHeader(ctx, md)
			_ = grpc.SetTrailer(ctx, md)
			if n == 1 {
				return failure(codes.ResourceExhausted)
			}
			return nil
		}
		var header, trailer metadata.MD
		var ended []error
		err := w.call(w.Context(), grpc.Header(&header), grpc.Trailer(&trailer), grpc.OnFinish(func(err error) { ended = append(ended, err) }))
		wantCode(t, err, codes.OK)
		if header.Get("n")[0] != "2" || trailer.Get("n")[0] != "2" || len(trailer.Get("n")) != 1 {
			t.Errorf("header %v, trailer %v; want those of the second attempt", header, trailer)
		}
		if len(ended) != 1 || ended[0] != nil {
			t.Errorf("OnFinish was called with %v, want one nil", ended)
		}
	})
}

// TestUnary_ParentAndQuota: a gate above that of each method, and a quota.
func TestUnary_ParentAndQuota(t *testing.T) {
	inWorld(t, sluicegrpc.Config{}, func(w *world) {
		parent, err := sluice.New(tenth)
		if err != nil {
			t.Fatal(err)
		}
		daily, err := window.NewSliding(window.Quota{Limit: 2, Window: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		w.conn.Close()
		w.reconnect(sluicegrpc.Config{
			Key:  sluicegrpc.ByMethod,
			Gate: sluice.Config{Parent: parent, Limits: []sluice.Limit{{Name: "hourly", Limiter: daily, Unit: sluice.Calls}}},
		})
		wantCode(t, w.call(w.Context()), codes.OK)
		_, err = w.client.UnaryCall(w.Context(), &pb.SimpleRequest{})
		wantCode(t, err, codes.OK)
		if took := time.Since(w.start); took != 100*ms {
			t.Errorf("the second call took until %v, want the interval of the parent", took)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		err = w.call(ctx)
		wantCode(t, err, codes.DeadlineExceeded)
		if wait, _ := detailsOf(err); wait != time.Hour-200*ms { // it waited for the parent first
			t.Errorf("RetryInfo says %v, want the rest of the hour", wait)
		}
	})
}

// TestWith_Cost: a call of cost 3 takes three intervals of a rate that counts cost.
func TestWith_Cost(t *testing.T) {
	gate := tenth
	gate.RateUnit = sluice.Cost
	inWorld(t, sluicegrpc.Config{Gate: gate}, func(w *world) {
		wantCode(t, w.call(sluicegrpc.WithOverrides(w.Context(), sluicegrpc.Overrides{Cost: 3})), codes.OK)
		wantCode(t, w.call(w.Context()), codes.OK)
		w.wantCame(0, 300*ms)
	})
}

// TestWith_Merges: an interceptor that sets one field does not undo another.
func TestWith_Merges(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Retry: seconds, Idempotent: idempotent}, func(w *world) {
		w.unary = failing(1, failure(codes.Unavailable))
		ctx := sluicegrpc.WithOverrides(w.Context(), sluicegrpc.Overrides{Key: "mine"})
		ctx = sluicegrpc.WithOverrides(ctx, sluicegrpc.Overrides{NoRetry: true})
		ctx = sluicegrpc.WithOverrides(ctx, sluicegrpc.Overrides{Cost: 2})
		wantCode(t, w.call(ctx), codes.Unavailable)
		w.wantCame(0)
		w.wantKeys("mine")
	})
}

// TestShutdown: calls in flight end, waiting and later ones are rejected.
func TestShutdown(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Gate: one}, func(w *world) {
		w.unary = func(context.Context, int) error { time.Sleep(time.Second); return nil }
		var wg sync.WaitGroup
		for n := range 2 {
			wg.Go(func() {
				err := w.call(w.Context())
				wantCode(t, err, []codes.Code{codes.OK, codes.Canceled}[n])
				if n == 1 && !errors.Is(err, limits.ErrClosed) {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		short, cancel := context.WithTimeout(w.Context(), 100*ms)
		defer cancel()
		if err := w.i.Shutdown(short); err != context.DeadlineExceeded {
			t.Errorf("%v, want the error of the context", err)
		}
		if err := w.i.Shutdown(w.Context()); err != nil || time.Since(w.start) != time.Second {
			t.Errorf("%v after %v, want nil after 1s", err, time.Since(w.start))
		}
		wantCode(t, w.call(w.Context()), codes.Canceled)
		wantCode(t, w.call(sluicegrpc.WithOverrides(w.Context(), sluicegrpc.Overrides{Key: "new"})), codes.Canceled)
		wg.Wait()
		w.wantCame(0)
	})
}

// TestShutdown_RefusesAllAtOnce: not one gate after the other.
func TestShutdown_RefusesAllAtOnce(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Gate: one}, func(w *world) {
		w.unary = func(context.Context, int) error { time.Sleep(time.Second); return nil }
		var wg sync.WaitGroup
		for _, key := range []string{"a", "b", "c"} {
			ctx := sluicegrpc.WithOverrides(w.Context(), sluicegrpc.Overrides{Key: key})
			wg.Go(func() { wantCode(t, w.call(ctx), codes.OK) })
			synctest.Wait()
			wg.Go(func() {
				wantCode(t, w.call(ctx), codes.Canceled)
				if time.Since(w.start) > 0 {
					t.Errorf("gate %s refused after %v, want at once", key, time.Since(w.start))
				}
			})
			synctest.Wait()
		}
		if err := w.i.Shutdown(w.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}

// TestConfig_Gates: gates of the program, which forgets those that are not in use. One with
// an open stream is in use.
func TestConfig_Gates(t *testing.T) {
	inWorld(t, sluicegrpc.Config{}, func(w *world) {
		gates, err := sluice.NewKeyed(func(key string) (*sluice.Gate, error) {
			return sluice.New(sluice.Config{Name: key, Concurrency: 1})
		}, sluice.KeyedConfig{MaxKeys: 2, Idle: -1})
		if err != nil {
			t.Fatal(err)
		}
		w.conn.Close()
		w.reconnect(sluicegrpc.Config{Gates: gates, Key: sluicegrpc.ByMethod})
		if w.i.Gates() != gates {
			t.Error("Gates returns others")
		}
		w.both = func(_ int, s pb.TestService_FullDuplexCallServer) error { <-s.Context().Done(); return nil }
		ctx, cancel := context.WithCancel(w.Context())
		stream, err := w.client.FullDuplexCall(ctx)
		wantCode(t, err, codes.OK)
		for range 3 { // each forgets the one before
			wantCode(t, w.call(w.Context()), codes.OK)
			_, err = w.client.UnaryCall(w.Context(), &pb.SimpleRequest{})
			wantCode(t, err, codes.OK)
			if all := keys(w.i); !slices.Contains(all, target+"/grpc.testing.TestService/FullDuplexCall") || len(all) > 2 {
				t.Errorf("the gates are %q", all)
			}
		}
		w.unary = func(context.Context, int) error { time.Sleep(time.Second); return nil }
		var wg sync.WaitGroup
		wg.Go(func() { wantCode(t, w.call(w.Context()), codes.OK) })
		synctest.Wait()
		_, err = w.client.UnaryCall(w.Context(), &pb.SimpleRequest{})
		wantCode(t, err, codes.ResourceExhausted)
		if !errors.Is(err, limits.ErrTooManyKeys) {
			t.Error(err)
		}
		wg.Wait()
		cancel()
		_, err = stream.Recv()
		wantCode(t, err, codes.Canceled)
	})
}

// TestUnary_LostLease: the permits of a shared semaphore may be lost in flight.
func TestUnary_LostLease(t *testing.T) {
	for _, safe := range []bool{true, false} {
		inWorld(t, sluicegrpc.Config{}, func(w *world) {
			shop := &shop{lost: make(chan struct{})}
			w.conn.Close()
			w.reconnect(sluicegrpc.Config{Gate: sluice.Config{Semaphore: shop}, Retry: seconds, Idempotent: func(string) bool { return safe }})
			w.unary = func(ctx context.Context, n int) error {
				if n == 1 {
					close(shop.lost)
					<-ctx.Done()
				}
				return nil
			}
			err := w.call(w.Context())
			if safe {
				wantCode(t, err, codes.OK)
				w.wantCame(0, time.Second)
			} else {
				wantCode(t, err, codes.Aborted)
				if !errors.Is(err, limits.ErrLeaseLost) {
					t.Error(err)
				}
			}
		})
	}
}

// A shop leases permits and loses the first one when told to.
type shop struct {
	lost chan struct{}
	n    int
}

func (s *shop) Acquire(context.Context, int64, time.Duration) (limits.Lease, error) {
	s.n++
	if s.n > 1 {
		return lease{make(chan struct{})}, nil
	}
	return lease{s.lost}, nil
}

type lease struct{ lost chan struct{} }

func (l lease) Lost() <-chan struct{} { return l.lost }
func (l lease) Release()              {}

// reconnect replaces the client by one with another interceptor.
func (w *world) reconnect(cfg sluicegrpc.Config, options ...grpc.DialOption) {
	w.Helper()
	w.connect("passthrough:test", cfg, append(options, w.dialer)...)
}

// TestUnary_ManyTargets: connections to two servers on loopback, through one interceptor.
func TestUnary_ManyTargets(t *testing.T) {
	i, err := sluicegrpc.New(sluicegrpc.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for range 2 {
		w := &world{T: t, start: time.Now()}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		w.serve(listener)
		defer w.server.Stop()
		for _, given := range []string{listener.Addr().String(), "dns:///" + listener.Addr().String()} {
			conn, err := grpc.NewClient(given, grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithUnaryInterceptor(i.Unary), grpc.WithStreamInterceptor(i.Stream))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, err = pb.NewTestServiceClient(conn).EmptyCall(t.Context(), &pb.Empty{})
			wantCode(t, err, codes.OK)
		}
		want = append(want, "dns:///"+listener.Addr().String())
	}
	slices.Sort(want)
	if got := keys(i); !slices.Equal(got, want) {
		t.Errorf("the gates are %q, want %q", got, want)
	}
}

func TestInterceptor_Zero(t *testing.T) {
	defer func() {
		if said := fmt.Sprint(recover()); !strings.Contains(said, "sluicegrpc.New makes one") {
			t.Errorf("panic: %s", said)
		}
	}()
	_ = new(sluicegrpc.Interceptor).Unary(t.Context(), "/a/b", nil, nil, nil, nil)
}
