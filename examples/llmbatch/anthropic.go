package main

import (
	"context"
	"net/http"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/sluice-go/sluice/sluicehttp/presets"
	"github.com/sluice-go/sluice/sluicetest"
)

var anthropicAPI = vendor{
	name: "anthropic", sdk: "anthropic-sdk-go",
	family: sluicetest.Anthropic,
	exact: func(h http.Header, s sluicetest.LimitState) {
		h.Set("Anthropic-Ratelimit-"+s.Name+"-Reset", s.Now.Add(s.Reset).UTC().Format(time.RFC3339Nano))
		retryAfter(h, s)
	},
	refusal: `{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed the rate limit of %s per minute."}}`,
	events:  anthropicEvents,
	client:  newAnthropic,
	config:  presets.Anthropic,
}

// newAnthropic returns a call of the SDK as it is; -1 retries are its default.
func newAnthropic(client *http.Client, url string, retries int) complete {
	options := []option.RequestOption{
		option.WithHTTPClient(client), option.WithBaseURL(url), option.WithAPIKey("none"),
	}
	if retries >= 0 {
		options = append(options, option.WithMaxRetries(retries))
	}
	c := anthropic.NewClient(options...)
	return func(ctx context.Context, prompt string) (string, error) {
		stream := c.Messages.NewStreaming(ctx, anthropic.MessageNewParams{
			Model:     "any",
			Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt))},
			MaxTokens: maxTokens,
		})
		defer stream.Close()
		var all anthropic.Message
		for stream.Next() {
			if err := all.Accumulate(stream.Current()); err != nil {
				return "", err
			}
		}
		switch {
		case stream.Err() != nil:
			return "", stream.Err()
		case len(all.Content) == 0 || all.StopReason != anthropic.StopReasonEndTurn:
			return "", errCutOff
		}
		return all.Content[0].Text, nil
	}
}

// anthropicEvents returns the events of a message: its beginning with the tokens of the
// prompt, its text, and its end with those of the completion.
func anthropicEvents(chunks []string, prompt, completion int64) []string {
	event := func(kind string, more map[string]any) string {
		more["type"] = kind
		return "event: " + kind + "\ndata: " + mustJSON(more)
	}
	all := []string{
		event("message_start", map[string]any{"message": map[string]any{
			"id": "m", "type": "message", "role": "assistant", "model": "any", "content": []any{},
			"usage": map[string]any{"input_tokens": prompt, "output_tokens": 1}}}),
		event("content_block_start", map[string]any{"index": 0, "content_block": map[string]any{"type": "text", "text": ""}}),
	}
	for _, text := range chunks {
		all = append(all, event("content_block_delta", map[string]any{"index": 0, "delta": map[string]any{"type": "text_delta", "text": text}}))
	}
	return append(all,
		event("content_block_stop", map[string]any{"index": 0}),
		event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": "end_turn"}, "usage": map[string]any{"output_tokens": completion}}),
		event("message_stop", map[string]any{}))
}
