//go:build !unix

package machine

import (
	"errors"
	"os"
	"time"
)

// Stop stops p for d, all of its threads at once. Here it cannot.
func Stop(*os.Process, time.Duration) error { return errors.ErrUnsupported }
