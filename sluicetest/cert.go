package sluicetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"
)

// An authority issues a certificate for every host that a client asks for. Only clients
// with its pool trust it.
type authority struct {
	key  *ecdsa.PrivateKey // of all certificates
	root *x509.Certificate
	pool *x509.CertPool

	mu     sync.Mutex
	issued map[string]*tls.Certificate // by host
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("sluicetest: making a key: %w", err)
	}
	a := &authority{key: key, pool: x509.NewCertPool(), issued: make(map[string]*tls.Certificate)}
	template := a.template("sluicetest")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("sluicetest: signing the root: %w", err)
	}
	if a.root, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("sluicetest: reading the root back: %w", err)
	}
	a.pool.AddCert(a.root)
	return a, nil
}

// template is valid for 50 years before and after now, so that a test can move its clock.
func (a *authority) template(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(int64(len(a.issued)) + 1),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.AddDate(-50, 0, 0),
		NotAfter:     now.AddDate(50, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

// certificate implements tls.Config.GetCertificate. A client that wants an IP address
// sends no name; then the name is the address that was dialed.
func (a *authority) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	host := hello.ServerName
	if host == "" {
		var err error
		if host, _, err = net.SplitHostPort(hello.Conn.LocalAddr().String()); err != nil {
			return nil, errors.New("sluicetest: the TLS client sent no host name")
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if cert := a.issued[host]; cert != nil {
		return cert, nil
	}
	template := a.template(host)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("sluicetest: a certificate for %q: %w", host, err)
	}
	cert := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
	a.issued[host] = cert
	return cert, nil
}
