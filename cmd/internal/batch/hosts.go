package batch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-go/sluice/batch"
	"github.com/sluice-go/sluice/cmd/internal/cli"
)

// hosts are those that are set aside.
type hosts struct {
	mu       sync.Mutex
	aside    map[string]batch.GroupState
	news     []string // what has happened, to be printed
	failures *failures
}

// why is why a host is set aside. Of attempts of items that are not done yet batch does not
// know it.
func (h *hosts) why(s batch.GroupState) string {
	if text := h.failures.why(s.Group); text != "" {
		return text
	}
	return reason(s.Why)
}

// changed is batch.Suspend.Changed. It must not block, so others print.
func (h *hosts) changed(s batch.GroupState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, was := h.aside[s.Group]
	switch {
	case s.Why == nil:
		delete(h.aside, s.Group)
		h.say(s.Group, "is back")
		return
	case !was:
		h.say(s.Group, "is set aside, too many attempts in a row have failed: "+h.why(s))
	case s.Failing && !before.Failing:
		h.say(s.Group, "still fails, and so do its items until it is back: "+h.why(s))
	}
	if h.aside == nil {
		h.aside = make(map[string]batch.GroupState)
	}
	h.aside[s.Group] = s
}

// say adds news. Of hundreds of dead hosts they would fill the screen, and the display has a
// line for how many there are.
func (h *hosts) say(group, what string) {
	const most = 1000
	if len(h.news) < most {
		h.news = append(h.news, cli.Plain(cmp.Or(group, "the command")+" "+what, cli.MostOfError))
	}
}

// takeNews returns what has happened since the call before.
func (h *hosts) takeNews() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	news := h.news
	h.news = nil
	return news
}

// lines has a line for each host that is set aside, and one for those beyond most.
func (h *hosts) lines(most int) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var lines []string
	for _, group := range slices.Sorted(maps.Keys(h.aside)) {
		if len(lines) == most {
			return append(lines, fmt.Sprintf("%d more are set aside", len(h.aside)-most))
		}
		s := h.aside[group]
		what := "its items wait"
		if s.Failing {
			what = "its items fail"
		}
		line := fmt.Sprintf("%s set aside, %s; tried again at %s (%s)", cmp.Or(group, "the command"), what, ceil(s.Probe), h.why(s))
		lines = append(lines, cli.Plain(line, cli.MostOfError))
	}
	return lines
}

// ceil writes a time, never too early: that of the day, with the date if it is not within a day.
func ceil(t time.Time) string {
	layout := time.TimeOnly
	if time.Until(t) > 24*time.Hour {
		layout = time.DateTime
	}
	return t.Add(time.Second - 1).Truncate(time.Second).Format(layout)
}
