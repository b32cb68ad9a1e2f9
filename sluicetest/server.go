package sluicetest

import (
	"context"
	"crypto/tls"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// A Server answers HTTP requests in memory, for every host name, over HTTP/1.1 and HTTP/2, with TLS
// and without.
//
// A Server must be made by [NewServer] and must not be copied. In a bubble it must be closed, or
// the test never ends. Its methods are safe for use by multiple goroutines.
//
// A Server is also an [http.Handler] for use on a real socket. Then its record has no connections
// and faults cannot break one.
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
	ends  map[*wire]bool // open connections, the ends of the server
	ended bool
}

// NewServer returns a server that answers through layers. Requests that pass all of them get "200
// OK" and the body "ok". It panics if a layer is nil.
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
	// Both return when Close closes their listeners.
	s.serving.Go(func() { _ = s.http.Serve(s.plain) })
	s.serving.Go(func() { _ = s.http.ServeTLS(s.secure, "", "") })
	return s
}

// ok is the innermost handler.
func ok(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}

// Client returns a client whose requests all go to s, whatever their host. It has no timeout.
func (s *Server) Client() *http.Client {
	return &http.Client{Transport: s.Watch(s.Transport())}
}

// Transport returns a new transport that connects to s, whatever the host. It uses HTTP/2 with
// https and HTTP/1.1 with http, which its Protocols can change. [Server.Close] ends its
// connections.
func (s *Server) Transport() *http.Transport {
	return &http.Transport{
		DialContext:       s.dial,
		TLSClientConfig:   &tls.Config{RootCAs: s.ca.pool.Clone()},
		ForceAttemptHTTP2: true,
	}
}

var refused = os.NewSyscallError("connect", errRefused)

// dial connects to s, whatever the address, and takes no time. It returns ctx.Err() if
// ctx is done, and a *net.OpError if s is closed.
func (s *Server) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	client, server := newWires(addr("client"), addr(address))
	if !s.begin(server) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: addr(address), Err: refused}
	}
	go s.welcome(s.book.opened(server, address))
	return client, nil
}

// begin counts a goroutine that Close has to wait for, for the connection w unless that
// is nil, and reports true; or false if the server is closed. After true, the caller must
// call gone or serving.Done.
func (s *Server) begin(w *wire) bool {
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

// gone records that a connection and its goroutine have ended.
func (s *Server) gone(c *conn) {
	s.book.closed(c)
	s.mu.Lock()
	delete(s.ends, c.wire)
	s.mu.Unlock()
	s.serving.Done()
}

// welcome passes a connection to the HTTP server, with TLS or without.
func (s *Server) welcome(c *conn) {
	first, err := c.peek()
	to := s.plain
	if first == tlsHandshake {
		to = s.secure
	}
	if err == nil && to.deliver(c) {
		return // connState is called at its end
	}
	_ = c.Close()
	s.gone(c)
}

// tlsHandshake is the first byte of a TLS connection (RFC 8446, section 5.1). No HTTP
// request begins with it.
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

// resetAll breaks all connections that are open now.
func (s *Server) resetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.ends {
		w.Reset()
	}
}

// Close breaks all connections, rejects new ones, and waits until all goroutines of the server are
// done. A [Handler] must return when the context of its request is done. Closing twice is harmless.
func (s *Server) Close() {
	s.closing.Do(func() {
		s.mu.Lock()
		s.ended = true
		s.mu.Unlock()
		// Before done is closed: handlers that wait for it abort their responses,
		// and the client should see a broken connection, never a stream reset.
		s.resetAll()
		close(s.done)
		_ = s.http.Close() // our listeners return no error
	})
	s.serving.Wait()
}

// now is the time since the server was made.
func (s *Server) now() time.Duration { return time.Since(s.made) }

// A listener accepts in-memory connections.
type listener struct {
	arrive chan net.Conn
	done   chan struct{}
}

func newListener(done chan struct{}) *listener {
	return &listener{arrive: make(chan net.Conn), done: done}
}

// deliver reports whether c was accepted.
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
