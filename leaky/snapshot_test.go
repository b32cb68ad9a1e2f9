package leaky_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

var daily = limits.Rate{Count: 24, Per: 24 * time.Hour, Burst: 24}

func mustBucket(t testing.TB, q limits.Rate) *leaky.Bucket {
	t.Helper()
	b, err := leaky.New(q)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sealed makes a snapshot with a true checksum of whatever is in it.
func sealed(kind, state string) []byte {
	return fmt.Appendf(nil, `{"version":1,"crc32":%d,%q:%s}`, crc32.ChecksumIEEE([]byte(state)), kind, state)
}

// of returns a snapshot of q with the numbers at and level.
func of(q limits.Rate, at, level int64) []byte {
	return sealed("bucket", fmt.Sprintf(`{"capacity":%d,"count":%d,"per":%d,"at":%d,"level":%d}`, q.Burst, q.Count, q.Per, at, level))
}

// A program that is restarted, after whatever pause, has what it would have
// had without.
func TestSnapshot_RestartAddsNoUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hour = time.Hour
		for _, c := range []struct {
			taken, owed int64 // by Take, by Adjust
		}{{0, 0}, {1, 0}, {23, 0}, {24, 0}, {24, 1}, {24, 30}, {0, 100}} {
			for _, pause := range []time.Duration{0, 1, hour, hour + 1, 24*hour - 1, 24 * hour, 30 * hour, 1e5 * hour} {
				old := mustBucket(t, daily)
				old.Take(c.taken)
				old.Adjust(bg, c.owed, 0)
				time.Sleep(20*time.Minute + 7)
				saved := old.Snapshot()
				time.Sleep(pause)
				b := mustBucket(t, daily)
				if err := b.Restore(saved); err != nil {
					t.Fatal(err)
				}
				if got, want := b.Snapshot(), old.Snapshot(); !bytes.Equal(got, want) {
					t.Errorf("%v, pause of %v: %s, want %s", c, pause, got, want)
				}
				for _, later := range []time.Duration{0, 3 * hour, 39 * time.Minute, 19 * hour, 3 * hour} {
					time.Sleep(later)
					for _, n := range []int64{0, 1, 5, 24, 25} {
						want(t, fmt.Sprintf("%v, pause of %v, %d after %v", c, pause, n, later), b.Take(n), old.Take(n))
					}
				}
			}
		}
	})
}

// The day's allowance, in numbers.
func TestSnapshot_RestartOfAFullBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hour = time.Hour
		b := mustBucket(t, daily)
		b.Take(24)
		saved := b.Snapshot()
		time.Sleep(hour - 1)
		b = mustBucket(t, daily)
		if err := b.Restore(saved); err != nil {
			t.Fatal(err)
		}
		want(t, "a nanosecond before", b.Take(1), refused(24, 0, 1, 23*hour+1))
		time.Sleep(time.Nanosecond)
		want(t, "in time", b.Take(1), allowed(24, 0, 24*hour))

		b.Adjust(bg, 6, 0)
		saved = b.Snapshot()
		time.Sleep(2 * hour)
		b = mustBucket(t, daily)
		if err := b.Restore(saved); err != nil {
			t.Fatal(err)
		}
		want(t, "overdrawn", b.Take(1), refused(24, 0, 5*hour, 28*hour))
		if err := b.SetRate(limits.Rate{Count: 24, Per: 24 * hour, Burst: 12}); err != nil {
			t.Fatal(err)
		}
		want(t, "what is owed is not spilled", b.Take(0), allowed(12, 0, 16*hour))
	})
}

