package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// What takes minutes runs when it is asked for:
//
//	SLUICE_FULL=long go test ./sluiceredis -run Long -v -timeout 30m

var long = os.Getenv("SLUICE_FULL") == "long"

func needLong(t *testing.T) {
	t.Helper()
	if !long {
		t.Skip("takes minutes: SLUICE_FULL=long runs it")
	}
	redistest.Need(t)
}

// A load is callers who take one unit at a time from buckets that do not leak
// meanwhile, and what became of that.
type load struct {
	limit   *Bucket
	timeout time.Duration // of each call
	wg      sync.WaitGroup
	stop    chan struct{}

	mu      sync.Mutex
	granted map[string]int64 // by key
	unknown map[string]int64
	gone    map[string]int64            // their deadline had ended; what was taken is returned
	failed  map[string]map[string]int64 // by key and reason
	asked   time.Time                   // when the last call began whose outcome is unknown, though it had time
	over    time.Duration               // the longest that a call outlived its deadline
	last    map[string]time.Time        // of admits
}

// loadCapacity is how much the buckets of a load hold. A unit leaks in 80 s.
const loadCapacity = 100_000

// startLoad starts callers, each of whom goes from key to key.
func startLoad(t *testing.T, s *Store, callers int, timeout time.Duration, keys ...string) *load {
	t.Helper()
	l := &load{
		limit: newLeaky(t, s, "load", limits.Rate{Burst: loadCapacity, Count: 1, Per: 80 * sec}), timeout: timeout,
		stop: make(chan struct{}), granted: map[string]int64{}, unknown: map[string]int64{}, gone: map[string]int64{},
		failed: map[string]map[string]int64{}, last: map[string]time.Time{},
	}
	for i := range callers {
		l.wg.Go(func() {
			for j := i; ; j++ {
				select {
				case <-l.stop:
					return
				case <-time.After(2 * ms):
					l.call(keys[j%len(keys)])
				}
			}
		})
	}
	return l
}

