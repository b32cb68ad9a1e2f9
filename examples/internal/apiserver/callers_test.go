package apiserver

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// What is seen of several callers, each by its name, adds up to what is seen.
func TestCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Config{Items: 100, Count: 100, Per: time.Second, Bucket: 3, Concurrency: 10, NoFaults: true})
		call := func(agent string) {
			r := httptest.NewRequest(http.MethodGet, "/items/1", nil)
			r.Header.Set("User-Agent", agent)
			s.ServeHTTP(httptest.NewRecorder(), r)
		}
		var wg sync.WaitGroup
		for _, agent := range []string{"a", "b", "a", "b", "b"} { // at the same time; the bucket holds three
			wg.Go(func() { call(agent) })
			synctest.Wait()
		}
		if now := s.Now(); now != (Moment{Calls: 5, Served: 3, Throttled: 2, InFlight: 3}) {
			t.Errorf("now %+v", now)
		}
		wg.Wait()
		time.Sleep(time.Second)
		call("c")
		want := map[string]Tally{"a": {Accepted: 2}, "b": {Accepted: 1, TooFast: 2}, "c": {Accepted: 1}}
		if got := s.Callers(); !maps.Equal(got, want) {
			t.Errorf("callers %+v, want %+v", got, want)
		}
		if seen, allowed := s.MostPerPeriod(); seen != 3 || allowed != 103 {
			t.Errorf("%d of %d in a second", seen, allowed)
		}
		s.Reset()
		if got := s.Callers(); len(got) != 0 {
			t.Errorf("after Reset: %+v", got)
		}
	})
}