func TestSnapshot_Format(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where it is 2000
		b := limits.Must(leaky.New(limits.Rate{Count: 30, Per: time.Minute, Burst: 16}))
		format := func(want string) {
			t.Helper()
			if got := string(b.Snapshot()); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		format(`{"version":1,"crc32":1573073515,"bucket":{"capacity":16,"count":30,"per":60000000000,"at":946684800000000000,"level":0}}`)
		b.Take(16)
		time.Sleep(time.Nanosecond)
		format(`{"version":1,"crc32":2019924015,"bucket":{"capacity":16,"count":30,"per":60000000000,"at":946684800000000001,"level":31999999999}}`)
		b.Adjust(bg, 100, 0)
		format(`{"version":1,"crc32":1214551699,"bucket":{"capacity":16,"count":30,"per":60000000000,"at":946684800000000001,"level":231999999999}}`)
		time.Sleep(time.Hour)
		format(`{"version":1,"crc32":2106080848,"bucket":{"capacity":16,"count":30,"per":60000000000,"at":946688400000000001,"level":0}}`)

		b = limits.Must(leaky.New(limits.Rate{Count: 5000, Per: 24 * time.Hour, Burst: 100_000}))
		b.Adjust(bg, 99_999, 0)
		if n := len(b.Snapshot()); n > 150 {
			t.Errorf("%d bytes: %s", n, b.Snapshot())
		}
	})
}

// What happened to the wall clock between the snapshot and its restoration.
func TestSnapshot_AndTheClock(t *testing.T) {
	const (
		hour = int64(time.Hour)
		now  = 946_684_800*int64(time.Second) + 50*hour
	)
	for _, c := range []struct {
		what            string
		at, level, want int64
	}{
		{"this instant", now, 7 * hour, 7 * hour},
		{"a nanosecond ago", now - 1, 7 * hour, 7*hour - 1},
		{"put forward by 2 h", now - 2*hour, 7 * hour, 5 * hour},
		{"to a nanosecond before it is empty", now - 7*hour + 1, 7 * hour, 1},
		{"until it is empty", now - 7*hour, 7 * hour, 0},
		{"and beyond", now - 7*hour - 1, 7 * hour, 0},
		{"put back by a nanosecond", now + 1, 7 * hour, 7 * hour},
		{"put back by an hour", now + hour, 7 * hour, 7 * hour},
		{"put back by a century", now + 876_600*hour, 7 * hour, 7 * hour},
		{"overdrawn and put back", now + hour, 100 * hour, 100 * hour},
		{"overdrawn and put forward", now - hour, 100 * hour, 99 * hour},
		{"empty and put back", now + hour, 0, 0},
		{"as long ago as can be", math.MinInt64, math.MaxInt64, 0}, // an age of more than 64 bits
		{"before 1970", -1, now + 1, 0},
		{"before 1970, and not yet empty", -1, now + 2, 1},
		{"as far ahead as can be", math.MaxInt64, 7 * hour, 7 * hour},
		{"as full as can be", now, math.MaxInt64, math.MaxInt64},
		{"both", math.MaxInt64, math.MaxInt64, math.MaxInt64},
	} {
		synctest.Test(t, func(t *testing.T) { // where it is 2000
			time.Sleep(50 * time.Hour)
			b := mustBucket(t, daily)
			b.Take(3) // which Restore forgets
			if err := b.Restore(of(daily, c.at, c.level)); err != nil {
				t.Fatalf("%s: %v", c.what, err)
			}
			want(t, c.what, b.Take(0), allowed(24, max(0, (24*hour-c.want)/hour), time.Duration(c.want)))
			if c.want > 0 && c.want < 1000*hour { // from now on the monotonic clock is used
				time.Sleep(time.Duration(c.want) - 1)
				want(t, c.what+", later", b.Take(24), refused(24, 23, 1, 1))
				time.Sleep(time.Nanosecond)
				want(t, c.what+", and then", b.Take(24), allowed(24, 0, 24*time.Hour))
			}
		})
	}
}

// A clock that is put back before each of many restarts: nothing is minted,
// and what leaks while a program runs is not lost.
func TestSnapshot_ClockPutBackAgainAndAgain(t *testing.T) {
	var saved []byte
	for restart := range 5 {
		synctest.Test(t, func(t *testing.T) { // where it is 2000, each time
			b := mustBucket(t, daily)
			if restart == 0 {
				b.Take(20)
			} else if err := b.Restore(saved); err != nil {
				t.Fatal(err)
			}
			want(t, fmt.Sprint(restart), b.Take(0), allowed(24, 4+int64(restart), time.Duration(20-restart)*time.Hour))
			time.Sleep(time.Hour)
			saved = b.Snapshot()
		})
	}
}

