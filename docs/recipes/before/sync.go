// Package before copies items from an API with golang.org/x/time/rate,
// golang.org/x/sync/semaphore and github.com/cenkalti/backoff.
package before

// begin before
import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

// An Item is what the API has.
type Item struct{ ID int }

// Sync saves all items: 8 calls in flight, 10 per second.
func Sync(ctx context.Context, base http.RoundTripper, url string, ids []int, save func(*Item) error) error {
	client := &http.Client{Transport: base}
	limiter := rate.NewLimiter(rate.Every(100*time.Millisecond), 1)
	inFlight := semaphore.NewWeighted(8)
	group, ctx := errgroup.WithContext(ctx)
	for _, id := range ids {
		if err := inFlight.Acquire(ctx, 1); err != nil {
			break // group.Wait returns the reason
		}
		group.Go(func() error {
			defer inFlight.Release(1)
			item, err := backoff.Retry(ctx, func() (*Item, error) {
				if err := limiter.Wait(ctx); err != nil {
					return nil, backoff.Permanent(err)
				}
				return fetch(ctx, client, fmt.Sprintf("%s/items/%d", url, id))
			}, backoff.WithBackOff(backoff.NewExponentialBackOff()), backoff.WithMaxTries(4))
			if err != nil {
				return fmt.Errorf("item %d: %w", id, err)
			}
			return save(item)
		})
	}
	return group.Wait()
}

func fetch(ctx context.Context, client *http.Client, url string) (*Item, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, backoff.Permanent(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode >= 500:
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
			return nil, backoff.RetryAfter(seconds)
		}
		return nil, errors.New(resp.Status)
	case resp.StatusCode != http.StatusOK:
		return nil, backoff.Permanent(errors.New(resp.Status))
	}
	var item Item
	return &item, json.NewDecoder(resp.Body).Decode(&item)
}

// end before
