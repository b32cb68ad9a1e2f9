package tiny

import "testing"

func TestFee(t *testing.T) {
	for n, want := range map[int]float64{0: .5, 1: 4.5, 9: 36.5, 10: 8.5, 12: 8.5, 13: 52.5} {
		if got := Fee(n); got != want {
			t.Errorf("%d cost %v, want %v", n, got, want)
		}
	}
}

// The constant itself is no expectation: this test sees the mutant of pause, too.
func TestWait(t *testing.T) {
	if Wait(5) != pause || Wait(4) != pause || Wait(3) != 0 {
		t.Error(Wait(5), Wait(4), Wait(3))
	}
}

func TestLoop(t *testing.T) {
	if Loop() != 3 {
		t.Error(Loop())
	}
}

// TestDoc_ is no test of behavior, so it kills nothing.
func TestDoc_Pause(t *testing.T) {
	if Unused(3) != 1 {
		t.Error(Unused(3))
	}
}