// A bucket whose times count from long ago can be as full for as long as
// any: to the end of the range.
func TestRestore_IntoAnOldBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const old = 100 * 365 * 24 * time.Hour
		b := mustBucket(t, daily)
		time.Sleep(old)
		now := time.Now().UnixNano()
		for _, level := range []int64{0, 1, math.MaxInt64 - int64(old), math.MaxInt64 - int64(old) + 1, math.MaxInt64} {
			if err := b.Restore(of(daily, now, level)); err != nil {
				t.Fatal(err)
			}
			if got, want := b.Take(0).ResetAfter, time.Duration(min(level, math.MaxInt64-int64(old))); got != want {
				t.Errorf("level %d: %v, want %v", level, got, want)
			}
			if r := b.Take(24); r.Allowed() != (level == 0) {
				t.Errorf("level %d: %+v", level, r)
			}
		}

		// What Snapshot writes then can be read: it is no time, but a level.
		b.Adjust(bg, math.MaxInt64, 0)
		fresh := mustBucket(t, daily)
		if err := fresh.Restore(b.Snapshot()); err != nil {
			t.Error(err)
		}
		want(t, "as old", fresh.Take(0), b.Take(0))
	})
}

// Nothing that is not a snapshot of the same rate changes anything.
func TestRestore_BadSnapshotsChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mustBucket(t, daily)
		b.Take(10)
		time.Sleep(30 * time.Minute)
		good := b.Snapshot()
		b.Take(7)
		before := b.Take(0)
		fails := func(data []byte, err error) {
			t.Helper()
			got := b.Restore(data)
			if !errors.Is(got, err) || !strings.HasPrefix(got.Error(), "sluice: ") {
				t.Errorf("%s: %v, want %v", data, got, err)
			}
			if after := b.Take(0); after != before {
				t.Fatalf("%s: changed to %+v from %+v", data, after, before)
			}
		}
		for i := range good {
			fails(good[:i], limits.ErrSnapshot)
			for _, c := range []byte{'0', '7', ' ', '}', 'x', good[i] ^ 1} {
				bad := bytes.Clone(good)
				if bad[i] = c; !bytes.Equal(bad, good) {
					fails(bad, limits.ErrSnapshot)
				}
			}
		}
		for _, tail := range []string{string(good), "}", "]", "0"} {
			fails(append(bytes.Clone(good), tail...), limits.ErrSnapshot)
		}
		for _, data := range []string{"", "null", "0", "[]", "{}", `{"version":1}`} {
			fails([]byte(data), limits.ErrSnapshot)
		}
		fails(bytes.Replace(good, []byte(`"version":1`), []byte(`"version":2`), 1), limits.ErrSnapshot)

		day := time.Now().Truncate(24 * time.Hour).Add(24 * time.Hour)
		time.Sleep(time.Until(day))
		before = b.Take(0)
		fails(limits.Must(window.NewSliding(window.Quota{Limit: 24, Window: 24 * time.Hour})).Snapshot(), limits.ErrSnapshot)
		fails(limits.Must(window.NewFixed(window.Quota{Limit: 24, Window: 24 * time.Hour})).Snapshot(), limits.ErrSnapshot)
		if err := limits.Must(window.NewSliding(window.Quota{Limit: 24, Window: 24 * time.Hour})).Restore(good); !errors.Is(err, limits.ErrSnapshot) {
			t.Errorf("a bucket as a log: %v", err)
		}

		for _, q := range []limits.Rate{
			{Count: 24, Per: 24 * time.Hour, Burst: 23}, {Count: 25, Per: 24 * time.Hour, Burst: 24}, {Count: 24, Per: 25 * time.Hour, Burst: 24},
			{Count: 1, Per: time.Hour, Burst: 24}, // the same rate, said in another way
		} {
			fails(mustBucket(t, q).Snapshot(), limits.ErrSnapshot)
		}

		// Indented, it is the same.
		var pretty bytes.Buffer
		json.Indent(&pretty, good, "", "  ")
		if err := b.Restore(pretty.Bytes()); err != nil {
			t.Error(err)
		}
		want(t, "pretty", b.Take(0), allowed(24, 24, 0)) // of yesterday
	})
}

