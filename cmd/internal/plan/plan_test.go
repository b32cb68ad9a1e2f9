package plan

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/cmd/internal/learned"
	"github.com/sluice-go/sluice/leaky"
)

// split splits a command line at spaces, but not within quotes.
func split(line string) (args []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			args = append(args, part)
		} else {
			args = append(args, strings.Fields(part)...)
		}
	}
	return args
}

// planned returns what the command prints, and its status.
func planned(line string) (text string, status int, err error) {
	o, err := parseOptions(split(line))
	if err != nil {
		return "", 0, err
	}
	p, err := newPlan(o)
	if err != nil {
		return "", 0, err
	}
	var b strings.Builder
	status, err = p.print(&b)
	return b.String(), status, err
}

// It is midnight of 1 January 2000.
func TestPlan(t *testing.T) {
	for _, test := range []struct {
		line   string
		status int
		want   string
	}{
		{"-items 50000 -rate 5/s", 0, `
50,000 calls: the end is at 02:46:40, in 2h46m40s.
They are limited by the rate of 5/s. Nothing else makes a call wait.
`},
		{"-items 50000 -rate 5/s -by 06:00", 0, `
50,000 calls: the end is at 02:46:40, in 2h46m40s.
They are limited by the rate of 5/s. Nothing else makes a call wait.
That is in time for 06:00:00, with 3h13m20s to spare.
`},
		{"-items 50000 -rate 5/s -by 02:00", 1, `
50,000 calls: the end is at 02:46:40, in 2h46m40s.
They are limited by the rate of 5/s. Nothing else makes a call wait.
That is too late for 02:00:00, by 46m40s. 36,001 calls would be done by then.
`},
		{"-items 40 -rate 1/s -burst 15 -limit '20/m type=fixed' -by 00:01:09", 0, `
40 calls: the end is at 00:01:05, in 1m5s.
They are limited by the limit of 20/m type=fixed.
Without that the end would be at 00:00:39, in 39s, limited by the rate of 1/s.
That is in time for 00:01:09, with 4s to spare.
`},
		{"-items 8000 -limit 500/m -cost tokens=1500 -limit '200000/m unit=tokens' -takes 4s -jobs 16", 0, `
8,000 calls: the end is at 00:59:04, in 59m4s.
They are limited by the limit of 200000/m unit=tokens.
Without that the end would be at 00:33:20, in 33m20s, limited by 16 calls at once, each of 4s.
`},
		{"-items 12000 -rate 10/s -limit '5000/day  type=calendar zone=Europe/Berlin'", 0, `
12,000 calls: the end is at 2000-01-02 23:03:20, in 47h3m20s.
They are limited by the limit of 5000/day type=calendar zone=Europe/Berlin.
Without that the end would be at 00:20:00, in 20m0s, limited by the rate of 10/s.
`},
		{"-items 25 -limit '10/m type=fixed'", 0, `
25 calls: the end is at 00:02:00, in 2m0s.
They are limited by the limit of 10/m type=fixed. Nothing else makes a call wait.
`},
		{"-items 25 -limit '10/m type=sliding' -rate 1/s", 0, `
25 calls: the end is at 00:02:04, in 2m4s.
They are limited by the limit of 10/m type=sliding.
Without that the end would be at 00:00:24, in 24s, limited by the rate of 1/s.
`},
		{"-items 3 -limit '2/month type=calendar'", 0, `
3 calls: the end is at 2000-02-01 00:00:00, in 31 days.
They are limited by the limit of 2/month type=calendar. Nothing else makes a call wait.
`},
		{"-items 25 -limit '60/m burst=1' -cost cost=2 -limit '60/m unit=cost burst=2'", 0, `
25 calls: the end is at 00:00:48, in 48s.
They are limited by the limit of 60/m unit=cost burst=2.
Without that the end would be at 00:00:24, in 24s, limited by the limit of 60/m burst=1.
`},
		{"-items 1 -rate 5/s -takes 300ms", 0, `
1 call: the end is at 00:00:01, in 300ms.
Nothing makes a call wait.
`},
		{"-items 9223372036854775807 -rate 1/h -by 06:00", 1, `
9,223,372,036,854,775,807 calls would take more than 292 years.
They are limited by the rate of 1/h. Nothing else makes a call wait.
That is too late for 06:00:00, by 106751 days 17h. 7 calls would be done by then.
`},
		{"-items 10 -cost tokens=30 -limit '10/m unit=tokens'", 1, `
10 calls can never start: a call takes more than the limit of 10/m unit=tokens allows.
`},
	} {
		synctest.Test(t, func(t *testing.T) {
			got, status, err := planned(test.line)
			if "\n"+got != test.want || status != test.status || err != nil {
				t.Errorf("%s:\n%sstatus %d, %v; want %s", test.line, got, status, err, test.want)
			}
		})
	}
}

// errBusy is the answer of a server that throttles.
var errBusy = errors.New("busy")

