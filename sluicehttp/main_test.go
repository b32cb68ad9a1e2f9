package sluicehttp_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC // messages have times of day
	goleak.VerifyTestMain(m)
}
