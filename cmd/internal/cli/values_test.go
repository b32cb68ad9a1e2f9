package cli

import "testing"

func TestBytes(t *testing.T) {
	for text, want := range map[string]struct {
		bytes int64
		shown string
	}{
		"0": {0, "0"}, "500": {500, "500"}, "1024": {1024, "1K"}, "10M": {10 << 20, "10M"}, "64MiB": {64 << 20, "64M"}, "3gb": {3 << 30, "3G"}, "1T": {1 << 40, "1T"}, "1025k": {1025 << 10, "1025K"},
	} {
		var s Bytes
		if err := s.Set(text); err != nil || int64(s) != want.bytes || s.String() != want.shown {
			t.Errorf("%q is %d, %v, %v", text, int64(s), s, err)
		}
	}
	for _, text := range []string{"", "M", "-1", "1MM", "1.5G", "9999999T", "x", "IB"} {
		if err := new(Bytes).Set(text); err == nil {
			t.Errorf("%q is a size", text)
		}
	}
}

func TestChoice(t *testing.T) {
	word := "a"
	c := Choice(&word, "a", "b")
	if err := c.Set("b"); err != nil || word != "b" || c.String() != "b" {
		t.Errorf("%q, %v", word, err)
	}
	if err := c.Set("x"); err == nil || err.Error() != "must be a or b" || word != "b" {
		t.Errorf("%q, %v", word, err)
	}
}
