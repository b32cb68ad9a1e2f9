package platforms

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sluice-go/sluice/sluicehttp"
)

func withSluice(base http.RoundTripper) (*http.Client, error) {
	// begin
	transport, err := sluicehttp.New(base) // one for all sessions and tools
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport}, nil
	// end
}

// newServer returns an MCP server with one tool, which calls the API.
func newServer(client *http.Client) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "things", Version: "v1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "create", Description: "creates a thing"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		return nil, nil, post(ctx, client, "https://api.test/things")
	})
	return server
}

// agents calls the tool 30 times at once in each of 10 sessions, and returns how many results are errors.
func agents(t *testing.T, server *mcp.Server) int {
	t.Helper()
	var failed atomic.Int64
	inParallel(10, 10, func(int) error {
		here, there := mcp.NewInMemoryTransports()
		serving, err := server.Connect(t.Context(), there, nil)
		if err != nil {
			t.Error(err)
			return err
		}
		defer serving.Wait()
		agent := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "v1.0.0"}, nil)
		session, err := agent.Connect(t.Context(), here, nil)
		if err != nil {
			t.Error(err)
			return err
		}
		defer session.Close()
		inParallel(30, 30, func(int) error {
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "create", Arguments: map[string]any{}})
			if err != nil {
				t.Error(err)
			} else if result.IsError {
				failed.Add(1)
			}
			return err
		})
		return nil
	})
	return int(failed.Load())
}

// Ten agents that use a tool at the same time get no errors, without configuration.
func TestMCP(t *testing.T) {
	succeed(t, func(t *testing.T, base http.RoundTripper) int {
		client, err := withSluice(base)
		if err != nil {
			t.Fatal(err)
		}
		return agents(t, newServer(client))
	})
}

func TestMCP_WithoutSluice(t *testing.T) {
	fail(t, func(t *testing.T, base http.RoundTripper) int {
		return agents(t, newServer(&http.Client{Transport: base}))
	})
}
