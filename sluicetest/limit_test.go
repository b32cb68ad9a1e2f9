package sluicetest_test

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

const ms = time.Millisecond

// statusAt sends a request at each time and returns the statuses.
func statusAt(t *testing.T, c *http.Client, url string, at ...time.Duration) []int {
	t.Helper()
	start := time.Now()
	var got []int
	for _, at := range at {
		time.Sleep(at - time.Since(start))
		resp, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		got = append(got, resp.StatusCode)
	}
	return got
}

func TestEnforce(t *testing.T) {
	for _, tt := range []struct {
		name   string
		limit  sluicetest.Limit
		at     []time.Duration
		status []int
	}{
		{"a rate without burst, to the nanosecond",
			sluicetest.Limit{Count: 10, Per: time.Second},
			[]time.Duration{0, 0, 100*ms - 1, 100 * ms, 199 * ms, 200*ms - 1, 200 * ms, time.Second, time.Second},
			[]int{200, 429, 429, 200, 429, 429, 200, 200, 429}},
		{"a burst counts its first",
			sluicetest.Limit{Count: 10, Per: time.Second, Burst: 3},
			[]time.Duration{0, 0, 0, 0, 100*ms - 1, 100 * ms, 100 * ms, time.Hour, time.Hour, time.Hour, time.Hour},
			[]int{200, 200, 200, 429, 429, 200, 429, 200, 200, 200, 429}},
		{"thirds of a second are not rounded, without a burst the gap is",
			sluicetest.Limit{Count: 3, Per: time.Second},
			[]time.Duration{0, 333_333_333, 333_333_334, 666_666_667, 666_666_668, time.Second + 1, time.Second + 2},
			[]int{200, 429, 200, 429, 200, 429, 200}},
		{"thirds of a second do not drift",
			sluicetest.Limit{Count: 3, Per: time.Second, Burst: 2},
			[]time.Duration{0, 0, 333_333_333, 333_333_334, 666_666_666, 666_666_667, 999_999_999, time.Second},
			[]int{200, 200, 429, 200, 429, 200, 429, 200}},
		{"a quota, and windows that begin with the server",
			sluicetest.Limit{Quota: 2, Window: time.Minute},
			[]time.Duration{59 * time.Second, 59 * time.Second, time.Minute - 1, time.Minute, time.Minute, time.Minute, 3 * time.Minute},
			[]int{200, 200, 429, 200, 200, 429, 200}},
		{"refused by one, counted by none",
			sluicetest.Limit{Count: 1, Per: time.Second, Quota: 2, Window: time.Minute},
			[]time.Duration{0, 1 * ms, 2 * ms, time.Second, 2 * time.Second, time.Minute, time.Minute + 1},
			[]int{200, 429, 429, 200, 429, 200, 429}},
		{"another status",
			sluicetest.Limit{Quota: 1, Window: time.Minute, Status: 403},
			[]time.Duration{0, 0}, []int{200, 403}},
		{"no limit", sluicetest.Limit{}, []time.Duration{0, 0, 0}, []int{200, 200, 200}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := sluicetest.NewServer(sluicetest.Enforce(tt.limit))
				defer srv.Close()
				if got := statusAt(t, srv.Client(), "http://a.test", tt.at...); !reflect.DeepEqual(got, tt.status) {
					t.Errorf("at   %v\ngot  %d\nwant %d", tt.at, got, tt.status)
				}
			})
		})
	}
}

func TestEnforce_Concurrency(t *testing.T) {
	everyWay(t, func(t way) {
		limit := sluicetest.Limit{Name: "pool", Concurrency: 3}
		srv, c := t.serve(sluicetest.Enforce(limit), sluicetest.Delay(time.Second))
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				time.Sleep(time.Duration(i/4) * 1500 * ms)
				get(c, t.scheme+"://a.test")
			})
		}
		wg.Wait()
		rec := srv.Record()
		if len(rec.Requests) != 12 || rec.Throttled() != 3 {
			t.Errorf("%d of %d requests refused, want 3 of 12", rec.Throttled(), len(rec.Requests))
		}
		for _, q := range rec.Requests {
			if (q.Status == 429) != (q.ThrottledBy == "pool concurrency") || q.RetryAt != 0 {
				t.Errorf("%+v", q)
			}
		}
	})
}

