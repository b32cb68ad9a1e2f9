package sluicehttp

// SetRandom makes f, in place of chance, say how much later than told a pause
// ends.
func (t *Transport) SetRandom(f func() float64) { t.random = f }
