package sluicehttp_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
)

func TestTransport_EventStream(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		inWorld(t, sluicehttp.Config{Gate: sluice.Config{Concurrency: 1}}, layers(events(5, time.Minute)), func(w *world) {
			resp, err := w.client.Get(scheme + "://a.test/")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewScanner(resp.Body)
			for i := range 5 {
				if !lines.Scan() || lines.Text() != fmt.Sprint("data: ", i+1) || w.now() != time.Duration(i)*time.Minute {
					t.Errorf("%q at %v", lines.Text(), w.now())
				}
				if n := inFlight(w.rt); n != 1 && i < 4 {
					t.Errorf("%d in flight while it streams", n)
				}
				lines.Scan()
			}
			if lines.Scan() || lines.Err() != nil || inFlight(w.rt) != 0 {
				t.Errorf("in the end %v, %d in flight", lines.Err(), inFlight(w.rt))
			}
		})
	}
}

func TestTransport_Upgrade(t *testing.T) {
	for _, o := range []sluicehttp.Overrides{{}, {AttemptTimeout: time.Second}, {ReleaseAtHeaders: true}, {AttemptTimeout: time.Second, ReleaseAtHeaders: true}} {
		inWorld(t, sluicehttp.Config{Gate: sluice.Config{Concurrency: 1}}, layers(echo(t, 10)), func(w *world) {
			req := request(t, sluicehttp.With(bg, o), "GET", "http://a.test/", nil)
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", "echo")
			resp, err := w.rt.RoundTrip(req)
			if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%v, %v", resp, err)
			}
			conn, ok := resp.Body.(io.ReadWriteCloser)
			if !ok {
				t.Fatalf("the body is a %T, and cannot be written to", resp.Body)
			}
			time.Sleep(time.Minute) // longer than an attempt may take
			if _, err := conn.Write([]byte("0123456789")); err != nil {
				t.Error(err)
			}
			if n := inFlight(w.rt); (n == 0) != o.ReleaseAtHeaders {
				t.Errorf("%d in flight", n)
			}
			got, err := io.ReadAll(conn)
			if string(got) != "0123456789" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
			if half, ok := conn.(interface{ CloseWrite() error }); !ok {
				t.Error("it cannot be closed for writing")
			} else if err := half.CloseWrite(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, io.ErrClosedPipe) {
				t.Logf("CloseWrite: %v", err)
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			if n := inFlight(w.rt); n != 0 {
				t.Errorf("%d in flight in the end", n)
			}
		})
	}
}

func TestTransport_InformationalAnswers(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		for _, method := range []string{"GET", "POST"} { // the latter has a trace of ours, too
			inWorld(t, sluicehttp.Config{}, layers(earlyHints), func(w *world) {
				var codes []int
				ctx := httptrace.WithClientTrace(bg, &httptrace.ClientTrace{
					Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
						codes = append(codes, code)
						return nil
					},
				})
				status, _, err := w.do(request(t, ctx, method, scheme+"://a.test/", nil))
				if status != 200 || err != nil || len(codes) != 1 || codes[0] != 103 {
					t.Errorf("%d, %v, informed %v", status, err, codes)
				}
			})
		}
	}
}
