package window_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

// A program that is restarted, after whatever pause, has what it would have
// had without.
func TestSnapshot_RestartAddsNoUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hour = time.Hour
		for _, pause := range []time.Duration{0, 1, hour, 5*hour - 1, 5 * hour, 17*hour - 1, 17 * hour, 24*hour - 1, 24 * hour, 100 * hour, 1e5 * hour} {
			time.Sleep(time.Until(time.Now().Truncate(24 * hour).Add(24 * hour))) // midnight
			old := kinds(100)
			for _, l := range old {
				l.Take(30)
			}
			time.Sleep(5 * hour)
			for _, l := range old {
				l.Take(20)
				l.Take(1)
				l.Adjust(bg, 60, 0) // debt
			}
			time.Sleep(2 * hour)
			saved := map[string][]byte{}
			for name, l := range old {
				saved[name] = l.Snapshot()
			}
			time.Sleep(pause)
			for name, l := range kinds(100) {
				if err := l.Restore(saved[name]); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				for _, later := range []time.Duration{0, 3 * hour, 19 * hour, 3 * hour} {
					time.Sleep(later)
					for _, n := range []int64{0, 1, 30, 100} {
						want(t, fmt.Sprintf("%s, pause of %v, %d after %v", name, pause, n, later), l.Take(n), old[name].Take(n))
					}
				}
				if got, want := l.Snapshot(), old[name].Snapshot(); !bytes.Equal(got, want) {
					t.Errorf("%s, pause of %v: %s, want %s", name, pause, got, want)
				}
			}
		}
	})
}

func TestSnapshot_Format(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			l    limit
			want string
		}{
			{limits.Must(window.NewSliding(window.Quota{Limit: 100, Window: time.Minute})), `{"version":1,"crc32":3047388921,"sliding":{"limit":100,"window":60000000000,"taken":[[946684800000000000,3],[946684801000000000,3]]}}`},
			{limits.Must(window.NewFixed(window.Quota{Limit: 100, Window: time.Minute})), `{"version":1,"crc32":1,"fixed":{"limit":100,"window":60000000000,"at":946684800000000000,"used":6}}`},
			{limits.Must(window.NewFixed(window.Quota{Limit: 100, Per: window.Week, Location: time.UTC})), `{"version":1,"crc32":1,"fixed":{"limit":100,"calendar":"week","location":"UTC","at":946684802000000000,"used":6}}`},
		} {
			time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)))
			fresh := c.l.Snapshot()
			_ = fresh
			at := time.Now()
			c.l.Take(3)
			time.Sleep(time.Second)
			c.l.Take(2)
			c.l.Take(1)
			time.Sleep(time.Second)
			// Each of them two seconds later than the one before.
			got := string(c.l.Snapshot())
			shift := at.UnixNano() - 946684800000000000
			for _, instant := range []int64{946684800000000000, 946684801000000000, 946684802000000000} {
				got = strings.ReplaceAll(got, fmt.Sprint(instant+shift), fmt.Sprint(instant))
			}
			if cut(got) != cut(c.want) {
				t.Errorf("%s, want %s", got, c.want)
			}
		}
	})
}

// cut removes the checksum.
func cut(s string) string {
	i, j := strings.Index(s, `"crc32":`), strings.Index(s, `,"sliding"`)
	if j < 0 {
		j = strings.Index(s, `,"fixed"`)
	}
	return s[:i] + s[j:]
}

// sealed makes a snapshot with a true checksum of whatever is in it.
func sealed(kind, state string) []byte {
	return fmt.Appendf(nil, `{"version":1,"crc32":%d,%q:%s}`, crc32.ChecksumIEEE([]byte(state)), kind, state)
}

