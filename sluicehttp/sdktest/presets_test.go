package sdktest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/google/go-github/v88/github"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/presets"
	"github.com/sluice-go/sluice/sluicetest"
)

// A tokenServer limits requests and tokens, takes what a request may use at most, and
// settles when the response ends.
func tokenServer(family sluicetest.HeaderStyle, refusal string, events func(in, out int64) []string, answer func(in, out int64) string) func() []sluicetest.Layer {
	type params struct {
		Stream              bool  `json:"stream"`
		MaxTokens           int64 `json:"max_tokens"`
		MaxCompletionTokens int64 `json:"max_completion_tokens"`
	}
	requests := sluicetest.Limit{Name: "requests", Count: 500, Per: time.Minute, Burst: 83, HeaderStyle: family, Body: refusal}
	tokens := sluicetest.Limit{Name: "tokens", Count: 60_000, Per: time.Minute, Burst: 10_000, HeaderStyle: family, Body: refusal}
	tokens.Cost = func(_ *http.Request, body []byte) int64 {
		var p params
		_ = json.Unmarshal(body, &p)
		return int64(len(body))/5 + max(p.MaxTokens, p.MaxCompletionTokens)
	}
	serve := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		var p params
		_ = json.Unmarshal(body, &p)
		in := int64(len(body)) / 5
		out := max(p.MaxTokens, p.MaxCompletionTokens) * (3 + in%6) / 10
		d := time.Duration(out) * 20 * time.Millisecond
		if p.Stream {
			sluicetest.Stream(w, r, d, events(in, out)...)
		} else {
			time.Sleep(d)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answer(in, out))
		}
		sluicetest.Settle(r, "tokens", in+out)
		tokensUsed.Add(in + out)
	}
	return func() []sluicetest.Layer {
		return []sluicetest.Layer{latency(), sluicetest.Enforce(requests, tokens), sluicetest.Handler(http.HandlerFunc(serve))}
	}
}

// tokensUsed is what the calls of the last job really used.
var tokensUsed atomic.Int64

// prompt is one of 100 to 300 words.
func prompt(n int) string { return strings.Repeat("word ", 100+n*71%200) }

// What is limited is what the SDK's user meets: 300 completions from an account with 500
// requests and 60,000 tokens per minute.
func openaiTokens(stream bool) job {
	events := func(in, out int64) []string {
		usage := fmt.Sprintf(`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, in, out, in+out)
		chunk := `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"ok"},"finish_reason":null}]}`
		return []string{chunk, chunk, chunk, usage, "data: [DONE]"}
	}
	answer := func(in, out int64) string {
		return strings.Replace(completion, `"prompt_tokens":1,"completion_tokens":1,"total_tokens":2`, fmt.Sprintf(`"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d`, in, out, in+out), 1)
	}
	return job{
		calls: 300, workers: 64,
		server: tokenServer(sluicetest.OpenAI, tooMany, events, answer),
		sdk: func(t *testing.T, client *http.Client) call {
			c := openai.NewClient(option.WithAPIKey("k"), option.WithBaseURL("https://openai.test/v1"), option.WithHTTPClient(client))
			return func(ctx context.Context, n int) error {
				p := openai.ChatCompletionNewParams{
					Model: "m", MaxCompletionTokens: openai.Int(int64(200 + n*37%300)),
					Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt(n))},
				}
				if !stream {
					_, err := c.Chat.Completions.New(ctx, p)
					return err
				}
				p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
				s := c.Chat.Completions.NewStreaming(ctx, p)
				defer s.Close()
				for s.Next() {
				}
				return s.Err()
			}
		},
	}
}

