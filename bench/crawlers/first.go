package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/bench/internal/machine"
)

// spider is what Scrapy's documentation has people write to follow all links of a site.
const spider = `from scrapy.spiders import CrawlSpider, Rule
from scrapy.linkextractors import LinkExtractor

class First(CrawlSpider):
    name = "first"
    rules = [Rule(LinkExtractor(), follow=True)]

    def __init__(self, start, domains, **kw):
        self.start_urls, self.allowed_domains = [start], domains.split(",")
        super().__init__(**kw)
`

// measureFirst runs each first command and its counterparts, and returns the table.
func measureFirst(ctx context.Context, sluice string) (string, error) {
	dir, err := os.MkdirTemp("", "crawlers")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	cert, err := certificate(filepath.Join(dir, "ca.pem"))
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "first.py"), []byte(spider), 0o666); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "machine: %s  \nmeasured: %s, `go run ./bench/crawlers -first`\n\n", machine.Describe(), time.Now().UTC().Format("2006-01-02 15:04 UTC"))
	b.WriteString("| the site | sluice crawl | allowed | sluice crawl | wget -r | Scrapy |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, f := range firsts {
		fmt.Fprintf(&b, "| %s | `%s` | %d", f.title, strings.TrimSpace(f.sluice+" "+f.start), len(f.allowed()))
		commands := [][]string{
			append(append([]string{sluice, "crawl", "-quiet", "-delay", "20ms"}, strings.Fields(f.sluice)...), f.start),
			append(append([]string{"wget", "-q", "-r", "--tries=2", "--ca-certificate=../ca.pem"}, strings.Fields(f.wget)...), f.start),
			append([]string{"scrapy", "runspider", "--nolog", "-s", "ROBOTSTXT_OBEY=True", "-a", "start=" + f.withScheme(), "-a", "domains=" + f.domain(), "../first.py"}, strings.Fields(f.scrapy)...),
		}
		for _, command := range commands {
			cell, err := f.run(ctx, dir, cert, command)
			if err != nil {
				return "", fmt.Errorf("%s: %s: %w", f.title, command[0], err)
			}
			b.WriteString(" | " + cell)
		}
		b.WriteString(" |\n")
	}
	return b.String(), nil
}

// withScheme is the first address as Scrapy needs it.
func (f first) withScheme() string {
	if strings.Contains(f.start, "://") {
		return f.start
	}
	return "http://" + f.start
}

// domain is the host of the first address without "www.", which Scrapy takes with all hosts below it.
func (f first) domain() string {
	_, rest, _ := strings.Cut(f.withScheme(), "://")
	host, _, _ := strings.Cut(rest, "/")
	return strings.TrimPrefix(host, "www.")
}

// allowed are the pages that robots.txt and nofollow let a crawler have.
func (f first) allowed() map[string]bool {
	pages := make(map[string]bool)
	for address, p := range f.site {
		if p.status == 0 && !p.denied && !p.helper && !strings.HasSuffix(address, "/robots.txt") {
			pages[address] = true
		}
	}
	return pages
}

// run runs a command with the site behind a proxy, and says how many of the allowed pages and how
// many others it got.
func (f first) run(ctx context.Context, dir string, cert tls.Certificate, args []string) (string, error) {
	if _, err := exec.LookPath(args[0]); err != nil {
		return "not installed", nil
	}
	own, err := os.MkdirTemp(dir, "first")
	if err != nil {
		return "", err
	}
	got := &visited{site: f.site, pages: make(map[string]bool), cert: cert}
	s := httptest.NewServer(got)
	defer s.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = own
	cmd.Env = append(os.Environ(), "http_proxy="+s.URL, "https_proxy="+s.URL, "HTTP_PROXY="+s.URL, "HTTPS_PROXY="+s.URL, "no_proxy=", "NO_PROXY=",
		"SSL_CERT_FILE="+filepath.Join(dir, "ca.pem"), "LC_ALL=C.UTF-8")
	var out bytes.Buffer
	cmd.Stderr, cmd.Stdout = &out, &out
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		return "", fmt.Errorf("%w: %s", err, out.String())
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	if len(got.pages) == 0 && out.Len() > 0 {
		fmt.Fprintf(os.Stderr, "%s: %s: %s\n", f.title, args[0], out.String())
	}
	allowed := f.allowed()
	n, denied := 0, 0
	for page := range got.pages {
		switch {
		case allowed[page]:
			n++
		case f.site[page].denied:
			denied++
		}
	}
	for page := range allowed {
		if !got.pages[page] {
			fmt.Fprintf(os.Stderr, "%s: %s lacks %s\n", f.title, filepath.Base(args[0]), page)
		}
	}
	if denied > 0 {
		return fmt.Sprintf("%d, and %d denied", n, denied), nil
	}
	return fmt.Sprint(n), nil
}

// A visited site is served as a proxy for all its hosts, and notes which pages were had.
type visited struct {
	site map[string]page
	cert tls.Certificate

	mu    sync.Mutex
	pages map[string]bool
}

func (v *visited) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		v.tunnel(w)
		return
	}
	scheme := ""
	if r.TLS != nil {
		scheme = "https://"
	}
	address := scheme + strings.TrimSuffix(r.Host, ":80") + r.URL.RequestURI()
	p, ok := v.site[address]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	for name, value := range p.header {
		h[name] = value
	}
	body := p.body
	if h.Get("Content-Encoding") == "gzip" {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = io.WriteString(z, body)
		_ = z.Close()
		body = b.String()
	}
	if p.status != 0 {
		w.WriteHeader(p.status)
	}
	_, _ = io.WriteString(w, body)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pages[address] = true
}

// tunnel answers CONNECT: whatever host is meant, this server is it.
func (v *visited) tunnel(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
	one := make(chan net.Conn, 1)
	one <- tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{v.cert}})
	_ = http.Serve(&oneConn{conns: one, addr: conn.LocalAddr()}, v)
}

// A oneConn is a listener with a single connection. The second Accept ends its server, which
// leaves the connection alone.
type oneConn struct {
	conns chan net.Conn
	addr  net.Addr
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	default:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return l.addr }

// certificate makes one for the names of the sites, and writes it to a file for those who verify.
func certificate(file string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{"site.test", "www.site.test"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, os.WriteFile(file, text, 0o666)
}
