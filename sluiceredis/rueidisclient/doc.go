// Package rueidisclient sends the scripts of package sluiceredis through
// [github.com/redis/rueidis].
//
//	client, closes, err := rueidisclient.New(rueidis.ClientOption{InitAddress: []string{addr}})
//	…
//	defer closes()
//	store, err := sluiceredis.New(client, sluiceredis.Config{})
//
// rueidis sends the scripts of many goroutines over a few connections, in pipelines, while go-redis
// takes a connection for each pipeline. So with many keys rueidis makes more decisions per second.
// The guarantees are the same.
//
// The replies on a connection come in order, so a slow script delays those behind it. The
// connections that [New] makes carry scripts only.
package rueidisclient
