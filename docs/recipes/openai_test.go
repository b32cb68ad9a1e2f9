package recipes

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

func openaiClient(base http.RoundTripper, key string) (openai.Client, error) {
	// begin openai-go
	transport, err := sluicehttp.New(base, sluicehttp.Config{Gate: sluice.Config{
		Rate: sluice.Rate{Count: 500, Per: time.Minute}, // of your account; without it, it is found by throttles
	}})
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

func TestOpenAI(t *testing.T) {
	const completion = `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"ok"}}]}`
	limit := sluicetest.Limit{Count: 500, Per: time.Minute, Burst: 5, Family: sluicetest.OpenAI}
	server(t, func(ctx context.Context, base http.RoundTripper) {
		client, err := openaiClient(base, "key")
		if err != nil {
			t.Fatal(err)
		}
		parallel(t, 100, func() error {
			_, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
				Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")},
			})
			return err
		})
	}, sluicetest.Enforce(limit), sluicetest.Reply(200, completion, "Content-Type: application/json"))
}
