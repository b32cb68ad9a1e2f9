package presets

import (
	"encoding/json"
	"net/http"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// openAIModels are the paths that only compute, so that a request may be sent twice, and
// openAIWriters those of them that have an output.
var (
	openAIWriters = []string{"/chat/completions", "/completions", "/responses"}
	openAIModels  = append([]string{"/embeddings", "/moderations"}, openAIWriters...)
)

// OpenAI returns a Config for the API of OpenAI and for compatible servers, such as those of Azure,
// Groq and vLLM. Each model has a gate: its key is the host and the name of the model, at Azure of
// the deployment. The limits of requests and of tokens that the headers publish are honored.
// Requests to a model may be sent twice. A 429 because there is no credit is not retried.
//
// The Usage settles with usage.total_tokens, which a stream of chat completions sends only with
// stream_options.include_usage; otherwise the estimate stays.
func OpenAI() sluicehttp.Config {
	var outputs average
	return sluicehttp.Config{
		Key:        hostAndModel,
		Idempotent: func(req *http.Request, _ []byte) bool { return toModel(req, openAIModels...) },
		Inspect:    whichLimit,
		Cost:       openAICost(&outputs),
		Usage:      openAIUsage(&outputs),
	}
}

// openAICost estimates the amount of a request in the unit "tokens".
func openAICost(outputs *average) func(*http.Request, []byte) sluice.Costs {
	return func(req *http.Request, body []byte) sluice.Costs {
		if !toModel(req, openAIModels...) {
			return nil
		}
		r := readRequest(req, body)
		if toModel(req, openAIWriters...) {
			if r.maxOutput == 0 {
				r.maxOutput = outputs.expected()
			}
			r.input += r.maxOutput * r.choices
		}
		return sluice.Costs{"tokens": r.input}
	}
}

// openAIUsage reads the usage of completions, responses and embeddings.
func openAIUsage(outputs *average) func(*http.Response, []byte, sluice.Costs) {
	return func(resp *http.Response, part []byte, used sluice.Costs) {
		var u struct {
			Total      int64 `json:"total_tokens"`
			Completion int64 `json:"completion_tokens"`
			Output     int64 `json:"output_tokens"`
		}
		if !usageIn(part, &u) || u.Total <= 0 {
			return
		}
		used["tokens"] = u.Total
		if out := max(u.Completion, u.Output); out > 0 {
			outputs.add(out)
		}
	}
}

// whichLimit is a Config.Inspect that reads the error of a 429: which limit it was, "tokens" or
// "requests", or that there is no credit, which no waiting ends.
func whichLimit(resp *http.Response, peek func() []byte, said *ratelimit.Info) {
	if resp.StatusCode != http.StatusTooManyRequests {
		return
	}
	var answer struct {
		Error struct {
			Code string `json:"code"`
			Type string `json:"type"`
		} `json:"error"`
	}
	if json.Unmarshal(peek(), &answer) != nil {
		return
	}
	switch e := answer.Error; {
	case e.Code == "insufficient_quota" || e.Type == "insufficient_quota":
		said.ShouldRetry, said.Reason = new(false), "insufficient_quota"
	case e.Type == "tokens" || e.Type == "requests":
		said.Reason = e.Type
	}
}