// A true checksum over impossible numbers.
func TestRestore_ImpossibleNumbers(t *testing.T) {
	b := mustBucket(t, daily)
	b.Take(10)
	for _, c := range []struct {
		state string
		want  error
	}{
		{`{"capacity":24,"count":24,"per":86400000000000,"at":1,"level":-1}`, limits.ErrSnapshot},
		{`{"capacity":24,"count":24,"per":86400000000000,"at":1,"level":-9223372036854775808}`, limits.ErrSnapshot},
		{`{"capacity":24,"count":24,"per":86400000000000,"at":1,"level":9223372036854775808}`, limits.ErrSnapshot},
		{`{"capacity":24,"count":24,"per":86400000000000,"at":9223372036854775808,"level":1}`, limits.ErrSnapshot},
		{`{"capacity":24,"count":24,"per":86400000000000,"at":1e400,"level":1}`, limits.ErrSnapshot},
		{`{"capacity":24,"count":24,"per":86400000000000,"at":1,"level":1.5}`, limits.ErrSnapshot},
		{`{"capacity":24,"count":24,"per":86400000000000,"at":1,"level":"1"}`, limits.ErrSnapshot},
		{`{"capacity":24,"count":24,"per":86400000000000,"at":1,"level":null}`, limits.ErrSnapshot},
		{`{"capacity":24,"count":24,"per":86400000000000,"at":1}`, limits.ErrSnapshot}, // would be empty
		{`{"capacity":24,"count":24,"per":86400000000000,"level":1}`, limits.ErrSnapshot},
		{`{"capacity":24,"count":24,"per":86400000000000,"at":1,"level":1,"more":1}`, limits.ErrSnapshot},
		{`{"capacity":24,"count":24,"per":86400000000000,"at":1,"level":2,"level":1}`, limits.ErrSnapshot},
		{`{"capacity":24,"count":24,"per":86400000000000,"at":1,"Level":1}`, limits.ErrSnapshot},
		// No bucket has such a rate, let alone this one.
		{`{"capacity":0,"count":24,"per":86400000000000,"at":1,"level":1}`, limits.ErrSnapshot},
		{`{"capacity":24,"count":-1,"per":86400000000000,"at":1,"level":1}`, limits.ErrSnapshot},
		{`{"capacity":24,"count":24,"per":0,"at":1,"level":1}`, limits.ErrSnapshot},
		{`{"capacity":24,"count":24,"per":1,"at":1,"level":1}`, limits.ErrSnapshot},
		{`{"capacity":9223372036854775807,"count":24,"per":86400000000000,"at":1,"level":1}`, limits.ErrSnapshot},
		{`{"capacity":25,"count":24,"per":86400000000000,"at":1,"level":1}`, limits.ErrSnapshot},
		{"null", limits.ErrSnapshot}, {"7", limits.ErrSnapshot}, {"[]", limits.ErrSnapshot}, {"{}", limits.ErrSnapshot},
	} {
		if err := b.Restore(sealed("bucket", c.state)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.state, err, c.want)
		}
		if r := b.Take(0); r.Remaining != 14 {
			t.Fatalf("%s: changed to %+v", c.state, r)
		}
	}
	if err := b.Restore(sealed("bucket", `{"capacity":24,"count":24,"per":86400000000000,"at":1,"level":1}`)); err != nil || b.Take(0).Remaining != 24 {
		t.Errorf("%v, %+v", err, b.Take(0)) // or the table shows nothing
	}
}

// # Random histories

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
// in good form. What is rejected changes nothing; what is accepted makes a
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
