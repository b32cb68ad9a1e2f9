package recipes

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

func anthropicClient(base http.RoundTripper, key string) (anthropic.Client, error) {
	// begin anthropic-sdk-go
	transport, err := sluicehttp.New(base, sluicehttp.Config{
		Inspect: sluicehttp.Anthropic, // an overload behind another status; spend limits
	})
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

func TestAnthropic(t *testing.T) {
	const message = `{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn"}`
	limit := sluicetest.Limit{Count: 50, Per: time.Minute, Burst: 5, Family: sluicetest.Anthropic}
	server(t, func(ctx context.Context, base http.RoundTripper) {
		client, err := anthropicClient(base, "key")
		if err != nil {
			t.Fatal(err)
		}
		parallel(t, 100, func() error {
			_, err := client.Messages.New(ctx, anthropic.MessageNewParams{
				MaxTokens: 100, Model: "m",
				Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))},
			})
			return err
		})
	}, sluicetest.Enforce(limit), sluicetest.Reply(200, message, "Content-Type: application/json"))
}
