package presets_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/built"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/presets"
	"github.com/sluice-go/sluice/sluicetest"
)

// A job that takes hours uses the quota of each hour at its beginning, in the third and fourth as in the
// first: what remains of a window, and its end, are no rate at which it refills.
func TestGitHub_Hours(t *testing.T) {
	built.SkipRaced(t)
	for _, quota := range []int64{50, 500, 5000} {
		t.Run(fmt.Sprint(quota), func(t *testing.T) {
			if quota > 500 && testing.Short() {
				t.Skip("takes seconds")
			}
			synctest.Test(t, func(t *testing.T) {
				srv := sluicetest.NewServer(sluicetest.Delay(50*time.Millisecond),
					sluicetest.Enforce(sluicetest.Limit{Name: "core", Quota: quota, Window: time.Hour, HeaderStyle: gitHub, Status: 403}))
				defer srv.Close()
				base := srv.Transport()
				defer base.CloseIdleConnections()
				rt, err := sluicehttp.New(base, presets.GitHub())
				if err != nil {
					t.Fatal(err)
				}
				client := &http.Client{Transport: rt}
				next := make(chan int)
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						for i := range next {
							resp, err := client.Get(fmt.Sprintf("https://api.github.com/repos/%d", i))
							if err != nil {
								t.Error(err)
								continue
							}
							resp.Body.Close()
						}
					})
				}
				for i := range 5 * quota {
					next <- int(i)
				}
				close(next)
				wg.Wait()
				usual := time.Duration(quota) * 50 * time.Millisecond / 8
				last, refused := make([]time.Duration, 6), 0
				for _, r := range srv.Record().Requests {
					if r.ThrottledBy != "" {
						refused++
					}
					at := r.Arrived
					last[at/time.Hour] = at % time.Hour
				}
				t.Logf("the last request of each hour came %v after its beginning; %d refused", last, refused)
				for i, at := range last {
					if at > usual*3/2+2*time.Second || (i < 5) != (at > 0) {
						t.Errorf("the last request of hour %d came after %v, want about %v", i+1, at, usual)
					}
				}
				if refused > 5 {
					t.Errorf("%d requests were refused", refused)
				}
			})
		})
	}
}
