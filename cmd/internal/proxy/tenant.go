package proxy

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
)

// nobody is the tenant of calls without a credential.
const nobody = "anonymous"

// credentials are the header fields that say in whose name a call is made, and secretQueries the
// parameters that do.
var (
	credentials   = []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Private-Token"}
	secretQueries = []string{"key", "api_key", "access_token"}
)

// tenants gives names to those who make calls.
type tenants struct {
	key [sha256.Size]byte
}

func newTenants() *tenants {
	t := new(tenants)
	_, _ = rand.Read(t.key[:]) // never fails
	return t
}

// of returns the tenant of r: a digest of the credential. Without the key, nobody can compute it to
// try out credentials.
func (t *tenants) of(r *http.Request) string {
	for _, name := range credentials {
		if c := r.Header.Get(name); c != "" {
			return t.digest(name, c)
		}
	}
	if r.URL.RawQuery == "" {
		return nobody
	}
	query := r.URL.Query()
	for _, name := range secretQueries {
		if c := query.Get(name); c != "" {
			return t.digest(name, c)
		}
	}
	return nobody
}

func (t *tenants) digest(parts ...string) string {
	mac := hmac.New(sha256.New, t.key[:])
	mac.Write([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(mac.Sum(nil)[:6])
}
