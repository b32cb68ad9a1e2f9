// Package snapshot seals the state of a limit for another process, and opens it there.
//
// # How does a limit recognize its own snapshot?
//
// A limit that takes a damaged snapshot for a good one admits units that were used already, or
// rejects for years. A checksum detects errors of a disk, but not edits that also fix the checksum,
// and package encoding/json is kind to such hands: a field that is missing is 0, of two the last
// counts, a third number in an array of two is dropped, "USED" is "used", and a Decoder accepts a
// brace too many at the end. So none of this is looked for one by one. Instead:
//
//	data is a snapshot   if and only if what was read from it, sealed again,
//	                     gives data, spaces apart
//
// Numbers that can be written but not be true are for the limit to reject, with
// [Impossible].
package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

const version = 1

// Seal returns state, of a limit of that kind, as {"version":1,"crc32":…,"<kind>":{…}}, the
// checksum being that of the inner object without spaces. By convention times are
// nanoseconds of Unix time and durations nanoseconds.
func Seal(kind string, state any) []byte {
	inner, err := json.Marshal(state)
	if err != nil {
		panic(err) // numbers and strings only
	}
	return fmt.Appendf(nil, `{"version":%d,"crc32":%d,%q:%s}`, version, crc32.ChecksumIEEE(inner), kind, inner)
}

// Open returns the state that was sealed as data by a limit of that kind. It
// returns an error that is [limits.ErrSnapshot] if there is none.
func Open[S any](data []byte, kind string) (state S, err error) {
	var head struct{ Version int }
	var parts map[string]json.RawMessage
	for _, v := range []any{&parts, &head} { // one error: bad JSON is bad for both
		if err := json.Unmarshal(data, v); err != nil {
			return state, unreadable(err)
		}
	}
	if head.Version != version {
		return state, unreadable(fmt.Errorf("version %d, not %d", head.Version, version))
	}
	inner, ok := parts[kind]
	if !ok {
		return state, unreadable(fmt.Errorf("not of a %s", kind))
	}
	var s S
	if err := json.Unmarshal(inner, &s); err != nil {
		return state, unreadable(err)
	}
	var plain bytes.Buffer
	if err := json.Compact(&plain, data); err != nil {
		return state, unreadable(err)
	}
	if !bytes.Equal(plain.Bytes(), Seal(kind, s)) {
		return state, unreadable(errors.New("damaged"))
	}
	return s, nil
}

// Impossible returns the error for a state that no limit can have been in.
func Impossible() error { return unreadable(errors.New("impossible numbers")) }

func unreadable(why error) error { return fmt.Errorf("%w: %v", limits.ErrSnapshot, why) }

// Age returns the time from a time of Unix time to t; 0 if it is in the
// future, because the clock was put back in between.
func Age(t time.Time, at int64) time.Duration {
	return max(0, sat.Sub(time.Duration(t.UnixNano()), time.Duration(at)))
}
