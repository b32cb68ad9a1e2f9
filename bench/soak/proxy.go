package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// soakProxy runs the command, with at most 4 calls in flight, and checks that at the server. Of the 200 calls
// per second that the server allows about 150 are made. The memory of the process must not grow.
func soakProxy(s *soak, t *tally) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.breaks("%v", err)
		return
	}
	v := serve(s, l, 200, 700)
	defer v.close()
	p, url, err := startProxy(s.proxy, fmt.Sprintf("/up=http://%s concurrency=4", l.Addr()))
	if err != nil {
		t.breaks("%v", err)
		return
	}
	base := &http.Transport{MaxIdleConnsPerHost: 16}
	defer base.CloseIdleConnections()
	c := &http.Client{Transport: base}
	var first int
	var memory []int // at each tenth
	var watch sync.WaitGroup
	watch.Go(func() {
		for range 10 {
			s.sleep(s.lasts / 10)
			memory = append(memory, memoryOf(p.Process.Pid))
		}
	})
	s.workers(8, 701, func(r *rand.Rand) {
		for n := 0; !s.over(); n++ {
			t.started()
			t.ended(get(context.Background(), c, url+"up/"))
			if n == 100 {
				first = max(first, filesOf(p.Process.Pid))
			}
		}
	})
	watch.Wait()
	if early, late := slices.Max(memory[:4]), slices.Min(memory[7:]); late > early+early/5 {
		t.breaks("the proxy has grown")
	}
	if most := v.most.Load(); most > 4 {
		t.breaks("%d calls in flight at the server", most)
	}
	base.CloseIdleConnections()
	t.note("%d requests reached the server, at most %d in flight; KiB of the proxy at each tenth: %d", v.requests.Load(), v.most.Load(), memory)
	if now := filesOf(p.Process.Pid); first > 0 && now > first+8 {
		t.breaks("the proxy has %d open files, %d at first", now, first)
	}
	_ = p.Process.Signal(os.Interrupt)
	if err := p.Wait(); err != nil {
		t.breaks("the proxy: %v", err)
	}
}

var listens = regexp.MustCompile(`http://[^/ ]+/`)

// startProxy starts the command and returns the URL on which it listens.
func startProxy(binary, route string) (*exec.Cmd, string, error) {
	p := exec.Command(binary, "proxy", "-listen", "127.0.0.1:0", "-route", route)
	stderr, err := p.StderrPipe()
	if err != nil {
		return nil, "", err
	}
	if err := p.Start(); err != nil {
		return nil, "", err
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if url := listens.FindString(lines.Text()); url != "" {
			go func() {
				for lines.Scan() { // until it ends
				}
			}()
			return p, url, nil
		}
	}
	return nil, "", fmt.Errorf("the proxy did not start: %w", p.Wait())
}

// filesOf returns the number of files that a process has open, 0 if that is not known.
func filesOf(pid int) int {
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(list)
}

// memoryOf returns the resident memory of a process in KiB, 0 if that is not known.
func memoryOf(pid int) (kib int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		if _, err := fmt.Sscanf(line, "VmRSS: %d", &kib); err == nil {
			return kib
		}
	}
	return 0
}
