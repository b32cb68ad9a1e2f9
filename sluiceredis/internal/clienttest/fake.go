package clienttest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A fake is a server that replies one error to each script, such as one that a
// real server gives only when it is in trouble.
type fake struct {
	addr    string
	scripts atomic.Int64 // so many came
}

// newFake starts one, ended with the test.
func newFake(t testing.TB, message string) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{addr: l.Addr().String()}
	var mu sync.Mutex
	var wg sync.WaitGroup
	conns := map[net.Conn]bool{}
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns[conn] = true
			mu.Unlock()
			wg.Go(func() { f.serve(conn, message) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for conn := range conns {
			_ = conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return f
}

// serve answers one connection: as a server of old, which knows no HELLO, in all
// but scripts.
func (f *fake) serve(conn net.Conn, message string) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		words, err := command(r)
		if err != nil {
			return
		}
		reply := "+OK"
		switch strings.ToUpper(words[0]) {
		case "HELLO", "CLIENT":
			reply = fmt.Sprintf("-ERR unknown command '%s'", words[0])
		case "CLUSTER":
			reply = "-ERR This instance has cluster support disabled"
		case "PING":
			reply = "+PONG"
		case "EVALSHA", "EVAL":
			f.scripts.Add(1)
			reply = "-" + message
		}
		if _, err := fmt.Fprint(conn, reply+"\r\n"); err != nil {
			return
		}
	}
}

// command reads one: a list of strings, each after its length.
func command(r *bufio.Reader) ([]string, error) {
	length := func(mark byte) (int, error) {
		line, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		if line[0] != mark {
			return 0, fmt.Errorf("%q, not %c", line, mark)
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := length('*')
	if err != nil || n < 1 {
		return nil, fmt.Errorf("%d words, %v", n, err)
	}
	words := make([]string, n)
	for i := range words {
		size, err := length('$')
		if err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		words[i] = string(text[:size])
	}
	return words, nil
}
