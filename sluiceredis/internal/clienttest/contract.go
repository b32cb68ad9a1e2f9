package clienttest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/sluiceredis"
)

// contract tests the contract of a Client on a healthy server.
func contract(t *testing.T, c sluiceredis.Client) {
	t.Run("one and many", func(t *testing.T) { oneAndMany(t, c) })
	t.Run("replies", func(t *testing.T) { replies(t, c) })
	t.Run("done", func(t *testing.T) { done(t, c) })
}

func oneAndMany(t *testing.T, c sluiceredis.Client) {
	name := prefix(t)
	key, arg := name+" n", []string{"1"}
	if got, err := c.Run(bg, count, []string{key}, []string{"5"}); err != nil || len(got) != 1 || got[0] != 5 {
		t.Errorf("%v, %v", got, err)
	}
	other := Script("other", "return {7, tonumber(ARGV[1])} -- "+name)
	bad := Script("bad", "return redis.error_reply('ODD no')")
	calls := []sluiceredis.ScriptCall{
		{Script: count, Keys: []string{key}, Args: arg},
		{Script: other, Args: []string{"8"}}, // unknown to the server, and without a key
		{Script: bad},
		{Script: count, Keys: []string{key}, Args: arg},
	}
	for i := range 20 { // on a cluster they belong to all servers
		calls = append(calls, sluiceredis.ScriptCall{Script: count, Keys: []string{name + strings.Repeat("x", i)}, Args: arg})
	}
	replies := c.RunMany(bg, calls)
	if len(replies) != len(calls) {
		t.Fatalf("%d replies to %d calls", len(replies), len(calls))
	}
	for i, want := range []int64{6, 7, 0, 7} {
		if i != 2 && (replies[i].Err != nil || replies[i].Ints[0] != want) {
			t.Errorf("%d: %+v, want %d", i, replies[i], want)
		}
	}
	if r := replies[1]; len(r.Ints) != 2 || r.Ints[1] != 8 {
		t.Errorf("two integers: %+v", r)
	}
	var server *sluiceredis.ServerError
	if !errors.As(replies[2].Err, &server) || !strings.Contains(server.Message, "ODD no") || errors.Is(replies[2].Err, sluiceredis.ErrAmbiguous) {
		t.Errorf("an error: %v", replies[2].Err)
	}
	for _, r := range replies[4:] {
		if r.Err != nil || r.Ints[0] != 1 {
			t.Errorf("each key for itself: %+v", r)
		}
	}
	if got := c.RunMany(bg, nil); len(got) != 0 {
		t.Errorf("no calls: %+v", got)
	}
}

// The reply of a script is a list of integers, or an error that does not pretend
// to know that nothing was taken.
func replies(t *testing.T, c sluiceredis.Client) {
	key := []string{prefix(t)}
	for text, ok := range map[string]bool{
		"return {}":                        true,
		"return {-1, 2, 9007199254740991}": true,
		"return 1":                         false,
		"return '1'":                       false,
		"return {'1'}":                     false,
		"return {1, {2}}":                  false,
		"return false":                     false,
		"return {1, false}":                false,
		"return redis.status_reply('OK')":  false,
	} {
		got, err := c.Run(bg, Script("reply", text), key, nil)
		var server *sluiceredis.ServerError
		if (err == nil) != ok || errors.Is(err, sluiceredis.ErrAmbiguous) || errors.As(err, &server) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		if text == "return {-1, 2, 9007199254740991}" && (len(got) != 3 || got[0] != -1 || got[2] != 1<<53-1) {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// A context that is done is returned as it is, and nothing is sent.
func done(t *testing.T, c sluiceredis.Client) {
	ctx, cancel := context.WithCancel(bg)
	cancel()
	key := []string{prefix(t)}
	if _, err := c.Run(ctx, count, key, []string{"1"}); err != context.Canceled {
		t.Errorf("one: %v", err)
	}
	for _, r := range c.RunMany(ctx, []sluiceredis.ScriptCall{{Script: count, Keys: key, Args: []string{"1"}}}) {
		if r.Err != context.Canceled {
			t.Errorf("many: %v", r.Err)
		}
	}
	if got, err := c.Run(bg, count, key, []string{"1"}); err != nil || got[0] != 1 {
		t.Errorf("then it is the first: %v, %v", got, err)
	}
}
