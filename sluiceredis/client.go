package sluiceredis

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
)

// A Client runs scripts on a Redis. [NewGoRedis] adapts go-redis.
//
// A Client must be safe for use by multiple goroutines. It must not send a script again that may
// have run: its error then matches [ErrAmbiguous]. An error reply of the server is a
// [*ServerError], and then nothing was taken. Run and RunMany honor the deadline of ctx.
type Client interface {
	// Run runs s, by its digest and, if the server does not know that, with its text. It returns
	// the integers that s replied.
	Run(ctx context.Context, s *Script, keys, args []string) ([]int64, error)

	// RunMany runs all calls in one pipeline for each server that has some of their keys. It
	// returns one reply for each, in order. One may fail and others not.
	RunMany(ctx context.Context, calls []ScriptCall) []Reply
}

// A Topology is a Client that may have several servers; any other is treated as one of a single
// server. Pipelines and Sharded always return the same.
type Topology interface {
	Client

	// Sharded reports whether it is a client of a Redis Cluster.
	Sharded() bool

	// Place returns a name of the server that has key, such as its address, or "" if that is not
	// known, without waiting. Each server has its own outages.
	Place(key string) string

	// Pipelines returns the number of pipelines that may be under way at the same time; further
	// calls are collected into one. 0, for several servers, sends each separately.
	Pipelines() int
}

// A Script is a script in Lua, and its digest. Stores make it.
type Script struct {
	Name   string // for people
	Text   string
	Digest string // the SHA-1 of the text, in hexadecimal digits

	strict bool // in strict mode its last key is the epoch
	marked bool // and its last argument says so
	joins  bool // it decides many sets as well as one, see send.go
}

// newScript returns the script of that text.
func newScript(name, text string) *Script {
	sum := sha1.Sum([]byte(text)) // which EVALSHA wants
	return &Script{Name: name, Text: text, Digest: hex.EncodeToString(sum[:])}
}

// A ScriptCall is one script with its keys and arguments.
type ScriptCall struct {
	Script *Script
	Keys   []string
	Args   []string
}

// A Reply is the result of a ScriptCall.
type Reply struct {
	Ints []int64
	Err  error
}
