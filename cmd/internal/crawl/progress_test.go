package crawl

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What the line says; what matters most comes first, because a narrow terminal cuts the rest.
func TestMoment_Line(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	begin := moment{at: at}
	for _, test := range []struct {
		name string
		m    moment
		want string
	}{
		{"begin", moment{at: at, left: 1}, "0 pages, 1 left, ETA unknown, 0 failed, 0 in flight, 0 active of 0 hosts, 0 known"},
		{"under way", moment{
			totals: totals{Taken: 20, Pages: 19, Failed: 1, Refused: 2, Hosts: 3, Known: 60}, at: at.Add(10 * time.Second), left: 40, active: 2, inFlight: 1,
		}, "19 pages, 40 left, ETA 20s, 2/s, 1 failed, 2 refused, 1 in flight, 2 active of 3 hosts, 60 known"},
		{"one host has most", moment{
			totals: totals{Taken: 20, Pages: 20, Hosts: 1}, at: at.Add(10 * time.Second), left: 40, active: 1, longest: 2 * time.Minute,
		}, "20 pages, 40 left, ETA 2m0s, 2/s, 0 failed, 0 in flight, 1 active of 1 host, 0 known"},
		{"paused", moment{
			totals: totals{Taken: 1, Pages: 1, Hosts: 4}, at: at.Add(time.Second), left: 1, paused: 3, pauses: []string{"http://a.test paused until 12:01:00 (429 Too Many Requests)", "b"},
		}, "1 page, 1 left, ETA 1s, 1/s, 0 failed, 0 in flight, 0 active of 4 hosts, 0 known, http://a.test paused until 12:01:00 (429 Too Many Requests), b, 1 more paused"},
		{"nothing lately", moment{at: at.Add(time.Minute), left: 7}, "0 pages, 7 left, ETA unknown, 0/s, 0 failed, 0 in flight, 0 active of 0 hosts, 0 known"},
	} {
		if got := test.m.line(begin); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
	}
}

// Rates are measured over the last 30 s.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		p := progressOf(func() moment {
			n := int(time.Since(begin) / time.Second)
			return moment{at: time.Now(), totals: totals{Taken: n * n, Pages: int64(n)}}
		})
		for _, want := range []string{"0 pages, 0 left, ETA unknown, 0 failed", "10 pages, 0 left, ETA 0s, 10/s", "20 pages, 0 left, ETA 0s, 20/s", "30 pages, 0 left, ETA 0s, 30/s", "40 pages, 0 left, ETA 0s, 50/s"} {
			if got := p.Line(); !strings.HasPrefix(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			time.Sleep(10 * time.Second)
		}
	})
}