// A plan counts with the pace that a gate has learned.
func TestPlan_Learned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		server, err := leaky.New(sluice.Rate{Count: 20, Per: time.Second, Burst: 5})
		if err != nil {
			t.Fatal(err)
		}
		g, err := sluice.New(sluice.Config{})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan bool)
		for range 16 {
			go func() {
				for range 60 {
					_ = sluice.Retry(context.Background(), g, func(context.Context) error {
						time.Sleep(50 * time.Millisecond)
						if !server.Take(1).Allowed() {
							return sluice.ThrottledFor(errBusy, 0)
						}
						return nil
					})
				}
				done <- true
			}()
		}
		for range 16 {
			<-done
		}
		write := func(name string, text []byte) {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		file := func(gates map[string][]byte) []byte {
			text, err := learned.Format(gates)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		fresh, err := sluice.New(sluice.Config{})
		if err != nil {
			t.Fatal(err)
		}
		write("one", file(map[string][]byte{"api": g.Snapshot()}))
		write("two", file(map[string][]byte{"api": g.Snapshot(), "b\x1b": g.Snapshot()}))
		write("none", file(map[string][]byte{}))
		write("snapshot", g.Snapshot())
		write("fresh", fresh.Snapshot())
		write("nonsense", []byte("nonsense"))
		for args, want := range map[string]string{
			"one":                "",
			"snapshot":           "",
			"one -gate api":      "",
			"two -gate api":      "",
			"two":                "-learned: give one of these as -gate: api, b\\x1b",
			"two -gate x":        `-learned: no gate "x", want one of api, b\x1b`,
			"one -gate x":        `-learned: no gate "x", want one of api`,
			"none":               "-learned: nothing had been learned",
			"fresh":              "-learned: nothing had been learned when",
			"nonsense":           "-learned: ",
			"missing":            "-learned: open ",
			"snapshot -gate api": "-learned: " + filepath.Join(dir, "snapshot") + " is not the file of a proxy, so leave out -gate",
		} {
			got, status, err := planned("-items 12000 -takes 50ms -learned " + filepath.Join(dir, args))
			if want != "" {
				if err == nil || !strings.HasPrefix(err.Error(), want) {
					t.Errorf("%s: %v, want %s", args, err, want)
				}
				continue
			}
			if err != nil || status != 0 || !strings.Contains(got, "They are limited by the learned limit of ") || !strings.Contains(got, ", in 10m") && !strings.Contains(got, ", in 9m") {
				t.Errorf("%s:\n%s%v", args, got, err)
			}
		}
	})
}

func TestOptions_Bad(t *testing.T) {
	for _, line := range []string{
		"", "-rate 5/s", "-items 0 -rate 5/s", "-items -1 -rate 5/s", "-items x -rate 5/s", "-items 5", "-items 5 -rate auto", "-items 5 -rate 5", "-items 5 -rate 5/s x",
		"-items 5 -rate 5/s -burst 0", "-items 5 -jobs -1 -takes 1s", "-items 5 -jobs 3", "-items 5 -rate 5/s -takes -1s", "-items 5 -rate 5/s -takes 5", "-items 5 -rate 5/s -gate x",
		"-items 5 -rate 5/s -by x", "-items 5 -rate 5/s -by 25:00", "-items 5 -rate 5/s -by 1999-12-31", "-items 5 -rate 5/s -by '2000-01-01 00:00'",
		"-items 5 -limit ''", "-items 5 -limit x", "-items 5 -limit 5", "-items 5 -limit auto", "-items 5 -limit '5/s type=x'", "-items 5 -limit '5/s type='", "-items 5 -limit '5/s kind'",
		"-items 5 -limit '5/s x=y'", "-items 5 -limit '5/s type=fixed type=fixed'", "-items 5 -limit '5/s unit=A'", "-items 5 -limit '5/s unit=tokens'", "-items 5 -limit '5/s burst=0'",
		"-items 5 -limit '5/s burst=x'", "-items 5 -limit '5/s type=fixed burst=3'", "-items 5 -limit '5/s zone=UTC'", "-items 5 -limit '5/s type=calendar'",
		"-items 5 -limit '5/day type=calendar zone=Nowhere/X'", "-items 5 -limit '0/day type=calendar'", "-items 5 -limit 'x/day type=calendar'", "-items 5 -limit 2000000/s",
		"-items 5 -limit '5/m' -limit '5/m'", "-items 5 -rate 5/s -cost tokens", "-items 5 -rate 5/s -cost tokens=-1", "-items 5 -rate 5/s -cost tokens=x", "-items 5 -rate 5/s -cost A=1",
		"-items 5 -rate 5/s -cost calls=1", "-items 5 -rate 5/s -cost cost=0", "-items 5 -rate 5/s -cost a=1 -cost a=2", "-items 5 -rate 5/s -cost =1", "-items 99999999999999999999 -rate 5/s",
	} {
		synctest.Test(t, func(t *testing.T) {
			if text, _, err := planned(line); !errors.Is(err, cli.ErrUsage) {
				t.Errorf("%s: %v\n%s", line, err, text)
			}
		})
	}
	if _, _, err := planned("-h"); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
}

// A time without a date is the next one.
func TestOptions_By(t *testing.T) {
	for text, want := range map[string]string{
		"06:00": "2000-01-01T06:00:00Z", "00:00": "2000-01-02T00:00:00Z", "'2000-01-03 07:30'": "2000-01-03T07:30:00Z", "2000-01-02": "2000-01-02T00:00:00Z",
		"2000-01-01T06:00:00+05:00": "2000-01-01T01:00:00Z", "06:00:01": "2000-01-01T06:00:01Z",
	} {
		synctest.Test(t, func(t *testing.T) {
			o, err := parseOptions(split("-items 1 -rate 1/s -by " + text))
			if err != nil || o.by.UTC().Format(time.RFC3339) != want {
				t.Errorf("%s: %v, %v; want %s", text, o, err, want)
			}
		})
	}
}
