// Package svg finishes the pictures of this repository: a title and a description for people
// who do not see them, and colors for dark backgrounds.
package svg

import (
	"bytes"
	"fmt"
	"html"
	"regexp"
	"strings"
)

// dark maps each color of the pictures to that on a dark background. The light ones are from
// Okabe and Ito (Color Universal Design, 2008) and greys.
var dark = map[string]string{
	"#FFFFFF": "#0D1117", // the background
	"#222222": "#E6EDF3", // ink
	"#707070": "#9DA7B3", // grey
	"#777777": "#9DA7B3",
	"#E4E4E4": "#30363D", // lines of a grid
	"#E8E8E8": "#30363D",
	"#0072B2": "#6CBBFF", // blue
	"#56B4E9": "#2A78AE", // sky blue, darker than blue here
	"#BFE1F6": "#12324A", // water
	"#D55E00": "#F58A4B", // vermilion
	"#A84A00": "#F58A4B", // and of text, for which it is too bright on white
	"#E69F00": "#E8B23A", // orange
	"#FBEFD5": "#3A2F14", // pale orange
	"#009E73": "#3CC79A", // green
	"#CC79A7": "#E7A3C9", // pink
}

// paint finds the colors in the styles of elements.
var paint = regexp.MustCompile(`(fill|stroke):(#[0-9A-F]{6})`)

// Finish returns picture with a title and a description, which are not escaped yet, with
// fonts that more people have, and with a style for readers who prefer dark backgrounds. The
// colors of picture must be in style attributes, in upper case. It returns an error if one of
// them has no dark counterpart, or if picture is not SVG.
func Finish(picture []byte, title, description string) ([]byte, error) {
	// Liberation Sans has the widths of Arial and Helvetica.
	picture = bytes.ReplaceAll(picture, []byte("font-family:Liberation Sans"),
		[]byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif"))
	var rules strings.Builder
	known := make(map[string]bool)
	for _, m := range paint.FindAllStringSubmatch(string(picture), -1) {
		to := dark[m[2]]
		switch {
		case to == "":
			return nil, fmt.Errorf("svg: no dark counterpart of %s", m[2])
		case !known[m[0]]:
			known[m[0]] = true
			fmt.Fprintf(&rules, "[style*=\"%s\"]{%s:%s!important}\n", m[0], m[1], to)
		}
	}
	begin := bytes.Index(picture, []byte("<svg"))
	end := begin + bytes.IndexByte(picture[max(0, begin):], '>')
	if begin < 0 || end < begin {
		return nil, fmt.Errorf("svg: no picture in %.40q", picture)
	}
	var out bytes.Buffer
	out.Write(picture[:end])
	fmt.Fprintf(&out, " role=\"img\">\n<title>%s</title>\n<desc>%s</desc>\n", html.EscapeString(title), html.EscapeString(description))
	fmt.Fprintf(&out, "<style>@media (prefers-color-scheme:dark){\n%s}</style>", rules.String())
	out.Write(picture[end+1:])
	return out.Bytes(), nil
}
