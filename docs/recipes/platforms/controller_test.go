package platforms

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/sluice-go/sluice/sluicehttp"
)

func withoutTimeout(base http.RoundTripper) (*http.Client, error) {
	// begin
	transport, err := sluicehttp.New(base) // one for all workers
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport}, nil // no Timeout: it would include the queue
	// end
}

// reconcile creates a thing for each of 300 objects, with 50 workers and the queue of client-go, which repeats what
// failed. It returns how many attempts failed.
func reconcile(t *testing.T, client *http.Client) int64 {
	t.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[int]())
	defer queue.ShutDown()
	var left, failed atomic.Int64
	var workers sync.WaitGroup
	left.Store(300)
	for range 50 {
		workers.Go(func() {
			for {
				object, stop := queue.Get()
				if stop {
					return
				}
				if err := post(t.Context(), client, "https://api.test/things"); err != nil {
					failed.Add(1)
					queue.AddRateLimited(object)
				} else {
					queue.Forget(object)
					if left.Add(-1) == 0 {
						queue.ShutDown()
					}
				}
				queue.Done(object)
			}
		})
	}
	for object := range 300 {
		queue.Add(object)
	}
	workers.Wait()
	return failed.Load()
}

// 50 workers create 300 things without a failed attempt, without configuration.
func TestController(t *testing.T) {
	seen := throttling(t, func(t *testing.T, base http.RoundTripper) {
		client, err := withoutTimeout(base)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if failed := reconcile(t, client); failed > 0 {
			t.Errorf("%d attempts failed", failed)
		}
		t.Logf("no attempt failed in %v", time.Since(began))
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
	})
	if n := created(seen); n != 300 {
		t.Errorf("%d things were created", n)
	}
}

func TestController_WithoutSluice(t *testing.T) {
	throttling(t, func(t *testing.T, base http.RoundTripper) {
		began := time.Now()
		failed := reconcile(t, &http.Client{Transport: base})
		if failed < 200 {
			t.Errorf("only %d attempts failed", failed)
		}
		t.Logf("%d attempts failed in %v", failed, time.Since(began))
	})
}
