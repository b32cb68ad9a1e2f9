package presets

import (
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/sluicehttp"
)

// Slack returns a Config for the Web API of Slack. Each method has a gate: its key is the host and
// the path, such as that of conversations.list, and for chat.postMessage also the channel. Methods
// that only read, such as users.info, may be sent twice.
//
// Slack counts for each workspace: use a Transport for each.
func Slack() sluicehttp.Config {
	return sluicehttp.Config{
		Key:        slackMethod,
		Idempotent: func(req *http.Request, _ []byte) bool { return slackReads(path.Base(req.URL.Path)) },
	}
}

// slackMethod is a Config.Key.
func slackMethod(req *http.Request) string {
	key := hostOf(req) + req.URL.Path
	if path.Base(req.URL.Path) == "chat.postMessage" {
		if channel := slackChannel(req); channel != "" {
			key += " " + channel
		}
	}
	return key
}

// slackChannel returns the channel of a message, "" if the body does not say or cannot be read
// again.
func slackChannel(req *http.Request) string {
	if channel := req.URL.Query().Get("channel"); channel != "" || req.GetBody == nil {
		return channel
	}
	body, err := req.GetBody()
	if err != nil {
		return ""
	}
	defer body.Close()
	if strings.HasPrefix(req.Header.Get("Content-Type"), "application/json") {
		return stringIn(io.LimitReader(body, mostRead), `"channel"`)
	}
	form, err := io.ReadAll(io.LimitReader(body, mostRead))
	if err != nil {
		return ""
	}
	for pair := range strings.SplitSeq(string(form), "&") {
		if value, found := strings.CutPrefix(pair, "channel="); found {
			channel, _ := url.QueryUnescape(value)
			return channel
		}
	}
	return ""
}

// slackReads reports whether a method changes nothing.
func slackReads(method string) bool {
	verb := method[strings.LastIndexByte(method, '.')+1:]
	return strings.HasPrefix(method, "search.") || strings.HasPrefix(verb, "get") || strings.HasSuffix(verb, "Info") ||
		slices.Contains([]string{"list", "info", "history", "replies", "members", "test", "lookupByEmail"}, verb)
}
