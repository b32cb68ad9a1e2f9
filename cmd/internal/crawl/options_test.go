package crawl

import (
	"errors"
	"flag"
	"strings"
	"testing"
	"time"
)

func TestParseOptions(t *testing.T) {
	o, err := parseOptions(strings.Fields("-delay 2s -per-host 3 -rate 300/20s HTTP://A.test:80 https://b.test/x#y"))
	if err != nil {
		t.Fatal(err)
	}
	if o.delay != 2*time.Second || o.perHost != 3 || o.rate.String() != "300/20s" || o.span ||
		len(o.seeds) != 2 || o.seeds[0].String() != "http://a.test/" || o.seeds[1].String() != "https://b.test/x" {
		t.Errorf("%+v", o)
	}
	// The built-in site is ours: all of its hosts, and faster.
	for args, want := range map[string]time.Duration{"": siteDelay, "-delay 1s": time.Second, "-delay 2s": 2 * time.Second} {
		if o, err := parseOptions(strings.Fields(args)); err != nil || o.delay != want || !o.span {
			t.Errorf("%q: delay %v, span %v, %v", args, o.delay, o.span, err)
		}
	}
	if o, err := parseOptions([]string{"http://a.test"}); err != nil || o.delay != time.Second {
		t.Errorf("delay %v, %v", o.delay, err)
	}
}

func TestParseOptionsRefuses(t *testing.T) {
	for args, says := range map[string]string{
		"-delay -1s":                      "-delay -1s",
		"-max-delay 0s":                   "-max-delay 0s",
		"-max-wait 0s":                    "-max-wait 0s",
		"-timeout 0s":                     "-timeout 0s",
		"-max-time 0s":                    "-max-time 0s",
		"-delay 31s":                      "longer than -max-delay",
		"-per-host 0":                     "-per-host 0",
		"-jobs -1":                        "-jobs -1",
		"-pages 0":                        "-pages 0",
		"-host-pages 0":                   "-host-pages 0",
		"-frontier 0":                     "-frontier 0",
		"-max-body 0":                     "-max-body 0",
		"-depth -1":                       "-depth -1",
		"-factor -1":                      "-factor -1",
		"-factor NaN":                     "-factor NaN",
		"-factor Inf":                     "-factor +Inf",
		"-rate fast":                      "-rate",
		"-agent 1x":                       "-agent",
		"-bogus":                          "-bogus",
		"ftp://a.test/":                   "want http://host/",
		"resume":                          "want http://host/",
		"http:///x":                       "there is not a host",
		"http://a.test/ http://b.test:x/": "b.test:x",
	} {
		if _, err := parseOptions(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", args, err)
		}
	}
	if _, err := parseOptions([]string{"-agent", "a\r\nCookie: x"}); err == nil {
		t.Error("-agent of two lines is taken")
	}
	if _, err := parseOptions([]string{"-h"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
}

func TestToken(t *testing.T) {
	for agent, want := range map[string]string{
		"sluice-crawler/1 (x)": "sluice-crawler", "My_Bot": "My_Bot", "bot2": "bot", "ü": "", "": "",
	} {
		if got := (options{agent: agent}).token(); got != want {
			t.Errorf("%q: %q, want %q", agent, got, want)
		}
	}
}
