// Package presets has a [sluicehttp.Config] for each of some providers. A program may change it:
//
//	cfg := presets.OpenAI()
//	cfg.Gate.Concurrency = 64
//	transport, err := sluicehttp.New(nil, cfg)
//	…
//	client := openai.NewClient(option.WithHTTPClient(&http.Client{Transport: transport}))
//
// A preset says which requests share a gate, and which POSTs may be sent twice. The limits of an
// account are those that the headers of responses show. Other APIs need no preset: docs/429.md has a
// table of those that a Transport recognizes.
//
// # SDKs
//
// SDKs take an *http.Client and keep their own retries: these know which calls may be repeated.
// Their timeouts also cover the time in the queue, so with n concurrent calls and a rate of r they
// must be longer than n/r. docs/http.md lists where each takes the client, and what else to set.
//
// # Tokens
//
// The cost of a request to a model is an estimate: 3.5 bytes of text are a token of input, and the
// output is the maximum that the request states or, without one, twice the average of the last
// responses. The usage in the response corrects it. [WithTokenizer] counts the input exactly.
package presets
