package sluicetest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// A Server answers HTTP requests in memory, for any host name: what connects
// through [Server.DialContext] reaches it, whatever address it dials, by
// HTTP/1.1, HTTP/2 or both, with TLS or without. It is net/http's own server
// on connections that never leave the process, so it works in a testing/synctest
// bubble, where everything then happens at exact instants, and outside.
//
// It must be made by [NewServer], must not be copied, and is closed by
// [Server.Close]; in a bubble that is needed, or the test never ends. Its
// methods are safe for use by multiple goroutines. Made in a bubble, it belongs
// to that bubble.
//
// A Server is also an [http.Handler], so that it can stand on a real socket:
// then connections are not in its record and no fault can break one, but
// everything else works.
type Server struct {
	made    time.Time
	handler http.Handler
	ca      *authority
	http    *http.Server
	plain   *listener
	secure  *listener
	book    book

	closing sync.Once
	done    chan struct{}  // closed by Close
	serving sync.WaitGroup // the goroutines of the server, handlers included

	mu    sync.Mutex
	dial  func(n int, addr string) Dial
	ends  map[*wire]bool // of the server, open
	ended bool
}

// NewServer returns a server that answers through layers, the first of them
// outermost. What they let pass is answered "200 OK" with a body of "ok". To
// have something else answered make it the last layer, with [Handler].
//
// It panics if a layer is nil.
//
//	srv := sluicetest.NewServer(
//		sluicetest.On(3, sluicetest.Status(503)),
//		sluicetest.Enforce(sluicetest.Limit{Count: 10, Per: time.Second}),
//	)
//	defer srv.Close()
func NewServer(layers ...Layer) *Server {
	ca, err := newAuthority()
	if err != nil {
		panic(err) // no randomness, or a mistake in cert.go
	}
	s := &Server{
		made:    time.Now(),
		handler: stack(layers)(http.HandlerFunc(ok)),
		ca:      ca,
		done:    make(chan struct{}),
		ends:    make(map[*wire]bool),
	}
	s.book.now = s.now
	s.plain, s.secure = newListener(s.done), newListener(s.done)
	s.http = &http.Server{
		Handler:     s,
		Protocols:   new(http.Protocols),
		ConnContext: withConn,
		ConnState:   s.connState,
		ErrorLog:    log.New(&s.book, "", 0),
		TLSConfig:   &tls.Config{GetCertificate: ca.certificate},
	}
	s.http.Protocols.SetHTTP1(true)
	s.http.Protocols.SetHTTP2(true)
	s.http.Protocols.SetUnencryptedHTTP2(true)
	// Both return when Close closes what they listen to.
	s.serving.Go(func() { _ = s.http.Serve(s.plain) })
	s.serving.Go(func() { _ = s.http.ServeTLS(s.secure, "", "") })
	return s
}

// ok is what a server answers if nobody says anything else.
func ok(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}

// Client returns a client whose every request, to whatever host, comes to s.
// It watches the bodies, see [Server.Watch]. It has no timeout.
func (s *Server) Client() *http.Client {
	return &http.Client{Transport: s.Watch(s.Transport())}
}

// Transport returns a new transport that connects to s, whatever the host:
// one that can be changed before it is used. It speaks HTTP/2 with https and
// HTTP/1.1 with http; its Protocols can be set to others. [Server.Close]
// ends its connections.
func (s *Server) Transport() *http.Transport {
	return &http.Transport{
		DialContext:       s.DialContext,
		TLSClientConfig:   s.TLSConfig(),
		ForceAttemptHTTP2: true,
	}
}

// TLSConfig returns a new configuration for a client that is to trust s, under
// any host name. A client without it gets a certificate error.
func (s *Server) TLSConfig() *tls.Config {
	return &tls.Config{RootCAs: s.RootCAs()}
}

// RootCAs returns the certificates that vouch for s.
func (s *Server) RootCAs() *x509.CertPool { return s.ca.pool.Clone() }

// A Dial is what comes of an attempt to connect.
type Dial int

const (
	// Connect connects.
	Connect Dial = iota
	// Refuse is a port that nobody listens to: connection refused.
	Refuse
	// NoHost is a name that does not exist: a [net.DNSError] that IsNotFound.
	NoHost
	// Hang answers nothing: the dial blocks until its context is done.
	Hang
	// Drop connects and closes at once, with nothing read.
	Drop
	// Deaf connects and reads nothing, until the client gives up.
	Deaf
)

