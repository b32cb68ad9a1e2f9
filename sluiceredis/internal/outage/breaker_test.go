package outage

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("down")

// A server is away after so many failures in a row, and each probe that fails doubles the
// time until the next. An answer of a call that is no probe does not end an outage.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		b := New(2, time.Second, func(server string, err error) { got = append(got, fmt.Sprint(server, " ", err)) })
		call := func(name string, v Verdict) *Refusal {
			probe, no := b.Enter(name)
			if no == nil {
				b.Leave(name, probe, v, errDown)
			}
			return no
		}
		for range 3 { // an answer in between: they are not in a row
			call("a", Unanswered)
			call("a", Answered)
		}
		call("a", Unanswered)
		call("a", Nothing)
		call("a", NotThese)
		if !b.Trouble() || b.Away("a") || b.Mode() != Asking {
			t.Fatal("away after one failure")
		}
		call("a", Unanswered)
		for wait := ShortestRetry; ; wait = min(2*wait, time.Second) {
			no := call("a", Answered)
			if no == nil || no.Retry < wait*3/4-1 || no.Retry > wait || no.Cause != errDown {
				t.Fatalf("after %v: %+v", wait, no)
			}
			b.Leave("a", nil, Answered, nil) // was sent before
			if call("b", Answered) != nil || !b.Away("a") || b.Away("b") {
				t.Fatal("one server is away, not both")
			}
			time.Sleep(no.Retry - 1)
			if call("a", Answered) == nil {
				t.Fatalf("a probe before %v", no.Retry)
			}
			time.Sleep(time.Nanosecond)
			probe, no := b.Enter("a")
			if no != nil || b.Mode() != Probing {
				t.Fatalf("no probe: %+v", no)
			}
			if call("a", Answered) == nil {
				t.Fatal("two probes")
			}
			if wait == time.Second {
				b.Leave("a", probe, Answered, nil)
				break
			}
			b.Leave("a", probe, Unanswered, errDown)
		}
		synctest.Wait()
		if away, outages, probes := b.Counts(); away != 0 || outages != 1 || probes != 6 || b.Trouble() {
			t.Errorf("%d away, %d outages, %d probes", away, outages, probes)
		}
		if want := []string{"a down", "a <nil>"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// A probe whose caller leaves says nothing, and the next call is one. A server for which
// no call came for long is forgotten.
func TestBreaker_Enter_AfterAProbeWithoutAResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(1, time.Second, nil)
		b.Leave("a", nil, Unanswered, errDown)
		time.Sleep(ShortestRetry)
		for range 3 {
			probe, no := b.Enter("a")
			if probe == nil || no != nil {
				t.Fatalf("%+v, %+v", probe, no)
			}
			b.Leave("a", probe, Nothing, nil)
		}
		b.Leave("b", nil, Unanswered, errDown)
		time.Sleep(11 * time.Second)
		if _, no := b.Enter("b"); no != nil || b.Away("a") {
			t.Errorf("%+v, a is away: %v", no, b.Away("a"))
		}
	})
}
