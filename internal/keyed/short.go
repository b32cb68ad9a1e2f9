package keyed

// A short is a string of up to 15 bytes: these, zeros, and their number in the last
// byte. It takes no more room than the header of the string would, holds no
// pointer that would have to be followed, for the comparison or by the garbage
// collector, and does not keep alive the text that the caller has it from, which
// may be part of a long one.
type short [16]byte

// shorten returns text as a short, if it is no longer than one may be.
func shorten(text string) (s short, ok bool) {
	const last = len(s) - 1
	if len(text) > last {
		return s, false
	}
	copy(s[:], text)
	s[last] = byte(len(text))
	return s, true
}
