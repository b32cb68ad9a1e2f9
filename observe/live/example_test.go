package live_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/observe/live"
)

// A page that shows a gate, and what it says about a gate that waits for nothing.
func ExampleNew() {
	gate, err := sluice.New(sluice.Config{Name: "api", Rate: sluice.Rate{Count: 5, Per: time.Second}, Concurrency: 8})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/gates", live.New(live.FromGates(gate)))

	answer := httptest.NewRecorder() // instead of a browser
	mux.ServeHTTP(answer, httptest.NewRequest("GET", "/debug/gates", nil))
	page := answer.Body.String()
	fmt.Println(strings.Contains(page, "Nothing to do: no calls arrive."))
	// Output:
	// true
}

// With a token gates can be changed, on the page or as here by a program. The streams of
// viewers end when the server shuts down.
func ExampleHandler_token() {
	gate, _ := sluice.New(sluice.Config{Name: "api"})
	const token = "from a file that only you can read"
	page := live.New(live.FromGates(gate))
	page.Title, page.Token = "My program", token
	server := httptest.NewServer(page)
	server.Config.RegisterOnShutdown(page.Close)
	defer server.Config.Shutdown(context.Background())

	change := strings.NewReader(`{"name": "api", "do": "rate", "rate": "5/s"}`)
	req, _ := http.NewRequest("POST", server.URL, change)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Sluice-Token", token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		panic(err)
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	fmt.Print(string(text))
	fmt.Println(gate)
	// Output:
	// {"said":"api: rate 5/s","undo":{"do":"rate","rate":"none"}}
	// api: 5/s, 0 in flight, 0 admitted
}
