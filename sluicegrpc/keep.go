package sluicegrpc

import (
	"io"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
)

// # What a client has sent
//
// Another attempt of a stream sends the messages of its client again, in the same order, while
// the client may be sending more. The rule is the same as in grpc-go's own retries (clientStream):
//
//   - A message is kept after it was sent on a turn, unless the turn has ended:
//     then SendMsg sends it on the next one.
//   - Kept messages are sent on a turn before SendMsg gets it: both hold stream.failing.
//
// So when a turn ends, each message was either kept before, or will be sent by SendMsg.

// A kept has the messages that the client of a stream has sent, as far as they can be sent again.
type kept struct {
	messages []any
	size     int  // about the bytes in messages, if there may be several
	half     bool // the end of all messages
}

// mostKept bounds kept.size. A client that has sent more gets no other attempt. It is the
// bound of gRPC's own retries.
const mostKept = 256 << 10

// sizeOfEmpty is the size of a message without content.
const sizeOfEmpty = 64

// ready is current, but waits for another attempt that is being made.
func (s *stream) ready() *turn {
	s.failing <- struct{}{}
	defer func() { <-s.failing }()
	return s.current()
}

// keep keeps m, which the client has sent on t or, if sent is false, could not send because t
// had ended. again reports that m must be sent on the next turn.
func (s *stream) keep(t *turn, m any, sent bool) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.phase != opened {
		return t.phase == due
	}
	if s.committed {
		return false
	}
	if !sent || !s.kept.add(m, s.call, s.desc.ClientStreams) {
		s.committed, s.kept.messages = true, nil
	}
	return false
}

// add adds m, if it can and may be sent again.
func (k *kept) add(m any, c *call, several bool) bool {
	if !several {
		k.messages = append(k.messages, m) // its client must not change it, as gRPC says
		return true
	}
	if len(k.messages) == 0 && c.once() {
		return false
	}
	v1, isV1 := m.(protoadapt.MessageV1)
	v2, isV2 := m.(proto.Message)
	switch {
	case isV2:
	case isV1:
		v2 = protoadapt.MessageV2Of(v1)
	default: // of another codec
		return false
	}
	if k.size += sizeOfEmpty + proto.Size(v2); k.size > mostKept {
		return false
	}
	// Clients may use one buffer for all messages: with gRPC alone a message is encoded when
	// SendMsg returns.
	if v2 = proto.Clone(v2); isV2 {
		k.messages = append(k.messages, v2)
	} else {
		k.messages = append(k.messages, protoadapt.MessageV1Of(v2))
	}
	return true
}

// once reports whether the call is certainly not retried.
func (c *call) once() bool { return c.o.NoRetry || c.hasRetryPolicy() }

// resend sends the client's messages to t.
func (s *stream) resend(t *turn) error {
	s.mu.Lock()
	again := s.kept
	s.mu.Unlock()
	for _, m := range again.messages {
		if err := t.stream.SendMsg(m); err == io.EOF {
			return nil // RecvMsg has the error
		} else if err != nil {
			return err
		}
	}
	if again.half {
		return t.stream.CloseSend()
	}
	return nil
}
