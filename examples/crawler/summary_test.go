package main

import (
	"strings"
	"testing"
	"time"
)

func TestSummary(t *testing.T) {
	r := crawl(t, newSite, "-rate", "1000000000/s", "-host-pages", "3")
	var out strings.Builder
	s := r.summary()
	s.write(&out)
	for _, want := range []string{
		"        host  pages  failed  missing  forbidden  429    rate  delay  closest two  robots.txt\n",
		" strict.test      3       0        0          0    0  1.00/s     1s    1000.0 ms  0 rules, Crawl-delay 1s\n",
		" sleepy.test      0       0        0          1    0       -  250ms            -  0 rules, Crawl-delay 1h0m0s is over -max-delay 30s: skipped\n",
		"\nhttp://broken.test/robots.txt: line 1: Disallow before the first User-agent\nhttp://broken.test/robots.txt: line 3: ",
		"\n23 links not gone to: enough pages, or interrupted\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, out.String())
		}
	}
	if s.failed() != 0 {
		t.Errorf("%d failed", s.failed())
	}
}

// A time that is too short must not look long enough.
func TestMilliseconds(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0.0 ms", 249_999_999: "249.9 ms", 250_000_000: "250.0 ms", time.Hour: "3600000.0 ms"} {
		if got := ms(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
