package sluiceredis

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/sluiceredis/internal/outage"
)

// cannot are the error replies of a server that is there and cannot be asked, all
// or for some keys: by their first word.
//
// A server that rejects the credentials is treated as unavailable as well. To ask it at every
// call would not help, and costs a connection each time: a client makes a new one
// for each call after a login that failed. The breaker bounds that, and its probes
// find out when the credentials are right again.
var cannot = map[string]outage.Verdict{
	"READONLY": outage.Unanswered, "LOADING": outage.Unanswered, "CLUSTERDOWN": outage.Unanswered, "OOM": outage.Unanswered,
	"NOREPLICAS": outage.Unanswered, "MASTERDOWN": outage.Unanswered, "MISCONF": outage.Unanswered, "BUSY": outage.Unanswered,
	"TRYAGAIN": outage.NotThese, "MOVED": outage.NotThese, "ASK": outage.NotThese,
	"NOAUTH": outage.Unanswered, "WRONGPASS": outage.Unanswered, "NOPERM": outage.Unanswered,
}

// cannotSay are those that have no first word of their own, by how they begin.
var cannotSay = []string{
	"ERR max number of clients",
	"ERR invalid password", "ERR Client sent AUTH", "ERR AUTH ", // up to version 5, or no password is set
	"ERR Protocol error: unauthenticated",     // NOAUTH, for a call of many arguments
	"ERR The user executing the script can't", // NOPERM within a script, from version 7 on
}

// judgeReply returns the verdict of an error reply on the server.
func judgeReply(e *ServerError) outage.Verdict {
	v, ok := cannot[e.Code]
	if !ok && slices.ContainsFunc(cannotSay, func(begin string) bool { return strings.HasPrefix(e.Message, begin) }) {
		v, ok = outage.Unanswered, true
	}
	switch {
	case !ok:
		return outage.Answered
	case (e.Code == "NOPERM" || e.Code == "ERR") && strings.Contains(e.Message, " access "):
		return outage.NotThese // the user may not use these keys, but perhaps those of other limits
	}
	return v
}

// judge returns the finding about its server from a call that ended with err. ctx is
// that of its caller, which may have ended before the server could have answered:
// in less than a tenth of the longest time.
func (s *Store) judge(ctx context.Context, err error, took time.Duration) outage.Verdict {
	if err == nil {
		return outage.Answered
	}
	var reply *ServerError
	switch {
	case errors.Is(err, ErrNoHistory), errors.Is(err, errRestless):
		return outage.Answered
	case errors.As(err, &reply):
		return judgeReply(reply)
	case ctx.Err() != nil && (errors.Is(ctx.Err(), context.Canceled) || took < s.timeout/10):
		return outage.Nothing
	}
	return outage.Unanswered
}
