package sluicehttp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/testkit/built"
)

// outlineOf returns what an outline says that its package documents, computed from all of raw, which is
// compact.
func outlineOf(raw []byte, inArray bool) []byte {
	var out bytes.Buffer
	switch d := json.NewDecoder(bytes.NewReader(raw)); raw[0] {
	case '"':
		if len(raw) > mostOfString {
			return []byte(`""`)
		}
		return raw
	case '{':
		_, _ = d.Token()
		out.WriteByte('{')
		for i := 0; d.More(); i++ {
			if i > 0 {
				out.WriteByte(',')
			}
			from := d.InputOffset()
			_, _ = d.Token()
			key := bytes.TrimPrefix(raw[from:d.InputOffset()], []byte(","))
			out.Write(outlineOf(key, inArray))
			out.WriteByte(':')
			var value json.RawMessage
			_ = d.Decode(&value)
			out.Write(outlineOf(value, inArray))
		}
		out.WriteByte('}')
	case '[':
		_, _ = d.Token()
		out.WriteByte('[')
		for i := 0; d.More(); i++ {
			if i > 0 {
				out.WriteByte(',')
			}
			var value json.RawMessage
			_ = d.Decode(&value)
			out.Write(outlineOf(value, true))
		}
		out.WriteByte(']')
		if !inArray && out.Len()-1 > mostOfArray {
			return []byte("[]")
		}
	default:
		return raw
	}
	return out.Bytes()
}

// wantOutline compares the outline of text, in parts of any size, with that of encoding/json.
func wantOutline(t *testing.T, text []byte, random *rand.Rand) {
	t.Helper()
	var o outline
	for rest := text; len(rest) > 0; {
		n := 1 + random.IntN(len(rest))
		if random.IntN(2) == 0 {
			n = min(n, 1+random.IntN(8))
		}
		o.add(rest[:n])
		rest = rest[n:]
		if most := 2*mostOfUsage + mostOfArray + mostOfString + 8; len(o.out) > most {
			t.Fatalf("%d bytes are kept", len(o.out))
		}
	}
	var compact bytes.Buffer
	if json.Compact(&compact, text) != nil {
		return // no panic, and bounded
	}
	want := outlineOf(compact.Bytes(), false)
	want = want[max(0, len(want)-mostOfUsage):]
	if got := bytes.Trim(o.out.last(), whitespace); !bytes.Equal(got, want) {
		t.Errorf("the outline of %.200q is\n%.300q, want\n%.300q", text, got, want)
	}
}

// anyJSON returns JSON of which values are short and long, nested and in any layout.
func anyJSON(random *rand.Rand, depth int) string {
	var b strings.Builder
	space := func() { b.WriteString([]string{"", "", " ", "\n\t"}[random.IntN(4)]) }
	text := func() {
		b.WriteByte('"')
		for range []int{0, 3, 40, mostOfString - 4 + random.IntN(8), 3000}[random.IntN(5)] {
			b.WriteString([]string{"a", "b", `\\`, `\"`, `\n`, "[", "}", "é", " ", `\u00e9`, "x", "y", "z", ":"}[random.IntN(14)])
		}
		b.WriteByte('"')
	}
	list := func(open, end string, member func()) {
		b.WriteString(open)
		for i := range []int{0, 1, 2, 5, 30}[random.IntN(5)] {
			if i > 0 {
				b.WriteByte(',')
			}
			space()
			member()
			space()
		}
		b.WriteString(end)
	}
	kind := random.IntN(6)
	if depth == 0 {
		kind = random.IntN(4)
	}
	switch kind {
	case 0:
		text()
	case 1:
		fmt.Fprint(&b, random.Float64()*1e3)
	case 2:
		b.WriteString([]string{"true", "null", "-1"}[random.IntN(3)])
	case 3:
		list("[", "]", func() { fmt.Fprint(&b, random.Uint32()) })
	case 4:
		list("[", "]", func() { b.WriteString(anyJSON(random, depth-1)) })
	default:
		list("{", "}", func() {
			text()
			space()
			b.WriteByte(':')
			space()
			b.WriteString(anyJSON(random, depth-1))
		})
	}
	return b.String()
}

func TestOutline_EqualsThatOfEncodingJSON(t *testing.T) {
	built.SkipRaced(t)
	cut := 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		text := anyJSON(random, 4)
		if len(text) > mostOfUsage {
			cut++
		}
		wantOutline(t, []byte(text), random)
	}
	if cut < 20 {
		t.Errorf("only %d of the texts are long", cut)
	}
}

func FuzzOutline(f *testing.F) {
	for seed := range uint64(20) {
		f.Add([]byte(anyJSON(rand.New(rand.NewPCG(seed, 2)), 2)), seed)
	}
	f.Add([]byte(`{"a":[1,2,{"b":"\\\""}],"usage":{"n":[]}}`), uint64(1))
	f.Add([]byte(`}]"\`), uint64(1))
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		wantOutline(t, text, rand.New(rand.NewPCG(seed, 3)))
	})
}

// longAnswers are JSON bodies with a usage of 44 tokens, padded with n bytes.
func longAnswers(n int) map[string]string {
	const usage = `"usage":{"prompt_tokens":30, "completion_tokens":14, "total_tokens":44}`
	text := strings.Repeat(`He said \"no\", and left.\n `, n/27)
	numbers := "[" + strings.TrimSuffix(strings.Repeat("-0.01234567,", n/12), ",") + "]"
	return map[string]string{
		"first, before texts":   `{"id":"r", ` + usage + `, "choices":[{"index":0,"text":"` + text + `"}]}`,
		"first, before numbers": `{` + usage + `,"data":[{"embedding":` + numbers + `}]}`,
		"between two":           `{"instructions":"` + text + `",` + usage + `,"data":` + numbers + `}`,
		"in an object":          "{\n  \"response\": {\n    \"output\": \"" + text + `", ` + usage + `, "tools": "` + text + "\"\n  }\n}",
		"in an array":           `{"choices":[{"text":"` + text + `",` + usage + `}],"data":` + numbers + `}`,
		"last":                  `{"data":` + numbers + `,` + usage + `}`,
	}
}

// The excerpt of a long body is JSON with the usage, wherever that stands.
func TestExcerpt_HasTheUsageWhereverItStands(t *testing.T) {
	built.SkipRaced(t)
	for _, n := range []int{100, 60 << 10, 70 << 10, 1 << 20} {
		for name, body := range longAnswers(n) {
			for _, size := range []int{1, 4096, 1 << 20} {
				var e excerpt
				for r := strings.NewReader(body); r.Len() > 0; {
					p := make([]byte, min(size, r.Len()))
					_, _ = io.ReadFull(r, p)
					e.add(p)
				}
				if part := e.bytes(); !json.Valid(part) || !bytes.Contains(part, []byte(`"total_tokens":44`)) || len(part) > mostOfUsage {
					t.Errorf("%s, %d bytes in parts of %d: the excerpt is %.200q", name, len(body), size, part)
				}
			}
		}
	}
}

func BenchmarkExcerpt(b *testing.B) {
	for name, body := range longAnswers(200 << 10) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				var e excerpt
				for p := []byte(body); len(p) > 0; {
					n := min(len(p), 16<<10)
					e.add(p[:n])
					p = p[n:]
				}
			}
		})
	}
}

func BenchmarkDecoderToken(b *testing.B) { // the naive twin
	for name, body := range longAnswers(200 << 10) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				for d := json.NewDecoder(strings.NewReader(body)); ; {
					if _, err := d.Token(); err != nil {
						break
					}
				}
			}
		})
	}
}
