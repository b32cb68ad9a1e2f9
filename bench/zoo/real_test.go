//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A run in real time, with a Go server over a socket and one of gRPC: all items are done,
// however busy the machine is, and nothing is left behind.
func TestReal(t *testing.T) {
	for _, server := range []string{"xtime-200", "sethvargo-20in1", "grpc-200"} {
		g := &game{Server: server, Clients: "told", Seed: 1, Lasts: .1, Most: 1000, Workers: 4}
		r, err := g.playReal("")
		if err != nil {
			t.Fatal(err)
		}
		if r.Done != r.Items || r.Items == 0 || r.Sent < r.Items || r.Seconds <= 0 {
			t.Errorf("%s: %+v", server, r)
		}
	}
	if _, err := (&game{Server: "grpc-20", Clients: "aws", Lasts: .1, Most: 1, Workers: 1}).playReal(""); err == nil {
		t.Error("the AWS SDK has called gRPC")
	}
}

// A program listens when it is called, and is gone after the run.
func TestReal_Program(t *testing.T) {
	r := &real{dir: t.TempDir()}
	defer r.stop()
	url, err := r.program(map[string]string{"conf": "@DIR@ @PORT@"}, "env", listenVariable+"=@PORT@", os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if text, err := os.ReadFile(filepath.Join(r.dir, "conf")); err != nil || string(text) != r.dir+" "+r.port {
		t.Errorf("the configuration is %q, %v", text, err)
	}
	r.stop()
	gone(r.kept.pid)
}

// alive reports whether there is a process of that id that is no zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !bytes.Contains(stat, []byte(") Z "))
}

// gone waits until a process has ended.
func gone(pid int) {
	for alive(pid) {
		time.Sleep(10 * time.Millisecond)
	}
}

// script starts a process of its own, as daemons do, and says which.
const script = `sleep 1000 & echo $! >pid.new; mv pid.new pid; wait`

// pidIn waits for the script in a folder.
func pidIn(t *testing.T, dir string) int {
	t.Helper()
	for {
		text, err := os.ReadFile(filepath.Join(dir, "pid"))
		if errors.Is(err, os.ErrNotExist) {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
}

func TestKeep_StopsAllProcesses(t *testing.T) {
	dir := t.TempDir()
	k, err := keep(dir, []string{"sh", "-c", script})
	if err != nil {
		t.Fatal(err)
	}
	child := pidIn(t, dir)
	if k.ended() || !alive(k.pid) || !alive(child) {
		t.Fatal("it does not run")
	}
	k.stop()
	k.stop() // twice does no harm
	gone(k.pid)
	gone(child)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func TestKeep_SaysWhatAProgramSaid(t *testing.T) {
	r := &real{dir: t.TempDir()}
	defer r.stop()
	if _, err := r.program(map[string]string{"conf": "port @PORT@"}, "sh", "-c", "cat conf; exit 3"); err == nil || !strings.Contains(err.Error(), "port "+r.port) {
		t.Errorf("a program that ends by itself: %v", err)
	}
	if _, err := r.program(nil, "no-such-program"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("a program that is not there: %v", err)
	}
}

// Nobody who is killed can run a deferred function.
func TestKeep_StopsWhenItsParentIsKilled(t *testing.T) {
	const variable = "SLUICE_ZOO_ORPHAN"
	if dir := os.Getenv(variable); dir != "" {
		if _, err := keep(dir, []string{"sh", "-c", script}); err != nil {
			t.Fatal(err)
		}
		fmt.Println("\nstarted")
		select {}
	}
	dir := t.TempDir()
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), variable+"="+dir)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "started"; {
	}
	child := pidIn(t, dir)
	c.Process.Kill()
	c.Wait()
	gone(child)
}

// In a bubble nobody is late.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p99 := heartbeat()
		time.Sleep(time.Second)
		if late := p99(); late != 0 {
			t.Errorf("%v ms late in virtual time", late)
		}
	})
}
