package recipes

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/presets"
	"github.com/sluice-go/sluice/sluicetest"
)

func anthropicClient(base http.RoundTripper, key string) (anthropic.Client, error) {
	// begin anthropic-sdk-go
	transport, err := sluicehttp.New(base, presets.Anthropic())
	if err != nil {
		return anthropic.Client{}, err
	}
	client := anthropic.NewClient(
		option.WithAPIKey(key),
		option.WithHTTPClient(&http.Client{Transport: transport}),
		option.WithRequestTimeout(time.Hour), // includes the queue; 10 minutes by default
	)
	// end anthropic-sdk-go
	return client, nil
}

const anthropicMessage = `{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn"}`

func ask(ctx context.Context, client anthropic.Client) error {
	_, err := client.Messages.New(ctx, anthropic.MessageNewParams{
		MaxTokens: 100, Model: "m",
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))},
	})
	return err
}

func TestAnthropic(t *testing.T) {
	layers := map[string][]sluicetest.Layer{
		"limited": {sluicetest.Enforce(sluicetest.Limit{Count: 50, Per: time.Minute, Burst: 5, HeaderStyle: sluicetest.Anthropic})},
		// Another status than 529, as within a stream that has begun.
		"overloaded": {sluicetest.On(20, sluicetest.Reply(500, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, "Content-Type: application/json"))},
		"failing":    {sluicetest.On(20, sluicetest.Status(500))},
	}
	for name, want := range map[string]promised{
		"limited":    {ok: 100, refused: 10}, // before the first headers, and while the gate learns
		"overloaded": {ok: 100, failed: 1},
		"failing":    {ok: 100, failed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			seen := server(t, func(ctx context.Context, base http.RoundTripper) {
				client, err := anthropicClient(base, "key")
				if err != nil {
					t.Fatal(err)
				}
				parallel(t, 100, func() error { return ask(ctx, client) })
			}, append(layers[name], sluicetest.Reply(200, anthropicMessage, "Content-Type: application/json"))...)
			want.attempts, want.first = "X-Stainless-Retry-Count", "0"
			want.check(t, seen)
		})
	}
}
