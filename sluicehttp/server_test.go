package sluicehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// Ways for a dial to fail.
var (
	errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	errNoHost  = &net.DNSError{Err: "no such host", Name: "a.test", IsNotFound: true}
	errDropped = errors.New("connected, and closed at once")
)

// onDial makes the n-th dial of base end as f says, counted from 1: nil connects.
func onDial(base http.RoundTripper, f func(ctx context.Context, n int) error) {
	transport := base.(*http.Transport)
	dial, dials := transport.DialContext, new(atomic.Int64) // an abandoned dial may still run
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		switch err := f(ctx, int(dials.Add(1))); err {
		case nil:
			return dial(ctx, network, addr)
		case errDropped:
			client, server := net.Pipe()
			return client, server.Close()
		default:
			return nil, err
		}
	}
}

// firstDial makes the first dial of base fail.
func firstDial(base http.RoundTripper, err error) {
	onDial(base, func(_ context.Context, n int) error {
		if n == 1 {
			return err
		}
		return nil
	})
}

// abort aborts the response: the connection in HTTP/1.1, the stream in HTTP/2.
func abort() sluicetest.Layer {
	return sluicetest.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
}

// events answers with a stream of n events, the first of them at once.
func events(n int, every time.Duration) sluicetest.Layer {
	return sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range n {
			if i > 0 {
				time.Sleep(every)
			}
			fmt.Fprintf(w, "data: %d\n\n", i+1)
			w.(http.Flusher).Flush()
		}
	}))
}

// echo switches protocols and sends back the first n bytes.
func echo(t testing.TB, n int64) sluicetest.Layer {
	return sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.CopyN(conn, buf, n)
	}))
}

// earlyHints sends a 103 before the response.
func earlyHints(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		next.ServeHTTP(w, r)
	})
}

// Families that few servers use. Times are rounded up to a second.

func untilWholeSecond(s sluicetest.Standing, wait time.Duration) time.Time {
	return s.Now.Add(wait + time.Second - 1).Truncate(time.Second)
}

func retryAfterDate(h http.Header, s sluicetest.Standing) {
	if s.Refused {
		h.Set("Retry-After", untilWholeSecond(s, s.Wait).UTC().Format(http.TimeFormat))
	}
}

func retryAfterEpoch(h http.Header, s sluicetest.Standing) {
	if s.Refused {
		h.Set("Retry-After", fmt.Sprint(untilWholeSecond(s, s.Wait).Unix()))
	}
}

func retryAfterMillis(h http.Header, s sluicetest.Standing) {
	sluicetest.RetryAfter(h, s)
	if s.Refused {
		h.Set("Retry-After-Ms", fmt.Sprint(max(1, (s.Wait+time.Millisecond-1).Milliseconds())))
	}
}

func draft7(h http.Header, s sluicetest.Standing) {
	h.Set("Ratelimit-Policy", fmt.Sprintf("%d;w=%d", s.Limit, int64(s.Window.Seconds())))
	h.Set("Ratelimit", fmt.Sprintf("limit=%d, remaining=%d, reset=%d", s.Limit, s.Remaining, resetSeconds(s)))
}

func draft3(h http.Header, s sluicetest.Standing) {
	h.Set("Ratelimit-Limit", fmt.Sprintf("%d, %d;w=%d", s.Limit, s.Limit, int64(s.Window.Seconds())))
	h.Set("Ratelimit-Remaining", fmt.Sprint(s.Remaining))
	h.Set("Ratelimit-Reset", fmt.Sprint(resetSeconds(s)))
}

func resetSeconds(s sluicetest.Standing) int64 {
	wait := s.Reset
	if s.Remaining == 0 {
		wait = s.Wait
	}
	return int64((wait + time.Second - 1) / time.Second)
}
