package tiny

import "testing"

func TestNothing(t *testing.T) {}
