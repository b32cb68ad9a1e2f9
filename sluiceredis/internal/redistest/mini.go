package redistest

import (
	"strconv"
	"testing"

	"github.com/alicebob/miniredis/v2"
)

// Mini starts a miniredis for the test and returns its address. Where an int has 32
// bits the test is skipped: a miniredis cuts the numbers of scripts off there.
func Mini(tb testing.TB) string {
	tb.Helper()
	if strconv.IntSize == 32 {
		tb.Skip("miniredis computes with int")
	}
	return miniredis.RunT(tb).Addr()
}
