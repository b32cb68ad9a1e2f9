package presets_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/built"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/presets"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
	"github.com/sluice-go/sluice/sluicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func post(t testing.TB, url, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

const (
	chat     = "https://api.openai.com/v1/chat/completions"
	embed    = "https://api.openai.com/v1/embeddings"
	messages = "https://api.anthropic.com/v1/messages"
	page     = `{"messages":[{"role":"user","content":"` // "user" is 4 tokens
	thirty   = `thirty bytes of a plain prompt`          // 8 tokens, and 3 more
)

// The estimate is as documented.
func TestForOpenAI_Cost(t *testing.T) {
	files := strings.Repeat("A", 5000)
	for body, want := range map[string]int64{
		page + thirty + `"}],"max_tokens":100}`:                                                   15 + 100,
		page + thirty + `"}],"max_completion_tokens":100,"n":3}`:                                  15 + 300,
		`{"max_output_tokens":50,"input":"` + thirty + `","model":"a very long name of a model"}`: 11 + 50,
		page + thirty + `"}]}`:                                                                 15 + 1000,
		page + thirty + `"}],"metadata":{"max_tokens":5}}`:                                     15 + 1000,
		`{"max_tokens":10,"messages":[{"content":"data:image/png;base64,` + files + `"}]}`:     1000 + 10,
		`{"max_tokens":10,"messages":[{"content":"` + files + `"}]}`:                           1000 + 10,
		`{"max_tokens":10,"messages":[{"content":"` + strings.Repeat(thirty+" ", 100) + `"}]}`: 3100*2/7 + 3 + 10,
		`{"max_tokens":-10,"n":-1}`:                                                            1000,
		`no JSON`:                                                                              1000,
		``:                                                                                     1000,
	} {
		cfg := presets.OpenAI()
		if got := cfg.Cost(post(t, chat, body), []byte(body)); !maps.Equal(got, sluice.Costs{"tokens": want}) {
			t.Errorf("%.60s: %v, want %d", body, got, want)
		}
	}
	cfg := presets.OpenAI()
	body := `{"input":"` + thirty + `"}`
	if got := cfg.Cost(post(t, embed, body), []byte(body)); got["tokens"] != 11 {
		t.Errorf("an embedding, which has no output: %v", got)
	}
	if got := cfg.Cost(post(t, "https://api.openai.com/v1/files", body), []byte(body)); len(got) > 0 {
		t.Errorf("a file: %v", got)
	}
	// Of a body that is cut the rest counts by its length, unless that is a file.
	for content, want := range map[string]int64{strings.Repeat("a b ", 300_000): 342_857, "data:image/png;base64," + strings.Repeat("A", 1_200_000): 1000} {
		body := page + content + `"}]}`
		got := cfg.Cost(post(t, chat, body), []byte(body[:1<<20]))["tokens"]
		if got < want || got > want+1100 {
			t.Errorf("a body of %d bytes: %d, want about %d", len(body), got, want)
		}
	}
}

// A tokenizer replaces the estimate of the input; that of the output goes on learning.
func TestWithTokenizer(t *testing.T) {
	for path, want := range map[string]sluice.Costs{
		chat:     {"tokens": 17},
		messages: {"tokens": 17, "input": 7, "output": 10},
	} {
		cfg := presets.OpenAI()
		if path == messages {
			cfg = presets.Anthropic()
		}
		cfg = presets.WithTokenizer(cfg, func(got string, body []byte) int64 {
			if !strings.HasSuffix(path, got) || string(body) != `{"max_tokens":10}` && string(body) != `{}` {
				t.Errorf("%s %s", got, body)
			}
			return 7
		})
		if got := cfg.Cost(post(t, path, ""), []byte(`{"max_tokens":10}`)); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
		if path == chat {
			used(cfg, `{"usage":{"completion_tokens":50,"total_tokens":57}}`)
			if got := cfg.Cost(post(t, path, ""), []byte(`{}`)); got["tokens"] != 107 {
				t.Errorf("after an output of 50: %v, want 107", got)
			}
		}
		if got := cfg.Cost(post(t, "https://api.test/v1/files", ""), nil); got != nil {
			t.Errorf("a file: %v", got)
		}
	}
	if cfg := presets.WithTokenizer(presets.AWS(), func(string, []byte) int64 { return 1 }); cfg.Cost != nil {
		t.Error("AWS has a Cost")
	}
	if cfg := presets.WithTokenizer(presets.OpenAI(), nil); cfg.Cost(post(t, chat, ""), nil)["tokens"] != 1000 {
		t.Error("without a tokenizer there is no estimate")
	}
}

