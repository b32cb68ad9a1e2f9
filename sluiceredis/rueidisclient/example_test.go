package rueidisclient_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis"
	"github.com/sluice-go/sluice/sluiceredis/rueidisclient"
)

// Three together for each user, on all machines, then one per hour. The server
// of this example ends with it; a program connects to the one it has.
func Example() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()

	client, closes, err := rueidisclient.New(rueidis.ClientOption{InitAddress: []string{server.Addr()}})
	if err != nil {
		panic(err)
	}
	defer closes()
	store, err := sluiceredis.New(client, sluiceredis.Config{})
	if err != nil {
		panic(err)
	}
	replies, err := store.Bucket("replies", limits.Rate{Burst: 3, Count: 1, Per: time.Hour})
	if err != nil {
		panic(err)
	}
	for range 4 {
		res, err := replies.Take(context.Background(), "ann", 1)
		switch {
		case err != nil:
			panic(err)
		case !res.Allowed():
			fmt.Println("try again in", res.RetryAfter.Round(time.Minute))
		default:
			fmt.Println("go ahead,", res.Remaining, "more")
		}
	}
	// Output:
	// go ahead, 2 more
	// go ahead, 1 more
	// go ahead, 0 more
	// try again in 1h0m0s
}
