package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server is a redis-server that keeps nothing.
type server struct {
	addr  string
	admin *redis.Client
	dir   string
	cmd   *exec.Cmd
	done  chan struct{}
}

// startServer starts one on a free port of the loopback interface.
func startServer() (*server, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	_ = l.Close() // it was free a moment ago
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	s := &server{addr: addr, dir: dir, done: make(chan struct{})}
	s.cmd = exec.Command(binary, "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--daemonize", "no", "--loglevel", "warning")
	if err := s.cmd.Start(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait() // killed is how it ends
		close(s.done)
	}()
	s.admin = redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, DisableIdentity: true})
	for range 1000 {
		if s.admin.Ping(context.Background()).Err() == nil {
			return s, nil
		}
		select {
		case <-s.done:
			s.stop()
			return nil, errors.New("redis-server ended at once")
		case <-time.After(10 * time.Millisecond):
		}
	}
	s.stop()
	return nil, errors.New("redis-server does not answer")
}

func (s *server) stop() {
	_ = s.admin.Close()
	_ = s.cmd.Process.Kill()
	<-s.done
	_ = os.RemoveAll(s.dir)
}

// info returns a field of INFO.
func (s *server) info(ctx context.Context, section, field string) (string, error) {
	text, err := s.admin.Info(ctx, section).Result()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(v), nil
		}
	}
	return "", fmt.Errorf("INFO has no %s", field)
}

func (s *server) version(ctx context.Context) string {
	v, _ := s.info(ctx, "server", "redis_version")
	return v
}

// cpu returns the processor time that the server has used.
func (s *server) cpu(ctx context.Context) (time.Duration, error) {
	var sum float64
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		text, err := s.info(ctx, "cpu", field)
		if err != nil {
			return 0, err
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return time.Duration(sum * float64(time.Second)), nil
}