func (l *load) call(key string) {
	ctx, cancel := context.WithTimeout(bg, l.timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	began := time.Now()
	res, err := l.limit.Take(ctx, key, 1)
	over := time.Since(deadline)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = max(l.over, over)
	switch {
	case errors.Is(err, ErrAmbiguous):
		l.unknown[key]++
		if began.After(l.asked) && !errors.Is(err, context.DeadlineExceeded) {
			l.asked = began
		}
	case err == context.DeadlineExceeded:
		l.gone[key]++
	case err != nil:
		if l.failed[key] == nil {
			l.failed[key] = map[string]int64{}
		}
		l.failed[key][reason(err)]++
	case res.Allowed():
		l.granted[key]++
		l.last[key] = time.Now()
	}
}

// reason returns an error without what differs from call to call.
func reason(err error) string {
	var server *ServerError
	switch {
	case errors.As(err, &server):
		return server.Code
	case strings.Contains(err.Error(), "refused"):
		return "refused"
	}
	return err.Error()
}

// grants returns how many were admitted for key so far.
func (l *load) grants(key string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.granted[key]
}

// end stops the callers.
func (l *load) end() {
	close(l.stop)
	l.wg.Wait()
}

// sum adds up what is counted by key.
func sum(counts map[string]int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// reasons adds up the failures of keys.
func (l *load) reasons(keys ...string) map[string]int64 {
	all := map[string]int64{}
	for _, key := range keys {
		for why, n := range l.failed[key] {
			all[why] += n
		}
	}
	return all
}

// counted returns what the server says that it admitted for key.
func (l *load) counted(t *testing.T, key string) int64 {
	t.Helper()
	res, err := l.limit.Take(bg, key, 0)
	if err != nil {
		t.Fatal(err)
	}
	return loadCapacity - res.Remaining
}

// The server is out of reach for ten seconds: connections are rejected, or nothing
// comes through. Callers are told by their deadlines, nothing is admitted, and
// afterwards all goes on without anybody's help.
func TestLongCut(t *testing.T) {
	needLong(t)
	for name, fault := range map[string]redistest.Fault{
		"refused":    {Refuse: true},
		"calls lost": {DropCalls: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := redistest.NewProxy(t, server.Addr)
			far := newBackend(t, p.Addr)
			l := startLoad(t, far.store(t), 16, 200*ms, "k")
			redistest.Eventually(t, "grants", func() bool { return l.grants("k") > 100 })
			p.Set(fault)
			if fault.Refuse {
				p.Reset()
			}
			time.Sleep(sec)
			before := l.grants("k")
			time.Sleep(9 * sec)
			during := l.grants("k") - before
			p.Set(redistest.Fault{})
			healed := time.Now()
			redistest.Eventually(t, "grants", func() bool { return l.grants("k") > before })
			again := time.Since(healed)
			time.Sleep(sec)
			l.end()
			got := l.counted(t, "k")
			if during != 0 || got < l.grants("k") || got > l.grants("k")+sum(l.unknown) {
				t.Errorf("%d granted while it was away; in all %d granted, %d unknown, the server counted %d",
					during, l.grants("k"), sum(l.unknown), got)
			}
			if l.over > 5*sec {
				t.Errorf("a call outlived its deadline by %v", l.over)
			}
			t.Logf("%d granted, %d unknown, %d gone, %s, the server counted %d; latest call %v after its deadline; granted again after %v",
				l.grants("k"), sum(l.unknown), sum(l.gone), sorted(l.reasons("k")), got, l.over.Round(ms/10), again.Round(ms))
		})
	}
}

// A million keys cost what they should, and none is left when its time has ended.
func TestLongMillionKeys(t *testing.T) {
	needLong(t)
	const keys = 1_000_000
	server := redistest.Start(t)
	b := newBackend(t, server.Addr)
	b.prefix = "s"
	s := b.store(t)
	admin := server.Dial(t)
	number := func(field string) int64 {
		n, err := strconv.ParseInt(redistest.Info(admin, field), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	// How many keys there are, and how many of them have an expiry.
	space := func() (n, expire int64) {
		_, _ = fmt.Sscanf(redistest.Info(admin, "db0"), "keys=%d,expires=%d", &n, &expire)
		return n, expire
	}
	// One of each other kind first: its key has an expiry, but for a last token.
	log, fixed := newLog(t, s, "soak", 5, sec), newFixed(t, s, "soak", FixedConfig{Limit: 5, Window: sec})
	sem := newSemaphore(t, s, "soak", 5, SemaphoreConfig{Lease: sec})
	pacer := newPacer(t, s, "soak", 1, sec, PacerConfig{})
	for range 3 {
		for _, take := range []func() error{
			func() error { _, err := log.Take(bg, "k", 1); return err },
			func() error { _, err := fixed.Take(bg, "k", 1); return err },
			func() error { asked(t, sem, s.unique(), 1); return nil },
			func() error { _, err := pacer.Reserve(bg, 1, time.Minute); return err },
		} {
			if err := take(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n, expire := space(); n != 6 || expire != 5 {
		t.Errorf("%d keys, %d of them expire; want 6 and 5", n, expire)
	}
	l := newLeaky(t, s, "soak", limits.Rate{Burst: 2, Count: 1, Per: 90 * sec})
	redistest.Eventually(t, "only the token is left", func() bool { n, _ := space(); return n == 1 })
	before, began := number("used_memory"), time.Now()
	var next, bytes atomic.Int64
	var wg sync.WaitGroup
	for range 256 {
		wg.Go(func() {
			for i := next.Add(1); i <= keys; i = next.Add(1) {
				key := strconv.FormatInt(i, 10)
				bytes.Add(int64(len(s.key("b1", "soak", key, ""))))
				if res, err := l.Take(bg, key, 1); err != nil || !res.Allowed() {
					t.Errorf("%s: %+v, %v", key, res, err)
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	n, expire := space()
	after := number("used_memory")
	if n != keys+1 || expire != keys {
		t.Errorf("%d keys, %d of them expire", n, expire)
	}
	each := float64(after-before) / keys
	t.Logf("%d keys in %v; %.1f bytes each, of which %.1f are the key", n-1, took.Round(ms), each, float64(bytes.Load())/keys)
	time.Sleep(max(0, 90*sec+sec-time.Since(began.Add(took))))
	redistest.Eventually(t, "only the token is left", func() bool { n, _ := space(); return n == 1 })
	t.Logf("all but the token were gone %v after the last call; %d bytes above the beginning",
		time.Since(began.Add(took)).Round(ms), number("used_memory")-before)
}

// sorted returns counts as text.
func sorted(counts map[string]int64) string {
	if len(counts) == 0 {
		return "no error"
	}
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", why, counts[why]))
	}
	return strings.Join(parts, ", ")
}