// OnDial makes f decide what comes of each attempt to connect from now on: of
// the n-th, counted from 1 at the making of the server, to addr, a host and a
// port. f may be called by several goroutines at once. nil stands for always
// Connect.
func (s *Server) OnDial(f func(n int, addr string) Dial) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dial = f
}

var refused = os.NewSyscallError("connect", errRefused)

// DialContext connects to s, whatever the address is, and takes no time. It
// fits [http.Transport] and [net.Dialer]. It returns ctx.Err() if ctx is done,
// and a *[net.OpError] if the server is closed or OnDial says so.
func (s *Server) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	failed := func(err error) error {
		return &net.OpError{Op: "dial", Net: network, Addr: addr(address), Err: err}
	}
	n := s.book.dialled()
	s.mu.Lock()
	decide := s.dial
	s.mu.Unlock()
	verdict := Connect
	if decide != nil {
		verdict = decide(n, address)
	}
	switch verdict {
	case Refuse:
		return nil, failed(refused)
	case NoHost:
		host, _, _ := net.SplitHostPort(address)
		return nil, failed(&net.DNSError{Err: "no such host", Name: host, IsNotFound: true})
	case Hang:
		select {
		case <-ctx.Done():
			return nil, failed(ctx.Err())
		case <-s.done:
			return nil, failed(refused)
		}
	}
	client, server := newWires(addr("client"), addr(address))
	if !s.enter(server) {
		return nil, failed(refused)
	}
	switch c := s.book.opened(server, n, address); verdict {
	case Drop:
		_ = server.Close()
		s.gone(c)
	case Deaf:
		go func() {
			defer s.gone(c)
			<-server.gone // Close closes it too
			_ = server.Close()
		}()
	default:
		go s.welcome(c)
	}
	return client, nil
}

// enter counts a goroutine that Close shall wait for, of a connection w if that is
// not nil, unless the server is closed: then Close would never hear of it. Whoever
// gets true owes the server a call of gone, or of serving.Done.
func (s *Server) enter(w *wire) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	if w != nil {
		s.ends[w] = true
	}
	s.serving.Add(1)
	return true
}

// gone says that a connection has ended and its goroutine with it.
func (s *Server) gone(c *conn) {
	s.book.closed(c)
	s.mu.Lock()
	delete(s.ends, c.wire)
	s.mu.Unlock()
	s.serving.Done()
}

// welcome hands a connection to the HTTP server as what it turns out to be.
func (s *Server) welcome(c *conn) {
	first, err := c.peek()
	to := s.plain
	if first == tlsHandshake {
		to = s.secure
	}
	if err == nil && to.deliver(c) {
		return // connState hears of its end
	}
	_ = c.Close()
	s.gone(c)
}

// tlsHandshake is the first byte of a TLS connection (RFC 8446, section 5.1).
// It begins no HTTP request.
const tlsHandshake = 22

// connState implements http.Server.ConnState.
func (s *Server) connState(nc net.Conn, state http.ConnState) {
	switch state {
	case http.StateClosed:
		s.gone(connOf(nc))
	case http.StateHijacked: // the handler has it now
		c := connOf(nc)
		go func() {
			<-c.gone
			s.gone(c)
		}()
	}
}

// CutConns breaks all connections that are open now, as a server does that is
// restarted: what is in flight fails, and idle connections turn out dead when
// they are used next.
func (s *Server) CutConns() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.ends {
		w.Reset()
	}
}

// Close breaks all connections, lets those who dial be refused, and waits until
// all goroutines of the server are done. A [Handler] must return when the
// context of its request is done. Faults that wait do. Closing twice is
// harmless.
func (s *Server) Close() {
	s.closing.Do(func() {
		s.mu.Lock()
		s.ended = true
		s.mu.Unlock()
		// Before those who wait are told, who would abort their answers: the
		// client shall see a connection that broke, and not now and then a
		// stream that was reset.
		s.CutConns()
		close(s.done)
		_ = s.http.Close() // of our listeners, which return no error
	})
	s.serving.Wait()
}

// now is the instant: the time since the server was made.
func (s *Server) now() time.Duration { return time.Since(s.made) }

// A listener is where connections arrive that were not made by a network.
type listener struct {
	arrive chan net.Conn
	done   chan struct{}
}

func newListener(done chan struct{}) *listener {
	return &listener{arrive: make(chan net.Conn), done: done}
}

// deliver reports whether somebody accepted c.
func (l *listener) deliver(c net.Conn) bool {
	select {
	case l.arrive <- c:
		return true
	case <-l.done:
		return false
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.arrive:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { return nil } // Server.Close closes done
func (l *listener) Addr() net.Addr { return addr("sluicetest") }
