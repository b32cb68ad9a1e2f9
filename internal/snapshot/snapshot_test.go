package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
)

type state struct {
	Count int64    `json:"count"`
	Name  string   `json:"name,omitempty"`
	Pair  [2]int64 `json:"pair"`
}

func TestOpen_WhatWasSealed(t *testing.T) {
	for _, want := range []state{{}, {1, "é <&> \u2028 \x00", [2]int64{math.MinInt64, math.MaxInt64}}} {
		data := Seal("thing", want)
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, data, "\t", "  "); err != nil {
			t.Fatal(err)
		}
		for _, data := range [][]byte{data, pretty.Bytes()} {
			if got, err := Open[state](data, "thing"); err != nil || got != want {
				t.Errorf("%s: %v, %v", data, got, err)
			}
		}
	}
	const format = `{"version":1,"crc32":2539148791,"thing":{"count":7,"pair":[1,2]}}`
	if got := string(Seal("thing", state{Count: 7, Pair: [2]int64{1, 2}})); got != format {
		t.Errorf("%s, want %s", got, format)
	}
}

func TestOpen_WhatIsNotASnapshot(t *testing.T) {
	good := string(Seal("thing", state{7, "x", [2]int64{1, 2}}))
	sealed := func(kind, inner string) string {
		return fmt.Sprintf(`{"version":1,"crc32":%d,%q:%s}`, crc32.ChecksumIEEE([]byte(inner)), kind, inner)
	}
	if inner := `{"count":7,"name":"x","pair":[1,2]}`; sealed("thing", inner) != good {
		t.Fatalf("%s, want %s", sealed("thing", inner), good)
	}
	for _, c := range []struct{ data, says string }{
		{"", "unexpected end"},
		{"null", "version 0"},
		{"7", "cannot unmarshal"},
		{"[]", "cannot unmarshal"},
		{"{}", "version 0, not 1"},
		{`{"version":1}`, "not of a thing"},
		{good[:len(good)-1], "unexpected end"},
		{good + "}", "after top-level"},
		{good + good, "after top-level"},
		{strings.Replace(good, `:1,`, `:2,"new":1,`, 1), "version 2, not 1"},
		{strings.Replace(good, `:1,`, `:99999999999999999999,`, 1), "cannot unmarshal"},
		{strings.Replace(good, "version", "VERSION", 1), "damaged"},
		{strings.Replace(good, `{"version":1,`, `{"version":1,"version":1,`, 1), "damaged"},
		{strings.Replace(good, `{"version":1,`, `{"version":1,"more":1,`, 1), "damaged"},
		{strings.Replace(good, `"crc32":`, `"crc32":1`, 1), "damaged"},
		{strings.Replace(good, "7", "8", 1), "damaged"},
		{sealed("other", `{"count":7,"pair":[1,2]}`), "not of a thing"},
		{sealed("THING", `{"count":7,"pair":[1,2]}`), "not of a thing"},
		{strings.TrimSuffix(good, "}") + `,"other":{}}`, "damaged"},
		{sealed("thing", "null"), "damaged"},
		{sealed("thing", "7"), "cannot unmarshal"},
		{sealed("thing", "{}"), "damaged"},
		{sealed("thing", `{"count":7,"pair":[1,2],"more":1}`), "damaged"},
		{sealed("thing", `{"count":7,"pair":[1]}`), "damaged"},
		{sealed("thing", `{"count":7,"pair":[1,2,3]}`), "damaged"},
		{sealed("thing", `{"count":8,"count":7,"pair":[1,2]}`), "damaged"},
		{sealed("thing", `{"COUNT":7,"pair":[1,2]}`), "damaged"},
		{sealed("thing", `{"pair":[1,2],"count":7}`), "damaged"},
		{sealed("thing", `{"count":7.0,"pair":[1,2]}`), "cannot unmarshal"},
		{sealed("thing", `{"count":-0,"pair":[1,2]}`), "damaged"},
		{sealed("thing", `{"count":9223372036854775808,"pair":[1,2]}`), "cannot unmarshal"},
		{sealed("thing", `{"count":1e400,"pair":[1,2]}`), "cannot unmarshal"},
		{sealed("thing", "{\"count\":7,\"name\":\"\xff\",\"pair\":[1,2]}"), "damaged"},
	} {
		got, err := Open[state]([]byte(c.data), "thing")
		if !errors.Is(err, limits.ErrSnapshot) || !strings.Contains(err.Error(), c.says) || got != (state{}) {
			t.Errorf("%s: %v, %v, want %q", c.data, got, err, c.says)
		}
		if strings.Count(err.Error(), c.says) > 1 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: says its cause twice: %v", c.data, err)
		}
	}
}

func TestAge(t *testing.T) {
	for _, c := range []struct {
		now, at int64
		want    time.Duration
	}{
		{100, 100, 0}, {100, 99, 1}, {100, 101, 0}, {1e18, 0, 1e18},
		{1e18, math.MinInt64, math.MaxInt64}, // nor does it wrap around to 0
		{-1e18, math.MaxInt64, 0},
		{math.MaxInt64, math.MinInt64, math.MaxInt64}, {math.MinInt64, math.MaxInt64, 0},
	} {
		if got := Age(time.Unix(0, c.now), c.at); got != c.want {
			t.Errorf("Age(%d, %d) = %v, want %v", c.now, c.at, got, c.want)
		}
	}
}
