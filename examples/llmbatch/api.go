package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// What the server allows. Its clients are not told.
const (
	requestsPerMinute = 500
	requestBurst      = 83
	tokensPerMinute   = 60_000
	tokenBurst        = 10_000
)

// latency is the time a request takes to the server.
const latency = 20 * time.Millisecond

// A vendor is an API that the server imitates, and its SDK.
type vendor struct {
	name, sdk string
	family    sluicetest.HeaderStyle
	exact     func(http.Header, sluicetest.LimitState) // times without rounding, for -fast
	refusal   string                                   // the body of a 429; %s is the limit
	events    func(chunks []string, prompt, completion int64) []string
	client    func(client *http.Client, url string, retries int) complete
	config    configFor
}

var vendors = []vendor{openAI, anthropicAPI}

// An api is the server: an API that limits requests and tokens, and streams completions.
type api struct {
	*sluicetest.Server
	vendor vendor
	speed  int64
	used   atomic.Int64 // tokens, really
}

// newAPI returns a server that does everything speed times as fast. Both of its limits
// are unused.
func newAPI(v vendor, speed int64) *api {
	a := &api{vendor: v, speed: speed}
	family := v.family
	if speed > 1 {
		family = func(h http.Header, s sluicetest.LimitState) {
			v.family(h, s)
			v.exact(h, s) // the rounding of a provider would not be divided
		}
	}
	limit := func(name string, perMinute, burst int64) sluicetest.Limit {
		return sluicetest.Limit{
			Name: name, Count: perMinute * speed, Per: time.Minute, Burst: burst,
			HeaderStyle: family, Body: fmt.Sprintf(v.refusal, name),
		}
	}
	tokens := limit("tokens", tokensPerMinute, tokenBurst)
	tokens.Cost = reserved
	a.Server = sluicetest.NewServer(
		sluicetest.Delay(latency/time.Duration(speed)),
		sluicetest.Enforce(limit("requests", requestsPerMinute, requestBurst), tokens),
		sluicetest.Handler(http.HandlerFunc(a.complete)),
	)
	return a
}

// retryAfter writes when to retry, to the nanosecond.
func retryAfter(h http.Header, s sluicetest.LimitState) {
	if s.Throttled {
		h.Set("Retry-After-Ms", strconv.FormatFloat(float64(s.Wait)/1e6, 'f', 6, 64))
	}
}

// A chat is what the server reads of a request.
type chat struct {
	Stream              bool  `json:"stream"`
	MaxTokens           int64 `json:"max_tokens"`
	MaxCompletionTokens int64 `json:"max_completion_tokens"`
	Messages            []struct {
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
}

// parseChat returns the prompt, and the maximum length of the completion.
func parseChat(body []byte) (prompt string, most int64, err error) {
	var c chat
	if err := json.Unmarshal(body, &c); err != nil {
		return "", 0, err
	}
	for _, m := range c.Messages {
		var text string
		if json.Unmarshal(m.Content, &text) != nil { // else a list of parts
			var parts []struct {
				Text string `json:"text"`
			}
			if err := json.Unmarshal(m.Content, &parts); err != nil {
				return "", 0, err
			}
			for _, p := range parts {
				text += p.Text
			}
		}
		prompt += text
	}
	most = max(c.MaxTokens, c.MaxCompletionTokens)
	if !c.Stream || most <= 0 || prompt == "" {
		return "", 0, errors.New("this server wants a prompt, a maximum of tokens, and stream: true")
	}
	return prompt, most, nil
}

// reserved is what a request takes of the tokens before it is known what it uses: those of
// the prompt, and all that the completion may have.
func reserved(_ *http.Request, body []byte) int64 {
	prompt, most, err := parseChat(body)
	if err != nil {
		return 0
	}
	return tokensIn(prompt) + most
}

// complete streams a completion, and settles the tokens when the stream ends.
func (a *api) complete(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	prompt, _, err := parseChat(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	text := completion(prompt)
	in, out := tokensIn(prompt), tokensIn(text)
	events := a.vendor.events(chunks(text), in, out)
	sent := sluicetest.Stream(w, r, streams(out)/time.Duration(a.speed), events...)
	used := in + out*int64(sent)/int64(len(events))
	a.used.Add(used)
	sluicetest.Settle(r, "tokens", used)
}

// A listener is an api on loopback.
type listener struct {
	api    *api
	url    string
	http   *http.Server
	served chan struct{}
}

func listen(a *api) (*listener, error) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("the server cannot listen: %w", err)
	}
	l := &listener{a, "http://" + tcp.Addr().String(), &http.Server{Handler: a}, make(chan struct{})}
	go func() {
		defer close(l.served)
		_ = l.http.Serve(tcp) // until close
	}()
	return l, nil
}

func (l *listener) close() {
	_ = l.http.Close() // the process ends soon
	<-l.served
	l.api.Close()
}
