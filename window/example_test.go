package window_test

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

// At most three in any hour. A rejection is not counted, and says when to retry.
func Example() {
	quota := limits.Must(window.NewSliding(window.Quota{Limit: 3, Window: time.Hour}))
	for range 4 {
		r := quota.Take(1)
		fmt.Println(r.Allowed(), r.Remaining, r.RetryAfter.Round(time.Minute))
	}
	// Output:
	// true 2 0s
	// true 1 0s
	// true 0 0s
	// false 0 1h0m0s
}

// 5,000 per day from 00:00 in Berlin, next to 300 in any 20 s.
func ExampleNewFixed_calendar() {
	berlin := time.FixedZone("CET", 3600) // or time.LoadLocation("Europe/Berlin")
	daily := limits.Must(window.NewFixed(window.Quota{Limit: 5000, Per: window.Day, Location: berlin}))
	gate, err := sluice.New(sluice.Config{Limits: []sluice.Limit{
		{Name: "daily", Limiter: daily},
		{Name: "burst", Limiter: limits.Must(window.NewSliding(window.Quota{Limit: 300, Window: 20 * time.Second}))},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	permit, err := gate.Acquire(context.Background(), 120)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer permit.Release()
	now := daily.Take(0)
	fmt.Println(now.Remaining, "of", now.Limit)
	// Output: 4880 of 5000
}

// A batch that is restarted goes on with what is left of the day.
func ExampleCounter_Restore() {
	first := limits.Must(window.NewFixed(window.Quota{Limit: 5000, Window: 24 * time.Hour}))
	first.Take(4000)
	saved := first.Snapshot() // to a file, say

	second := limits.Must(window.NewFixed(window.Quota{Limit: 5000, Window: 24 * time.Hour}))
	if err := second.Restore(saved); err != nil {
		fmt.Println(err)
	}
	fmt.Println(second.Take(0).Remaining, "left")

	other := limits.Must(window.NewFixed(window.Quota{Limit: 9999, Window: 24 * time.Hour}))
	fmt.Println(other.Restore(saved))
	// Output:
	// 1000 left
	// sluice: snapshot not restored: quota of 5000 per 24h0m0s, not 9999 per 24h0m0s
}

func ExampleKeyed() {
	perUser, err := window.NewKeyedSliding[string](window.Quota{Limit: 2, Window: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, user := range []string{"ann", "ann", "bob", "ann"} {
		fmt.Println(user, perUser.Take(user, 1).Allowed())
	}
	// Output:
	// ann true
	// ann true
	// bob true
	// ann false
}
