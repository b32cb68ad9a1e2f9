package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// What servers lose here they really do.

// A movable is a client that is pointed to another server, as Sentinel does.
type movable struct{ to atomic.Pointer[backend] }

func (m *movable) Run(ctx context.Context, s *Script, keys, args []string) ([]int64, error) {
	return m.to.Load().client.Run(ctx, s, keys, args)
}

func (m *movable) RunMany(ctx context.Context, calls []ScriptCall) []Reply {
	return m.to.Load().client.RunMany(ctx, calls)
}

// A loss is how a server comes to forget. After begin the client may be used,
// after cut what is written will be lost, and after lose it is.
type loss struct {
	name  string
	sure  bool // that anything is lost
	args  []string
	begin func(t *testing.T, st *stage)
	cut   func(t *testing.T, st *stage)
	lose  func(t *testing.T, st *stage)
}

// A stage is where a loss takes place.
type stage struct {
	client  movable
	server  *redistest.Server
	replica *redistest.Server
	proxy   *redistest.Proxy
	log     string // the file, and how long it was
	size    int64
}

// to points the client to a server.
func (st *stage) to(t *testing.T, s *redistest.Server) {
	st.client.to.Store(newBackend(t, s.Addr))
}

// soon makes replicas get their data without delay.
var soon = []string{"--repl-diskless-sync-delay", "0"}

func idle(*testing.T, *stage) {}

func restart(t *testing.T, st *stage) {
	st.server.Kill()
	st.server.Restart(t)
}

// follow makes the replica of the stage, which gets its data through a proxy.
func follow(t *testing.T, st *stage) {
	st.replica = redistest.Start(t, soon...)
	st.proxy = redistest.NewProxy(t, st.server.Addr)
	replicate(t, st.replica, st.proxy.Addr)
	caughtUp(t, st.server, st.replica)
}

// replicate makes s a replica.
func replicate(t *testing.T, s *redistest.Server, of string) {
	t.Helper()
	host, port, _ := net.SplitHostPort(of)
	if err := dial(t, s.Addr).ReplicaOf(bg, host, port).Err(); err != nil {
		t.Fatal(err)
	}
}

// promote makes s a primary.
func promote(t *testing.T, s *redistest.Server) {
	t.Helper()
	if err := dial(t, s.Addr).ReplicaOf(bg, "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
}

// caughtUp returns when the replica has what the primary has.
func caughtUp(t *testing.T, primary, replica *redistest.Server) {
	t.Helper()
	mark := fmt.Sprint("mark ", tests.Add(1))
	if err := dial(t, primary.Addr).Set(bg, "mark", mark, 0).Err(); err != nil {
		t.Fatal(err)
	}
	c := dial(t, replica.Addr)
	for range 10_000 {
		if c.Get(bg, "mark").Val() == mark {
			return
		}
		time.Sleep(ms)
	}
	t.Fatal("the replica does not catch up")
}

var losses = []loss{
	{"killed, restarted empty", true, nil, idle, idle, restart},
	{"killed, with a log", false, []string{"--appendonly", "yes", "--appendfsync", "everysec"}, idle, idle, restart},
	{"killed, with a log that lost its tail", true, []string{"--appendonly", "yes", "--appendfsync", "always"}, idle,
		func(t *testing.T, st *stage) {
			logs, _ := filepath.Glob(filepath.Join(st.server.Dir(), "appendonlydir", "*.incr.aof"))
			if len(logs) != 1 { // before version 7
				logs = []string{filepath.Join(st.server.Dir(), "appendonly.aof")}
			}
			info, err := os.Stat(logs[0])
			if err != nil {
				t.Fatal(err)
			}
			st.log, st.size = logs[0], info.Size()
		},
		func(t *testing.T, st *stage) {
			st.server.Kill()
			if err := os.Truncate(st.log, st.size+10); err != nil { // within a command
				t.Fatal(err)
			}
			st.server.Restart(t)
		}},
	{"stopped in good order", false, nil, idle, idle, func(t *testing.T, st *stage) {
		conn, err := net.Dial("tcp", st.server.Addr) // as it never answers
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("SHUTDOWN SAVE\r\n")); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, conn)
		restart(t, st)
	}},
	{"failover to a replica that was behind", true, soon, follow,
		func(t *testing.T, st *stage) {
			caughtUp(t, st.server, st.replica)
			st.proxy.Set(redistest.Fault{DropReply: true})
		},
		func(t *testing.T, st *stage) {
			st.server.Kill()
			promote(t, st.replica)
			st.to(t, st.replica)
		}},
	// The server is the same process as before, so its run id does not tell.
	{"failover and back, while nobody called", true, soon, follow,
		func(t *testing.T, st *stage) {
			caughtUp(t, st.server, st.replica)
			st.proxy.Set(redistest.Fault{DropReply: true})
		},
		func(t *testing.T, st *stage) {
			promote(t, st.replica)
			replicate(t, st.server, st.replica.Addr)
			caughtUp(t, st.replica, st.server)
			promote(t, st.server)
		}},
}