// used passes parts to the Usage of cfg, as a transport does.
func used(cfg sluicehttp.Config, parts ...string) sluice.Costs {
	costs := sluice.Costs{}
	for _, p := range parts {
		cfg.Usage(new(http.Response), []byte(p), costs)
	}
	return costs
}

func TestForOpenAI_Usage(t *testing.T) {
	for want, parts := range map[int64][]string{
		1: {`{"choices":[{"message":{"content":"a \"usage\":{\"total_tokens\":9}"}}],"usage":{"prompt_tokens":1,"total_tokens":1}}`},
		2: {`end of a long body"}}], "usage" : {"total_tokens":2}, "service_tier":"default"}`},
		3: {`{"choices":[{"delta":{}}],"usage":null}`, `{"choices":[],"usage":{"total_tokens":3}}`, `[DONE]`, ``},
		4: {`{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":1,"output_tokens":3,"total_tokens":4}}}`},
	} {
		if got := used(presets.OpenAI(), parts...); got["tokens"] != want {
			t.Errorf("%q: %v, want %d", parts, got, want)
		}
	}
	for _, part := range []string{``, `{}`, `{"usage":null}`, `{"usage":3}`, `{"usage":{"total_tokens":1`, `"usage"`, `{"usage":{"total_tokens":"x"}}`} {
		if got := used(presets.OpenAI(), part); len(got) > 0 {
			t.Errorf("%q: %v", part, got)
		}
	}
}

// A request that states no maximum is expected to be twice the average.
func TestForOpenAI_LearnsTheOutput(t *testing.T) {
	cfg, other := presets.OpenAI(), presets.OpenAI()
	for range 100 {
		used(cfg, `{"usage":{"completion_tokens":50,"total_tokens":60}}`)
	}
	body := page + thirty + `"}]}`
	if got := cfg.Cost(post(t, chat, body), []byte(body))["tokens"]; got != 15+100 {
		t.Errorf("%d after outputs of 50", got)
	}
	if got := other.Cost(post(t, chat, body), []byte(body))["tokens"]; got != 15+1000 {
		t.Errorf("%d with another Config", got)
	}
}

func TestForAnthropic_CostAndUsage(t *testing.T) {
	cfg := presets.Anthropic()
	cost := func(most string) sluice.Costs {
		body := page + thirty + `"}],"max_tokens":` + most + `}`
		return cfg.Cost(post(t, messages, body), []byte(body))
	}
	if got := cost("100"); !maps.Equal(got, sluice.Costs{"tokens": 115, "input": 15, "output": 100}) {
		t.Errorf("%v", got)
	}
	if got := cost("64000"); got["output"] != 1000 {
		t.Errorf("%v", got)
	}
	for _, c := range []struct {
		parts []string
		want  sluice.Costs
	}{
		{[]string{`{"type":"message","usage":{"input_tokens":10,"cache_creation_input_tokens":5,"cache_read_input_tokens":1000,"output_tokens":20}}`}, sluice.Costs{"tokens": 35, "input": 15, "output": 20}},
		{[]string{
			`{"type":"message_start","message":{"usage":{"input_tokens":25,"output_tokens":1}}}`, `{"type":"ping"}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15}}`, `{"type":"message_stop"}`, ``,
		}, sluice.Costs{"tokens": 40, "input": 25, "output": 15}},
		// Ended early: what the output was is not known.
		{[]string{`{"type":"message_start","message":{"usage":{"input_tokens":25,"output_tokens":1}}}`}, sluice.Costs{"input": 25}},
	} {
		if got := used(cfg, c.parts...); !maps.Equal(got, c.want) {
			t.Errorf("%q: %v, want %v", c.parts, got, c.want)
		}
	}
}

func TestPresets_Key(t *testing.T) {
	openAI, github := presets.OpenAI().Key, presets.GitHub().Key
	for _, c := range []struct {
		key             func(*http.Request) string
		url, body, want string
	}{
		{openAI, chat, `{"messages":[{"model":"x"}],"model":"gpt-4o"}`, "https://api.openai.com gpt-4o"},
		{openAI, chat, `{"model":7}`, "https://api.openai.com"},
		{openAI, chat, `["model"]`, "https://api.openai.com"},
		{openAI, chat, `{"model"`, "https://api.openai.com"},
		{github, "https://api.github.com/repos/o/r", ``, "https://api.github.com"},
		{github, "https://api.github.com/search/issues", ``, "https://api.github.com search"},
		{github, "https://api.github.com/search/code", ``, "https://api.github.com code_search"},
		{github, "https://api.github.com/graphql", ``, "https://api.github.com graphql"},
		{github, "https://git.example.com/api/v3/search/users", ``, "https://git.example.com search"},
	} {
		if got := c.key(post(t, c.url, c.body)); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.url, c.body, got, c.want)
		}
	}
}

