package recipes

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/presets"
	"github.com/sluice-go/sluice/sluicetest"
)

func openaiClient(base http.RoundTripper, key string) (openai.Client, error) {
	// begin openai-go
	transport, err := sluicehttp.New(base, presets.OpenAI())
	if err != nil {
		return openai.Client{}, err
	}
	client := openai.NewClient(
		option.WithAPIKey(key),
		option.WithHTTPClient(&http.Client{Transport: transport}),
	)
	// end openai-go
	return client, nil
}

const completion = `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"ok"}}]}`

var hello = openai.ChatCompletionNewParams{
	Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")},
}

func TestOpenAI(t *testing.T) {
	layers := map[string][]sluicetest.Layer{
		"limited":    {sluicetest.Enforce(sluicetest.Limit{Count: 500, Per: time.Minute, Burst: 5, HeaderStyle: sluicetest.OpenAI})},
		"throttling": {sluicetest.On(20, sluicetest.Status(429, "Retry-After: 20"))},
		"failing":    {sluicetest.On(20, sluicetest.Status(500))},
	}
	for name, want := range map[string]promised{
		"limited":    {ok: 100, refused: 10}, // before the first headers, and while the gate learns
		"throttling": {ok: 100, failed: 1},
		"failing":    {ok: 100, failed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			seen := server(t, func(ctx context.Context, base http.RoundTripper) {
				client, err := openaiClient(base, "key")
				if err != nil {
					t.Fatal(err)
				}
				parallel(t, 100, func() error {
					_, err := client.Chat.Completions.New(ctx, hello)
					return err
				})
			}, append(layers[name], sluicetest.Reply(200, completion, "Content-Type: application/json"))...)
			want.attempts, want.first = "X-Stainless-Retry-Count", "0"
			want.check(t, seen)
		})
	}
}

// Streams are read to their last event, and their limits hold as well.
func TestOpenAI_Stream(t *testing.T) {
	const events = 4
	stream := sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range events {
			fmt.Fprintf(w, "data: %s\n\n", `{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"ok"}}]}`)
			w.(http.Flusher).Flush()
			time.Sleep(time.Second)
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	}))
	seen := server(t, func(ctx context.Context, base http.RoundTripper) {
		client, err := openaiClient(base, "key")
		if err != nil {
			t.Fatal(err)
		}
		parallel(t, 20, func() error {
			stream, n := client.Chat.Completions.NewStreaming(ctx, hello), 0
			defer stream.Close()
			for stream.Next() {
				n++
			}
			if stream.Err() == nil && n != events {
				t.Errorf("%d events, want %d", n, events)
			}
			return stream.Err()
		})
	}, sluicetest.Enforce(sluicetest.Limit{Count: 500, Per: time.Minute, Burst: 5, HeaderStyle: sluicetest.OpenAI}), stream)
	promised{ok: 20, refused: 10, attempts: "X-Stainless-Retry-Count", first: "0"}.check(t, seen)
}
