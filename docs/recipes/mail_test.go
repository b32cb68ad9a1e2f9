package recipes

import (
	"context"
	"errors"
	"net/smtp"
	"net/textproto"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

func mailGate() (*sluice.Gate, error) {
	// begin mails
	daily := limits.Must(window.NewFixed(window.Quota{Limit: 10_000, Calendar: window.Day})) // from 00:00 UTC
	return sluice.New(sluice.Config{
		Name:        "smtp.example.com",
		Concurrency: 5,                                       // connections
		Rate:        sluice.Rate{Count: 2, Per: time.Second}, // messages
		Limits:      []sluice.Limit{{Name: "daily", Limiter: daily}},
	})
	// end mails
}

// begin mails, sending
func sendMail(ctx context.Context, gate *sluice.Gate, auth smtp.Auth, from, to string, message []byte) error {
	return sluice.Retry(ctx, gate, sluice.RetryPolicy{MaxElapsed: time.Hour}, func(context.Context) error {
		return classify(smtp.SendMail("smtp.example.com:587", auth, from, []string{to}, message))
	})
}

// classify reads the reply of the server: 421, 450 and 451 mean later, 5xx mean never.
func classify(err error) error {
	var reply *textproto.Error
	switch {
	case !errors.As(err, &reply):
		return err
	case reply.Code == 421, reply.Code == 450, reply.Code == 451:
		return sluice.RetryAfter(err, time.Minute) // pauses all messages
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
			errs = append(errs, sluice.Retry(t.Context(), gate, sluice.RetryPolicy{}, func(context.Context) error {
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
	_ = sendMail
}
