package window_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	// So that tests in other places than the tester's find these places.
	_ "time/tzdata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bg is for waits that nothing but the limit ends.
var bg = context.Background()
