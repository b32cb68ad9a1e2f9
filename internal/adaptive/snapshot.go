package adaptive

import "github.com/sluice-go/sluice/internal/snapshot"

// learned is what a snapshot holds. What depends on the present is not in it: calls in
// flight, pauses, when a window begins.
type learned struct {
	Phase    Phase   `json:"phase"`
	MeanCost float64 `json:"unit"`
	Rate     float64 `json:"rate"`
	Refuted  float64 `json:"refuted"`
	Quiet    float64 `json:"quiet"`
	Refusal  float64 `json:"refusal"`
	Price    float64 `json:"price"`
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
	Hold     float64 `json:"hold"`
	Limit    float64 `json:"limit"`
}

const snapshotKind = "adaptive"

// Snapshot returns the estimate, so that a later process need not search again.
func (c *Controller) Snapshot() []byte {
	scale := c.sharing.scale() // the part of this process is kept, for one that may be alone
	s := learned{
		Phase: c.phase, MeanCost: c.meanCost / scale, Rate: c.pace.rate / scale, Refuted: c.pace.refuted / scale, Quiet: c.pace.quiet,
		Refusal: c.refusal, Price: c.costly.price, Low: c.costly.low / scale, High: c.costly.high / scale, Hold: c.costly.hold,
	}
	if c.phase == Capped {
		s.Limit = c.capacity.limit
	}
	return snapshot.Seal(snapshotKind, s)
}

// Restore makes a new controller believe what another one had learned. The bounds of its own
// configuration hold. It returns an error, and changes nothing, if the bytes are not
// those of a snapshot.
func (c *Controller) Restore(data []byte) error {
	s, err := snapshot.Open[learned](data, snapshotKind)
	if err != nil {
		return err
	}
	for _, x := range []float64{s.MeanCost, s.Rate, s.Refuted, s.Quiet, s.Refusal, s.Price, s.Low, s.High, s.Hold, s.Limit} {
		if !(x >= 0 && x < 1e18) {
			return snapshot.Impossible()
		}
	}
	if s.Phase <= Searching || s.MeanCost == 0 || s.Rate == 0 {
		return nil // nothing was learned
	}
	s.whole(&c.sharing)
	c.meanCost, c.refusal = s.MeanCost, min(s.Refusal, 60)
	c.pace.refuted = s.Refuted
	c.pace.quiet = max(quietMin, min(quietMax, s.Quiet))
	c.costly.price = min(s.Price, 3600)
	phase := Tracking
	switch {
	case s.Phase == Bounding && s.Low > 0 && s.High >= s.Low:
		phase = Bounding
		c.costly.low, c.costly.high, c.costly.hold = s.Low, s.High, s.Hold
	case s.Phase == Capped && s.Limit >= 1:
		phase = Capped
		c.capacity.limit = s.Limit
		c.capacity.entry = c.capacity.limit
	}
	c.track(phase, s.Rate, Restored)
	return nil
}

// whole makes what one process has used what all have, if the controller shares its limit.
func (s *learned) whole(share *sharing) {
	for _, x := range []*float64{&s.MeanCost, &s.Rate, &s.Refuted, &s.Low, &s.High} {
		*x = share.whole(*x)
	}
}
