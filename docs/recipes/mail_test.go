package recipes

import (
	"context"
	"errors"
	"net"
	"net/smtp"
	"net/textproto"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

func mailGate() (*sluice.Gate, error) {
	// begin mails
	daily := limits.Must(window.NewFixed(window.Quota{Limit: 10_000, Per: window.Day})) // from 00:00 UTC
	return sluice.New(sluice.Config{
		Name:        "smtp.example.com",
		Concurrency: 5,                                       // connections
		Rate:        sluice.Rate{Count: 2, Per: time.Second}, // messages
		Limits:      []sluice.Limit{{Name: "daily", Limiter: daily}},
	})
	// end mails
}

// begin mails, sending
// sendMail sends a message by a server such as "smtp.example.com:587".
func sendMail(ctx context.Context, gate *sluice.Gate, server string, auth smtp.Auth, from, to string, message []byte) error {
	return sluice.Retry(ctx, gate, func(context.Context) error {
		return classify(smtp.SendMail(server, auth, from, []string{to}, message))
	}, sluice.RetryPolicy{MaxElapsed: time.Hour})
}

// classify reads the reply of the server: 421, 450 and 451 mean later, 5xx mean never.
func classify(err error) error {
	var reply *textproto.Error
	switch {
	case !errors.As(err, &reply):
		return err
	case reply.Code == 421, reply.Code == 450, reply.Code == 451:
		return sluice.ThrottledFor(err, time.Minute) // pauses all messages
	case reply.Code >= 500:
		return sluice.Permanent(err)
	}
	return err
}

// end mails, sending

func TestMails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, err := mailGate()
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		replies := []int{0, 421, 0, 550}
		errs := make([]error, 0, len(replies))
		for range 3 {
			errs = append(errs, sluice.Retry(t.Context(), gate, func(context.Context) error {
				code := replies[0]
				replies = replies[1:]
				if code == 0 {
					return nil
				}
				return classify(&textproto.Error{Code: code})
			}))
		}
		if errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], sluice.ErrPermanent) {
			t.Errorf("%v, want no error, no error and a permanent one", errs)
		}
		if took := time.Since(began); took < time.Minute || took > time.Minute+2*time.Second {
			t.Errorf("took %v, want a pause of a minute", took)
		}
	})
}

// The client of net/smtp sends four messages to a server on a real socket: three are
// accepted, refused for ever, and put off. The last one cannot wait for the end of the pause.
func TestMails_Server(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	served := make(chan int)
	go func() { served <- serveMail(listener, "250 accepted", "550 no such user", "421 too many messages") }()
	gate, err := mailGate()
	if err != nil {
		t.Fatal(err)
	}
	if err := gate.SetRate(sluice.Rate{}); err != nil { // not to wait in a test
		t.Fatal(err)
	}
	send := func(longest time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), longest)
		defer cancel()
		return sendMail(ctx, gate, listener.Addr().String(), nil, "a@test", "b@test", []byte("hello"))
	}
	if err := send(time.Hour); err != nil {
		t.Error(err)
	}
	if err := send(time.Hour); !errors.Is(err, sluice.ErrPermanent) {
		t.Errorf("%v, want a permanent error", err)
	}
	var wait *limits.WaitError
	for range 2 {
		if err := send(30 * time.Second); !errors.As(err, &wait) || wait.For != limits.ByPause {
			t.Errorf("%v, want one about the pause", err)
		}
	}
	_ = listener.Close()
	if n := <-served; n != 3 {
		t.Errorf("%d messages were sent, want 3", n)
	}
}

// serveMail answers RCPT with one reply after the other, and returns how many connections
// there were.
func serveMail(listener net.Listener, replies ...string) (served int) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return served
		}
		text := textproto.NewConn(conn)
		_ = text.PrintfLine("220 test")
		for {
			line, err := text.ReadLine()
			if err != nil {
				break
			}
			reply := "250 ok"
			switch command, _, _ := strings.Cut(line, " "); command {
			case "RCPT":
				reply = replies[served%len(replies)]
			case "DATA":
				_ = text.PrintfLine("354 go on")
				_, _ = text.ReadDotBytes()
			case "QUIT":
				reply = "221 bye"
			}
			_ = text.PrintfLine("%s", reply)
		}
		_ = text.Close()
		served++
	}
}
