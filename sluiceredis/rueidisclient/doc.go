// Package rueidisclient has the limits of package sluiceredis asked through
// [github.com/redis/rueidis]. It is a module of its own, so that programs that use
// another library do not download this one.
//
//	client, closes, err := rueidisclient.New(rueidis.ClientOption{InitAddress: []string{addr}})
//	…
//	defer closes()
//	store, err := sluiceredis.New(client, sluiceredis.Config{})
//
// rueidis sends what many goroutines ask over few connections, in pipelines,
// where go-redis takes a connection for each call: with many keys it asks a server
// more often per second, and it keeps fewer connections. For one key it matters
// less, because a store gathers callers of one key itself. What is promised is the
// same: both pass the same tests.
//
// A connection answers in order, so a slow script delays those behind it. The connections that [New] makes are its own and carry scripts only.
package rueidisclient
