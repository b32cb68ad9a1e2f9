package rueidisclient

import (
	"testing"

	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
