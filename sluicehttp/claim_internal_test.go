package sluicehttp

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// A heard is a response about a limit of 20, and what is to be believed then. Times are in
// milliseconds; of until, next and ask 0 is the zero time.
type heard struct {
	call         uint16
	sent, now    int
	remaining    int
	reset        string // seconds from now, or as a time of the day
	refused      bool
	until        int
	next, ask    int
	ignore       bool
	failed       bool
	rate         int64 // per second, configured
	retryAfter   string
	doesNotApply bool // until is not checked
}

func TestClaim_Note(t *testing.T) {
	for _, c := range []struct {
		name string
		most string
		says []heard
	}{
		{"a window ends when the first response says", "20", []heard{
			{call: 1, sent: 0, now: 20, remaining: 19, reset: "1", until: 1020},
			{call: 2, sent: 50, now: 70, remaining: 18, reset: "1", until: 1020},
			{call: 3, sent: 900, now: 970, remaining: 0, reset: "1", until: 1020}, // 50 ms are not worth a refusal
		}},
		{"a window of 10 s", "20", []heard{
			{call: 1, sent: 0, now: 20, remaining: 19, reset: "10", until: 10_020},
			{call: 2, sent: 990, now: 1010, remaining: 18, reset: "10", until: 10_020},
			{call: 3, sent: 1100, now: 1110, remaining: 17, reset: "9", until: 10_020},
			{call: 4, sent: 5005, now: 5006, remaining: 16, reset: "5", until: 10_006}, // just after the second
			{call: 5, sent: 9000, now: 9010, remaining: 0, reset: "1", until: 10_006},  // not before 9.99 s: see call 2
		}},
		{"another window", "20", []heard{
			{call: 1, sent: 0, now: 20, remaining: 1, reset: "1", until: 1020},
			{call: 2, sent: 10, now: 30, remaining: 0, reset: "1", until: 1020, ask: 30},
			{call: 3, sent: 1020, now: 1040, remaining: 19, reset: "1", until: 2040},
			{call: 4, sent: 1030, now: 1035, remaining: 18, reset: "1", until: 2035}, // overtook it
		}},
		{"exact times leave no doubt", "20", []heard{
			{call: 1, sent: 0, now: 20, remaining: 0, reset: "0.750", until: 770},
		}},
		{"a response that is overtaken says nothing", "20", []heard{
			{call: 2, sent: 10, now: 30, remaining: 5, reset: "1", until: 1030},
			{call: 1, sent: 0, now: 300, remaining: 6, reset: "1", until: 1030},
		}},
		{"granted in spite of it", "20", []heard{
			{call: 1, sent: 0, now: 20, remaining: 0, reset: "1", until: 1020, ask: 20},
			{call: 2, sent: 10, now: 40, remaining: 0, reset: "1", until: 1020, ask: 20},               // sent before
			{call: 3, sent: 45, now: 60, remaining: 0, reset: "1", until: 1020, ask: 20, failed: true}, // perhaps refused
			{call: 3, sent: 50, now: 70, remaining: 0, reset: "1", until: 1020, ignore: true},
			{call: 4, sent: 100, now: 120, remaining: 0, reset: "1", until: 1020, ignore: true},
			{call: 5, sent: 150, now: 170, remaining: 0, reset: "1", until: 1020, refused: true}, // a refusal confirms it
			{call: 6, sent: 300, now: 320, remaining: 0, reset: "1", until: 1020, ask: 320},
		}},
		{"granted because another window began", "20", []heard{
			{call: 1, sent: 0, now: 20, remaining: 0, reset: "1", until: 1020, ask: 20},
			{call: 2, sent: 50, now: 70, remaining: 19, reset: "1", until: 1070},
			{call: 3, sent: 100, now: 120, remaining: 18, reset: "1", until: 1070},
		}},
		{"of 1, granted twice", "1", []heard{
			{call: 1, sent: 0, now: 20, remaining: 0, reset: "1", until: 1020, ask: 20},
			{call: 2, sent: 50, now: 70, remaining: 0, reset: "1", until: 1020, ask: 20}, // perhaps another window
			{call: 3, sent: 100, now: 120, remaining: 0, reset: "1", until: 1020, ignore: true},
		}},
		{"none asks for a while after one was refused", "20", []heard{
			{call: 1, sent: 0, now: 20, remaining: 0, reset: "1", until: 1020, ask: 20},
			{call: 2, sent: 50, now: 70, remaining: 0, reset: "1", until: 1020, refused: true},
			{call: 3, sent: 1050, now: 1070, remaining: 1, reset: "1", until: 2070},
			{call: 4, sent: 1080, now: 1100, remaining: 0, reset: "1", until: 2070, ask: 1100}, // this window may be asked in
			{call: 5, sent: 1150, now: 1170, remaining: 0, reset: "1", until: 2070, refused: true},
			{call: 6, sent: 2080, now: 2100, remaining: 0, reset: "1", until: 3100}, // the next two not
			{call: 7, sent: 3110, now: 3120, remaining: 0, reset: "1", until: 4120},
			{call: 8, sent: 4130, now: 4140, remaining: 0, reset: "1", until: 5140, ask: 4140},
		}},
		{"at a rate that fits one asks in each window", "20;w=1", []heard{
			{call: 1, sent: 0, now: 20, remaining: 0, reset: "1", until: 1020, ask: 20, rate: 20},
			{call: 2, sent: 50, now: 70, remaining: 0, reset: "1", until: 1020, refused: true, rate: 20},
			{call: 3, sent: 1080, now: 1100, remaining: 0, reset: "1", until: 2100, ask: 1100, rate: 20},
			{call: 4, sent: 1150, now: 1170, remaining: 0, reset: "1", until: 2100, refused: true, rate: 20},
			{call: 5, sent: 2180, now: 2200, remaining: 0, reset: "1", until: 3200, ask: 2200, rate: 20},
			{call: 6, sent: 3210, now: 3220, remaining: 0, reset: "1", until: 4220, rate: 21},
		}},
		{"calls at the configured rate use up a window just before its end", "4", []heard{
			{call: 1, sent: 0, now: 20, remaining: 3, reset: "1", until: 1020, rate: 4},
			{call: 2, sent: 250, now: 270, remaining: 2, reset: "1", until: 1020, rate: 4},
			{call: 3, sent: 500, now: 520, remaining: 1, reset: "1", until: 1020, rate: 4},
			{call: 4, sent: 750, now: 770, remaining: 0, reset: "1", until: 1020, rate: 4}, // none asks at 770
		}},
		{"others use each window before", "20", []heard{
			{call: 1, sent: 0, now: 20, remaining: 10, reset: "10", until: 10_020},
			{call: 2, sent: 10_100, now: 10_120, remaining: 10, reset: "10", until: 20_120},
			{call: 3, sent: 20_200, now: 20_220, remaining: 10, reset: "10", until: 30_220},
			{call: 4, sent: 30_300, now: 30_320, remaining: 10, reset: "10", until: 40_320},
			{call: 5, sent: 40_400, now: 40_420, remaining: 0, reset: "10", until: 50_420}, // it is no bucket
		}},
		{"a bucket is full later with each call", "20", []heard{ // 0.5 s each
			{call: 1, sent: 0, now: 10, remaining: 10, reset: "5.000", doesNotApply: true},
			{call: 2, sent: 20, now: 30, remaining: 9, reset: "5.480", doesNotApply: true},
			{call: 3, sent: 40, now: 50, remaining: 8, reset: "5.960", doesNotApply: true},
			{call: 4, sent: 60, now: 70, remaining: 7, reset: "6.440", doesNotApply: true},
			{call: 5, sent: 80, now: 90, remaining: 0, reset: "9.920", doesNotApply: true, next: 586},
			{call: 6, sent: 586, now: 600, remaining: 0, reset: "10", doesNotApply: true, next: 1050}, // of 10 s, 9 are certain
			{call: 7, sent: 1050, now: 1060, remaining: 0, reset: "10", retryAfter: "10", refused: true, doesNotApply: true},
			{call: 8, sent: 11_060, now: 11_070, remaining: 0, reset: "9.5", until: 20_570}, // so it is a window
		}},
		{"two moves prove nothing", "20", []heard{
			{call: 1, sent: 0, now: 10, remaining: 10, reset: "5.000", until: 5010},
			{call: 2, sent: 20, now: 30, remaining: 9, reset: "5.480", until: 5510},
			{call: 3, sent: 40, now: 50, remaining: 0, reset: "9.960", until: 10_010},
		}},
		{"a bucket that refuses in vain", "20", []heard{
			{call: 1, sent: 0, now: 10, remaining: 10, reset: "5.000", doesNotApply: true},
			{call: 2, sent: 20, now: 30, remaining: 9, reset: "5.480", doesNotApply: true},
			{call: 3, sent: 40, now: 50, remaining: 8, reset: "5.960", doesNotApply: true},
			{call: 4, sent: 60, now: 70, remaining: 0, reset: "9.5", doesNotApply: true, next: 545},
			{call: 5, sent: 545, now: 590, remaining: 0, reset: "9.5", refused: true, doesNotApply: true},
			{call: 6, sent: 580, now: 600, remaining: 0, reset: "9.5", refused: true, doesNotApply: true}, // at the same time
			{call: 7, sent: 1100, now: 1110, remaining: 0, reset: "9.5", refused: true, doesNotApply: true},
			{call: 8, sent: 2200, now: 2210, remaining: 0, reset: "9.5", refused: true, doesNotApply: true},
			{call: 9, sent: 4300, now: 4310, remaining: 0, reset: "9.5", doesNotApply: true, next: 4785},
			{call: 10, sent: 4790, now: 4820, remaining: 0, reset: "9.5", refused: true, doesNotApply: true},
			{call: 11, sent: 5810, now: 5820, remaining: 0, reset: "9.5", refused: true, doesNotApply: true},
			{call: 12, sent: 6810, now: 6820, remaining: 0, reset: "9.5", refused: true, doesNotApply: true},
			{call: 13, sent: 7810, now: 7820, remaining: 0, reset: "9.5", refused: true, doesNotApply: true},
			{call: 14, sent: 8810, now: 8820, remaining: 0, reset: "9.5", until: 18_320},
		}},
		{"a window that begins anew with each call", "20", []heard{
			{call: 1, sent: 0, now: 10, remaining: 12, reset: "10", until: 10_010},
			{call: 2, sent: 1500, now: 1510, remaining: 11, reset: "10", until: 11_510},
			{call: 3, sent: 2000, now: 2010, remaining: 10, reset: "10", until: 12_010}, // only the last is true
			{call: 4, sent: 2500, now: 2510, remaining: 9, reset: "10", until: 12_510},
		}},
		{"others share the window", "20", []heard{ // whose resets have nothing to do with what is missing
			{call: 1, sent: 0, now: 10, remaining: 9, reset: "10", until: 10_010},
			{call: 2, sent: 11_000, now: 11_010, remaining: 8, reset: "5.1", until: 16_110},
			{call: 3, sent: 31_000, now: 31_010, remaining: 7, reset: "1.7", until: 32_710},
			{call: 4, sent: 41_000, now: 41_010, remaining: 6, reset: "9.1", until: 50_110},
			{call: 5, sent: 41_100, now: 41_110, remaining: 0, reset: "9.00", until: 50_110, doesNotApply: true},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			begin := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
			at := func(ms int) (when time.Time) {
				if ms > 0 {
					when = begin.Add(time.Duration(ms) * time.Millisecond)
				}
				return when
			}
			gate, k := sluice.Must(sluice.New(sluice.Config{})), new(claim)
			for i, h := range c.says {
				status := http.StatusOK
				header := http.Header{
					"X-Ratelimit-Limit": {c.most}, "X-Ratelimit-Reset": {h.reset}, "X-Ratelimit-Remaining": {strconv.Itoa(h.remaining)},
				}
				if h.refused {
					status = http.StatusTooManyRequests
				}
				if h.retryAfter != "" {
					header.Set("Retry-After", h.retryAfter)
				}
				said, _ := ratelimit.Parse(status, header, at(h.now))
				l := &said.Limits[0]
				k.most = l.Max
				r := reply{gate: gate, now: at(h.now), call: h.call, sent: begin.Add(time.Duration(h.sent) * time.Millisecond), granted: !h.refused && !h.failed, refused: h.refused, retryAt: said.RetryAt, source: said.RetrySource}
				if h.rate > 0 {
					r.rate = sluice.Rate{Count: h.rate, Per: time.Second}
				}
				var f finding
				k.note(l, 0, &r, &f)
				if !h.doesNotApply && !f.until.Equal(at(h.until)) || !f.next.Equal(at(h.next)) || !f.ask.Equal(at(h.ask)) || f.ignore != h.ignore {
					ms := func(t time.Time) int64 {
						if t.IsZero() {
							return 0
						}
						return t.Sub(begin).Milliseconds()
					}
					t.Errorf("response %d: until %d, next %d, ask %d, ignored: %v; want %d, %d, %d, %v",
						i+1, ms(f.until), ms(f.next), ms(f.ask), f.ignore, h.until, h.next, h.ask, h.ignore)
				}
			}
		})
	}
}

// That calls wait for the answers to those in flight is not what the server says, and nobody asks whose limit
// that is: ten routes of one window became ten scopes.
func TestState_EmptyUntil_NotPending(t *testing.T) {
	tr, err := New(nil, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	now := time.Unix(1000, 0)
	header := http.Header{"X-Ratelimit-Limit": {"600"}, "X-Ratelimit-Remaining": {"30"}, "X-Ratelimit-Reset": {"40"}}
	said, _ := ratelimit.Parse(200, header, now)
	var found findings
	found[0] = finding{known: true, pending: now.Add(time.Second)}
	st := &state{t: tr}
	if at, _ := st.emptyUntil(&said, &found, now); !at.IsZero() {
		t.Errorf("empty until %v", at)
	}
	if at, source := found.pendingUntil(&said); !at.Equal(found[0].pending) || source == "" {
		t.Errorf("pending until %v, by %q", at, source)
	}
}
