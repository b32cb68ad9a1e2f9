package presets

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
)

// A token of input is estimated for every bytesPerToken of text in the JSON, and tokensPerText for
// each text. The output is the maximum that the request states, for OpenAI times n; without one,
// twice the average of the last responses. For Anthropic, which does not count the maximum, it is at
// most that, but not less than firstOutput if the maximum is not. A call that takes less leaves
// some tokens in reserve, and one that takes more may be throttled, so the estimates are rather too
// high. If calls are throttled although enough remained for their estimate, later ones are expected
// to need more.
const (
	bytesPerToken   = 3.5  // less than the 4 of English, so estimates are high
	tokensPerText   = 3    // for its role and the like
	tokensPerFile   = 1000 // of an image
	firstOutput     = 1000 // expected before the first response
	shortestEncoded = 1000 // bytes without a space
)

// WithTokenizer returns cfg, that of OpenAI or Anthropic, with a tokenizer: count counts the tokens
// of a request by its path and the JSON of its body, without the output. body is cut after 1 MiB,
// and nil if it cannot be read twice.
//
//	cfg := presets.WithTokenizer(presets.OpenAI(), count)
func WithTokenizer(cfg sluicehttp.Config, count func(path string, body []byte) int64) sluicehttp.Config {
	if cost := cfg.Cost; cost != nil && count != nil {
		cfg.Cost = func(req *http.Request, body []byte) sluice.Costs {
			return cost(req.WithContext(context.WithValue(req.Context(), tokenizerKey{}, count)), body)
		}
	}
	return cfg
}

type tokenizerKey struct{}

// A request has the relevant fields of the body of a request to a model.
type request struct {
	input     int64 // estimated, or by the tokenizer
	maxOutput int64 // tokens per choice; 0 if not stated
	choices   int64
}

// readRequest reads body, the beginning of the body of req.
func readRequest(req *http.Request, body []byte) request {
	r := readBody(body, req.ContentLength)
	if count, ok := req.Context().Value(tokenizerKey{}).(func(path string, body []byte) int64); ok {
		r.input = count(req.URL.Path, body)
	}
	return r
}

// readBody reads body, the beginning of a body of length bytes, which is JSON.
func readBody(body []byte, length int64) request {
	r := request{choices: 1}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var key string    // of the next value
	var inside []bool // an object, and not an array, for each level
	isKey := false
	for {
		token, err := d.Token()
		if err != nil { // the end, or it is cut, or not JSON
			if length > int64(len(body)) {
				r.input += tokensOfRest(body[d.InputOffset():], length-d.InputOffset())
			}
			return r
		}
		name, ok := token.(string)
		if isKey && ok {
			key, isKey = name, false
			continue
		}
		switch v := token.(type) {
		case json.Delim:
			if v == '{' || v == '[' {
				inside = append(inside, v == '{')
			} else {
				inside = inside[:len(inside)-1]
			}
		case string:
			if len(inside) > 1 || key != "model" {
				r.input += tokensOf(v)
			}
		case json.Number:
			if n, err := v.Int64(); err == nil && len(inside) == 1 {
				r.set(key, n)
			}
		}
		isKey = len(inside) > 0 && inside[len(inside)-1]
	}
}

// mostTokens is more than any model writes, and little enough that sums do not overflow.
const mostTokens = 1e9

// set sets the field for key of the body, if its value is positive.
func (r *request) set(key string, n int64) {
	if n <= 0 {
		return
	}
	switch n = min(n, mostTokens); key {
	case "max_tokens", "max_completion_tokens", "max_output_tokens":
		r.maxOutput = max(r.maxOutput, n)
	case "n":
		r.choices = n
	}
}

// tokensOf estimates the tokens of s, which may be an encoded file.
func tokensOf(s string) int64 {
	if strings.HasPrefix(s, "data:") || len(s) >= shortestEncoded && !strings.ContainsAny(s[:shortestEncoded], " \n") {
		return tokensPerFile
	}
	return int64(float64(len(s))/bytesPerToken) + tokensPerText
}

// tokensOfRest estimates the tokens of a text that begins with rest and has length bytes. It may be
// one text, or one encoded file.
func tokensOfRest(rest []byte, length int64) int64 {
	if start := bytes.TrimLeft(rest, " \t\r\n:,\""); tokensOf(string(start[:min(len(start), shortestEncoded)])) == tokensPerFile {
		return tokensPerFile
	}
	return int64(float64(length) / bytesPerToken)
}

// An average is that of the last outputs.
type average struct {
	mu   sync.Mutex
	mean float64
}

// add adds an output.
func (a *average) add(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mean == 0 {
		a.mean = float64(n)
	}
	a.mean += (float64(n) - a.mean) / 16
}

// expected returns how many tokens to expect: twice the average.
func (a *average) expected() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mean == 0 {
		return firstOutput
	}
	return int64(math.Ceil(2 * a.mean))
}

// usageIn decodes the last "usage" in part, which is JSON or the end of JSON, into v, and
// reports whether there is one. A quote within a string is escaped, so it is a key.
func usageIn(part []byte, v any) bool {
	const name = `"usage"`
	for {
		i := bytes.LastIndex(part, []byte(name))
		if i < 0 {
			return false
		}
		after, colon := bytes.CutPrefix(bytes.TrimLeft(part[i+len(name):], " \t\r\n"), []byte(":"))
		if colon && (i == 0 || part[i-1] != '\\') {
			after = bytes.TrimLeft(after, " \t\r\n")
			return bytes.HasPrefix(after, []byte("{")) && json.NewDecoder(bytes.NewReader(after)).Decode(v) == nil
		}
		part = part[:i]
	}
}

// toModel reports whether req is a POST to a path that ends with one of paths.
func toModel(req *http.Request, paths ...string) bool {
	if req.Method != http.MethodPost || req.URL == nil {
		return false
	}
	for _, path := range paths {
		if strings.HasSuffix(req.URL.Path, path) {
			return true
		}
	}
	return false
}

// hostAndModel is a Config.Key: limits are those of a model, at Azure of a deployment.
func hostAndModel(req *http.Request) string {
	key := hostOf(req)
	if _, deployment, found := strings.Cut(req.URL.Path, "/openai/deployments/"); found {
		deployment, _, _ = strings.Cut(deployment, "/")
		return key + " " + deployment
	}
	if req.Method != http.MethodPost || req.GetBody == nil {
		return key
	}
	body, err := req.GetBody()
	if err != nil {
		return key // and so will the request
	}
	defer body.Close()
	if model := stringIn(io.LimitReader(body, mostRead), `"model"`); model != "" {
		return key + " " + model
	}
	return key
}

const mostRead = 1 << 20
