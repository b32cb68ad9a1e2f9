package sluiceredis

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

var (
	// ErrAmbiguous reports that a script may or may not have run, because no reply came in time.
	// The call is rejected, although the server may have counted it. A [Client] wraps this and the
	// error of the connection, with %w.
	ErrAmbiguous = errors.New("sluiceredis: it is unknown whether the call was executed")

	// ErrData reports that a key has unexpected content, and which. Nothing was taken and the key
	// was left as it is.
	ErrData = errors.New("sluiceredis: unexpected data in a key")
)

// errStranded reports that units can no longer be returned and are treated as used: they have
// leaked already, or another reservation came after them.
var errStranded = kinds.ErrStranded

// A ServerError is an error that the server replied. The script took nothing.
type ServerError struct {
	Code    string // its first word, or that of the command which failed in a script: READONLY, LOADING, CLUSTERDOWN, OOM
	Message string // all of it
}

// newServerError returns the error of a message. Up to Redis 6 a command that fails
// in a script says so in the words of the script's error:
//
//	ERR Error running script (call to f_…): @user_script:33: @user_script: 33: -OOM command not allowed …
func newServerError(message string) *ServerError {
	said := message
	if strings.HasPrefix(message, "ERR Error running script") {
		if _, inner, ok := strings.Cut(message, ": -"); ok {
			said = inner
		}
	}
	code, _, _ := strings.Cut(said, " ")
	return &ServerError{code, message}
}

// Error returns the reply of the server.
func (e *ServerError) Error() string { return "sluiceredis: the server replied: " + e.Message }

// A keyError reports the key that has unexpected content.
type keyError struct{ key, wrong string }

func (e *keyError) Error() string { return fmt.Sprintf("sluiceredis: key %q: %s", e.key, e.wrong) }
func (e *keyError) Unwrap() error { return ErrData }

// Replies of scripts that begin with a negative number.
const (
	wrongType  = -1
	unreadable = -2
	noHistory  = -3
	newEpoch   = -4
)

// dataError returns the error for a negative code about key.
func dataError(key string, code int64) error {
	switch code {
	case wrongType:
		return &keyError{key, "it is of another type"}
	case unreadable:
		return &keyError{key, "it does not hold what this limit writes"}
	}
	return &keyError{key, fmt.Sprintf("the script replied %d", code)}
}

// ambiguous returns err as one that matches ErrAmbiguous.
func ambiguous(err error) error {
	if err == nil || errors.Is(err, ErrAmbiguous) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrAmbiguous, err)
}
