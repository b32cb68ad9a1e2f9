package cli

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
)

// Duration returns a flag for a time. Unlike flag.Duration it says what a number
// without a unit was meant to be.
func Duration(d *time.Duration) flag.Value { return durationValue{d} }

type durationValue struct{ *time.Duration }

func (v durationValue) String() string {
	if v.Duration == nil {
		return ""
	}
	return v.Duration.String()
}

func (v durationValue) Set(text string) (err error) {
	if *v.Duration, err = time.ParseDuration(text); err == nil {
		return nil
	}
	if _, isNumber := strconv.ParseFloat(text, 64); isNumber == nil {
		return fmt.Errorf("did you mean %ss?", text)
	}
	return err
}

// Rate returns a flag for a rate. The value auto is no rate: the gate then finds out
// what the server allows (sluice.Adaptive).
func Rate(r *sluice.Rate) flag.Value { return rateValue{r} }

type rateValue struct{ *sluice.Rate }

func (v rateValue) String() string {
	if v.Rate == nil || *v.Rate == (sluice.Rate{}) {
		return ""
	}
	return v.Rate.String()
}

func (v rateValue) Set(text string) error {
	if text == "auto" {
		*v.Rate = sluice.Rate{}
		return nil
	}
	err := v.UnmarshalText([]byte(text))
	if err == nil {
		return nil
	}
	count, rest, _ := cutNumber(text)
	switch {
	case count == "":
		return err
	case rest == "":
		return fmt.Errorf("did you mean %s/s?", count)
	}
	if f, wrong := strconv.ParseFloat(count, 64); wrong == nil && f > 0 && f < 1 && (rest == "/s" || rest == "/m" || rest == "/h") {
		return fmt.Errorf("%w; did you mean 1/%s%s?", err, strconv.FormatFloat(1/f, 'g', 3, 64), rest[1:])
	}
	return err
}

// cutNumber cuts a number off the beginning of a text.
func cutNumber(text string) (number, rest string, ok bool) {
	i := 0
	for i < len(text) && (text[i] >= '0' && text[i] <= '9' || text[i] == '.') {
		i++
	}
	return text[:i], text[i:], i > 0
}

// Roughly writes a time to be glanced at.
func Roughly(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Microsecond).String()
}

// Choice returns a flag whose value is one of some words.
func Choice(to *string, words ...string) flag.Value { return choice{to, words} }

type choice struct {
	to    *string
	words []string
}

func (c choice) String() string {
	if c.to == nil {
		return ""
	}
	return *c.to
}

func (c choice) Set(text string) error {
	if !slices.Contains(c.words, text) {
		return fmt.Errorf("must be %s", strings.Join(c.words, " or "))
	}
	*c.to = text
	return nil
}
