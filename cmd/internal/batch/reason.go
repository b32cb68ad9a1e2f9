package batch

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/batch"
	"github.com/sluice-go/sluice/cmd/internal/cli"
)

// reason is the text of an error for people: without what the line says already, such as the
// address of an item, and in the words of the flags. The log has the whole text.
func reason(err error) string {
	if errors.Is(err, batch.ErrSuspended) {
		return "not tried: too many failed before it (-aside)"
	}
	text := err.Error()
	if u, ok := errors.AsType[*url.Error](err); ok {
		text = strings.Replace(text, u.Error(), u.Err.Error(), 1)
	}
	if r, ok := errors.AsType[*sluice.RetryError](err); ok && r.Last != nil {
		switch r.Why {
		case sluice.ErrAttempts, sluice.ErrBudget, sluice.ErrPermanent:
			text = strings.Replace(text, r.Error(), r.Last.Error()+tried(r.Attempts, r.Why), 1)
		}
	}
	for _, name := range []string{"batch: ", "sluice: "} {
		text = strings.TrimPrefix(text, name)
	}
	return cli.Plain(text, cli.MostOfError)
}

// failures remembers why the last attempt for each host failed. Commands have no host.
type failures struct {
	mu   sync.Mutex
	last map[string]failure
	of   string // the host of the last of them all
}

// A failure is that of an attempt.
type failure struct {
	at      time.Time
	of, why string
}

// mostFailures bounds failures: beyond it all are forgotten.
const mostFailures = 10_000

func (f *failures) add(host, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil || len(f.last) >= mostFailures {
		f.last = make(map[string]failure)
	}
	f.last[host], f.of = failure{time.Now(), host, why}, host
}

// why returns why the last attempt for a host failed, or "".
func (f *failures) why(host string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last[host].why
}

func (f *failures) latest() failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last[f.of]
}

// tried says how often an item was tried, if that is not once, and why not more often, if that
// is not -retries.
func tried(attempts int, why error) string {
	text := ""
	if attempts > 1 {
		text = fmt.Sprintf("%d attempts", attempts)
	}
	switch {
	case why == nil || why == sluice.ErrAttempts || why == sluice.ErrPermanent:
	case text == "":
		text = "not retried: " + strings.TrimPrefix(why.Error(), "sluicehttp: ")
	default:
		text += ", no more: " + strings.TrimPrefix(why.Error(), "sluicehttp: ")
	}
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}
