package main

import "time"

// A result is what one run has shown. README.md says what each figure means.
type result struct {
	Server  string  `json:"server"`
	Group   string  `json:"group"`
	Client  string  `json:"client"`
	Seed    uint64  `json:"seed"`
	Lasts   float64 `json:"for_s"` // as -for says
	Score   float64 `json:"score"`
	Goodput float64 `json:"goodput"`
	Refused float64 `json:"refused"` // share of the requests on the wire
	Later   float64 `json:"later"`   // the same, after the first 30 answers
	Items   int     `json:"items"`
	Done    int     `json:"done"`
	Lost    int     `json:"lost"` // neither done nor lost: the run was cut off
	Sent    int     `json:"sent"` // requests on the wire
	Seconds float64 `json:"seconds"`
	Ideal   float64 `json:"ideal_s"`           // the least seconds for all items
	Late    float64 `json:"late_ms,omitempty"` // in real time: how late a sleeping goroutine was woken, p99
	Said    string  `json:"said,omitempty"`    // what the gate says of itself at the end
	Why     string  `json:"why,omitempty"`     // why the first item was lost
	Shares  []share `json:"shares,omitempty"`  // of clients that share a limit
}

// A share is what one of several clients was granted while all of them ran.
type share struct {
	Client    string  `json:"client"`
	PerSecond float64 `json:"per_second"`
}

// firstAnswers is how many answers a client gets for free in result.Later.
const firstAnswers = 30

// count counts requests, by the time of the answer.
func (r *result) count(seen []sight) {
	refused, later := 0, 0
	for i, x := range seen {
		if x.refused {
			refused++
			if i >= firstAnswers {
				later++
			}
		}
	}
	r.Sent = len(seen)
	r.Refused = float64(refused) / float64(max(1, len(seen)))
	r.Later = float64(later) / float64(max(1, len(seen)-firstAnswers))
}

func grantedUntil(seen []sight, end time.Duration) (n float64) {
	for _, x := range seen {
		if !x.refused && x.back <= end {
			n++
		}
	}
	return n
}

// judge computes the figures that compare the run with an ideal one.
func (r *result) judge(l limit, start time.Time) {
	r.Ideal = l.ideal(float64(r.Items), start)
	if r.Seconds > 0 {
		r.Goodput = l.ideal(float64(r.Done), start) / r.Seconds
	}
	r.Score = 100 * min(1, r.Goodput) * (1 - r.Refused) * float64(r.Done) / float64(max(1, r.Items))
}

// tooLate is the lateness, in ms, above which a run says more of the machine than of the
// client. Such runs are marked and do not count.
const tooLate = 60

func (r *result) bad() bool { return r.Late > tooLate }
