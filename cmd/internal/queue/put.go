package queue

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-go/sluice/cmd/internal/cli"
)

// Headers of items and of dead letters.
const (
	headerID       = "Sluice-Id"
	headerError    = "Sluice-Error"
	headerAttempts = "Sluice-Attempts"
	headerAt       = "Sluice-At"
)

// mostOfID is the longest id that is kept as it is: servers keep ids in memory.
const mostOfID = 128

// idOf returns the id of an item: that of a JSON object with an id, or the item itself.
func idOf(text string) string {
	var object struct {
		ID json.RawMessage `json:"id"`
	}
	id := text
	if strings.HasPrefix(text, "{") && json.Unmarshal([]byte(text), &object) == nil && object.ID != nil && string(object.ID) != "null" {
		id = string(object.ID)
		var s string
		if json.Unmarshal(object.ID, &s) == nil {
			id = s
		}
	}
	if id == "" || len(id) > mostOfID || cli.Plain(id, mostOfID) != id || strings.TrimSpace(id) != id {
		return fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(id)))
	}
	return id
}

// room is what headers may add to an item in its largest form, a dead letter.
const room = 2 << 10

// Check returns an error if an item can never be put.
func (q *Queue) Check(text string) error {
	if most := q.conn.MaxPayload() - room; int64(len(text)) > most {
		return fmt.Errorf("it has %d bytes, and this server takes %d: raise its max_payload", len(text), most)
	}
	return nil
}

// Put puts items, and returns the number of those that the queue knew by their ids. It waits for a server
// that is unavailable, and returns when all are on its disk, or ctx ends.
func (q *Queue) Put(ctx context.Context, texts []string) (known int, err error) {
	msgs := make([]*nats.Msg, len(texts))
	for i, text := range texts {
		id := idOf(text)
		msgs[i] = &nats.Msg{Subject: q.items(), Data: []byte(text), Header: nats.Header{jetstream.MsgIDHeader: {id}, headerID: {id}}}
	}
	for tried := false; ; tried = true {
		var failed []*nats.Msg
		puts := make([]jetstream.PubAckFuture, len(msgs))
		for i, msg := range msgs {
			if puts[i], err = q.js.PublishMsgAsync(msg, jetstream.WithStallWait(answerTime)); err != nil {
				break
			}
		}
		until := time.Now().Add(answerTime) // and again after each answer
		for i, put := range puts {
			ack, bad := wait(ctx, put, until)
			if bad == nil {
				until = time.Now().Add(answerTime)
			}
			switch {
			case bad == nil && ack.Duplicate && !tried: // of a second try it may be our own
				known++
			case bad != nil:
				failed, err = append(failed, msgs[i]), bad
			}
		}
		if len(failed) == 0 {
			return known, nil
		}
		if msgs = failed; ctx.Err() != nil {
			return known, ctx.Err()
		}
		if _, lost := q.js.Stream(ctx, q.at.Name); q.over(lost) || isFinal(err) || q.forbidden() {
			return known, q.explain(errors.Join(lost, err))
		}
		pause(ctx, again)
	}
}

// notStored is the code of the server for an item that its disk or the bounds of the stream do not let in.
const notStored jetstream.ErrorCode = 10077

// isFinal reports whether an answer of the server will be the same again, such as that the queue is full.
func isFinal(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.Code != 503 || api.ErrorCode == notStored)
}

var errNotSent = errors.New("not sent")

// wait waits until a time for the answer of a server to an item, nil if that was not sent.
func wait(ctx context.Context, put jetstream.PubAckFuture, until time.Time) (*jetstream.PubAck, error) {
	if put == nil {
		return nil, errNotSent
	}
	select {
	case ack := <-put.Ok():
		return ack, nil
	case err := <-put.Err():
		return nil, err
	case <-time.After(time.Until(until)):
		return nil, context.DeadlineExceeded
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
