package sluicehttp_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
)

// groups is a limits.Peers that hands on the names of the groups.
type groups chan string

func (g groups) Exchange(_ context.Context, group string, _ limits.PeerReport) (limits.PeerReply, error) {
	g <- group
	return limits.PeerReply{}, context.Canceled
}

// The gates of a key share what they learn with those of that key in other processes.
func TestConfig_Gate_Peers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(groups, 100)
		transport, err := sluicehttp.New(answers(200), sluicehttp.Config{
			Gate: sluice.Config{Adaptive: sluice.Adaptive{Peers: seen}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer transport.Close()
		client := &http.Client{Transport: transport}
		resp, err := client.Get("http://api.example.com/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if group := <-seen; !strings.Contains(group, "api.example.com") {
			t.Errorf("group %q", group)
		}
	})
}

// answers is a server that answers with a status.
type answers int

func (status answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: int(status), Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}