// Nothing that is not a snapshot of the same quota changes anything.
func TestRestore_BadSnapshotsChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, l := range kinds(100) {
			l.Take(10)
			time.Sleep(time.Hour)
			l.Take(10)
			good := l.Snapshot()
			l.Take(7)
			before := string(l.Snapshot())
			fails := func(data []byte, want error) {
				t.Helper()
				if err := l.Restore(data); !errors.Is(err, want) {
					t.Errorf("%s: %s: %v, want %v", name, data, err, want)
				}
				if got := string(l.Snapshot()); got != before {
					t.Fatalf("%s: %s: changed to %s from %s", name, data, got, before)
				}
			}
			for i := range good {
				fails(good[:i], limits.ErrSnapshot)
				for _, b := range []byte{'0', '7', ' ', '}', 'x', good[i] ^ 1} {
					bad := bytes.Clone(good)
					if bad[i] = b; bytes.Equal(bad, good) {
						continue
					}
					fails(bad, limits.ErrSnapshot)
				}
			}
			for _, tail := range []string{string(good), "}", "]", ",", "0", "\x00"} {
				fails(append(bytes.Clone(good), tail...), limits.ErrSnapshot)
			}
			for _, data := range []string{"", "null", "0", "[]", "{}", `{"version":1}`, `{"version":1,"crc32":0}`} {
				fails([]byte(data), limits.ErrSnapshot)
			}
			fails(bytes.Replace(good, []byte(`"version":1`), []byte(`"version":2`), 1), limits.ErrSnapshot)

			others := kinds(101)
			for other, l := range kinds(100) {
				if other != name {
					others[other+" of the same limit"] = l
				}
			}
			others["hourly"] = limits.Must(window.NewSliding(window.Quota{Limit: 100, Window: time.Hour}))
			others["hourly fixed"] = limits.Must(window.NewFixed(window.Quota{Limit: 100, Window: time.Hour}))
			others["weekly"] = limits.Must(window.NewFixed(window.Quota{Limit: 100, Per: window.Week}))
			others["elsewhere"] = limits.Must(window.NewFixed(window.Quota{Limit: 100, Per: window.Day, Location: time.FixedZone("<elsewhere>", 3600)}))
			for other, o := range others {
				o.Take(1)
				data := o.Snapshot()
				fails(data, limits.ErrSnapshot)
				if err := l.Restore(data); err == nil || !strings.HasPrefix(err.Error(), "sluice: ") {
					t.Errorf("%s of %s: %v", name, other, err)
				}
			}

			// Indented, it is the same.
			var pretty bytes.Buffer
			json.Indent(&pretty, good, "", "  ")
			if err := l.Restore(pretty.Bytes()); err != nil || l.Take(0).Remaining != 80 {
				t.Errorf("%s: %v, %+v", name, err, l.Take(0))
			}
		}
	})
}

