// Package redistest starts redis-servers for tests: on free ports of the
// loopback interface, without files that stay, and ended with the test binary.
//
// Where there is no redis-server tests that need one are skipped, and that is
// said at the end. With SLUICE_REDIS=required in the environment they fail.
package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Env is the environment variable that makes a missing redis-server a failure.
const Env = "SLUICE_REDIS"

// guard starts a server, prints its process id, and ends it when the standard
// input ends: that is when the test binary has, however it did.
const guard = `"$@" & p=$!; echo $p; exec 3<&0; (read x <&3; kill -9 $p) & r=$!; wait $p; kill $r`

var (
	binary, missing = exec.LookPath("redis-server")
	skipped         atomic.Int64
	given           sync.Map // the addresses that freeAddr has returned

	shared struct {
		sync.Mutex
		server *Server
	}
)

// A Server is a running redis-server.
type Server struct {
	Addr string // 127.0.0.1:port

	pid    int
	dir    string
	config string // a file that it reads, and may write; empty: none
	args   []string
	done   chan struct{}
}

// Main runs the tests of a package, ends the server that they share, looks for
// goroutines that were left behind, and exits.
func Main(m *testing.M) {
	code := m.Run()
	shared.Lock()
	if shared.server != nil {
		shared.server.Kill()
		_ = os.RemoveAll(shared.server.dir)
	}
	shared.Unlock()
	if n := skipped.Load(); n > 0 {
		fmt.Fprintf(os.Stderr, "\n*** %d TESTS SKIPPED: no redis-server in PATH. What they show, miniredis cannot.\n\n", n)
	}
	// rueidis looks at a cluster again after a while, for which a goroutine sleeps
	// that ends with it.
	later := goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1")
	if err := goleak.Find(later); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// Have reports whether there is a redis-server.
func Have() bool { return missing == nil }

// Need skips the test where there is no redis-server.
func Need(t testing.TB) {
	t.Helper()
	switch {
	case missing == nil:
	case os.Getenv(Env) == "required":
		t.Fatalf("%s=required, and there is none: %v", Env, missing)
	default:
		skipped.Add(1)
		t.Skip("SKIPPED: no redis-server in PATH")
	}
}

// Shared returns a server that all tests of the binary share. Each must use its own keys, and leave
// the server as it is.
func Shared(t testing.TB) *Server {
	t.Helper()
	Need(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		dir, err := os.MkdirTemp("", "redistest")
		if err != nil {
			t.Fatal(err)
		}
		shared.server = start(t, dir, nil)
	}
	return shared.server
}

// Start starts a server for one test, with those arguments in addition to the usual ones, and ends
// it with the test.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	Need(t)
	s := start(t, t.TempDir(), args)
	t.Cleanup(s.Kill)
	return s
}

func start(t testing.TB, dir string, args []string) *Server {
	t.Helper()
	s, err := Launch(dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Launch is Start for a program that is no test: it must end the server itself,
// with Kill, and dir is its own to remove.
func Launch(dir string, args ...string) (*Server, error) {
	return launch(Server{dir: dir, args: args})
}

func launch(like Server) (*Server, error) {
	err := missing
	if err != nil {
		return nil, fmt.Errorf("no redis-server: %w", err)
	}
	for range 3 { // another program may take the port first
		s := like
		if s.Addr, err = freeAddr(); err != nil {
			continue
		}
		if err = s.run(); err == nil {
			return &s, nil
		}
	}
	return nil, fmt.Errorf("no redis-server: %w", err)
}

// freeAddr returns an address of the loopback interface that is not in use, never
// the same one twice. Its port is below those that systems give to connections (32768 and
// up on Linux). A port that the system chose, with port 0, was once given to a connection
// of another test before the bus of a cluster, or a server that starts again, listened there.
func freeAddr() (string, error) {
	err := errors.New("all were given")
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(22_000))
		if _, before := given.LoadOrStore(addr, true); before {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", fmt.Errorf("no free port: %w", err)
}

// run starts the process and waits until it answers.
func (s *Server) run() error {
	_, port, _ := strings.Cut(s.Addr, ":")
	args := append([]string{
		"--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no",
		"--daemonize", "no", "--loglevel", "warning", "--logfile", filepath.Join(s.dir, "log"),
	}, s.args...)
	if s.config != "" {
		args = append([]string{s.config}, args...)
	}
	cmd := exec.Command("sh", append([]string{"-c", guard, "guard", binary}, args...)...)
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	_, err = fmt.Fscanln(output, &s.pid)
	done := make(chan struct{})
	s.done = done
	go func() {
		_ = cmd.Wait() // killed is how they all end
		_ = input.Close()
		close(done)
	}()
	if err != nil {
		_ = input.Close()
		<-done
		return err
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if s.pings() {
			return nil
		}
		select {
		case <-done:
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("it ended at once: %s", log)
		case <-time.After(10 * time.Millisecond):
		}
	}
	s.Kill()
	return errors.New("it does not answer")
}

// pings reports whether the server answers PING.
func (s *Server) pings() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	line, _ := bufio.NewReader(conn).ReadString('\n')
	return line == "+PONG\r\n"
}

// Process returns the process of the server, to be sent signals.
func (s *Server) Process() *os.Process {
	p, err := os.FindProcess(s.pid)
	if err != nil {
		panic(err) // on no system that has redis-server
	}
	return p
}

// Dir returns the directory in which the server keeps its files.
func (s *Server) Dir() string { return s.dir }

// Kill ends the server as kill -9 does, and returns when it has ended.
func (s *Server) Kill() {
	_ = s.Process().Kill()
	<-s.done
}

// Restart starts the server again, on the same port and in the same directory.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
}
