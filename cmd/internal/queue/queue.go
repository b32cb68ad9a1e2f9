// Package queue is a queue of items that processes on any number of machines work on: a work queue of
// NATS JetStream. An item stays in it until a worker says that it is done, and whoever takes one has a
// lease, which is renewed as long as the process lives. Items that failed for good are kept beside
// the others, as dead letters.
package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-go/sluice/cmd/internal/cli"
)

// An Address says where a queue is.
type Address struct {
	Name    string // of the stream
	servers []string
	shown   string // without credentials
	creds   string // a file, "" for none
}

// AuthVariable is the environment variable with the credentials of the queue.
const AuthVariable = "SLUICE_QUEUE_AUTH"

var streamName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// Parse reads the value of the flag -queue.
func Parse(text string) (Address, error) {
	u, err := cli.URL(text, AuthVariable)
	if err != nil {
		return Address{}, err
	}
	a := Address{Name: strings.Trim(u.Path, "/"), creds: u.Query().Get("creds")}
	if !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) || u.Host == "" || !streamName.MatchString(a.Name) {
		return a, errors.New("want nats://host/name, where the name of the queue has letters, digits, - and _")
	}
	a.shown = u.Scheme + "://" + u.Host
	for host := range strings.SplitSeq(u.Host, ",") {
		server := *u
		server.Host, server.Path, server.RawQuery = host, "", ""
		a.servers = append(a.servers, server.String())
	}
	return a, nil
}

// String is the address without credentials.
func (a Address) String() string { return a.shown + "/" + a.Name }

// A Queue is a connection to a queue.
type Queue struct {
	at     Address
	conn   *nats.Conn
	js     jetstream.JetStream
	denied atomic.Pointer[error] // what the server said last that was no answer, such as a missing permission
}

// The pauses in which an unavailable server is asked again, and the time in which it must answer.
const (
	again      = 250 * time.Millisecond
	answerTime = 10 * time.Second
)

// Open connects to the server of a queue, which must be there. When it becomes unavailable, and comes
// back, log is called.
func Open(a Address, log func(string)) (*Queue, error) {
	q := &Queue{at: a}
	options := []nats.Option{
		nats.Name(cli.Program), nats.Timeout(answerTime), nats.MaxReconnects(-1), nats.ReconnectWait(again), nats.ReconnectJitter(again, again),
		nats.ReconnectBufSize(-1), // what could not be sent is an error, and sent again
		nats.PingInterval(10 * time.Second), nats.NoCallbacksAfterClientClose(),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { log(fmt.Sprintf("the queue at %s is away; waiting for it", a.shown)) }),
		nats.ReconnectHandler(func(*nats.Conn) { log("the queue is back") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { q.denied.Store(&err) }),
	}
	if a.creds != "" {
		options = append(options, nats.UserCredentials(a.creds))
	}
	var err error
	if q.conn, err = nats.Connect(strings.Join(a.servers, ","), options...); err != nil {
		return nil, q.explain(err)
	}
	if q.js, err = jetstream.New(q.conn, jetstream.WithDefaultTimeout(answerTime)); err != nil {
		q.conn.Close()
		return nil, err
	}
	return q, nil
}

// Close closes the connection. What was sent is sent.
func (q *Queue) Close() {
	_ = q.conn.FlushTimeout(time.Second)
	q.conn.Close()
}

// explain returns an error that says what to do.
func (q *Queue) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return fmt.Errorf("the queue at %s rejects the credentials: %w", q.at.shown, err)
	case errors.Is(err, nats.ErrNoServers):
		return fmt.Errorf("no NATS server answers at %s", q.at.shown)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount), errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("the NATS server at %s has no JetStream: start it with -js", q.at.shown)
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrConsumerNotFound):
		return fmt.Errorf("there is no queue %s: -fill makes it", q.at)
	}
	if denied := q.denied.Load(); denied != nil {
		err = *denied
	}
	return fmt.Errorf("the queue %s: %w", q.at, err)
}

// forbidden reports whether a permission is missing.
func (q *Queue) forbidden() bool {
	denied := q.denied.Load()
	return denied != nil && errors.Is(*denied, nats.ErrPermissionViolation)
}

// over reports whether an error will be the same for ever.
func (q *Queue) over(err error) bool {
	return q.conn.IsClosed() || errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrConsumerDeleted)
}

// Subjects of the stream.
func (q *Queue) items() string { return q.at.Name + ".items" }
func (q *Queue) dead() string  { return q.at.Name + ".dead" }
func (q *Queue) back() string  { return q.at.Name + ".back" } // the items that each job has returned

const (
	consumerName = "workers"

	// remembers is the time for which the server knows the ids of items that were put.
	remembers = 24 * time.Hour
	// Lease is how long after the last sign of life of a worker its items go to others, unless the
	// queue was made with another one.
	Lease = 30 * time.Second
)

// Create makes the queue unless it is there. A lease of 0 leaves it as it is, or Lease.
func (q *Queue) Create(ctx context.Context, lease time.Duration) error {
	_, err := q.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: q.at.Name, Subjects: []string{q.items(), q.dead(), q.back()}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, Duplicates: remembers,
	})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return q.explain(err)
	}
	if _, err := q.stream(ctx); err != nil {
		return err
	}
	if lease == 0 {
		if _, err := q.js.Consumer(ctx, q.at.Name, consumerName); !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return q.explain(err)
		}
	}
	lease = cmp.Or(lease, Lease)
	_, err = q.js.CreateOrUpdateConsumer(ctx, q.at.Name, jetstream.ConsumerConfig{
		// A tenth of the lease is for delivering the items again.
		Durable: consumerName, FilterSubject: q.items(), AckPolicy: jetstream.AckExplicitPolicy, AckWait: lease - lease/10,
		MaxAckPending: -1, MaxWaiting: 100_000,
	})
	return q.explain(err)
}

// stream returns the stream, which must be a queue.
func (q *Queue) stream(ctx context.Context) (jetstream.Stream, error) {
	s, err := q.js.Stream(ctx, q.at.Name)
	if err != nil {
		return nil, q.explain(err)
	}
	if c := s.CachedInfo().Config; c.Retention != jetstream.WorkQueuePolicy || !slices.Contains(c.Subjects, q.items()) || !slices.Contains(c.Subjects, q.dead()) {
		return nil, fmt.Errorf("the stream %s is not a queue of sluice: use another name", q.at)
	}
	return s, nil
}

// Left returns the number of items that are not done, and of dead letters.
func (q *Queue) Left(ctx context.Context) (items, dead int, err error) {
	s, err := q.stream(ctx)
	if err != nil {
		return 0, 0, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(q.at.Name+".*"))
	if err != nil {
		return 0, 0, q.explain(err)
	}
	return int(info.State.Subjects[q.items()]), int(info.State.Subjects[q.dead()]), nil
}
