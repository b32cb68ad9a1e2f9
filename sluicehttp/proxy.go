package sluicehttp

import (
	"errors"
	"net/http"
	"strings"
)

// refusedByProxy reports whether err means that a proxy rejected to connect and would do so
// again, such as with 407. The error of net/http is the text of the status, or a text about
// SOCKS; neither has a type. Setting http.Transport.OnProxyConnectResponse would change a
// transport of the caller. A proxy with another text is tried again.
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
