package sluiceredis

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
)

func TestPacer_SetRate_BurstReachesAJoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limits.Must(New(InProcess(), Config{}))
		p := limits.Must(s.Pacer("a/p", limits.Rate{Count: 1, Per: time.Second, Burst: 5}, PacerConfig{}))
		b := limits.Must(s.Bucket("a/b", limits.Rate{Count: 1000, Per: time.Second, Burst: 1000}))
		j := p.Join(b.on(""))
		count := func() (n int) {
			time.Sleep(20 * time.Second)
			for range 10 {
				if w, _, err := j.AdmitAll(t.Context(), []int64{1, 1}, nil); err == nil && w == 0 {
					n++
				}
			}
			return n
		}
		t.Log(count())
		for _, burst := range []int64{1, 5} {
			_ = p.SetRate(limits.Rate{Count: 1, Per: time.Second, Burst: burst})
			if n := count(); n != int(burst) {
				t.Errorf("%d admitted, not %d", n, burst)
			}
		}
	})
}
