package overlay

import (
	"strings"
	"testing"
)

// Each operation is rewritten, and the lines stay where they are.
func TestRewrite(t *testing.T) {
	const before = `package p

import (
	"sync"
	"sync/atomic"
	"time"
)

var mu sync.Mutex

func f(c chan int, done <-chan struct{}, w struct{ wake chan int }) int {
	go g(<-c)
	c <- 1
	select {
	case v := <-c:
		return v
	case <-done:
		return len(w.wake)
	}
}

func g(n int) {
	select {
	case c <- n:
		close(c)
	default:
		_ = len(s)
	}
}
`
	const after = `package p; import sched "github.com/sluice-go/sluice/internal/explore/sched"

import (
	"github.com/sluice-go/sluice/internal/explore/sched/sync"
	"github.com/sluice-go/sluice/internal/explore/sched/atomic"
	"github.com/sluice-go/sluice/internal/explore/sched/time"
)

var mu sync.Mutex

func f(c chan int, done <-chan struct{}, w struct{ wake chan int }) int {
	sched.Go(func() { g(sched.Recv(c)) })
	sched.Send(c, 1)
	switch sched.Select(false, sched.CanRecv(c), sched.CanRecv(done)) {
	case 0: v := <-c;
		return v
	case 1: <-done;
		return sched.Len(w.wake)
	default: panic("no case")
}
}

func g(n int) {
	switch sched.Select(true, sched.CanSend(c)) {
	case 0: c <- n;
		sched.Close(c)
	default:
		_ = len(s)
	}
}
`
	got, err := Rewrite("p.go", []byte(before))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != after {
		t.Errorf("got\n%s", got)
	}
	for i, line := range strings.Split(before, "\n")[:13] {
		if line != "" && strings.HasPrefix(line, "func") && strings.Split(string(got), "\n")[i] != line {
			t.Errorf("line %d is %q", i+1, strings.Split(string(got), "\n")[i])
		}
	}
}

func TestRewrite_NoGo(t *testing.T) {
	if _, err := Rewrite("p.go", []byte("no Go")); err == nil {
		t.Error("no error")
	}
}
