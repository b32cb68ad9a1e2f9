package svg

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Each picture of the repository is readable as it is, in both themes: its strings have a contrast
// of 4.5 to 1 with what they are written on, its marks one of 3 to 1 with the background.
func TestPictures_Contrast(t *testing.T) {
	var names []string
	for _, folder := range []string{"docs", filepath.Join("bench", "results")} {
		err := filepath.WalkDir(filepath.Join("..", "..", folder), func(name string, _ fs.DirEntry, err error) error {
			if filepath.Ext(name) == ".svg" {
				names = append(names, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(names) < 15 {
		t.Fatalf("%d pictures", len(names))
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		faults, texts := faultsOf(string(text))
		if texts == 0 {
			t.Errorf("%s: no texts were found", name)
		}
		for _, fault := range faults {
			t.Errorf("%s: %s", name, fault)
		}
	}
}

// The check finds what it is there to find.
func TestFaultsOf(t *testing.T) {
	const frame = `<svg><title>t</title><desc>d</desc><style>@media (prefers-color-scheme:dark){
[style*="fill:#FFFFFF"]{fill:#0D1117!important}
[style*="fill:#222222"]{fill:#E6EDF3!important}
[style*="fill:#BFE1F6"]{fill:#E6EDF3!important}
[style*="stroke:#0072B2"]{stroke:#113355!important}
}</style><g><path d="M0,0L100,0L100,100L0,100Z" style="fill:#FFFFFF" />%s</g></svg>`
	const place = `<text x="20" y="-20" transform="scale(1, -1)" style="font-size:10px;fill:%s">word</text>`
	for part, want := range map[string]string{
		fmt.Sprintf(place, "#222222"): "",
		fmt.Sprintf(place, "#D55E00"): `"word" in light: #D55E00 on #FFFFFF has a contrast of 3.9, want 4.5`,
		`<path d="M10,10L90,10L90,90L10,90Z" style="fill:#BFE1F6"/>` + fmt.Sprintf(place, "#222222"):                                               `"word" in dark: #E6EDF3 on #E6EDF3 has a contrast of 1.0, want 4.5`,
		`<path d="M0,0L9,9" style="fill:none;stroke:#0072B2"/>`:                                                                                    `a mark in dark: #113355 on #0D1117 has a contrast of 1.5, want 3`,
		`<rect x="10" y="-30" width="40" height="60" style="fill:#BFE1F6;fill-opacity:0.5"/>` + `<text x="20" y="5" style="fill:#222222">7</text>`: `"7" in dark: #E6EDF3 on #7A7F85 has a contrast of 3.4, want 4.5`,
		`<path d="M0,0L9,9" style="fill:none;stroke:#009E73"/>`:                                                                                    `no dark counterpart of stroke:#009E73`,
	} {
		faults, _ := faultsOf(fmt.Sprintf(frame, part))
		if got := strings.Join(faults, "\n"); got != want && (want == "" || !strings.Contains(got, want)) {
			t.Errorf("%s\n got %s\nwant %s", part, got, want)
		}
	}
}

// grounds are colors that lie behind others and need no contrast: of the background, the lines
// of a grid, water and pauses.
var grounds = []string{"#FFFFFF", "#E4E4E4", "#E8E8E8", "#BFE1F6", "#FBEFD5"}

// faint are colors that Okabe and Ito have chosen to be told apart by everybody. On white they
// have less contrast than WCAG asks for, so a mark of such a color has a label or its own
// shape next to it.
var faint = []string{"#56B4E9", "#E69F00", "#CC79A7"}

// A shape is the box of something filled.
type shape struct {
	color                  string
	opacity                float64
	left, right, low, high float64
}

var (
	rule   = regexp.MustCompile(`\[style\*="((?:fill|stroke):#[0-9A-F]{6})"\]\{(?:fill|stroke):(#[0-9A-F]{6})!important\}`)
	number = regexp.MustCompile(`-?[0-9]+(?:\.[0-9]+)?`)
	size   = regexp.MustCompile(`font-size:([0-9.]+)px`)
	opaque = regexp.MustCompile(`fill-opacity:([0-9.]+)`)
	step   = regexp.MustCompile(`[A-Z][^A-Z]*`) // of a path
)

// faultsOf returns what cannot be read in a picture, and how many strings it has.
func faultsOf(picture string) (faults []string, texts int) {
	darks := make(map[string]string)
	for _, m := range rule.FindAllStringSubmatch(picture, -1) {
		darks[m[1]] = m[2]
	}
	report := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(faults, text) {
			faults = append(faults, text)
		}
	}
	// both returns a color in each theme.
	both := func(kind, light string) [2]string {
		to := darks[kind+":"+light]
		if to == "" {
			report("no dark counterpart of %s:%s", kind, light)
			to = light
		}
		return [2]string{light, to}
	}
	themes := [2]string{"light", "dark"}
	page := [2]string{"#FFFFFF", "#0D1117"}
	var painted []shape
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return faults, texts
		}
		if err != nil {
			report("%v", err)
			return faults, texts
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		style := attribute(e, "style")
		if e.Name.Local == "text" {
			var word string
			if err := decoder.DecodeElement(&word, &e); err != nil {
				report("%v", err)
				return faults, texts
			}
			texts++
			fill := paintOf(style, "fill")
			if fill == "" {
				report("%q has no colour", word)
				continue
			}
			on := page
			for _, s := range painted {
				if x, y := placeOf(e, style); s.left <= x && x <= s.right && s.low <= y && y <= s.high {
					paint := both("fill", s.color)
					for i := range on {
						on[i] = blend(on[i], paint[i], s.opacity)
					}
				}
			}
			ink := both("fill", fill)
			for i, theme := range themes {
				if c := contrast(ink[i], on[i]); c < 4.5 {
					report("%q in %s: %s on %s has a contrast of %.1f, want 4.5", word, theme, ink[i], on[i], c)
				}
			}
			continue
		}
		for _, kind := range []string{"fill", "stroke"} {
			color := paintOf(style, kind)
			if color == "" {
				continue
			}
			ink := both(kind, color)
			if kind == "fill" {
				if s, ok := shapeOf(e, style, color); ok {
					painted = append(painted, s)
					if s.opacity < 1 {
						continue // a shade, with its number in it
					}
				}
			}
			if slices.Contains(grounds, color) {
				continue
			}
			for i, theme := range themes {
				if c := contrast(ink[i], page[i]); c < 3 && !(i == 0 && slices.Contains(faint, color)) {
					report("a mark in %s: %s on %s has a contrast of %.1f, want 3", theme, ink[i], page[i], c)
				}
			}
		}
	}
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// paintOf returns a color of a style, or "".
func paintOf(style, kind string) string {
	for _, m := range paint.FindAllStringSubmatch(style, -1) {
		if m[1] == kind {
			return m[2]
		}
	}
	return ""
}

// placeOf returns a point within the first letter of a text, or its middle.
func placeOf(e xml.StartElement, style string) (x, y float64) {
	x, y = value(attribute(e, "x")), value(attribute(e, "y"))
	letter := 10.0
	if m := size.FindStringSubmatch(style); m != nil {
		letter = value(m[1])
	}
	if attribute(e, "text-anchor") == "" {
		x += letter / 5
	}
	switch move := attribute(e, "transform"); {
	case strings.HasPrefix(move, "scale(1, -1)"): // and so is all of the picture
		return x, -y + letter/3
	case strings.HasPrefix(move, "translate("):
		if to := number.FindAllString(move, 2); len(to) == 2 {
			return x + value(to[0]), y + value(to[1])
		}
	}
	return x, y - letter/3
}

// shapeOf returns the box of a path or a rectangle.
func shapeOf(e xml.StartElement, style, color string) (s shape, ok bool) {
	s = shape{color: color, opacity: 1}
	if m := opaque.FindStringSubmatch(style); m != nil {
		s.opacity = value(m[1])
	}
	if e.Name.Local == "rect" {
		s.left, s.low = value(attribute(e, "x")), value(attribute(e, "y"))
		s.right, s.high = s.left+value(attribute(e, "width")), s.low+value(attribute(e, "height"))
		return s, true
	}
	for i, text := range step.FindAllString(attribute(e, "d"), -1) {
		to := number.FindAllString(text, -1)
		if len(to) < 2 {
			continue
		}
		x, y := value(to[len(to)-2]), value(to[len(to)-1]) // also of an arc
		if i == 0 {
			s.left, s.right, s.low, s.high = x, x, y, y
		}
		s.left, s.right, s.low, s.high = min(s.left, x), max(s.right, x), min(s.low, y), max(s.high, y)
		ok = true
	}
	return s, ok
}

// blend paints one color over another.
func blend(under, over string, opacity float64) string {
	text := "#"
	for i := 1; i < 7; i += 2 {
		a, _ := strconv.ParseUint(under[i:i+2], 16, 8)
		b, _ := strconv.ParseUint(over[i:i+2], 16, 8)
		text += fmt.Sprintf("%02X", uint64(float64(a)*(1-opacity)+float64(b)*opacity+0.5))
	}
	return text
}

func value(text string) float64 {
	v, _ := strconv.ParseFloat(text, 64) // what is no number is 0
	return v
}
