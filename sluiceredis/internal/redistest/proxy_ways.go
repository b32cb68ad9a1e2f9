package redistest

import "net"

// Redirect has connections that come from now on go to the server at addr, and
// resets those that are open: as after a failover, behind one address.
func (p *Proxy) Redirect(addr string) {
	p.mu.Lock()
	p.to = addr
	p.mu.Unlock()
	p.Reset()
}

// HalfClose ends the direction from the server on every connection, and keeps taking data from
// clients.
func (p *Proxy) HalfClose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if tcp, ok := c.(*net.TCPConn); ok && tcp.LocalAddr().String() == p.Addr {
			_ = tcp.CloseWrite()
		}
	}
}
