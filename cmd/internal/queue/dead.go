package queue

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A Letter is an item that failed for good.
type Letter struct {
	ID       string    `json:"id"`
	Item     string    `json:"item"`
	Error    string    `json:"error"`
	Attempts int       `json:"attempts"`
	At       time.Time `json:"at"`

	seq uint64 // of the letter
}

// Dead yields the dead letters, the oldest first, without those that come meanwhile: a letter that is put back
// may soon be one again.
func (q *Queue) Dead(ctx context.Context) iter.Seq2[Letter, error] {
	return func(yield func(Letter, error) bool) {
		s, err := q.stream(ctx)
		last := uint64(0)
		if err == nil {
			last = s.CachedInfo().State.LastSeq
		}
		for seq := uint64(1); err == nil && seq <= last; seq++ {
			var raw *jetstream.RawStreamMsg
			if raw, err = s.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(q.dead())); err != nil {
				break
			}
			if seq = raw.Sequence; seq > last {
				return
			}
			l := Letter{ID: raw.Header.Get(headerID), Item: string(raw.Data), Error: raw.Header.Get(headerError), seq: seq}
			l.Attempts, _ = strconv.Atoi(raw.Header.Get(headerAttempts)) // written by bury
			l.At, _ = time.Parse(time.RFC3339, raw.Header.Get(headerAt))
			if !yield(l, nil) {
				return
			}
		}
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			yield(Letter{}, q.explain(err))
		}
	}
}

// PutBack makes an item of a dead letter again. If it is interrupted between its two steps, the item
// is put once all the same.
func (q *Queue) PutBack(ctx context.Context, l Letter) error {
	msg := &nats.Msg{Subject: q.items(), Data: []byte(l.Item), Header: nats.Header{headerID: {l.ID}}}
	if _, err := q.js.PublishMsg(ctx, msg, jetstream.WithMsgID("back-"+strconv.FormatUint(l.seq, 10))); err != nil {
		return q.explain(err)
	}
	s, err := q.stream(ctx)
	if err != nil {
		return err
	}
	return q.explain(s.DeleteMsg(ctx, l.seq))
}

// bury puts the dead letter of an item.
func (q *Queue) bury(ctx context.Context, it *Item, l Letter) error {
	msg := &nats.Msg{Subject: q.dead(), Data: []byte(it.Text), Header: nats.Header{
		headerID: {it.ID}, headerError: {l.Error}, headerAttempts: {strconv.Itoa(l.Attempts)}, headerAt: {l.At.UTC().Format(time.RFC3339)}}}
	_, err := q.js.PublishMsg(ctx, msg, jetstream.WithMsgID("dead-"+strconv.FormatInt(it.Seq, 10)))
	return err
}
