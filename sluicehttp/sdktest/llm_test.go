package sdktest

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/presets"
	"github.com/sluice-go/sluice/sluicetest"
)

const (
	completion = `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"ok"}}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`
	message    = `{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`
	tooMany    = `{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`
	rateLimit  = `{"type":"error","error":{"type":"rate_limit_error","message":"too many"}}`
	overloaded = `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`
	jsonKind   = "Content-Type: application/json"
)

// A completion takes some seconds, a refusal does not.
var atFiveHundred = sluicetest.Limit{Count: 500, Per: time.Minute, Burst: 50}

// completions is a server that takes 500 requests per minute, refuses more with the
// body refusal, answers with reply, and fails otherwise as faults say.
func completions(family sluicetest.HeaderStyle, refusal, reply string, faults []sluicetest.Layer) func() []sluicetest.Layer {
	return func() []sluicetest.Layer {
		limit := atFiveHundred
		limit.HeaderStyle = family
		layers := append([]sluicetest.Layer{latency(), limited(limit, 429, "application/json", refusal)}, faults...)
		return append(layers, sluicetest.Delay(3*time.Second), sluicetest.Reply(200, reply, jsonKind))
	}
}

// openaiJob is 300 completions from an account with 500 requests per minute, by a
// server that fails otherwise as faults say.
func openaiJob(faults []sluicetest.Layer, options ...option.RequestOption) job {
	return job{
		calls: 300, workers: 64,
		server: completions(sluicetest.OpenAI, tooMany, completion, faults),
		sdk: func(t *testing.T, client *http.Client) call {
			c := openai.NewClient(append([]option.RequestOption{
				option.WithAPIKey("k"), option.WithBaseURL("https://openai.test/v1"), option.WithHTTPClient(client),
			}, options...)...)
			return func(ctx context.Context, n int) error {
				_, err := c.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
					Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")},
				})
				return err
			}
		},
	}
}

// anthropicJob is the same for Anthropic.
func anthropicJob(faults []sluicetest.Layer, options ...anthropicoption.RequestOption) job {
	return job{
		calls: 300, workers: 64,
		server: completions(sluicetest.Anthropic, rateLimit, message, faults),
		sdk: func(t *testing.T, client *http.Client) call {
			c := anthropic.NewClient(append([]anthropicoption.RequestOption{
				anthropicoption.WithAPIKey("k"), anthropicoption.WithBaseURL("https://anthropic.test"), anthropicoption.WithHTTPClient(client),
			}, options...)...)
			return func(ctx context.Context, n int) error {
				_, err := c.Messages.New(ctx, anthropic.MessageNewParams{
					MaxTokens: 100, Model: "m", Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))},
				})
				return err
			}
		},
	}
}

// The SDK as it is, with no limit configured and nothing switched off: it repeats
// what fails, the transport repeats throttles and pauses. And with one loop only:
// its retries off, and each POST marked as one that may be repeated.
func TestCompletions(t *testing.T) {
	for _, f := range []struct {
		name   string
		faults []sluicetest.Layer
	}{
		{"no faults", nil},
		{"10 % 5xx", []sluicetest.Layer{sluicetest.Every(20, sluicetest.Status(500)), sluicetest.Every(21, sluicetest.Status(502))}},
		{"2 % 529", []sluicetest.Layer{sluicetest.Every(50, sluicetest.Reply(529, overloaded, jsonKind))}},
	} {
		for _, sdk := range []struct {
			name      string
			cfg       sluicehttp.Config
			asItIs    job
			noRetries job
		}{
			{"openai-go", sluicehttp.Config{}, openaiJob(f.faults), openaiJob(f.faults, option.WithMaxRetries(0))},
			{"anthropic-sdk-go", sluicehttp.Config{Inspect: presets.Anthropic().Inspect}, anthropicJob(f.faults), anthropicJob(f.faults, anthropicoption.WithMaxRetries(0))},
		} {
			t.Run(sdk.name+"/"+f.name, func(t *testing.T) {
				j, one := sdk.asItIs, sdk.noRetries
				alike := sdk.cfg
				alike.Retry.Attempts = 8 // of 300 calls, of which one in ten fails, 3 % lose one with 4
				j.through, one.through, one.idempotent = &sdk.cfg, &alike, true
				alone := j.alone().run(t, "alone")
				for _, j.http1 = range []bool{false, true} {
					y := j.run(t, "through the transport, as it is")
					// The SDK repeats a POST that failed twice: of 300 calls, of which one in ten
					// fails, it may lose one or two.
					if y.ok < j.calls-2 {
						t.Errorf("%d of %d calls succeed", y.ok, j.calls)
					}
					notWorse(t, y, alone)
				}
				y := one.run(t, "WithMaxRetries(0), idempotent")
				one.wantAll(t, y)
				notWorse(t, y, alone)
			})
		}
	}
}

// Without its retries, and without a word to the transport, a POST that fails by
// accident is final.
func TestCompletionsWithoutRetries(t *testing.T) {
	accident := []sluicetest.Layer{sluicetest.Every(20, sluicetest.Status(502))}
	for name, j := range map[string]job{
		"openai-go":        openaiJob(accident, option.WithMaxRetries(0)),
		"anthropic-sdk-go": anthropicJob(accident, anthropicoption.WithMaxRetries(0)),
	} {
		j.through = &sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: 500, Per: time.Minute}}}
		if y := j.run(t, name+", WithMaxRetries(0)"); y.ok == j.calls {
			t.Error("the documentation says that these calls are lost")
		}
	}
}

// With the rate of the account nothing is refused.
func TestCompletionsAtTheirRate(t *testing.T) {
	for name, j := range map[string]job{"openai-go": openaiJob(nil), "anthropic-sdk-go": anthropicJob(nil)} {
		j.through = &sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: 500, Per: time.Minute}}}
		y := j.run(t, name+" at 500/min")
		j.wantAll(t, y)
		if y.requests != j.calls || y.took > 40*time.Second {
			t.Errorf("%s: %v", name, y)
		}
	}
}
