package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/bench/internal/machine"
)

// A hostile case is something that bad addresses do, among others that answer after 50 ms.
type hostile struct {
	title string
	bad   http.HandlerFunc

	together bool // they are next to each other, at the beginning
	slow     bool // the name of the host is found only after 5 s
}

// The limits that each program is given.
const (
	goodOnes   = 200
	goodTakes  = 50 * time.Millisecond
	slowLookup = 5 * time.Second
)

var hostiles = []hostile{
	{title: "429", bad: status(429, "")},
	{title: "429, `Retry-After: 1`", bad: status(429, "1")},
	{title: "the same, one after the other", bad: status(429, "1"), together: true},
	{title: "503", bad: status(503, "")},
	{title: "503, `Retry-After: 1`", bad: status(503, "1")},
	{title: "no header", bad: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
	{title: "the body stops", bad: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, "eighteen bytes and")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}},
	{title: "the body is cut", bad: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, "eighteen bytes and")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}},
	{title: "a byte each 0.5 s", bad: func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			fmt.Fprint(w, "x")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(500 * time.Millisecond)
		}
	}},
	{title: "redirects without end", bad: func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
	}},
	{title: "the name is found after 5 s", bad: func(http.ResponseWriter, *http.Request) {}, slow: true},
}

func status(code int, wait string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if wait != "" {
			w.Header().Set("Retry-After", wait)
		}
		w.WriteHeader(code)
	}
}

// hostileArgs are those of each program. LIST is a file with an address on each line, CONFIG one
// for curl.
var hostileNames = []string{"sluice batch", "curl --parallel", "xargs, curl", "aria2c"}

var hostileArgs = map[string][]string{
	"sluice batch":    {"sluice", "batch", "-jobs", "8", "-retries", "3", "-timeout", "2s", "-max-time", "2s", "-in", "LIST", "-results", "out", "-url", "{}"},
	"curl --parallel": {"curl", "--parallel", "--parallel-max", "8", "-sSfL", "--retry", "3", "--max-time", "2", "-K", "CONFIG"},
	"xargs, curl":     {"xargs", "-a", "LIST", "-P", "8", "-n", "1", "curl", "-sSfL", "-o", "/dev/null", "--retry", "3", "--max-time", "2"},
	"aria2c":          {"aria2c", "-q", "-j", "8", "-m", "4", "-t", "2", "--connect-timeout=2", "--retry-wait=1", "--lowest-speed-limit=100", "-d", "out", "-i", "LIST"},
}

// measureHostile does each case with each program, with no bad address first.
func measureHostile(ctx context.Context, dir string, paths map[string]string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "machine: %s  \nmeasured: %s, `go run ./bench/programs -hostile`\n\n", machine.Describe(), time.Now().UTC().Format("2006-01-02 15:04 UTC"))
	b.WriteString("| the bad addresses | how many | " + strings.Join(hostileNames, " | ") + " |\n| --- | ---" + strings.Repeat(" | ---", len(hostileNames)) + " |\n")
	cases := append([]hostile{{title: "none is bad"}}, hostiles...)
	for _, h := range cases {
		for _, bad := range []int{1, 5} {
			switch {
			case h.bad == nil:
				bad = 0
			case h.together && bad == 1:
				continue
			}
			fmt.Fprintf(&b, "| %s | %d", h.title, bad)
			for _, name := range hostileNames {
				fmt.Fprintf(os.Stderr, "%s, %d: %s\n", h.title, bad, name)
				cell, err := h.run(ctx, dir, hostileArgs[name], paths["sluice batch"], bad)
				if err = cmp.Or(err, ctx.Err()); err != nil { // of a program that was interrupted nothing is said
					return "", fmt.Errorf("%s: %s: %w", h.title, name, err)
				}
				b.WriteString(" | " + cell)
			}
			b.WriteString(" |\n")
			if h.bad == nil {
				break
			}
		}
	}
	return b.String(), nil
}

