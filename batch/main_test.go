package batch

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if child := children[os.Getenv("BATCH_TEST_CHILD")]; child != nil {
		child()
		return
	}
	goleak.VerifyTestMain(m)
}
