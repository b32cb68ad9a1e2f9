package presets

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/sluicehttp"
)

// GraphQL returns a Config for APIs that speak GraphQL, such as those of Shopify, Linear and
// Monday. Queries may be sent twice although they are POSTs; mutations, subscriptions, and queries
// of which only the hash is sent may not.
//
// For GitHub, see GitHub.
func GraphQL() sluicehttp.Config {
	return sluicehttp.Config{Idempotent: onlyQueries}
}

// onlyQueries is a Config.Idempotent. The body is a request or a list of them.
func onlyQueries(req *http.Request, body []byte) bool {
	type request struct {
		Query string `json:"query"`
	}
	if body = bytes.TrimSpace(body); len(body) == 0 || req.Method != http.MethodPost {
		return false
	}
	all := make([]request, 1)
	if body[0] == '[' {
		all = nil
		if json.Unmarshal(body, &all) != nil || len(all) == 0 {
			return false
		}
	} else if json.Unmarshal(body, &all[0]) != nil {
		return false
	}
	return !slices.ContainsFunc(all, func(r request) bool { return !isQuery(r.Query) })
}

// isQuery reports whether all operations of a document are queries, as far as brackets and the
// words at the beginning of its definitions say:
//
//	query Q($id: ID!) @live { item(id: $id) { ...Fields } }  fragment Fields on Item { id }
func isQuery(document string) bool {
	document = strings.TrimPrefix(document, "\ufeff")
	depth, definitions := 0, 0
	begins := true // at the beginning of a definition
	for document != "" {
		c := document[0]
		switch {
		case c == '#':
			_, document, _ = strings.Cut(document, "\n")
			continue
		case c == '"':
			rest, closed := afterString(document)
			if !closed || begins {
				return false
			}
			document = rest
			continue
		case c == '{' || c == '(' || c == '[':
			if begins && c != '{' {
				return false
			}
			begins = false
			depth++
		case c == '}' || c == ')' || c == ']':
			if depth--; depth < 0 {
				return false
			}
			if depth == 0 && c == '}' {
				begins = true
				definitions++
			}
		case begins && strings.IndexByte(" \t\r\n,", c) < 0:
			word := document[:len(document)-len(strings.TrimLeft(document, letters))]
			if word != "query" && word != "fragment" {
				return false
			}
			begins, document = false, document[len(word):]
			continue
		}
		document = document[1:]
	}
	return depth == 0 && begins && definitions > 0
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789"

// afterString returns the rest of s after the string at its beginning.
func afterString(s string) (rest string, closed bool) {
	quote := `"`
	if strings.HasPrefix(s, `"""`) {
		quote = `"""`
	}
	for s = s[len(quote):]; s != ""; s = s[1:] {
		switch {
		case strings.HasPrefix(s, quote):
			return s[len(quote):], true
		case s[0] == '\\' && len(s) > 1: // of a block string only before its quote, which is three
			s = s[1:]
		}
	}
	return "", false
}
