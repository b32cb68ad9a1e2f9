package browsertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// A pipe is a connection to Chromium by its DevTools protocol: JSON messages, each ended by
// a zero byte, on two pipes. It needs no port and no WebSocket.
type pipe struct {
	mu      sync.Mutex
	out     io.Writer
	last    int64
	waiting map[int64]chan message
	events  map[string]func(method string, params json.RawMessage) // by session
	err     error                                                  // why the pipe is closed
}

// A message is a command, its answer, or an event.
type message struct {
	ID      int64           `json:"id,omitzero"`
	Session string          `json:"sessionId,omitzero"`
	Method  string          `json:"method,omitzero"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
		Data    string `json:"data"`
	} `json:"error,omitempty"`
}

func newPipe(out io.Writer) *pipe {
	return &pipe{
		out:     out,
		waiting: map[int64]chan message{},
		events:  map[string]func(string, json.RawMessage){},
	}
}

// listen calls f with each event of a session, one after another. f must not call the
// pipe.
func (p *pipe) listen(session string, f func(method string, params json.RawMessage)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events[session] = f
}

// read passes on the messages of Chromium until it closes the pipe.
func (p *pipe) read(in io.Reader) {
	r := bufio.NewReader(in)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			p.close(fmt.Errorf("the browser closed its pipe: %w", err))
			return
		}
		var m message
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			p.close(err)
			return
		}
		p.mu.Lock()
		answer, event := p.waiting[m.ID], p.events[m.Session]
		delete(p.waiting, m.ID)
		p.mu.Unlock()
		switch {
		case answer != nil:
			answer <- m
		case m.Method != "" && event != nil:
			event(m.Method, m.Params)
		}
	}
}

func (p *pipe) close(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	for id, answer := range p.waiting {
		close(answer)
		delete(p.waiting, id)
	}
}

// call sends a command and decodes its answer into result, unless that is nil.
func (p *pipe) call(ctx context.Context, session, method string, params, result any) error {
	answer, err := p.send(session, method, params)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return fmt.Errorf("%s: the browser has ended", method)
		case m.Error != nil:
			return fmt.Errorf("%s: %s %s", method, m.Error.Message, m.Error.Data)
		case result == nil:
			return nil
		}
		return json.Unmarshal(m.Result, result)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

func (p *pipe) send(session, method string, params any) (<-chan message, error) {
	if params == nil {
		params = struct{}{}
	}
	args, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	p.last++
	text, err := json.Marshal(message{ID: p.last, Session: session, Method: method, Params: args})
	if err != nil {
		return nil, err
	}
	answer := make(chan message, 1)
	p.waiting[p.last] = answer
	if _, err := p.out.Write(append(text, 0)); err != nil {
		delete(p.waiting, p.last)
		return nil, errors.Join(errors.New("the browser does not read its pipe"), err)
	}
	return answer, nil
}
