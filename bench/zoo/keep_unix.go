//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// keepVariable makes this program a keeper: it starts the command of its arguments and stops
// it when its standard input ends.
const keepVariable = "SLUICE_ZOO_KEEP"

// A kept is a program with a keeper. The keeper is another process, so that the program is
// stopped and its directory removed even if this process panics or is killed. A deferred
// function would not do: nginx, Apache and varnishd have processes of their own that stay.
type kept struct {
	keeper *exec.Cmd
	pid    int // of the program, which leads a process group
	line   io.Closer
	over   chan struct{}
	once   sync.Once
}

// keep starts a program in a directory. Its output goes to the file out there.
func keep(dir string, command []string) (*kept, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	path, err := look(command[0])
	if err != nil {
		return nil, err
	}
	c := exec.Command(self, append([]string{path}, command[1:]...)...)
	c.Env = append(os.Environ(), keepVariable+"="+dir)
	c.Dir = dir
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt in the terminal is not for it
	line, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	answer, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	k := &kept{keeper: c, line: line, over: make(chan struct{})}
	var word [32]byte
	n, _ := answer.Read(word[:])
	k.pid, err = strconv.Atoi(strings.TrimSpace(string(word[:n])))
	go func() {
		c.Wait()
		close(k.over)
	}()
	if err != nil {
		k.stop()
		said, _ := os.ReadFile(filepath.Join(dir, "out"))
		return nil, fmt.Errorf("%s did not start: %s", command[0], said)
	}
	return k, nil
}

// stop stops the program and waits until it has ended.
func (k *kept) stop() {
	k.once.Do(func() { k.line.Close() })
	<-k.over
}

func (k *kept) ended() bool {
	select {
	case <-k.over:
		return true
	default:
		return false
	}
}

// hangUp tells the program to read its configuration again.
func (k *kept) hangUp() { syscall.Kill(k.pid, syscall.SIGHUP) }

// keepHere is what a keeper does. It ends the program.
func keepHere(dir string) {
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		os.Exit(1)
	}
	os.Unsetenv(keepVariable) // not for the program
	c := exec.Command(os.Args[1], os.Args[2:]...)
	c.Stdout, c.Stderr, c.Dir = out, out, dir
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		fmt.Fprintln(out, err)
		os.Exit(1)
	}
	fmt.Println(c.Process.Pid)
	ended := make(chan struct{})
	go func() {
		c.Wait()
		close(ended)
	}()
	hungUp := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(hungUp)
	}()
	left := true
	select {
	case <-ended: // by itself; what it has started may live, and what it said will be read
		left = false
	case <-hungUp:
	}
	group := -c.Process.Pid
	syscall.Kill(group, syscall.SIGTERM)
	// The group is empty when nobody is left to get a signal.
	for deadline := time.Now().Add(3 * time.Second); syscall.Kill(group, 0) == nil && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	syscall.Kill(group, syscall.SIGKILL)
	if left {
		os.RemoveAll(dir)
	}
	os.Exit(0)
}
