package rueidisclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-go/sluice/sluiceredis"
)

// A notSent error is that of a connection which could not be made.
type notSent struct{ error }

func (e notSent) Unwrap() error { return e.error }

// dialer returns a function that connects as option says, and marks errors: on a connection
// that was not made nothing was sent.
func dialer(option *rueidis.ClientOption) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	dial := option.DialCtxFn
	switch old := option.DialFn; { // those of rueidis, in its order
	case dial != nil:
	case old != nil:
		dial = func(_ context.Context, addr string, d *net.Dialer, cfg *tls.Config) (net.Conn, error) {
			return old(addr, d, cfg)
		}
	default:
		dial = func(ctx context.Context, addr string, d *net.Dialer, cfg *tls.Config) (net.Conn, error) {
			if cfg != nil {
				return (&tls.Dialer{NetDialer: d, Config: cfg}).DialContext(ctx, "tcp", addr)
			}
			return d.DialContext(ctx, "tcp", addr)
		}
	}
	return func(ctx context.Context, addr string, d *net.Dialer, cfg *tls.Config) (net.Conn, error) {
		conn, err := dial(ctx, addr, d, cfg)
		if err != nil {
			return nil, notSent{err}
		}
		return conn, nil
	}
}

// errOther is for a call that shared a connection with one whose deadline passed
// without an answer: rueidis then closes the connection and gives all of them
// the error of that one.
var errOther = errors.New("rueidisclient: the connection was closed because another call was not answered in time")

// outcome returns err as one that tells whether the call may have been executed.
func outcome(ctx context.Context, err error) error {
	var reply *rueidis.RedisError
	var unsent notSent
	switch {
	case err == nil:
		return nil
	case errors.As(err, &reply) && reply.IsNil():
		return errors.New("rueidisclient: a script replied nil, not a list")
	case errors.As(err, &reply):
		code, _, _ := strings.Cut(reply.Error(), " ")
		return &sluiceredis.ServerError{Code: code, Message: reply.Error()}
	case errors.As(err, &unsent):
		return unsent.error
	case errors.Is(err, rueidis.ErrNoSlot):
		return err // no server has the key
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err) // ConnWriteTimeout
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		// The connection notices a deadline before the context does.
		if at, ok := ctx.Deadline(); ctx.Err() == nil && (!ok || time.Now().Before(at)) {
			err = errOther
		}
	}
	return fmt.Errorf("%w: %w", sluiceredis.ErrAmbiguous, err)
}

func isNoScript(result rueidis.RedisResult) bool {
	reply, ok := rueidis.IsRedisErr(result.Error())
	return ok && reply.IsNoScript()
}

// ints returns the integers that a script replied.
func ints(ctx context.Context, result rueidis.RedisResult) ([]int64, error) {
	message, err := result.ToMessage()
	if err != nil {
		return nil, outcome(ctx, err)
	}
	if !message.IsArray() {
		return nil, errors.New("rueidisclient: a script did not reply a list")
	}
	list, err := message.ToArray()
	if err != nil {
		return nil, err
	}
	out := make([]int64, len(list))
	for i := range list {
		if out[i], err = list[i].ToInt64(); err != nil {
			return nil, fmt.Errorf("rueidisclient: a script replied no integer at %d: %v", i, err)
		}
	}
	return out, nil
}

func digits(n int) string { return strconv.Itoa(n) }
