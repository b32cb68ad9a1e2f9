package sluiceredis

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// Many machines reserve, and some cancel: the slots that are kept are distinct and
// a whole number of intervals apart, and each that nobody has was counted as lost.
func TestSlotsWhenSomeCancel(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		const machines, each, interval = 8, 60, 5 * ms
		cfg := PacerConfig{Horizon: time.Hour}
		// So that all who follow have to wait, and no slot passes unused.
		before, err := newPacer(t, b.store(t), "cancel", 200, sec, cfg).Reserve(bg, 200*60, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var kept []int64
		var lost, refunded uint64
		var wg sync.WaitGroup
		for range machines {
			wg.Go(func() {
				s := b.store(t)
				p := newPacer(t, s, "cancel", 200, sec, cfg)
				var own sync.WaitGroup
				for range 4 {
					own.Go(func() {
						for range each / 4 {
							r, err := p.Reserve(bg, 1, time.Hour)
							if err != nil {
								t.Error(err)
								return
							}
							if rand.IntN(3) == 0 {
								r.Cancel(bg)
								continue
							}
							mu.Lock()
							kept = append(kept, r.slot)
							mu.Unlock()
						}
					})
				}
				own.Wait()
				mu.Lock()
				defer mu.Unlock()
				lost, refunded = lost+s.Stats().LostSlots, refunded+s.Stats().Refunded
			})
		}
		wg.Wait()
		last, err := newPacer(t, b.store(t), "cancel", 200, sec, cfg).Reserve(bg, 1, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		first := before.slot + 200*60*int64(interval)
		slices.Sort(kept)
		for i, slot := range kept {
			if (slot-first)%int64(interval) != 0 || i > 0 && slot == kept[i-1] {
				t.Fatalf("slot %d is %d ns after the first, the one before %d", i, slot-first, kept[max(0, i-1)]-first)
			}
		}
		if taken := (last.slot - first) / int64(interval); taken != int64(len(kept))+int64(lost) {
			t.Errorf("%d slots are taken: %d are kept, %d are lost", taken, len(kept), lost)
		}
		if len(kept)+int(lost+refunded) != machines*each {
			t.Errorf("%d kept, %d lost, %d given back, of %d", len(kept), lost, refunded, machines*each)
		}
	})
}
