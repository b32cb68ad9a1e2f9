// Package after is package before with Sluice.
package after

// begin after
import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
)

// An Item is what the API has.
type Item struct{ ID int }

// Sync saves all items: 8 calls in flight, 10 per second.
func Sync(ctx context.Context, base http.RoundTripper, url string, ids []int, save func(*Item) error) error {
	transport, err := sluicehttp.New(base, sluicehttp.Config{Gate: sluice.Config{
		Concurrency: 8,
		Rate:        sluice.Rate{Count: 10, Per: time.Second},
	}})
	if err != nil {
		return err
	}
	client := &http.Client{Transport: transport}
	group, ctx := errgroup.WithContext(ctx)
	for _, id := range ids {
		group.Go(func() error {
			item, err := fetch(ctx, client, fmt.Sprintf("%s/items/%d", url, id))
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
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	var item Item
	return &item, json.NewDecoder(resp.Body).Decode(&item)
}

// end after
