// Package server starts a redis-server to measure with.
package server

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

// A Server is a redis-server that keeps nothing.
type Server struct {
	Addr  string
	Admin *redis.Client

	dir  string
	cmd  *exec.Cmd
	done chan struct{}
}

// FreeAddr returns an address of the loopback interface that was free a moment ago.
func FreeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// Start starts one on a free port of the loopback interface.
func Start() (*Server, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	addr, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	s := &Server{Addr: addr, dir: dir, done: make(chan struct{})}
	s.cmd = exec.Command(binary, "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--daemonize", "no", "--loglevel", "warning")
	if err := s.cmd.Start(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait() // killed is how it ends
		close(s.done)
	}()
	s.Admin = redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, DisableIdentity: true})
	for range 1000 {
		if s.Admin.Ping(context.Background()).Err() == nil {
			return s, nil
		}
		select {
		case <-s.done:
			s.Stop()
			return nil, errors.New("redis-server ended at once")
		case <-time.After(10 * time.Millisecond):
		}
	}
	s.Stop()
	return nil, errors.New("redis-server does not answer")
}

// Stop ends it, and forgets all.
func (s *Server) Stop() {
	_ = s.Admin.Close()
	_ = s.cmd.Process.Kill()
	<-s.done
	_ = os.RemoveAll(s.dir)
}

// info returns a field of INFO.
func (s *Server) info(ctx context.Context, section, field string) (string, error) {
	text, err := s.Admin.Info(ctx, section).Result()
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

// Version returns the version of Redis.
func (s *Server) Version(ctx context.Context) string {
	v, _ := s.info(ctx, "server", "redis_version")
	return v
}

// CPU returns the processor time that the server has used.
func (s *Server) CPU(ctx context.Context) (time.Duration, error) {
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
