package sluicetest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

func TestDials(t *testing.T) {
	everyWay(t, func(t way) {
		for _, tt := range []struct {
			dial sluicetest.Dial
			want string
			took time.Duration
			open int // connections, after that
		}{
			{sluicetest.Refuse, "connection refused", 0, 0},
			{sluicetest.NoHost, "no such host", 0, 0},
			{sluicetest.Hang, "timeout", time.Minute, 0},
			{sluicetest.Drop, "", 0, 0}, // in what words is chance, but not as a reset
			{sluicetest.Deaf, "timeout", time.Minute, 0},
			{sluicetest.Connect, "200 ok", 0, 1},
		} {
			srv, c := t.serve()
			srv.OnDial(func(n int, addr string) sluicetest.Dial {
				if n != 1 || !strings.HasPrefix(addr, "a.test:") {
					t.Errorf("dial %d to %s", n, addr)
				}
				return tt.dial
			})
			c.Timeout = time.Minute
			start := time.Now()
			got := get(c, t.scheme+"://a.test")
			if strings.Contains(got, "deadline exceeded") || strings.Contains(got, "request canceled") {
				got = "timeout" // which of the two is chance
			}
			if !strings.Contains(got, tt.want) || strings.HasPrefix(got, "200") != (tt.dial == sluicetest.Connect) || strings.Contains(got, "reset") {
				t.Errorf("%d: %s, want %s", tt.dial, got, tt.want)
			}
			if d := time.Since(start); d != tt.took {
				t.Errorf("%d: took %v, want %v", tt.dial, d, tt.took)
			}
			synctest.Wait()
			r := srv.Record()
			// A client that gives up goes on with a handshake, for the next request.
			if r.OpenConns() != tt.open && tt.dial != sluicetest.Deaf || r.Dials != 1 {
				t.Errorf("%d: %d dials, %+v", tt.dial, r.Dials, r.Conns)
			}
			srv.Close()
			synctest.Wait()
			if r := srv.Record(); r.OpenConns() != 0 {
				t.Errorf("%d: after Close: %+v", tt.dial, r.Conns)
			}
		}
	})
}

func TestDialOfAContextThatIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer()
		defer srv.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := srv.DialContext(ctx, "tcp", "a.test:80"); err != context.Canceled {
			t.Error(err)
		}
		srv.OnDial(func(int, string) sluicetest.Dial { return sluicetest.Hang })
		done := make(chan error)
		go func() {
			_, err := srv.DialContext(t.Context(), "tcp", "a.test:80")
			done <- err
		}()
		synctest.Wait()
		srv.Close()
		if err := <-done; !errors.Is(err, sluicetest.ErrRefused) {
			t.Error(err)
		}
	})
}

func TestCutConns(t *testing.T) {
	everyWay(t, func(t way) {
		srv, c := t.serve(sluicetest.After(2, sluicetest.Delay(time.Minute)))
		for range 2 {
			if got := get(c, t.scheme+"://a.test"); got != "200 ok" {
				t.Error(got)
			}
			srv.CutConns() // while it is idle
			synctest.Wait()
		}
		go func() {
			time.Sleep(time.Second)
			srv.CutConns()
		}()
		if got := get(c, t.scheme+"://a.test"); !strings.Contains(got, "connection reset") {
			t.Error(got)
		}
		synctest.Wait()
		if r := srv.Record(); len(r.Conns) != 3 || r.OpenConns() != 0 || !r.Requests[2].GaveUp || r.Requests[2].Ended != time.Second {
			t.Errorf("%+v %+v", r.Conns, r.Requests[2])
		}
	})
}
