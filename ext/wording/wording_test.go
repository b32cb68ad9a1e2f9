package wording

import (
	"testing"
	"time"
)

// The packages that it stands for have their own tests.
func TestWording(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for got, want := range map[string]string{
		Clean("see https://u:secret@host/a?key=b\n"):       "see https://host/a ",
		Rough(125 * time.Second):                           "2 min 5 s",
		Clock(now.Add(time.Hour), now):                     "13:00:00",
		Grouped("-1234567"):                                "-1,234,567",
		Pause("429 token=x", now.Add(42*time.Second), now): "for the pause (429 token=…), for another 42 s",
		Pause("", now.Add(time.Minute), now):               "for the pause, until 12:01:00 (1 min)",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
