package presets

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/sluice-go/sluice/sluicehttp"
)

// Discord returns a Config for the API of Discord. Each route has a gate: its key is the host, the
// method and the path with the id of the channel, guild or webhook that it begins with, and without
// others. A 429 that says "global" pauses all of them.
//
// A message with a nonce and enforce_nonce may be sent twice: Discord then returns the first one.
// Other POSTs may not.
func Discord() sluicehttp.Config {
	return sluicehttp.Config{Key: discordRoute, Idempotent: discordIdempotent}
}

// discordRoute is a Config.Key. The major parameters of
// https://discord.com/developers/docs/topics/rate-limits are the first of a path.
func discordRoute(req *http.Request) string {
	for _, major := range []string{"channels", "guilds", "webhooks"} {
		if before, _, found := strings.Cut(req.URL.Path, "/"+major+"/"); found && strings.Count(before, "/") <= 2 {
			return endpoint(req, nil, []string{major})
		}
	}
	return endpoint(req, nil, nil)
}

// discordIdempotent is a Config.Idempotent.
func discordIdempotent(req *http.Request, body []byte) bool {
	var message struct {
		Nonce   any  `json:"nonce"`
		Enforce bool `json:"enforce_nonce"`
	}
	return toModel(req, "/messages") && json.Unmarshal(body, &message) == nil && message.Enforce && message.Nonce != nil && message.Nonce != ""
}
