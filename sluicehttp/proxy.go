package sluicehttp

import (
	"errors"
	"net/http"
	"strings"
)

// refusedByProxy reports whether err is that of a proxy that refused to connect us and
// would again, such as with 407 because it wants other credentials. For an answer to
// CONNECT that is not 200 the error of net/http is the text of the status, and for a
// SOCKS proxy a text of its own; neither has a type. To ask for the answer itself, by
// http.Transport.OnProxyConnectResponse, would be to change a transport that is not
// ours. A proxy that words a status otherwise is tried again.
func (t *Transport) refusedByProxy(err error) bool {
	for next := err; next != nil; next = errors.Unwrap(next) {
		err = next
	}
	text := err.Error()
	switch text {
	case "username/password authentication failed", "no acceptable authentication methods":
		return true
	}
	for status := 400; status < 500; status++ {
		if name := http.StatusText(status); name != "" && strings.EqualFold(name, text) {
			return !t.retryStatus(status)
		}
	}
	return false
}
