// Daily is a first guess at a quota for each day.
package main

import (
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/window"
)

func main() {
	daily, err := window.NewFixed(window.Quota{Limit: 5000, Per: window.Day})
	if err != nil {
		panic(err)
	}
	g, err := sluice.New(sluice.Config{Rate: sluice.Rate{Count: 2, Per: time.Second}, Limits: []sluice.Limit{{Name: "daily", Limiter: daily}}})
	_, _ = g, err
}
