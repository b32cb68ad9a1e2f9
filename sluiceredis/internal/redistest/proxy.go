package redistest

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// A Fault is the effect of a [Proxy] on the data that passes through it. The zero Fault is
// none.
type Fault struct {
	Delay     time.Duration // replies are that late
	DropCalls bool          // data of clients goes nowhere
	DropReply bool          // replies of the server go nowhere
	Trickle   time.Duration // replies come one byte each so often
	Refuse    bool          // connections are reset immediately
}

// A Proxy stands between clients and a server, and causes the faults that are set.
type Proxy struct {
	Addr string

	listener net.Listener
	wg       sync.WaitGroup

	mu      sync.Mutex
	to      string
	fault   Fault
	conns   map[net.Conn]bool
	dropped int
}

// NewProxy returns a proxy in front of the server at addr, ended with the test.
func NewProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), to: addr, listener: l, conns: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.Reset()
		p.wg.Wait()
	})
	return p
}

// Set sets the current faults, also on connections that are open.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// Reset resets every connection.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
	}
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // so that closing resets
	}
	_ = c.Close()
}

// Dropped returns the number of times something went nowhere.
func (p *Proxy) Dropped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

func (p *Proxy) drop() (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped++
	return true, nil
}

func (p *Proxy) now() Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.now().Refuse {
			reset(client)
			continue
		}
		p.mu.Lock()
		to := p.to
		p.mu.Unlock()
		server, err := net.Dial("tcp", to)
		if err != nil {
			reset(client)
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		p.wg.Go(func() { p.copy(server, client, p.call) })
		p.wg.Go(func() { p.copy(client, server, p.reply) })
	}
}

// copy copies through pass until either side ends. A stream that lost something ends at the next
// data that is not lost, as streams do: that would be mistaken for the missing part.
func (p *Proxy) copy(to, from net.Conn, pass func(to io.Writer, data []byte, lost bool) (bool, error)) {
	buf, lost := make([]byte, 64<<10), false
	for {
		n, err := from.Read(buf)
		if err == nil {
			lost, err = pass(to, buf[:n], lost)
		}
		if err != nil {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range []net.Conn{to, from} {
		reset(c)
		delete(p.conns, c)
	}
}

// errLost ends a stream that lost something.
var errLost = errors.New("something was lost")

func (p *Proxy) call(to io.Writer, data []byte, lost bool) (bool, error) {
	switch {
	case p.now().DropCalls:
		return p.drop()
	case lost:
		return true, errLost
	}
	_, err := to.Write(data)
	return false, err
}

func (p *Proxy) reply(to io.Writer, data []byte, lost bool) (bool, error) {
	f := p.now()
	switch {
	case f.DropReply:
		return p.drop()
	case lost:
		return true, errLost
	case f.Trickle > 0:
		for i := range data {
			time.Sleep(f.Trickle)
			if _, err := to.Write(data[i : i+1]); err != nil {
				return false, err
			}
		}
		return false, nil
	case f.Delay > 0:
		time.Sleep(f.Delay)
	}
	_, err := to.Write(data)
	return false, err
}
