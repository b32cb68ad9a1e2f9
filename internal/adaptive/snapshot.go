package adaptive

import (
	"math"

	"github.com/sluice-go/sluice/internal/snapshot"
)

// learned is what a snapshot holds. What depends on the present is not in it: calls in
// flight, pauses, when a window begins.
type learned struct {
	Phase   Phase   `json:"phase"`
	Unit    float64 `json:"unit"`
	Rate    float64 `json:"rate"`
	Refuted float64 `json:"refuted"`
	Quiet   float64 `json:"quiet"`
	Refusal float64 `json:"refusal"`
	Price   float64 `json:"price"`
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	Hold    float64 `json:"hold"`
	Limit   float64 `json:"limit"`
}

const snapshotKind = "adaptive"

// Snapshot returns what was learned, so that a later process need not search again.
func (r *Rule) Snapshot() []byte {
	scale := r.sharing.scale() // the part of this process is kept, for one that may be alone
	s := learned{
		Phase: r.phase, Unit: r.unit / scale, Rate: r.pace.rate / scale, Refuted: r.pace.refuted / scale, Quiet: r.pace.quiet,
		Refusal: r.refusal, Price: r.costly.price, Low: r.costly.low / scale, High: r.costly.high / scale, Hold: r.costly.hold,
	}
	if r.phase == Capped {
		s.Limit = r.capacity.limit
	}
	return snapshot.Seal(snapshotKind, s)
}

// Restore makes a new rule believe what another one had learned. The bounds of its own
// configuration hold. It returns an error, and changes nothing, if the bytes are not
// those of a snapshot.
func (r *Rule) Restore(data []byte) error {
	s, err := snapshot.Open[learned](data, snapshotKind)
	if err != nil {
		return err
	}
	for _, x := range []float64{s.Unit, s.Rate, s.Refuted, s.Quiet, s.Refusal, s.Price, s.Low, s.High, s.Hold, s.Limit} {
		if !(x >= 0 && x < 1e18) {
			return snapshot.Impossible()
		}
	}
	if s.Phase <= Searching || s.Unit == 0 || s.Rate == 0 {
		return nil // nothing was learned
	}
	s.whole(&r.sharing)
	r.unit, r.refusal = s.Unit, math.Min(s.Refusal, 60)
	r.pace.refuted = s.Refuted
	r.pace.quiet = math.Max(quietMin, math.Min(quietMax, s.Quiet))
	r.costly.price = math.Min(s.Price, 3600)
	r.phase = Tracking
	switch {
	case s.Phase == Bounding && s.Low > 0 && s.High >= s.Low:
		r.phase = Bounding
		r.costly.low, r.costly.high, r.costly.hold = s.Low, s.High, s.Hold
	case s.Phase == Capped && s.Limit >= 1:
		r.phase = Capped
		r.capacity.limit = s.Limit
		r.capacity.entry = r.capacity.limit
	}
	r.pace.learn(r, s.Rate, Restored)
	return nil
}

// whole makes what one process has used what all have, if the rule shares its limit.
func (s *learned) whole(share *sharing) {
	for _, x := range []*float64{&s.Unit, &s.Rate, &s.Refuted, &s.Low, &s.High} {
		*x = share.whole(*x)
	}
}
