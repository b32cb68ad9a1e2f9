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

// A server is unavailable after so many failures in a row, and each probe that fails doubles the
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
// no call came for long is discarded.
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

// A server that hangs is unavailable from the first caller on that has left. Each probe that is left
// doubles the time until the next, and an answer to any call that was left ends the outage.
func TestBreaker_Hangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(3, time.Second, nil)
		b.Hangs("a", nil, errDown)
		b.Hangs("a", nil, errDown) // another one that was under way
		for wait := ShortestRetry; wait < time.Second; wait *= 2 {
			_, no := b.Enter("a")
			if no == nil || no.Retry < wait*3/4-1 || no.Retry > wait || no.Cause != errDown {
				t.Fatalf("after %v: %+v", wait, no)
			}
			time.Sleep(wait)
			probe, no := b.Enter("a")
			if probe == nil || no != nil {
				t.Fatalf("no probe: %+v", no)
			}
			b.Hangs("a", probe, errDown)
			b.Leave("a", nil, Silent, errDown) // one that was under way
		}
		if away, outages, probes := b.Counts(); away != 1 || outages != 1 || probes != 5 {
			t.Errorf("%d away, %d outages, %d probes", away, outages, probes)
		}
		if b.Leave("a", nil, Answered, nil); b.Trouble() {
			t.Error("an answer does not end the outage")
		}
		if b.Leave("a", nil, Silent, errDown); !b.Away("a") {
			t.Error("the first call that was silent to its end does not begin one")
		}
	})
}

// Patience is four times what is usual, in bounds, for servers that were heard lately.
func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pulse
		want := func(what string, probe bool, want time.Duration) {
			t.Helper()
			if got := p.Patience("a", probe, 100*time.Millisecond, time.Second); got != want {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		want("never heard", false, time.Second)
		want("never heard, probe", true, 100*time.Millisecond)
		p.Heard("a", time.Millisecond)
		want("near", false, 100*time.Millisecond)
		p.Heard("a", 50*time.Millisecond)
		want("far", false, 200*time.Millisecond)
		p.Heard("a", 300*time.Millisecond)
		want("slow", false, time.Second)
		for range 64 {
			p.Heard("a", time.Millisecond)
		}
		if got := p.Patience("a", false, 0, time.Second); got < 400*time.Millisecond || got > 450*time.Millisecond {
			t.Errorf("64 answers after a slow one: %v, want 4 × 300 ms ÷ e", got)
		}
		time.Sleep(idle + 1)
		want("idle", false, time.Second)
		if !p.Last("b").IsZero() || time.Since(p.Last("a")) != idle+1 {
			t.Error("when it was last heard")
		}
	})
}
