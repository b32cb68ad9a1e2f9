package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-go/sluice/bench/internal/server"
)

// A front is a process between the clients and the server.
type front struct {
	name string
	base string // its URL, with a slash at the end
	cmd  *exec.Cmd
}

// close ends the process.
func (f *front) close() {
	if f.cmd == nil {
		return
	}
	_ = f.cmd.Process.Signal(syscall.SIGTERM)
	dead := time.AfterFunc(10*time.Second, func() { _ = f.cmd.Process.Kill() })
	_ = f.cmd.Wait() // how it ends does not matter
	dead.Stop()
}

// bareVariable is set to the URL of the server in the process that is the bare ReverseProxy.
const bareVariable = "SLUICE_BENCH_BARE"

// serveBare is the bare ReverseProxy: what a program in Go has with a few lines. Its transport keeps as
// many connections as the one of sluice proxy, and its copies have a pool: otherwise those would differ.
func serveBare(target string) {
	to, err := url.Parse(target)
	if err != nil {
		log.Fatal(err)
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConns, base.MaxIdleConnsPerHost = 0, 256
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintf(os.Stderr, "http://%s/\n", l.Addr())
	log.Fatal(http.Serve(l, &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: base, BufferPool: new(buffers), ErrorLog: log.New(io.Discard, "", 0),
	}))
}

type buffers struct{ sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.Pool.Get().(*[32 << 10]byte); ok {
		return p[:]
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(p []byte) { b.Pool.Put((*[32 << 10]byte)(p)) }

func startBare(server string) (*front, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), bareVariable+"="+server)
	return startSaying("bare ReverseProxy", cmd)
}

// startSluice starts the command, with the route /api to the server and more flags.
func startSluice(binary, server string, more ...string) (*front, error) {
	args := []string{"proxy", "-listen", "127.0.0.1:0", "-patience", "1h", "-route", "/api=" + server}
	return startSaying("sluice proxy", exec.Command(binary, append(args, more...)...))
}

var listens = regexp.MustCompile(`http://[^/ ]+/`)

// startSaying starts a command that writes the URL on which it listens.
func startSaying(name string, cmd *exec.Cmd) (*front, error) {
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if url := listens.FindString(lines.Text()); url != "" {
			go func() {
				for lines.Scan() { // until it ends
				}
			}()
			return &front{name: name, base: url, cmd: cmd}, nil
		}
	}
	return nil, fmt.Errorf("%s did not start: %w", name, cmd.Wait())
}

// nginxConf is nginx with one process, which keeps connections to the server and has no log.
const nginxConf = `daemon off;
master_process off;
pid DIR/nginx.pid;
error_log DIR/error.log;
events { worker_connections 4096; }
http {
	access_log off;
	client_body_temp_path DIR; proxy_temp_path DIR; fastcgi_temp_path DIR; uwsgi_temp_path DIR; scgi_temp_path DIR;
	upstream server { server SERVER; keepalive 256; keepalive_requests 1000000; }
	server {
		listen 127.0.0.1:PORT reuseport;
		keepalive_requests 1000000;
		location / { proxy_pass http://server; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }
	}
}
`

// errNoNginx says that there is none to measure.
var errNoNginx = errors.New("nginx is not installed")

func startNginx(dir, upstream string) (*front, error) {
	binary, err := exec.LookPath("nginx")
	if err != nil {
		return nil, errNoNginx
	}
	at, err := server.FreeAddr()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(at)
	conf := filepath.Join(dir, "nginx.conf")
	text := strings.NewReplacer("DIR", dir, "PORT", port, "SERVER", strings.TrimPrefix(upstream, "http://")).Replace(nginxConf)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, "-c", conf, "-p", dir)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	f := &front{name: "nginx", base: "http://" + at + "/", cmd: cmd}
	for range 200 {
		if conn, err := net.Dial("tcp", at); err == nil {
			_ = conn.Close()
			return f, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	f.close()
	said, _ := os.ReadFile(filepath.Join(dir, "error.log"))
	return nil, fmt.Errorf("nginx does not listen: %s", said)
}

// ticksPerSecond is the unit of times in /proc; Linux shows 100 everywhere.
const ticksPerSecond = 100

// processor returns the processor time that the front has used, 0 if that is not known.
func (f *front) processor() time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", f.cmd.Process.Pid))
	_, rest, _ := strings.Cut(string(text), ") ") // the name may have spaces
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / ticksPerSecond
}

// memory returns the resident memory of the front in KiB, 0 if that is not known.
func (f *front) memory() (kib int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.cmd.Process.Pid))
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "VmRSS: %d", &kib); err == nil {
			return kib
		}
	}
	return 0
}

// files returns the number of files that the front has open, 0 if that is not known.
func (f *front) files() int {
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", f.cmd.Process.Pid))
	return len(list)
}