// A true checksum over impossible numbers.
func TestRestore_ImpossibleNumbers(t *testing.T) {
	l, c, d := limits.Must(window.NewSliding(window.Quota{Limit: 5, Window: time.Hour})), limits.Must(window.NewFixed(window.Quota{Limit: 5, Window: time.Hour})), limits.Must(window.NewFixed(window.Quota{Limit: 5, Per: window.Day}))
	for _, taken := range []string{"[[1,0]]", "[[1,-1]]", "[[2,1],[1,1]]", "[[1,9223372036854775807],[1,1]]"} {
		if err := l.Restore(sealed("sliding", `{"limit":5,"window":3600000000000,"taken":`+taken+`}`)); !errors.Is(err, limits.ErrSnapshot) {
			t.Errorf("%s: %v", taken, err)
		}
	}
	for _, state := range []string{`{"limit":5,"window":3600000000000,"taken":[[1,1]],"more":1}`, `{"limit":5,"window":3600000000000,"taken":[[1.5,1]]}`, `{"limit":1e400}`, `7`, "null",
		// What is missing, doubled or misspelt counts for nothing, or is not what was meant.
		`{"limit":5,"window":3600000000000}`, `{"limit":5,"window":3600000000000,"taken":[[1]]}`, `{"limit":5,"window":3600000000000,"taken":[[1,1,5]]}`,
		`{"limit":5,"window":3600000000000,"taken":[[1,1]],"taken":[]}`, `{"limit":5,"window":3600000000000,"TAKEN":[[1,1]]}`, `{"window":3600000000000,"limit":5,"taken":[[1,1]]}`} {
		if err := l.Restore(sealed("sliding", state)); !errors.Is(err, limits.ErrSnapshot) {
			t.Errorf("%s: %v", state, err)
		}
	}
	if err := c.Restore(sealed("fixed", `{"limit":5,"window":3600000000000,"at":1,"used":-1}`)); !errors.Is(err, limits.ErrSnapshot) {
		t.Errorf("negative: %v", err)
	}

	// What has left the window does not crowd out what has not.
	one := limits.Must(window.NewSliding(window.Quota{Limit: 1, Window: time.Hour}))
	recent := time.Now().Add(-time.Minute).UnixNano()
	if err := one.Restore(sealed("sliding", fmt.Sprintf(`{"limit":1,"window":3600000000000,"taken":[[1,5],[2,5],[%d,1]]}`, recent))); err != nil {
		t.Error(err)
	}
	one.Adjust(bg, -1, 0)
	if !one.Take(1).Allowed() {
		t.Errorf("%+v", one.Take(0))
	}

	// Times at either end of time are long ago, or now.
	for _, at := range []int64{math.MinInt64, math.MaxInt64} {
		for _, x := range []struct {
			limit
			data []byte
		}{
			{l, sealed("sliding", fmt.Sprintf(`{"limit":5,"window":3600000000000,"taken":[[%d,2]]}`, at))},
			{c, sealed("fixed", fmt.Sprintf(`{"limit":5,"window":3600000000000,"at":%d,"used":2}`, at))},
			{d, sealed("fixed", fmt.Sprintf(`{"limit":5,"calendar":"day","location":"UTC","at":%d,"used":2}`, at))},
		} {
			if err := x.Restore(x.data); err != nil {
				t.Errorf("%s: %v", x.data, err)
			}
			got := x.Take(0)
			if at < 0 && got.Remaining != 5 || at > 0 && (got.Remaining != 3 || got.ResetAfter > 24*time.Hour || got.ResetAfter < 59*time.Minute) {
				t.Errorf("%s: %+v", x.data, got)
			}
		}
	}
}

// A clock that is put back between the snapshot and its restoration: what was
// taken counts, for a window at most.
func TestRestore_FromTheFuture(t *testing.T) {
	for name, fresh := range map[string]func() limit{
		"sliding":  func() limit { return limits.Must(window.NewSliding(window.Quota{Limit: 5, Window: 10 * time.Hour})) },
		"fixed":    func() limit { return limits.Must(window.NewFixed(window.Quota{Limit: 5, Window: 10 * time.Hour})) },
		"calendar": func() limit { return limits.Must(window.NewFixed(window.Quota{Limit: 5, Per: window.Day})) },
	} {
		var data []byte
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(1000 * time.Hour)
			l := fresh()
			l.Take(2)
			time.Sleep(time.Hour)
			l.Take(3)
			data = l.Snapshot()
		})
		synctest.Test(t, func(t *testing.T) { // where it is 2000 again
			time.Sleep(5 * time.Hour)
			l := fresh()
			if err := l.Restore(data); err != nil {
				t.Fatal(err)
			}
			again := l.Snapshot() // of a window that has not begun
			if l = fresh(); l.Restore(again) != nil {
				t.Fatalf("%s: %s", name, again)
			}
			length := 10 * time.Hour
			if name == "calendar" {
				length = 24 * time.Hour
			}
			want(t, name, l.Take(1), limits.Result{Limit: 5, RetryAfter: length, ResetAfter: length})
			time.Sleep(length)
			if !l.Take(5).Allowed() {
				t.Errorf("%s: %+v", name, l.Take(0))
			}
		})
	}
}
