package sdktest

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-go/sluice/sluicehttp"
)

var picture = flag.Bool("picture", false, "write the run that examples/timeline draws")

// A seen is what the server saw of a job: the first picture of the README.
type seen struct {
	Calls     int   `json:"calls"`
	Succeeded int   `json:"succeeded"`
	Accepted  []int `json:"accepted"`  // requests with status 200, by the second in which they arrived
	Throttled []int `json:"throttled"` // with status 429
}

func (j job) seen(t *testing.T, name string) seen {
	y := j.run(t, name)
	s := seen{Calls: j.calls, Succeeded: y.ok}
	for _, r := range y.record.Requests {
		at := int(r.Arrived / time.Second)
		for len(s.Accepted) <= at {
			s.Accepted, s.Throttled = append(s.Accepted, 0), append(s.Throttled, 0)
		}
		switch r.Status {
		case 200:
			s.Accepted[at]++
		case 429:
			s.Throttled[at]++
		}
	}
	return s
}

func sum(counts []int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// The picture shows one run; backoffs are random, so others differ a little. After a change:
//
//	go test -run TestPicture ./sluicehttp/sdktest -picture && go run ./examples/timeline
func TestPicture(t *testing.T) {
	name := filepath.Join("..", "..", "examples", "timeline", "sdk.json")
	through := openaiJob(nil)
	through.through = &sluicehttp.Config{}
	now := map[string]seen{"alone": openaiJob(nil).seen(t, "alone"), "through": through.seen(t, "through Sluice")}
	if *picture {
		text, err := json.Marshal(now)
		if err == nil {
			err = os.WriteFile(name, append(text, '\n'), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var shown map[string]seen
	if err := json.Unmarshal(text, &shown); err != nil {
		t.Fatal(err)
	}
	if a := now["alone"].Succeeded; a < 77 || a > 85 {
		t.Errorf("%d calls succeed alone, the README says 77 to 85", a)
	}
	if now["through"].Succeeded != 300 {
		t.Errorf("%d of 300 calls succeed through Sluice", now["through"].Succeeded)
	}
	for which, s := range shown {
		for what, pair := range map[string][2]int{
			"calls succeed":          {s.Succeeded, now[which].Succeeded},
			"requests are throttled": {sum(s.Throttled), sum(now[which].Throttled)},
			"seconds":                {len(s.Accepted), len(now[which].Accepted)},
		} {
			if most := max(pair[0], pair[1]); 5*(pair[0]-pair[1]) > most+10 || 5*(pair[1]-pair[0]) > most+10 {
				t.Errorf("%s: the picture shows that %d %s, and now %d", which, pair[0], what, pair[1])
			}
		}
	}
}
