package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A real is what one run in real time has started.
type real struct {
	origin *origin
	dir    string // temporary
	port   string // of the program
	behind string // host:port of the Go server behind it, if there is one
	node   string // the directory that has node_modules
	kept   *kept  // the program
	change func()
	undo   []func()
}

func (r *real) cleanup(f func()) { r.undo = append(r.undo, f) }

// stop stops all that was started, the last first.
func (r *real) stop() {
	for _, f := range slices.Backward(r.undo) {
		f()
	}
	r.undo = nil
}

// playReal plays g on loopback.
func (g *game) playReal(node string) (res *result, err error) {
	s := find(g.Server)
	r := &real{origin: newOrigin(s, g.Seed), node: node}
	defer r.stop()
	if r.dir, err = os.MkdirTemp("", "zoo"); err != nil {
		return nil, err
	}
	r.cleanup(func() { os.RemoveAll(r.dir) })
	var url string
	if s.start != nil {
		url, err = s.start(r)
	} else {
		url, err = r.serve(s.handler(r.origin))
	}
	if err != nil {
		return nil, err
	}
	t := &http.Transport{MaxIdleConns: 256, MaxIdleConnsPerHost: 128, IdleConnTimeout: 90 * time.Second, DisableCompression: true}
	r.cleanup(t.CloseIdleConnections)
	lateness := heartbeat()
	begin := time.Now()
	var trace func(string)
	if g.Trace {
		trace = func(why string) {
			fmt.Fprintf(os.Stderr, "%s %s %d %9.3f %s\n", g.Server, g.Clients, g.Seed, time.Since(begin).Seconds(), why)
		}
	}
	res, err = g.play(&place{url: url, base: t, change: r.change, cleanup: r.cleanup}, trace)
	late := lateness()
	if err == nil {
		res.Late = late
	}
	return res, err
}

// serve starts a Go server.
func (r *real) serve(h http.Handler) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s := &http.Server{Handler: h}
	served := make(chan struct{})
	go func() {
		s.Serve(l)
		close(served)
	}()
	r.cleanup(func() {
		s.Close()
		<-served
	})
	return "http://" + l.Addr().String(), nil
}

// fill fills in what a configuration cannot know.
func (r *real) fill(text string) string {
	_, port, _ := strings.Cut(r.behind, ":")
	return strings.NewReplacer("@DIR@", r.dir, "@PORT@", r.port, "@ORIGIN@", r.behind, "@OPORT@", port, "@NODE@", r.node).Replace(text)
}

// write writes files into the temporary directory.
func (r *real) write(files map[string]string) error {
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(r.fill(text)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// front starts a program with its files in front of a Go server.
func (r *real) front(files map[string]string, command ...string) (string, error) {
	url, err := r.serve(ok(r.origin))
	if err != nil {
		return "", err
	}
	r.behind = strings.TrimPrefix(url, "http://")
	return r.program(files, command...)
}

// program starts a program with its files, and waits until it listens.
func (r *real) program(files map[string]string, command ...string) (string, error) {
	port, err := freePort()
	if err != nil {
		return "", err
	}
	r.port = port
	if err := r.write(files); err != nil {
		return "", err
	}
	filled := make([]string, len(command))
	for i, word := range command {
		filled[i] = r.fill(word)
	}
	k, err := keep(r.dir, filled)
	if err != nil {
		return "", err
	}
	r.kept = k
	r.cleanup(k.stop)
	for range 200 {
		if conn, err := net.Dial("tcp", "127.0.0.1:"+r.port); err == nil {
			conn.Close()
			time.Sleep(300 * time.Millisecond) // some answer before their limiters are ready
			return "http://127.0.0.1:" + r.port, nil
		}
		if k.ended() {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	said, _ := os.ReadFile(filepath.Join(r.dir, "out"))
	more, _ := os.ReadFile(filepath.Join(r.dir, "error.log"))
	return "", fmt.Errorf("%s does not listen: %s %s", filled[0], said, more)
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}

// heartbeat begins to measure how late a sleeping goroutine is woken, and returns a function
// that ends that and returns the 99th percentile, in ms.
func heartbeat() (p99 func() float64) {
	const beat = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	late := make(chan []float64)
	go func() {
		var all []float64
		for ctx.Err() == nil {
			at := time.Now()
			time.Sleep(beat)
			all = append(all, 1000*(time.Since(at)-beat).Seconds())
		}
		late <- all
	}()
	return func() float64 {
		cancel()
		return percentile(<-late, 99)
	}
}

// percentile sorts xs.
func percentile(xs []float64, p int) float64 {
	if len(xs) == 0 {
		return 0
	}
	slices.Sort(xs)
	return xs[min(len(xs)-1, len(xs)*p/100)]
}

// A need is what must be installed to run a server.
type need struct {
	what    string
	check   func(node string) bool
	install string
}

// missing returns what is missing to run s, in one line; "": nothing.
func (s *server) missing(node string) string {
	for _, n := range s.needs {
		if !n.check(node) {
			return fmt.Sprintf("%s: no %s; install it: %s", s.name, n.what, n.install)
		}
	}
	return ""
}

func aProgram(name, install string) need {
	return need{name, func(string) bool {
		_, err := look(name)
		return err == nil
	}, install}
}

// look finds a program also where Debian puts servers, which is not in every PATH.
func look(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		if there, err := exec.LookPath("/usr/sbin/" + name); err == nil {
			return there, nil
		}
	}
	return path, err
}

func aFile(what, pattern, install string) need {
	return need{what, func(string) bool {
		found, _ := filepath.Glob(pattern)
		return len(found) > 0
	}, install}
}

// aSuccess needs a command to succeed.
func aSuccess(what, install string, command ...string) need {
	return need{what, func(string) bool { return exec.Command(command[0], command[1:]...).Run() == nil }, install}
}

func aPackage(name string) need {
	return need{"npm package " + name, func(node string) bool {
		_, err := os.Stat(filepath.Join(node, "node_modules", name))
		return err == nil
	}, "npm install --prefix npm"}
}
