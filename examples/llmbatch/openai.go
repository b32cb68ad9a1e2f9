package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/sluice-go/sluice/sluicehttp/presets"
	"github.com/sluice-go/sluice/sluicetest"
)

// complete returns the completion of a prompt.
type complete func(ctx context.Context, prompt string) (string, error)

var errCutOff = errors.New("the stream ended before the completion did")

var openAI = vendor{
	name: "openai", sdk: "openai-go",
	family: sluicetest.OpenAI,
	exact: func(h http.Header, s sluicetest.LimitState) {
		h.Set("X-Ratelimit-Reset-"+s.Name, s.Reset.String())
		retryAfter(h, s)
	},
	refusal: `{"error":{"message":"Rate limit reached for %[1]s per min.","type":"%[1]s","code":"rate_limit_exceeded"}}`,
	events:  openAIEvents,
	client:  newOpenAI,
	config:  presets.OpenAI,
}

// newOpenAI returns a call of the SDK as it is; -1 retries are its default.
func newOpenAI(client *http.Client, url string, retries int) complete {
	options := []option.RequestOption{
		option.WithHTTPClient(client), option.WithBaseURL(url + "/v1/"), option.WithAPIKey("none"),
	}
	if retries >= 0 {
		options = append(options, option.WithMaxRetries(retries))
	}
	c := openai.NewClient(options...)
	return func(ctx context.Context, prompt string) (string, error) {
		stream := c.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
			Model:               "any",
			Messages:            []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
			MaxCompletionTokens: openai.Int(maxTokens),
			StreamOptions:       openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
		})
		defer stream.Close()
		var all openai.ChatCompletionAccumulator
		for stream.Next() {
			all.AddChunk(stream.Current())
		}
		switch {
		case stream.Err() != nil:
			return "", stream.Err()
		case len(all.Choices) == 0 || all.Choices[0].FinishReason != "stop":
			return "", errCutOff
		}
		return all.Choices[0].Message.Content, nil
	}
}

// openAIEvents returns the events of a completion: its text, why it ended, and its usage.
func openAIEvents(chunks []string, prompt, completion int64) []string {
	event := func(more map[string]any) string {
		more["id"], more["object"], more["created"], more["model"] = "c", "chat.completion.chunk", 1, "any"
		if more["choices"] == nil {
			more["choices"] = []any{}
		}
		return "data: " + mustJSON(more)
	}
	choice := func(delta map[string]any, why any) string {
		return event(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": why}}})
	}
	var all []string
	for _, text := range chunks {
		all = append(all, choice(map[string]any{"role": "assistant", "content": text}, nil))
	}
	return append(all, choice(map[string]any{}, "stop"),
		event(map[string]any{"usage": map[string]any{
			"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}}),
		"data: [DONE]")
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	return string(b)
}
