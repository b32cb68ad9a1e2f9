package limits

// KeyedConfig configures a limit per key, such as leaky.Keyed or window.Keyed.
type KeyedConfig struct {
	// MaxKeys is the maximum number of remembered keys. A new key beyond that is rejected with
	// [ErrTooManyKeys]; keys that hold nothing count until they are evicted. 0 means 2²⁹, which is
	// also the most.
	MaxKeys int64
}
