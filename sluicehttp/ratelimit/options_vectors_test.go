package ratelimit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// otherVectors is the environment variable that names another file of vectors,
// to be read besides ours.
const otherVectors = "SLUICE_HEADER_VECTORS"

// A vector is one header and what it means. Waits are in milliseconds.
type vector struct {
	Name   string
	Status int
	Header [][2]string
	Now    time.Time
	Want   struct {
		Throttled   bool
		RetryAfter  *json.Number `json:"retry_after_ms"`
		ShouldRetry *bool        `json:"should_retry"`
		Limits      []struct {
			Name       string
			Max        *json.Number
			Remaining  *json.Number
			ResetAfter *json.Number `json:"reset_after_ms"`
		}
	}
}

// TestParse_Vectors reads testdata/headers.jsonl, in which waits are exact to a
// nanosecond, and the file that SLUICE_HEADER_VECTORS names, in which they may
// be rounded up or down to a millisecond.
func TestParse_Vectors(t *testing.T) {
	run := func(file string, strict bool, slack time.Duration) {
		for i, v := range readVectors(t, file, strict) {
			t.Run(fmt.Sprintf("%d/%s", i+1, v.Name), func(t *testing.T) {
				for _, spell := range spellings {
					header := http.Header{}
					for _, h := range v.Header {
						name := spell(h[0])
						header[name] = append(header[name], h[1])
					}
					s, warnings := Parse(v.Status, header, v.Now)
					if err := v.check(s, slack); err != nil {
						t.Fatalf("%v\nstatus %d, header %.200q\ngot  %+v\nwarnings %v", err, v.Status, header, s, warnings)
					}
				}
			})
		}
	}
	run("testdata/headers.jsonl", true, 0)
	if file := os.Getenv(otherVectors); file != "" {
		run(file, false, time.Millisecond-1)
	}
}

// spellings are those of net/http, of HTTP/2, and of people.
var spellings = []func(string) string{
	http.CanonicalHeaderKey,
	strings.ToLower,
	func(s string) string { return s },
}

// readVectors reads the vectors in a file. If it is strict they have no members
// that a vector does not.
func readVectors(t *testing.T, file string, strict bool) (vectors []vector) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var v vector
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		if strict {
			d.DisallowUnknownFields()
		}
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%s:%d: %v", file, n, err)
		}
		if v.Name == "" || v.Now.IsZero() {
			t.Fatalf("%s:%d: without a name or a time", file, n)
		}
		vectors = append(vectors, v)
	}
	if len(vectors) == 0 {
		t.Fatalf("%s: no vectors", file)
	}
	return vectors
}

// check returns how s differs from what v wants. Waits may differ by slack.
func (v *vector) check(s Info, slack time.Duration) error {
	w := &v.Want
	wait := func(what string, want *json.Number, at time.Time) error {
		if (want == nil) != at.IsZero() {
			return fmt.Errorf("%s: got %v, want %s ms after %v", what, at, show(want), v.Now)
		}
		if want == nil {
			return nil
		}
		if got := at.Sub(v.Now); !near(got, *want, slack) {
			return fmt.Errorf("%s: got %v, want %s ms", what, got, show(want))
		}
		return nil
	}
	amount := func(what string, want *json.Number, got Amount) error {
		if _, known := got.Value(); (want == nil) == known || want != nil && rat(got.String()).Cmp(rat(want.String())) != 0 {
			return fmt.Errorf("%s: got %v, want %s", what, got, show(want))
		}
		return nil
	}
	if s.Throttled != w.Throttled {
		return fmt.Errorf("throttled: got %v, want %v", s.Throttled, w.Throttled)
	}
	if err := wait("retry_after_ms", w.RetryAfter, s.RetryAt); err != nil {
		return err
	}
	if !reflect.DeepEqual(s.ShouldRetry, w.ShouldRetry) {
		return fmt.Errorf("should_retry: got %v, want %v", s.ShouldRetry, w.ShouldRetry)
	}
	if len(s.Limits) != len(w.Limits) {
		return fmt.Errorf("limits: got %d, want %d", len(s.Limits), len(w.Limits))
	}
	for i, want := range w.Limits {
		got := s.Limits[i]
		if got.Name != want.Name {
			return fmt.Errorf("limit %d: got name %q, want %q", i, got.Name, want.Name)
		}
		for _, err := range []error{
			amount("max", want.Max, got.Max),
			amount("remaining", want.Remaining, got.Remaining),
			wait("reset_after_ms", want.ResetAfter, got.ResetAt),
		} {
			if err != nil {
				return fmt.Errorf("limit %q: %w", got.Name, err)
			}
		}
	}
	return nil
}

// near reports whether got is want milliseconds, give or take slack.
func near(got time.Duration, want json.Number, slack time.Duration) bool {
	diff := new(big.Rat).Mul(rat(want.String()), big.NewRat(1e6, 1))
	diff.Sub(diff, new(big.Rat).SetInt64(int64(got)))
	return diff.Abs(diff).Cmp(new(big.Rat).SetInt64(int64(slack))) <= 0
}

func rat(s string) *big.Rat {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		panic("no number: " + s)
	}
	return r
}

func show(n *json.Number) string {
	if n == nil {
		return "null"
	}
	return n.String()
}

// What compares must be able to say no: to each member that is wrong, and to a
// wait that is off by a nanosecond or, elsewhere, a millisecond.
func TestParse_VectorsCanFail(t *testing.T) {
	const good = `{"throttled":true,"retry_after_ms":1500,"should_retry":true,"limits":[{"name":"a","max":10,"remaining":0.5,"reset_after_ms":2000.000001}]}`
	s := Info{Throttled: true, RetryAt: in(1500 * time.Millisecond), ShouldRetry: new(true), Limits: []Limit{{
		Name: "a", Max: amountOf(10), Remaining: amount("0.5"), ResetAt: in(2*time.Second + 1)}}}
	for _, tt := range []struct {
		old, new string
		slack    time.Duration
		ok       bool
	}{
		{"", "", 0, true},
		{"true,\"retry", "false,\"retry", 0, false},
		{"1500", "1500.000001", 0, false},
		{"1500", "1500.999999", time.Millisecond - 1, true},
		{"1500", "1501", time.Millisecond - 1, false},
		{"1500", "1499", time.Millisecond - 1, false},
		{"1500", "null", time.Millisecond - 1, false},
		{`"should_retry":true`, `"should_retry":false`, 0, false},
		{`"should_retry":true`, `"should_retry":null`, 0, false},
		{`"a"`, `"b"`, 0, false},
		{"10", "11", 0, false},
		{"10", "null", 0, false},
		{"0.5", "0", 0, false},
		{"2000.000001", "2000", 0, false},
		{"2000.000001", "2000", time.Millisecond - 1, true},
		{"2000.000001", "null", 0, false},
		{`[{`, `[{"name":""},{`, 0, false},
	} {
		v := vector{Now: arrival}
		if err := json.Unmarshal([]byte(strings.Replace(good, tt.old, tt.new, 1)), &v.Want); err != nil {
			t.Fatal(err)
		}
		if err := v.check(s, tt.slack); (err == nil) != tt.ok {
			t.Errorf("%s for %s: got %v", tt.new, tt.old, err)
		}
	}
	if err := (&vector{Now: arrival}).check(s, 0); err == nil {
		t.Error("nothing wanted: no error")
	}
}