// A client that calls again as soon as it has read the response is within the limit.
func TestEnforce_ConcurrencyIsReleasedBeforeTheResponseEnds(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, body := range []string{"short", long} {
		app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			fmt.Fprint(w, body[:2])
			time.Sleep(time.Second) // still in flight
			fmt.Fprint(w, body[2:])
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Hour) // an untidy handler, which does not return when it is done
		})
		synctest.Test(t, func(t *testing.T) {
			srv := sluicetest.NewServer(sluicetest.Enforce(sluicetest.Limit{Concurrency: 1}), sluicetest.Handler(app))
			defer srv.Close()
			tr := srv.Transport()
			tr.DisableKeepAlives = true // else the next request waits for the handler
			c := &http.Client{Transport: tr}
			for range 3 {
				if got := get(c, "http://a.test"); len(got) != len("200 ")+len(body) {
					t.Errorf("%.20s", got)
				}
			}
			if most := srv.Record().MostInFlight(); most != 1 {
				t.Errorf("%d requests in flight, want 1", most)
			}
			for _, q := range srv.Record().Requests {
				if d := q.Ended - q.Arrived; d != time.Second {
					t.Errorf("%v took %v", q, d)
				}
			}
		})
	}
}

func TestEnforce_Key(t *testing.T) {
	urls := []string{"http://a.test/1", "http://a.test/2?x", "http://b.test/1", "http://a.test/2"}
	for _, tt := range []struct {
		name string
		key  func(*http.Request) string
		want []string
	}{
		{"none", nil, []string{"200", "429", "429", "429"}},
		{"host", func(r *http.Request) string { return r.Host }, []string{"200", "429", "200", "429"}},
		{"path", func(r *http.Request) string { return r.Host + r.URL.Path }, []string{"200", "200", "200", "429"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := sluicetest.NewServer(sluicetest.Enforce(sluicetest.Limit{Count: 1, Per: time.Hour, Key: tt.key}))
				defer srv.Close()
				c := srv.Client()
				var got []string
				for _, url := range urls {
					got = append(got, get(c, url)[:3])
				}
				if !reflect.DeepEqual(got, tt.want) {
					t.Errorf("%v, want %v", got, tt.want)
				}
			})
		})
	}
}

// One Layer in two servers, or twice in one, counts again.
func TestLayer_EachUseCountsForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := sluicetest.Enforce(sluicetest.Limit{Quota: 1, Window: time.Hour})
		nth := sluicetest.On(2, sluicetest.Status(418))
		for range 2 {
			srv := sluicetest.NewServer(sluicetest.Host("a.test", limit, nth), sluicetest.Host("b.test", limit), nth)
			c := srv.Client()
			var got []string
			for _, host := range []string{"a.test", "a.test", "b.test", "c.test"} {
				got = append(got, get(c, "http://"+host)[:3])
			}
			if want := []string{"200", "429", "418", "200"}; !reflect.DeepEqual(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
			srv.Close()
		}
	})
}

func TestEnforce_ImpossibleLimit(t *testing.T) {
	for _, limit := range []sluicetest.Limit{
		{Count: -1, Per: time.Second}, {Count: 1, Per: -1}, {Count: 1}, {Per: 1}, {Burst: 1}, {Count: 1, Per: 1, Burst: -1},
		{Quota: -1, Window: 1}, {Quota: 1}, {Window: 1}, {Quota: 1, Window: -1}, {Concurrency: -1},
		{Count: 1, Per: 1 << 40, Burst: 1 << 30}, {Status: 99}, {Status: 1000},
	} {
		mustPanic(t, fmt.Sprintf("%+v", limit), "sluicetest: Limit: ", func() { sluicetest.Enforce(limit) })
	}
}

// mustPanic checks that f panics with a message that begins with prefix.
func mustPanic(t *testing.T, what, prefix string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if v := recover(); !strings.HasPrefix(fmt.Sprint(v), prefix) {
			t.Errorf("%s: panic %v, want %q", what, v, prefix)
		}
	}()
	f()
}
