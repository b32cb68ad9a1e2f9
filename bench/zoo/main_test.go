package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// The tests run this program also as the command that it is.
func TestMain(m *testing.M) {
	if os.Getenv(gameVariable) != "" || os.Getenv(keepVariable) != "" {
		main()
		return
	}
	if port := os.Getenv(listenVariable); port != "" {
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err == nil {
			fmt.Println(http.Serve(l, nil))
		}
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// listenVariable makes the test a program that listens at a port.
const listenVariable = "SLUICE_ZOO_LISTEN"

// The example of the README is teapot_test.go, and its server can be played.
func TestReadme_AddAServer(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("teapot_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```go\n"+string(example)+"```\n") {
		t.Error("README.md does not have teapot_test.go")
	}
	r := played(t, "teapot-10", "xtime", 5, 1)
	if r.Score < 90 {
		t.Errorf("told the rate of the teapot: score %.1f", r.Score)
	}
}

// Each group and each client that is listed is explained.
func TestReadme_HasGroupsAndClients(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	names := groups
	for _, c := range clients {
		if c.listed {
			names = append(names, c.name)
		}
	}
	for _, name := range names {
		if !strings.Contains(string(readme), "\n| `"+name+"` |") {
			t.Errorf("README.md has no line for %s", name)
		}
	}
}
