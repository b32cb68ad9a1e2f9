package leaky_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// Over random histories, a bucket that is restarted now and then decides
// exactly as one that is not.
func TestSnapshot_RestartsChangeNothing(t *testing.T) {
	restarts, overdrawn, refusals := 0, 0, 0
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			some := func() time.Duration { return fuzzTimes[rnd.IntN(len(fuzzTimes))] }
			q := fuzzRates[rnd.IntN(len(fuzzRates))]
			old, b := mustBucket(t, q), mustBucket(t, q)
			for step := range 200 {
				n := rnd.Int64N(q.Burst + 2)
				if rnd.IntN(2) == 0 {
					n = rnd.Int64N(4)
				}
				switch rnd.IntN(8) {
				case 0, 1, 2:
					got, wanted := b.Take(n), old.Take(n)
					want(t, fmt.Sprintf("seed %d, step %d: Take(%d) of %v", seed, step, n, q), got, wanted)
					if !got.Allowed() {
						refusals++
					}
				case 3:
					b.Adjust(bg, -n, 0)
					old.Adjust(bg, -n, 0)
				case 4: // some of which overdraws, but never by so much that it stops at the end of the range
					if n*int64(q.Per)/q.Count < int64(1000*time.Hour) {
						b.Adjust(bg, n, 0)
						old.Adjust(bg, n, 0)
					}
				case 5:
					time.Sleep(some())
				case 6:
					if rnd.IntN(3) == 0 {
						q = fuzzRates[rnd.IntN(len(fuzzRates))]
						if err := errors.Join(b.SetRate(q), old.SetRate(q)); err != nil {
							t.Fatal(err)
						}
					}
				case 7:
					restarts++
					saved := b.Snapshot()
					if rnd.IntN(2) == 0 {
						time.Sleep(some())
					}
					b = mustBucket(t, q)
					time.Sleep(time.Duration(rnd.IntN(3)))
					if err := b.Restore(saved); err != nil {
						t.Fatal(err)
					}
				}
				if b.Take(0).ResetAfter > q.Per/time.Duration(q.Count)*time.Duration(q.Burst) {
					overdrawn++
				}
				want(t, fmt.Sprintf("seed %d, step %d: Take(0) of %v", seed, step, q), b.Take(0), old.Take(0))
				if t.Failed() {
					t.FailNow()
				}
			}
		})
	}
	if restarts < 5000 || overdrawn < 500 || refusals < 500 {
		t.Errorf("%d restarts, overdrawn after %d steps, %d refusals: too few to show anything", restarts, overdrawn, refusals)
	}
}

// FuzzSnapshot restores anything: bytes, bytes under a true checksum, numbers
// in good form. What is refused changes nothing; what is accepted makes a
// bucket like any other, as full as it says.
func FuzzSnapshot(f *testing.F) {
	good := mustBucket(f, daily)
	good.Take(5)
	f.Add(good.Snapshot(), int64(0), int64(0))
	f.Add([]byte(`{"capacity":24,"count":24,"per":86400000000000,"at":946684800000000000,"level":7}`), int64(946684800000000000), int64(time.Hour))
	f.Add([]byte(`{"version":1,"crc32":0,"bucket":{}}`), int64(math.MinInt64), int64(math.MaxInt64))
	f.Add([]byte("null"), int64(math.MaxInt64), int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, data []byte, at, level int64) {
		synctest.Test(t, func(t *testing.T) {
			restoreAnything(t, data)
			restoreAnything(t, sealed("bucket", string(data)))
			if accepted := restoreAnything(t, of(daily, at, level)); accepted != (level >= 0) {
				t.Errorf("accepted: %v, with a level of %d", accepted, level)
			}
		})
	})
}

func restoreAnything(t *testing.T, data []byte) (accepted bool) {
	t.Helper()
	b := mustBucket(t, daily)
	b.Take(2)
	before := b.Take(0)
	if err := b.Restore(data); err != nil {
		if !errors.Is(err, limits.ErrSnapshot) {
			t.Errorf("%s: %v", data, err)
		}
		if after := b.Take(0); after != before {
			t.Errorf("%s: %v, and changed to %+v", data, err, after)
		}
		return false
	}
	var s struct {
		Bucket struct{ At, Level *big.Int }
	}
	if err := json.Unmarshal(data, &s); err != nil || s.Bucket.At == nil || s.Bucket.Level == nil {
		t.Fatalf("accepted: %s, %v", data, err)
	}
	m := newModel(daily)
	m.level = s.Bucket.Level
	if age := new(big.Int).Sub(big.NewInt(time.Now().UnixNano()), s.Bucket.At); age.Sign() > 0 {
		m.add(age.Neg(age))
	}
	want(t, string(data), b.Take(0), m.take(0))

	again := mustBucket(t, daily)
	if err := again.Restore(b.Snapshot()); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	want(t, "restored again", again.Take(0), b.Take(0))
	for _, n := range []int64{1, 30, 24, 3} {
		time.Sleep(9 * time.Hour)
		m.leak(m.now + 9*time.Hour)
		want(t, fmt.Sprintf("%s: later", data), b.Take(n), m.take(n))
	}
	return true
}
