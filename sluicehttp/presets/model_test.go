package presets

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

func TestModelIn(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"m"}`: "m",
		` { "messages" : [ "a" ] , "model" : "m" , "n" : 1 }`:              "m",
		`{"model":"a \"b\" é \\"}`:                                         `a "b" é \`,
		`{"a":{"model":"no"},"b":["model","x"],"model":"yes"}`:             "yes",
		`{"a":"model","b":"\"model\":\"no\"","model":"yes"}`:               "yes",
		`{"models":"no","mode":"no"}`:                                      "",
		`{"model":7}`:                                                      "",
		`{"model":7,"n":"no"}`:                                             "",
		`{"model":null,"model":"second"}`:                                  "second",
		`{"model":["no"]}`:                                                 "",
		`{"model":{"a":"no"},"b":"no"}`:                                    "",
		`["model","no"]`:                                                   "",
		`{"a":1}{"model":"no"}`:                                            "",
		`{"messages":["` + strings.Repeat(`\"x`, 5000) + `"],"model":"m"}`: "m",
		`{"model":"cut`:                                                    "",
		`{}{"model":"no"}`:                                                 "",
		``:                                                                 "",
		`}`:                                                                "",
	} {
		if got := stringIn(strings.NewReader(body), `"model"`); got != want {
			t.Errorf("%.60s: got %q, want %q", body, got, want)
		}
		if got := stringIn(iotest.OneByteReader(strings.NewReader(body)), `"model"`); got != want {
			t.Errorf("%.60s, byte by byte: got %q, want %q", body, got, want)
		}
	}
}

// It finds what encoding/json does, but for names that are spelled with escapes.
func FuzzModelIn(f *testing.F) {
	for _, body := range []string{`{"model":"m","a":[{"model":1}],"b":"\\\""}`, `{"a":{},"model":"x"}`, `[]`, `{"model":null}`} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		var fields map[string]any
		if json.Unmarshal([]byte(body), &fields) != nil || strings.Count(body, `odel`) != 1 || strings.Contains(body, `\u`) {
			return
		}
		want, _ := fields["model"].(string)
		if got := stringIn(strings.NewReader(body), `"model"`); got != want {
			t.Errorf("%q: got %q, want %q", body, got, want)
		}
	})
}

// A large prompt costs no memory: with a decoder it was 3.7 times its length.
func TestModelIn_BuildsNothing(t *testing.T) {
	body := `{"messages":[{"content":"` + strings.Repeat("word ", 20_000) + `"}],"model":"m"}`
	if n := testing.AllocsPerRun(100, func() { stringIn(strings.NewReader(body), `"model"`) }); n > 6 {
		t.Errorf("%v allocations", n)
	}
}

// The key of a request with a prompt of 100 KB before its model.
func BenchmarkHostAndModel(b *testing.B) {
	body := `{"messages":[{"content":"` + strings.Repeat("word ", 20_000) + `"}],"model":"m"}`
	req, err := http.NewRequest(http.MethodPost, "https://api.example/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if hostAndModel(req) != "https://api.example m" {
			b.Fatal("no model")
		}
	}
}