func TestForOpenAI_Idempotent(t *testing.T) {
	for url, want := range map[string]bool{chat: true, embed: true, "https://api.openai.com/v1/files": false, messages: false} {
		if got := presets.OpenAI().Idempotent(post(t, url, ""), nil); got != want {
			t.Errorf("%s: %v", url, got)
		}
	}
	if get, _ := http.NewRequest(http.MethodGet, chat, nil); presets.OpenAI().Idempotent(get, nil) {
		t.Error("a GET of stored completions needs no such word")
	}
	if !presets.Anthropic().Idempotent(post(t, messages, ""), nil) {
		t.Error("a message may be sent twice")
	}
}

// A 429 says which limit it was.
func TestForOpenAI_WhichLimit(t *testing.T) {
	inspect := presets.OpenAI().Inspect
	for body, want := range map[string]string{
		`{"error":{"message":"Rate limit reached","type":"tokens","code":"rate_limit_exceeded"}}`:   "tokens",
		`{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`: "requests",
		`{"error":{"type":"insufficient_quota"}}`:                                                   "insufficient_quota",
		`{"error":{"type":"server_error"}}`:                                                         "before",
		`tokens`:                                                                                    "before",
	} {
		said := ratelimit.Info{Status: 429, Reason: "before"}
		inspect(&http.Response{StatusCode: 429}, func() []byte { return []byte(body) }, &said)
		if said.Reason != want {
			t.Errorf("%s: the reason is %q, want %q", body, said.Reason, want)
		}
	}
}

// A 429 because there is no credit is final, and one because of a limit is not.
func TestForOpenAI_NoCreditIsFinal(t *testing.T) {
	for body, want := range map[string]int{
		`{"error":{"code":"insufficient_quota","type":"insufficient_quota"}}`: 1,
		`{"error":{"code":"rate_limit_exceeded","type":"tokens"}}`:            2,
		`nothing`: 2,
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := sluicetest.NewServer(sluicetest.On(1, sluicetest.Reply(429, body)), sluicetest.Reply(200, "{}"))
			defer srv.Close()
			base := srv.Transport()
			defer base.CloseIdleConnections()
			rt, err := sluicehttp.New(base, presets.OpenAI())
			if err != nil {
				t.Fatal(err)
			}
			resp, err := rt.RoundTrip(post(t, chat, "{}"))
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if got := len(srv.Record().Requests); got != want {
				t.Errorf("%s: %d requests, want %d", body, got, want)
			}
		})
	}
}

// At a compatible server that publishes no limits, such as vLLM, the preset is as fast as no
// configuration: 300 calls at 500 per minute with a burst of 20 need 33.6 s, and the last of them its answer. Few calls
// leave before the first one is answered, because its answer may show limits.
func TestForOpenAI_WithoutHeaders(t *testing.T) {
	built.SkipRaced(t)
	for name, cfg := range map[string]sluicehttp.Config{"no configuration": {}, "ForOpenAI": presets.OpenAI()} {
		for _, of := range []struct {
			workers int
			answer  time.Duration // how long the server works on a call that it has let through
		}{{8, 0}, {32, 0}, {300, 0}, {64, 2 * time.Second}, {300, 2 * time.Second}} {
			t.Run(fmt.Sprintf("%s/%d/%v", name, of.workers, of.answer), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					limit := sluicetest.Limit{Count: 500, Per: time.Minute, Burst: 20, Body: `{"error":{"message":"x","type":"requests","code":"rate_limit_exceeded"}}`}
					srv := sluicetest.NewServer(onTheWay, sluicetest.Enforce(limit), sluicetest.Delay(of.answer),
						sluicetest.Reply(200, `{"usage":{"total_tokens":30,"completion_tokens":20}}`, "Content-Type: application/json"))
					defer srv.Close()
					base := srv.Transport()
					defer base.CloseIdleConnections()
					rt, err := sluicehttp.New(base, cfg)
					if err != nil {
						t.Fatal(err)
					}
					start, work := time.Now(), make(chan int)
					var wg sync.WaitGroup
					for range of.workers {
						wg.Go(func() {
							for range work {
								resp, err := rt.RoundTrip(post(t, chat, `{"model":"m","messages":[{"role":"user","content":"hello"}]}`))
								if err != nil {
									t.Error(err)
									continue
								}
								if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
									t.Errorf("%s, %v", resp.Status, err)
								}
								resp.Body.Close()
							}
						})
					}
					for i := range 300 {
						work <- i
					}
					close(work)
					wg.Wait()
					if took := time.Since(start); took > 34500*time.Millisecond+of.answer {
						t.Errorf("took %v", took)
					}
				})
			})
		}
	}
}