func anthropicTokens(stream bool) job {
	events := func(in, out int64) []string {
		return []string{
			fmt.Sprintf("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":%d,\"output_tokens\":1}}}", in),
			"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}",
			"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}",
			fmt.Sprintf("event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":%d}}", out),
			"event: message_stop\ndata: {\"type\":\"message_stop\"}",
		}
	}
	answer := func(in, out int64) string {
		return strings.Replace(message, `"input_tokens":1,"output_tokens":1`, fmt.Sprintf(`"input_tokens":%d,"output_tokens":%d`, in, out), 1)
	}
	return job{
		calls: 300, workers: 64,
		server: tokenServer(sluicetest.Anthropic, rateLimit, events, answer),
		sdk: func(t *testing.T, client *http.Client) call {
			c := anthropic.NewClient(anthropicoption.WithAPIKey("k"), anthropicoption.WithBaseURL("https://anthropic.test"), anthropicoption.WithHTTPClient(client))
			return func(ctx context.Context, n int) error {
				p := anthropic.MessageNewParams{
					MaxTokens: int64(200 + n*37%300), Model: "m",
					Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt(n)))},
				}
				if !stream {
					_, err := c.Messages.New(ctx, p)
					return err
				}
				s := c.Messages.NewStreaming(ctx, p)
				defer s.Close()
				for s.Next() {
				}
				return s.Err()
			}
		},
	}
}

// The presets know no limit, and the SDKs are as they are: all calls succeed, at most 2 are
// refused, and hardly any token is left unused.
func TestPresetsWithTokens(t *testing.T) {
	openAI, claude := presets.OpenAI(), presets.Anthropic()
	for _, c := range []struct {
		name string
		job  job
		cfg  sluicehttp.Config
		late time.Duration // besides the last stream, and the tokens that it reserves
	}{
		{"openai-go, streams", openaiTokens(true), openAI, 3 * time.Second},
		{"openai-go", openaiTokens(false), openAI, 14 * time.Second}, // which first waits for one response
		{"anthropic-sdk-go, streams", anthropicTokens(true), claude, 3 * time.Second},
		{"anthropic-sdk-go", anthropicTokens(false), claude, 14 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			alone := c.job.run(t, c.name+" alone")
			c.job.through = &c.cfg
			for _, c.job.http1 = range []bool{false, true} {
				tokensUsed.Store(0)
				y := c.job.run(t, c.name+" through the transport")
				c.job.wantAll(t, y)
				notWorse(t, y, alone)
				ideal := time.Duration(tokensUsed.Load()-10_000) * time.Millisecond
				if t.Logf("ideal: %v", ideal); y.refused > 2 || y.took > ideal+8*time.Second+c.late {
					t.Errorf("%d refused, took %v; want at most 2 and %v", y.refused, y.took, ideal+8*time.Second+c.late)
				}
			}
		})
	}
}

// With the presets the SDKs do as well under faults as with hand-made configurations.
func TestPresetsWithFaults(t *testing.T) {
	faults := []sluicetest.Layer{sluicetest.Every(20, sluicetest.Status(500)), sluicetest.Every(21, sluicetest.Status(502)), sluicetest.Every(50, sluicetest.Reply(529, overloaded, jsonKind))}
	s3, dynamo, hub := s3Job(), dynamoJob(), githubJob(github.WithDisableRateLimitCheck())
	openAI, claude := openaiJob(faults), anthropicJob(faults)
	for _, c := range []struct {
		name string
		job  job
		cfg  sluicehttp.Config
	}{
		{"openai-go", openAI, presets.OpenAI()},
		{"anthropic-sdk-go", claude, presets.Anthropic()},
		{"S3", s3, presets.AWS()},
		{"DynamoDB", dynamo, presets.AWS()},
		{"go-github", hub, presets.GitHub()},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.job.through = &c.cfg
			y := c.job.run(t, c.name+" through its preset")
			c.job.wantAll(t, y)
			notWorse(t, y, c.job.alone().run(t, c.name+" alone"))
			if c.name == "go-github" && y.refused > 0 {
				t.Errorf("%d refused, although the header says what remains", y.refused)
			}
		})
	}
}

// The window of GitHub is an hour.
func TestForGitHubForAnHour(t *testing.T) {
	j := githubJob(github.WithDisableRateLimitCheck())
	j.server = func() []sluicetest.Layer {
		limit := sluicetest.Limit{Quota: 50, Window: time.Hour, HeaderStyle: sluicetest.GitHub}
		return []sluicetest.Layer{latency(), limited(limit, 403, "application/json", `{"message":"API rate limit exceeded"}`), sluicetest.Reply(200, `{"name":"r"}`, jsonKind)}
	}
	cfg := presets.GitHub()
	j.through = &cfg
	y := j.run(t, "four windows of an hour")
	j.wantAll(t, y)
	if y.refused > 0 || y.requests != j.calls {
		t.Errorf("%v", y)
	}
}
