// Package presets has a [sluicehttp.Config] for each of some providers, adapted to their servers
// and SDKs. Each is plain data that a program may change:
//
//	cfg := presets.OpenAI()
//	cfg.Gate.Concurrency = 64
//	transport, err := sluicehttp.New(nil, cfg)
//	…
//	client := openai.NewClient(option.WithHTTPClient(&http.Client{Transport: transport}))
//
// A preset says which requests share a gate, and which POSTs may be sent twice. No limit of an
// account is set in advance: the headers of the responses show them. Other APIs need no preset:
// docs/429.md has a table of the APIs that a Transport recognizes.
//
// # SDKs
//
// All SDKs take an *http.Client, and keep their own retries: these know which calls may be
// repeated. Their timeouts also cover the time in the queue, so with n concurrent calls and a rate
// of r they must be longer than n/r.
//
//	openai-go         option.WithHTTPClient; for streams with a limit of tokens of your
//	                  own also StreamOptions.IncludeUsage
//	anthropic-sdk-go  option.WithHTTPClient; its timeout is 10 minutes, see
//	                  option.WithRequestTimeout
//	go-github         github.WithHTTPClient, github.WithDisableRateLimitCheck: its own check
//	                  fails calls that the transport would let wait
//	genai             genai.ClientConfig.HTTPClient
//	slack-go          slack.OptionHTTPClient
//	discordgo         Session.Client, with a timeout of 20 s
//	aws-sdk-go-v2     aws.Config.HTTPClient; a retryer whose RateLimiter is ratelimit.None,
//	                  because the retry budget of the gate limits its retries, too
//
// # Tokens
//
// A request to a model is estimated before it starts, without a tokenizer: 3.5 bytes of text are a
// token of input, and the output is the maximum that the request states or, without one, twice the
// average of the last responses. The usage in the response corrects that. [WithTokenizer] counts
// the input exactly.
package presets