// onLosses runs test with each loss, strict and not.
func onLosses(t *testing.T, test func(t *testing.T, l loss, st *stage, open func() *Store, strict bool)) {
	for _, l := range losses {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, strict %v", l.name, strict), func(t *testing.T) {
				t.Parallel()
				st := &stage{server: redistest.Start(t, l.args...)}
				st.to(t, st.server)
				l.begin(t, st)
				open := func() *Store {
					s, err := New(&st.client, Config{Strict: strict, Timeout: 10 * time.Second})
					if err != nil {
						t.Fatal(err)
					}
					return s
				}
				if strict {
					if err := open().ConfirmIntact(bg); err != nil {
						t.Fatal(err)
					}
				}
				test(t, l, st, open, strict)
			})
		}
	}
}

// answers asks until the connections that broke are replaced, and returns an
// answer.
func answers[T any](t *testing.T, ask func() (T, error)) T {
	t.Helper()
	var err error
	for range 1000 {
		var answer T
		if answer, err = ask(); err == nil || isWait(err) && !errors.Is(err, ErrAmbiguous) {
			return answer
		}
		time.Sleep(ms)
	}
	t.Fatal(err)
	panic("unreachable")
}

// A used is a limit of 5 of some kind: it is used once by use, and extra returns
// how often it can be used again that it should not be.
type used struct {
	name  string
	use   func() bool
	extra func() int
}

func everyKind(t *testing.T, s *Store) []used {
	var all []used
	meter := func(name string, m limits.Limiter) {
		use := func() bool {
			return answers(t, func() (bool, error) {
				wait, err := m.Admit(bg, 1)
				return wait == 0 && err == nil, err
			})
		}
		all = append(all, used{name, use, func() (n int) {
			for range 10 {
				if use() {
					n++
				}
			}
			return n
		}})
	}
	quota := limits.Rate{Burst: 5, Count: 1, Per: time.Hour}
	meter("Leaky", newLeaky(t, s, "loss", quota).on("k"))
	meter("Log", newLog(t, s, "loss", 5, time.Hour).on("k"))
	meter("Fixed, anchored", newFixed(t, s, "loss", FixedConfig{Limit: 5, Window: time.Hour}).on("k"))
	meter("Fixed, aligned", newFixed(t, s, "aligned", FixedConfig{Limit: 5, Window: 100 * 24 * time.Hour, Aligned: true}).on("k"))
	p := newPacer(t, s, "loss", 1, 10*sec, PacerConfig{Horizon: 40 * sec})
	free := int64(0) // the first slot that was not admitted yet
	reserve := func() bool {
		return answers(t, func() (extra bool, err error) {
			r, err := p.Reserve(bg, 1, limits.Never)
			if err == nil {
				extra = r.slot < free
				free = max(free, r.slot+p.paced.Load().interval)
			}
			return extra, err
		})
	}
	return append(all, used{"Pacer", func() bool { return !reserve() }, func() (n int) {
		for range 10 {
			if reserve() {
				n++
			}
		}
		return n
	}})
}

// Whatever is lost, no limit admits again what it has admitted, if the mode is
// strict; and otherwise no more than once.
func TestNothingIsGrantedAgainAfterALoss(t *testing.T) {
	onLosses(t, func(t *testing.T, l loss, st *stage, open func() *Store, strict bool) {
		s := open()
		kinds := everyKind(t, s)
		use := func(times int) {
			t.Helper()
			for _, k := range kinds {
				for range times {
					if !k.use() {
						t.Fatalf("%s: refused", k.name)
					}
				}
			}
		}
		use(2)
		l.cut(t, st)
		use(3)
		for _, k := range kinds {
			if n := k.extra(); n > 0 {
				t.Errorf("%s: %d more than 5 before the loss", k.name, n)
			}
		}
		l.lose(t, st)
		for _, k := range kinds {
			n := k.extra()
			switch {
			case n > 5, strict && n > 0:
				t.Errorf("%s: %d granted again", k.name, n)
			case !strict && l.sure && n == 0:
				t.Errorf("%s: nothing was lost, so this shows nothing", k.name)
			}
		}
		want := uint64(0)
		if strict {
			want = 1
		}
		if got := s.Stats(); got.Epochs != want || got.InvalidKeys > 0 {
			t.Errorf("%d epochs, want %d: %+v", got.Epochs, want, got)
		}
	})
}

