package live

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC // sentences have times of day
	goleak.VerifyTestMain(m)
}