// run runs a program and says when the last of the good addresses was served and how many were
// not, when the program ended, and how often it asked for bad ones.
func (h hostile) run(ctx context.Context, dir string, args []string, sluice string, bad int) (string, error) {
	own, err := os.MkdirTemp(dir, "hostile")
	if err != nil {
		return "", err
	}
	var mu sync.Mutex
	served := make(map[string]time.Time)
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/bad") {
			asked.Add(1)
			h.bad(w, r)
			return
		}
		time.Sleep(goodTakes)
		fmt.Fprintln(w, "good")
		mu.Lock()
		defer mu.Unlock()
		served[r.URL.Path] = time.Now()
	}))
	defer s.Close()
	defer s.CloseClientConnections()
	var list, config strings.Builder
	add := func(url string) {
		fmt.Fprintln(&list, url)
		fmt.Fprintf(&config, "url = %q\noutput = /dev/null\n", url)
	}
	for i := range goodOnes {
		apart := goodOnes / 5
		if h.together {
			apart = 1
		}
		if i%apart == 2%apart && bad > i/apart {
			host := s.URL
			if h.slow {
				host = strings.Replace(s.URL, "127.0.0.1", fmt.Sprintf("slow%d.test", i), 1)
			}
			add(fmt.Sprintf("%s/bad%d", host, i))
		}
		add(fmt.Sprintf("%s/%d", s.URL, i))
	}
	err = errors.Join(os.WriteFile(filepath.Join(own, "LIST"), []byte(list.String()), 0o666), os.WriteFile(filepath.Join(own, "CONFIG"), []byte(config.String()), 0o666))
	if err != nil {
		return "", err
	}
	path, err := exec.LookPath(args[0])
	switch {
	case args[0] == "sluice":
		path = sluice
	case err != nil:
		return "not installed", nil
	}
	ctx, cancel := context.WithTimeout(ctx, mostOfWork)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args[1:]...)
	if h.slow {
		script, stop, err := slowResolver(own)
		if err != nil {
			return "cannot: " + err.Error(), nil
		}
		defer stop()
		cmd = exec.CommandContext(ctx, "unshare", append([]string{"-m", "sh", "-c", script, "sh", path}, args[1:]...)...)
	}
	var stderr bytes.Buffer
	cmd.Dir, cmd.WaitDelay, cmd.Stderr = own, time.Second, &stderr
	began := time.Now()
	err = cmd.Run()
	took := time.Since(began)
	late := ctx.Err() != nil
	if err := unlessFailed(err); err != nil && !late {
		return "", fmt.Errorf("%w: %s", err, stderr.String())
	}
	mu.Lock()
	defer mu.Unlock()
	last := time.Duration(0)
	for _, at := range served {
		last = max(last, at.Sub(began))
	}
	text := seconds(last)
	if len(served) < goodOnes {
		text = fmt.Sprintf("%s for %d of %d", text, len(served), goodOnes)
	}
	if bad == 0 {
		return text, nil
	}
	end := "over " + seconds(took)
	if late {
		end = fmt.Sprintf("not over after %v", mostOfWork)
	}
	return fmt.Sprintf("%s, %s, asked %d", text, end, asked.Load()), nil
}

// slowResolver serves DNS that knows each name, but only after slowLookup. It returns a script that
// runs a command, the arguments, with it; that needs to be root.
func slowResolver(dir string) (script string, stop func(), err error) {
	if os.Getuid() != 0 {
		return "", nil, errors.New("needs root")
	}
	conn, err := net.ListenPacket("udp", "127.0.0.53:53")
	if err != nil {
		return "", nil, err
	}
	go func() {
		for {
			query := make([]byte, 512)
			n, from, err := conn.ReadFrom(query)
			if err != nil {
				return
			}
			time.AfterFunc(slowLookup, func() { _, _ = conn.WriteTo(dnsAnswer(query[:n]), from) })
		}
	}()
	file := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver 127.0.0.53\noptions timeout:10 attempts:1\n"), 0o666); err != nil {
		conn.Close()
		return "", nil, err
	}
	return fmt.Sprintf(`mount --bind %s /etc/resolv.conf && exec "$@"`, file), func() { conn.Close() }, nil
}

// dnsAnswer answers a query of one name: 127.0.0.1 for an A record, nothing for others.
func dnsAnswer(query []byte) []byte {
	end := 12
	for end < len(query) && query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5 // the zero, type and class
	if end > len(query) {
		return nil
	}
	isA := binary.BigEndian.Uint16(query[end-4:]) == 1
	answer := bytes.Clone(query[:end])
	answer[2], answer[3] = 0x81, 0x80 // a response, recursion was available
	for i := 6; i < 12; i++ {
		answer[i] = 0
	}
	if isA {
		answer[7] = 1
		answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
	}
	return answer
}
