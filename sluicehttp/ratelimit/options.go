package ratelimit

import (
	"net/http"
	"time"
)

// Options say what a header cannot: how a server means its fields. The zero
// Options are for servers that are not known. They are plain data, and safe
// for use by multiple goroutines as long as nobody changes them.
type Options struct {
	// Times says how the numbers of a field are meant, by the name of the
	// field, in upper or lower case: {"X-RateLimit-Reset": Millis}. A field
	// that is not listed is guessed, see [Guess]. Dates and durations with a
	// unit are read as they are.
	Times map[string]TimeForm

	// CacheMarkers are names of fields that a cache adds to what it answers
	// itself, such as "X-From-Cache". A response with one of them comes from
	// a cache, as one with an Age above 0 always does.
	CacheMarkers []string
}

// A TimeForm is how a number is meant that stands for a time.
type TimeForm uint8

const (
	// Guess takes numbers below 500,000,000 for seconds from now, as they
	// would last 15 years, below 100,000,000,000 for seconds since 1970, below
	// 100,000,000,000,000 for milliseconds since 1970, and refuses others. In
	// fields that are named after milliseconds it is Millis.
	Guess       TimeForm = iota
	Seconds              // from now
	Millis               // from now
	Epoch                // seconds since 1970
	EpochMillis          // milliseconds since 1970
)

// Check returns an error if a form of Times is none, or if it has a field
// twice. Parse takes an unknown form for Guess, and of two spellings of a field
// the one that sorts first.
func (o Options) Check() error {
	return nil
}

// Parse reads what a response that arrived at now, on the local clock, says
// about limits. It is a pure function, never panics and never fails: what is
// malformed is ignored, with a warning, and the rest is read. The work is
// bounded, whatever the header: of a field, values longer than 4 KiB and more
// than 64 items are ignored, and all rate-limit fields but 32.
//
// Times of the server's clock are compared with its Date, unless that is more
// than 24 hours off or the response is from a cache. now must not be the zero
// time.
func (o Options) Parse(status int, header http.Header, now time.Time) (Snapshot, []Warning) {
	return Snapshot{Status: status}, nil
}
