package svg

import (
	"encoding/xml"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const picture = `<?xml version="1.0"?>
<svg width="1pt" height="1pt"
	xmlns="http://www.w3.org/2000/svg">
<path d="M0,0L1,1Z" style="fill:#FFFFFF" />
<path d="M0,0L1,1" style="fill:none;stroke:#0072B2;stroke-width:1" />
<path d="M1,0L1,1" style="fill:none;stroke:#0072B2;stroke-width:1" />
<text style="font-family:Liberation Sans;fill:#222222">a</text>
</svg>
`

func TestFinish(t *testing.T) {
	out, err := Finish([]byte(picture), "a < b", "b & c")
	if err != nil {
		t.Fatal(err)
	}
	for decoder := xml.NewDecoder(strings.NewReader(string(out))); ; {
		if _, err := decoder.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v in %s", err, out)
		}
	}
	for text, times := range map[string]int{
		` role="img">` + "\n<title>a &lt; b</title>":         1,
		"<desc>b &amp; c</desc>":                             1,
		"@media (prefers-color-scheme:dark)":                 1,
		`[style*="fill:#FFFFFF"]{fill:#0D1117!important}`:    1,
		`[style*="stroke:#0072B2"]{stroke:#6CBBFF!important`: 1,
		`"fill:#0072B2"`:                                     0,
		"Arial":                                              1,
	} {
		if got := strings.Count(string(out), text); got != times {
			t.Errorf("%q is there %d times, want %d, in\n%s", text, got, times, out)
		}
	}
}

func TestFinish_Errors(t *testing.T) {
	for _, wrong := range []string{"", "text", "<svg", strings.Replace(picture, "#222222", "#123456", 1)} {
		if out, err := Finish([]byte(wrong), "", ""); err == nil {
			t.Errorf("%q: no error, but %s", wrong, out)
		}
	}
}

// What is written must be readable on both backgrounds (WCAG 2, 4.5 to 1), what is drawn must
// be visible (3 to 1).
func TestDark_Contrast(t *testing.T) {
	if got := contrast("#FFFFFF", "#000000"); math.Abs(got-21) > 0.01 {
		t.Fatalf("black on white has a contrast of %.2f, want 21", got)
	}
	backgrounds := []string{"#FFFFFF", "#E4E4E4", "#E8E8E8", "#BFE1F6", "#FBEFD5"} // and lines of a grid
	for _, light := range slices.Sorted(maps.Keys(dark)) {
		if slices.Contains(backgrounds, light) {
			continue
		}
		least := 4.5
		if light == "#56B4E9" { // nothing is written in it
			least = 3
		}
		if got := contrast(dark[light], dark["#FFFFFF"]); got < least {
			t.Errorf("%s for %s: a contrast of %.1f on the dark background, want %.1f", dark[light], light, got, least)
		}
	}
}

// contrast returns the contrast of two colors as WCAG 2 defines it.
func contrast(a, b string) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(colour string) (sum float64) {
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8)
		if err != nil {
			panic(err)
		}
		v := float64(n) / 255
		if v <= 0.04045 {
			sum += weight * v / 12.92
		} else {
			sum += weight * math.Pow((v+0.055)/1.055, 2.4)
		}
	}
	return sum
}
