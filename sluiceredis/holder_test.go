package sluiceredis

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// A holder is its own process, because a process that is stopped or killed
// does what no goroutine can: nothing.

// holderEnv has this test binary be a holder: of the permit of a semaphore at that
// address, with keys of that prefix.
const holderEnv = "SLUICE_TEST_HOLDER"

const holderLease = sec

// holds makes the semaphore of a holder, and of those who wait for it.
func holds(t *testing.T, s *Store) *Semaphore {
	return newSemaphore(t, s, "holder", 1, SemaphoreConfig{Lease: holderLease, Poll: 5 * ms})
}

// TestHolder is the holder. It tells what happens to it, until its input ends.
func TestHolder(t *testing.T) {
	addr, prefix, ok := strings.Cut(os.Getenv(holderEnv), " ")
	if !ok {
		t.Skip("for the process that other tests start")
	}
	b := newBackend(t, addr)
	b.prefix = prefix
	l, err := holds(t, b.store(t)).acquire(bg, 1, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("holds", l.Token())
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	select {
	case <-l.Lost():
		l.Release() // which is nobody's any more, or another's
		fmt.Println("lost")
		<-over
	case <-over:
		l.Release()
	}
}

// A holder is such a process.
type holder struct {
	cmd   *exec.Cmd
	in    io.Closer
	lines *bufio.Scanner
	token int64
}

func startHolder(t *testing.T, b *backend, addr string) *holder {
	t.Helper()
	h := &holder{cmd: exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestHolder$")}
	h.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s", holderEnv, addr, b.prefix))
	in, err := h.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.in, h.lines = in, bufio.NewScanner(out)
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = h.cmd.Wait()
	})
	if _, err := fmt.Sscan(h.next(t, "holds "), &h.token); err != nil {
		t.Fatal(err)
	}
	return h
}

// next returns the rest of the next line that begins with a text.
func (h *holder) next(t *testing.T, begin string) string {
	t.Helper()
	for h.lines.Scan() {
		if rest, ok := strings.CutPrefix(h.lines.Text(), begin); ok {
			return rest
		}
	}
	t.Fatalf("the holder does not say %q", begin)
	return ""
}

// ends returns when the only lease ends, in µs by the server's clock.
func ends(t *testing.T, b *backend, sem *Semaphore) (end int64) {
	t.Helper()
	leases, err := b.redis.HGetAll(bg, sem.keys[0]).Result()
	delete(leases, "=")
	if err != nil || len(leases) != 1 {
		t.Fatalf("%v, %v", leases, err)
	}
	for _, l := range leases {
		_, _ = fmt.Sscanf(l, "%d %d %d %d", new(int64), new(int64), new(int64), &end)
	}
	return end
}

// What a holder held that was killed comes back when its lease has ended: not a
// microsecond before, and to who polls next. The token of the next lease tells
// when that was: it is the server's clock.
func TestHolderIsKilled(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	h := startHolder(t, b, redistest.Shared(t).Addr)
	sem := holds(t, b.store(t))
	time.Sleep(3 * holderLease / 2) // it is renewed
	if _, err := sem.acquire(bg, 1, 0); err != limits.ErrTimeout {
		t.Fatalf("held, and lent: %v", err)
	}
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.cmd.Wait() // now it renews no more
	end := ends(t, b, sem)
	l, err := sem.acquire(bg, 1, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	if l.Token() < end || l.Token() <= h.token {
		t.Errorf("lent at %d, which was held until %d; the token before was %d", l.Token(), end, h.token)
	}
	t.Logf("lent %d µs after the lease had ended", l.Token()-end)
}

// A holder that stands still for longer than its lease cannot be told. When it
// runs again it is, and what it then releases is not what another holds.
func TestHolderStandsStill(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	h := startHolder(t, b, redistest.Shared(t).Addr)
	sem := holds(t, b.store(t))
	if err := h.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	end := ends(t, b, sem)
	l, err := sem.acquire(bg, 1, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if l.Token() < end || l.Token() <= h.token {
		t.Errorf("lent at %d, which was held until %d; the token before was %d", l.Token(), end, h.token)
	}
	if err := h.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	h.next(t, "lost")
	if _, err := sem.acquire(bg, 1, 0); err != limits.ErrTimeout {
		t.Errorf("held, and lent: %v", err)
	}
	select {
	case <-l.Lost():
		t.Error("it was taken from the other")
	default:
	}
	l.Release()
}

// The server's clock is set forward: all leases seem over, and everything is leased
// once more; those who held it are told at their next renewal. It is set back:
// nothing happens.
func TestLeasesWhenTheClockOfTheServerIsSet(t *testing.T) {
	const limit, lease = 2, time.Hour
	s, clock := onRedis(t).freeze(t)
	sem := newSemaphore(t, s, "clock", limit, SemaphoreConfig{Lease: lease, Poll: 5 * ms})
	lend := func() (all []*Lease) {
		t.Helper()
		for range limit {
			l, err := sem.acquire(bg, 1, 0)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, l)
		}
		if _, err := sem.acquire(bg, 1, 0); err != limits.ErrTimeout {
			t.Errorf("more than the limit: %v", err)
		}
		return all
	}
	old := lend()
	clock.set(2 * time.Hour)
	now := lend()  // so that at most twice the limit is held
	sem.renewAll() // by hand: on its own it comes a third of a lease later
	for _, l := range old {
		select {
		case <-l.Lost():
		case <-time.After(30 * sec):
			t.Fatal("the holder is not told")
		}
	}
	clock.set(0)
	for range 3 {
		sem.renewAll()
		for _, l := range now {
			select {
			case <-l.Lost():
				t.Error("lost when the clock was set back")
			default:
			}
		}
	}
	if _, err := sem.acquire(bg, 1, 0); err != limits.ErrTimeout {
		t.Errorf("more than the limit: %v", err)
	}
	for _, l := range now {
		l.Release()
	}
	for _, l := range lend() {
		l.Release()
	}
	if lost := s.Stats().LeasesLost; lost != limit {
		t.Errorf("%d leases were lost, want %d", lost, limit)
	}
}
