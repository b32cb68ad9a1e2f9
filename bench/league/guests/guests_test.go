package guests

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestEnter_Refuses(t *testing.T) {
	defer func(before []Guest) { All = before }(All)
	for _, name := range []string{"", "cinnamon"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q: no panic", name)
				}
			}()
			Enter(name, "", func(World) Strategy { return nil })
		}()
	}
	Enter("another", "", func(World) Strategy { return nil })
	if last := All[len(All)-1]; last.Name != "another" {
		t.Error(last)
	}
}

func TestBackoff(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 50 {
		if d := Backoff(r, n+1, Reply{}); d < 0 || d > 20*time.Second {
			t.Error(n, d)
		}
		if d := Backoff(r, n+1, Reply{RetryAfter: time.Minute}); d != time.Minute {
			t.Error(n, d)
		}
	}
}

// run lets calls end in c for a while, of a server with so many places of 100 ms.
func run(c *cinnamon, places float64) {
	owed := 0.
	for now := time.Duration(0); now < 20*time.Minute; now += 10 * time.Millisecond {
		n := float64(int(c.limit))
		latency := time.Duration(float64(100*time.Millisecond) * max(1, n/places))
		for owed += min(n, places) / 10; owed >= 1; owed-- {
			c.Done(Call{Left: now - latency, Ended: now, InFlight: int(n) - 1, Reply: Reply{OK: true}})
		}
	}
}

// The limit stays near the number of places, whatever it begins at.
func TestCinnamon_FindsThePlaces(t *testing.T) {
	for _, places := range []float64{5, 20, 50} {
		for _, start := range []float64{1, 20, 500} {
			c := &cinnamon{World: World{Rand: rand.New(rand.NewPCG(1, 2))}, limit: start}
			run(c, places)
			if c.limit < places/2 || c.limit > 2*places+20 {
				t.Errorf("%g places, from %g: a limit of %g", places, start, c.limit)
			}
			if c.Leave(0, int(c.limit), 1) != Never || c.Leave(7, int(c.limit)-1, 1) != 7 {
				t.Error("it does not limit")
			}
		}
	}
}

func TestCovariance(t *testing.T) {
	x := []float64{1, 2, 3}
	if up, down := covariance(x, []float64{2, 4, 6}), covariance(x, []float64{3, 2, 1}); up <= 0 || down >= 0 {
		t.Error(up, down)
	}
}
