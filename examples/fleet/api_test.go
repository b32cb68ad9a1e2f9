package main

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
)

// An item is processed once for each key, also if its calls come at the same time.
func TestAPI_ProcessesAKeyOnce(t *testing.T) {
	t.Parallel()
	a, err := newAPI(2, sluice.Rate{Count: 1000, Per: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	var calls sync.WaitGroup
	for id, key := range []string{"a key", ""} {
		for range 3 {
			calls.Go(func() {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url+[]string{"/items/0", "/items/1"}[id], nil)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Idempotency-Key", key)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				if resp.Body.Close(); resp.StatusCode != http.StatusOK {
					t.Error(resp.Status)
				}
			})
		}
	}
	calls.Wait()
	http.DefaultClient.CloseIdleConnections()
	if a.processed[0] != 1 || a.processed[1] != 3 || a.items != 2 || a.replayed != 2 {
		t.Errorf("processed %v, %d items, %d calls recognized; want [1 3], 2, 2", a.processed, a.items, a.replayed)
	}
}
