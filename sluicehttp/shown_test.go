package sluicehttp_test

import (
	"math"
	"testing"

	"github.com/sluice-go/sluice/sluicehttp"
)

// Each bucket refills at 6,000 per minute unless its name says otherwise. The first response
// is believed to publish an amount per minute, or less if the reset is later; two responses
// show the rate, whatever is published.
func TestConfig_Cost_RefillOfABucket(t *testing.T) {
	const isWindow = 0
	for name, c := range map[string]struct {
		most float64
		seen [][2]float64 // what remains, seconds until the reset
		want []float64    // per minute
	}{
		"amount of a minute":           {6000, [][2]float64{{5000, 10}, {4000, 20}}, []float64{6000, 6000}},
		"more than it holds":           {6000, [][2]float64{{9000, 10}}, []float64{6000}},
		"full":                         {6000, [][2]float64{{6000, 0}}, []float64{6000}},
		"smaller than it says":         {6000, [][2]float64{{900, 1.001}, {500, 5.002}}, []float64{6000, 6000}},
		"its size is published":        {1000, [][2]float64{{900, 1.001}, {500, 5.001}}, []float64{1000, 6000}},
		"of a day, 200":                {200, [][2]float64{{199, 432}, {190, 4320}}, []float64{60. / 431, 60. / 432}},
		"of a day, reset rounded up":   {200, [][2]float64{{198, 865}}, []float64{2 * 60. / 864}},
		"seconds, rounded up":          {50, [][2]float64{{49, 2}, {47, 4}, {37, 16}}, []float64{50, 50, 50}},
		"a window, not a bucket":       {100, [][2]float64{{90, 50}, {60, 20}, {20, 5}}, []float64{10 * 60. / 49, isWindow, isWindow}},
		"other amounts from now on":    {6000, [][2]float64{{5000, 10}}, []float64{6000}},
		"nothing changes but the time": {6000, [][2]float64{{5000, 10}, {5000, 30}}, []float64{6000, 1000 * 60. / 29}},
	} {
		t.Run(name, func(t *testing.T) {
			for i, got := range sluicehttp.RefillRates(c.most, c.seen...) {
				if math.Abs(got-c.want[i]) > 0.001*c.want[i] {
					t.Errorf("response %d: %.3f per minute, want %.3f", i+1, got, c.want[i])
				}
			}
		})
	}
}