// onTheWay lets each request take another time to the server.
func onTheWay(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Duration(8+rand.IntN(15)) * time.Millisecond)
		next.ServeHTTP(w, r)
	})
}

// All presets are valid, and their own: a change of one does not change another.
func TestPresets_AreConfigs(t *testing.T) {
	for name, f := range map[string]func() sluicehttp.Config{
		"ForOpenAI": presets.OpenAI, "ForAnthropic": presets.Anthropic, "ForGitHub": presets.GitHub, "ForAWS": presets.AWS,
		"ForGemini": presets.Gemini, "ForSlack": presets.Slack, "ForDiscord": presets.Discord, "ForX": presets.X,
		"ForAtlassian": presets.Atlassian, "ForGraphQL": presets.GraphQL,
	} {
		cfg := f()
		cfg.Gate.Concurrency, cfg.Retry.MaxServerWait = 64, time.Hour
		if _, err := sluicehttp.New(nil, cfg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if again := f(); again.Gate.Concurrency != 0 || again.Retry.MaxServerWait == time.Hour {
			t.Errorf("%s has changed", name)
		}
	}
}

// Requests and tokens are limited, and nothing is configured. A limit of one's own may be
// added.
func ExampleOpenAI() {
	srv := sluicetest.NewServer(sluicetest.Reply(200, `{"choices":[],"usage":{"total_tokens":12}}`,
		"X-RateLimit-Limit-Tokens: 30000", "X-RateLimit-Remaining-Tokens: 29000", "X-RateLimit-Reset-Tokens: 2s"))
	defer srv.Close()

	cfg := presets.OpenAI()
	cfg.Gate.Concurrency = 64
	transport, err := sluicehttp.New(srv.Transport(), cfg)
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}
	resp, err := client.Post("https://api.openai.com/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"gpt-4o","max_tokens":500,"messages":[{"role":"user","content":"Hi!"}]}`))
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	for s := range transport.Gates() {
		fmt.Println(resp.Status, "by", s.Name)
	}
	// Output: 200 OK by https://api.openai.com gpt-4o
}

func TestPresets_Endpoints(t *testing.T) {
	gemini, slack, discord, x, atlassian := presets.Gemini().Key, presets.Slack().Key, presets.Discord().Key, presets.X().Key, presets.Atlassian().Key
	const slackAPI, json = "https://slack.com/api/", "application/json; charset=utf-8"
	for _, c := range []struct {
		key                   func(*http.Request) string
		method, url, kind, in string
		want                  string
	}{
		{gemini, "POST", "https://g.test/v1beta/models/gemini-3-flash:generateContent", json, `{}`, "https://g.test gemini-3-flash"},
		{gemini, "POST", "https://g.test/v1/projects/p/locations/l/publishers/google/models/m:streamGenerateContent", json, `{}`, "https://g.test m"},
		{gemini, "POST", "https://g.test/v1/projects/p/locations/l/endpoints/123:predict", json, `{}`, "https://g.test 123"},
		{gemini, "GET", "https://g.test/v1beta/models/m/operations/1", "", ``, "https://g.test m"},
		{gemini, "GET", "https://g.test/v1beta/models", "", ``, "https://g.test"},
		{gemini, "GET", "https://g.test/v1beta/models/", "", ``, "https://g.test"},

		{slack, "POST", slackAPI + "conversations.list", "", `channel=C1`, slackAPI + "conversations.list"},
		{slack, "POST", slackAPI + "chat.postMessage", "application/x-www-form-urlencoded", `text=a%26channel%3DC2&channel=C%201&x=1`, slackAPI + "chat.postMessage C 1"},
		{slack, "POST", slackAPI + "chat.postMessage", json, `{"text":"\"channel\":\"C2\"","channel":"C1"}`, slackAPI + "chat.postMessage C1"},
		{slack, "GET", slackAPI + "chat.postMessage?channel=C1", "", ``, slackAPI + "chat.postMessage C1"},
		{slack, "POST", slackAPI + "chat.postMessage", json, `{`, slackAPI + "chat.postMessage"},
		{slack, "POST", slackAPI + "chat.postMessage", "", `%zz&channel=%zz`, slackAPI + "chat.postMessage"},

		{discord, "POST", "https://d.test/api/v10/channels/1/messages", "", ``, "https://d.test POST /api/*/channels/1/messages"},
		{discord, "PUT", "https://d.test/api/v10/channels/1/messages/2/reactions/🔥/@me", "", ``, "https://d.test PUT /api/*/channels/1/messages/*/reactions/*/@me"},
		{discord, "GET", "https://d.test/api/v10/guilds/1/members/2", "", ``, "https://d.test GET /api/*/guilds/1/members/*"},
		{discord, "GET", "https://d.test/api/v10/guilds/1/channels", "", ``, "https://d.test GET /api/*/guilds/1/channels"},
		{discord, "POST", "https://d.test/api/webhooks/1/tokEn2", "", ``, "https://d.test POST /api/webhooks/1/*"},
		{discord, "GET", "https://d.test/api/v10/users/1", "", ``, "https://d.test GET /api/*/users/*"},

		{x, "GET", "https://x.test/2/users/2244994945/tweets", "", ``, "https://x.test GET /*/users/*/tweets"},
		{x, "GET", "https://x.test/2/users/by/username/jack", "", ``, "https://x.test GET /*/users/by/username/*"},
		{x, "GET", "https://x.test/2/tweets/search/recent?query=a", "", ``, "https://x.test GET /*/tweets/search/recent"},
		{x, "", "https://x.test/", "", ``, "https://x.test GET /"},

		{atlassian, "GET", "https://a.test/rest/api/3/issue/PROJ-12/comment", "", ``, "https://a.test GET /rest/api/*/issue/*/comment"},
		{atlassian, "GET", "https://a.test/rest/api/3/project/PROJ/versions", "", ``, "https://a.test GET /rest/api/*/project/*/versions"},
		{atlassian, "GET", "https://a.test/ex/jira/1ab/rest/api/3/project/proj", "", ``, "https://a.test GET /ex/jira/1ab/rest/api/*/project/*"},
		{atlassian, "GET", "https://a.test/wiki/api/v2/pages/" + strings.Repeat("a", 41), "", ``, "https://a.test GET /wiki/api/*/pages/*"},
	} {
		req := post(t, c.url, c.in)
		req.Method = c.method
		req.Header.Set("Content-Type", c.kind)
		if got := c.key(req); got != c.want {
			t.Errorf("%s %s %s: %q, want %q", c.method, c.url, c.in, got, c.want)
		}
	}
	for _, key := range []func(*http.Request) string{slack, presets.OpenAI().Key} { // a body that cannot be read again
		req := post(t, slackAPI+"chat.postMessage", `{"channel":"C1","model":"m"}`)
		req.GetBody = nil
		if got := key(req); strings.Contains(got, " ") {
			t.Errorf("%q", got)
		}
		req.GetBody = func() (io.ReadCloser, error) { return nil, io.ErrUnexpectedEOF }
		if got := key(req); strings.Contains(got, " ") {
			t.Errorf("%q", got)
		}
	}
	azure := post(t, "https://x.openai.azure.com/openai/deployments/d/chat/completions?api-version=1", `{"model":"m"}`)
	if got := presets.OpenAI().Key(azure); got != "https://x.openai.azure.com d" {
		t.Errorf("a deployment: %q", got)
	}
}

func TestPresets_Idempotent(t *testing.T) {
	graphQL, slack, discord := presets.GraphQL(), presets.Slack(), presets.Discord()
	gemini, atlassian := presets.Gemini(), presets.Atlassian()
	q := func(document string) string {
		return fmt.Sprintf(`{"query":%q,"variables":{"a":"mutation { x }"}}`, document)
	}
	const url = "https://a.test/"
	for _, c := range []struct {
		cfg       sluicehttp.Config
		url, body string
		want      bool
	}{
		{graphQL, url, q("{ a }"), true},
		{graphQL, url, q("query { a }"), true},
		{graphQL, url, q("\ufeff\n query Q($a: [ID!] = [\"}\"], $b: A = {c: 1}) @live { a(b: \"mutation {\", c: \"\"\" \\\"\"\" \" } \"\"\") { ...F } } # mutation\n fragment F on A { b }"), true},
		{graphQL, url, q("fragment F on A { b } query { ...F }"), true},
		{graphQL, url, "[" + q("{ a }") + "," + q("query { a }") + "]", true},
		{graphQL, url, q("mutation { a }"), false},
		{graphQL, url, q("query A { a } mutation B { b }"), false},
		{graphQL, url, q("{ a } subscription { b }"), false},
		{graphQL, url, q("queryable { a }"), false},
		{graphQL, url, q("{ a } \"comment\" mutation { b }"), false},
		{graphQL, url, q("{ a(b: \"}) } mutation {"), false},
		{graphQL, url, q("{ a(b: \"\"\" ) } mutation {"), false},
		{graphQL, url, q("{ a } } { b"), false},
		{graphQL, url, q("{ a"), false},
		{graphQL, url, q("(a)"), false},
		{graphQL, url, q("query"), false},
		{graphQL, url, q("shoes"), false},
		{graphQL, url, q("# nothing"), false},
		{graphQL, url, q(""), false},
		{graphQL, url, `{"extensions":{"persistedQuery":{"sha256Hash":"x"}}}`, false},
		{graphQL, url, "[" + q("{ a }") + "," + q("mutation { a }") + "]", false},
		{graphQL, url, "[]", false},
		{graphQL, url, "[1]", false},
		{graphQL, url, `{"query":7}`, false},
		{graphQL, url, `{"query":"{ a }"`, false},
		{graphQL, url, ` `, false},

		{slack, url + "api/conversations.list", "", true},
		{slack, url + "api/users.profile.get", "", true},
		{slack, url + "api/chat.getPermalink", "", true},
		{slack, url + "api/dnd.teamInfo", "", true},
		{slack, url + "api/search.messages", "", true},
		{slack, url + "api/chat.postMessage", "", false},
		{slack, url + "api/conversations.archive", "", false},
		{slack, url + "api/users.profile.set", "", false},
		{slack, url, "", false},

		{discord, url + "channels/1/messages", `{"content":"a","nonce":"1","enforce_nonce":true}`, true},
		{discord, url + "channels/1/messages", `{"content":"a","nonce":7,"enforce_nonce":true}`, true},
		{discord, url + "channels/1/messages", `{"content":"a","nonce":"1"}`, false},
		{discord, url + "channels/1/messages", `{"content":"a","nonce":"","enforce_nonce":true}`, false},
		{discord, url + "channels/1/messages", `{"content":"a","enforce_nonce":true}`, false},
		{discord, url + "channels/1/messages", ``, false},
		{discord, url + "channels/1/threads", `{"nonce":"1","enforce_nonce":true}`, false},

		{gemini, url + "v1beta/models/m:streamGenerateContent?alt=sse", `{}`, true},
		{gemini, url + "v1beta/models/m:predictLongRunning", `{}`, false},
		{gemini, url + "v1beta/cachedContents", `{}`, false},
		{atlassian, url + "rest/api/3/search/jql", `{}`, true},
		{atlassian, url + "rest/api/3/issue", `{}`, false},
	} {
		var body []byte
		if c.body != "" {
			body = []byte(c.body)
		}
		if got := c.cfg.Idempotent(post(t, c.url, c.body), body); got != c.want {
			t.Errorf("%s %s: %v", c.url, c.body, got)
		}
	}
}

// A quota of Atlassian is that of the app, and the other limits are those of an endpoint.
func TestForAtlassian_Quota(t *testing.T) {
	for reason, want := range map[string]int{"jira-quota-tenant-based": 1, "jira-burst-based": 0, "jira-per-issue-on-write": 0} {
		synctest.Test(t, func(t *testing.T) {
			srv := sluicetest.NewServer(sluicetest.On(1, sluicetest.Status(429, "Retry-After: 60", "RateLimit-Reason: "+reason)))
			defer srv.Close()
			base := srv.Transport()
			defer base.CloseIdleConnections()
			rt, err := sluicehttp.New(base, presets.Atlassian())
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for _, path := range []string{"search", "field"} {
				wg.Go(func() {
					resp, err := rt.RoundTrip(must(http.NewRequestWithContext(t.Context(), "GET", "https://x.atlassian.net/rest/api/3/"+path, nil)))
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
				})
				time.Sleep(time.Second)
			}
			wg.Wait()
			late := 0
			for _, at := range srv.Record().Arrivals()[1:] {
				if at >= time.Minute {
					late++
				}
			}
			if late != want+1 {
				t.Errorf("%s: %d requests after the minute, want %d", reason, late, want+1)
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