// Holders keep what they hold over a loss, if the mode is strict, and nobody gets
// it meanwhile.
func TestHoldersKeepTheirLeasesAfterALoss(t *testing.T) {
	onLosses(t, func(t *testing.T, l loss, st *stage, open func() *Store, strict bool) {
		// On a busy machine it takes a second or more until a server is there again, and
		// a holder that cannot renew within the lease loses it, as it should.
		lease := 4 * sec
		s := open()
		sem := newSemaphore(t, s, "held", 5, SemaphoreConfig{Lease: lease, Poll: 5 * ms})
		other := newSemaphore(t, open(), "held", 5, SemaphoreConfig{Lease: lease, Poll: 5 * ms})
		lend := func(n int64) *Lease {
			t.Helper()
			got, err := sem.acquire(bg, n, sec)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		first := lend(2)
		l.cut(t, st)
		second := lend(1)
		l.lose(t, st)
		began := time.Now()
		// Two are free, and three never are.
		three := answers(t, func() (*Lease, error) { return other.acquire(bg, 3, 0) })
		switch lent := three != nil; {
		case lent && strict:
			t.Error("what is held was lent again")
		case !lent && !strict && l.sure:
			t.Error("nothing was lost, so this shows nothing")
		}
		if !strict {
			first.Release()
			second.Release()
			if three != nil {
				three.Release()
			}
			return
		}
		two := answers(t, func() (*Lease, error) { return other.acquire(bg, 2, 20*sec) })
		waited := time.Since(began)
		if waited < lease*9/10 {
			t.Errorf("lent again after %v, a lease is %v", waited, lease)
		}
		if two.Token() <= second.Token() || second.Token() <= first.Token() {
			t.Errorf("tokens %d, %d, %d", first.Token(), second.Token(), two.Token())
		}
		time.Sleep(lease)
		for _, l := range []*Lease{first, second, two} {
			select {
			case <-l.Lost():
				t.Errorf("one of %d was lost", l.n)
			default:
			}
		}
		if _, err := other.acquire(bg, 1, 0); err != limits.ErrTimeout {
			t.Errorf("one more than the limit: %v", err)
		}
		first.Release()
		second.Release()
		two.Release()
		all, err := other.acquire(bg, 5, 0)
		if err != nil {
			t.Fatalf("not all came back: %v", err)
		}
		all.Release()
		if got := s.Stats().Epochs + other.store.Stats().Epochs; got != 1 {
			t.Errorf("%d epochs", got)
		}
	})
}

// Under load, over two losses: in any time t no more than capacity + t ÷ interval
// are admitted, in strict mode, and it goes on as soon as that allows.
func TestRateOverLosses(t *testing.T) {
	const (
		capacity = 20
		interval = 50 * ms
	)
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprint("strict ", strict), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			b := newBackend(t, server.Addr)
			s, err := New(b.client, Config{Strict: strict})
			if err != nil {
				t.Fatal(err)
			}
			if strict {
				if err := s.ConfirmIntact(bg); err != nil {
					t.Fatal(err)
				}
			}
			l := newLeaky(t, s, "rate", limits.Rate{Burst: capacity, Count: 1, Per: interval})
			var mu sync.Mutex
			var at []int64 // of each grant, µs by the server's clock
			longest := time.Duration(0)
			var wg sync.WaitGroup
			ctx, stop := context.WithCancel(bg)
			for range 4 {
				wg.Go(func() {
					for ctx.Err() == nil {
						if r, err := s.ask(ctx, l.at("k"), 1); err == nil {
							mu.Lock()
							longest = max(longest, r.results()[0].RetryAfter)
							if r.granted() {
								at = append(at, r.now)
							}
							mu.Unlock()
						}
						time.Sleep(ms)
					}
				})
			}
			for range 2 {
				time.Sleep(500 * ms)
				server.Kill()
				server.Restart(t)
				mu.Lock()
				before := len(at)
				mu.Unlock()
				until(t, "it goes on", func() bool {
					mu.Lock()
					defer mu.Unlock()
					return len(at) > before+capacity/2
				})
			}
			stop()
			wg.Wait()
			// When it goes on is what the server says, and not how busy the machine is.
			if longest > interval {
				t.Errorf("a call must wait for %v", longest)
			}
			slices.Sort(at)
			excess := int64(0)
			for i := range at {
				for j := i; j < len(at); j++ {
					excess = max(excess, int64(j-i+1)-capacity-(at[j]-at[i])/interval.Microseconds())
				}
			}
			if strict && excess > 0 {
				t.Errorf("%d more than the rate allows", excess)
			}
			if !strict && excess <= 0 {
				t.Error("a burst was not granted again, so this shows nothing")
			}
			if got := s.Stats().Epochs; strict && got != 2 {
				t.Errorf("%d epochs", got)
			}
		})
	}
}
