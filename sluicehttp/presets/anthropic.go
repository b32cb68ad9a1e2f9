package presets

import (
	"bytes"
	"net/http"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/internal/inspect"
)

// Anthropic returns a Config for the API of Anthropic, also behind a gateway. Each model has a
// gate: its key is the host and the name of the model. The limits of requests, tokens, input and
// output that the headers publish are honored. Requests to /messages may be sent twice. An
// overloaded_error is a throttle with any status from 500, and the spend limit is final.
//
// The Usage settles with the usage of a message or of the events of its stream. Input that was read
// from a cache is not counted, as at Anthropic.
func Anthropic() sluicehttp.Config {
	var outputs average
	return sluicehttp.Config{
		Key:        hostAndModel,
		Idempotent: func(req *http.Request, _ []byte) bool { return toModel(req, "/messages") },
		Inspect:    inspect.Anthropic,
		Cost:       anthropicCost(&outputs),
		Usage:      anthropicUsage(&outputs),
	}
}

// anthropicCost estimates the amounts of a request in the units "tokens", "input" and "output".
func anthropicCost(outputs *average) func(*http.Request, []byte) sluice.Costs {
	return func(req *http.Request, body []byte) sluice.Costs {
		if !toModel(req, "/messages") {
			return nil
		}
		r := readRequest(req, body)
		// Anthropic counts the tokens of the answer, not max_tokens, which is often far more; a
		// gateway may count a max_tokens that is small.
		out := max(firstOutput, outputs.expected())
		if r.maxOutput > 0 {
			out = min(out, r.maxOutput)
		}
		return sluice.Costs{"tokens": r.input + out, "input": r.input, "output": out}
	}
}

// anthropicUsage reads the usage of a message. A stream has the input in its first event, with an
// output that is not the final one, and the output in one of its last.
func anthropicUsage(outputs *average) func(*http.Response, []byte, sluice.Costs) {
	return func(resp *http.Response, part []byte, used sluice.Costs) {
		var u struct {
			Input   *int64 `json:"input_tokens"`
			Created int64  `json:"cache_creation_input_tokens"`
			Output  *int64 `json:"output_tokens"`
		}
		if !usageIn(part, &u) {
			return
		}
		if u.Input != nil {
			used["input"] = *u.Input + u.Created
		}
		if u.Output == nil || bytes.Contains(part, []byte(`"message_start"`)) {
			return
		}
		used["output"] = *u.Output
		outputs.add(*u.Output)
		if input, ok := used["input"]; ok {
			used["tokens"] = input + *u.Output
		}
	}
}
