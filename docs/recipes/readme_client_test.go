package recipes

import "net/http"

// begin client
import "github.com/sluice-go/sluice/sluicehttp"

func newClient() (*http.Client, error) {
	return sluicehttp.NewClient() // share it, pass it to any SDK; set no Timeout, which would include the queue
}

// end client
