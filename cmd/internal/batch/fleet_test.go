//go:build unix

package batch

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/sluice-go/sluice/cmd/internal/queue"
)

// A natsServer is one in this process, with its data on disk.
type natsServer struct {
	*server.Server
	options server.Options
	url     string // of a queue
}

func startNATS(t *testing.T, change ...func(*server.Options)) *natsServer {
	t.Helper()
	n := &natsServer{options: server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true}}
	for _, f := range change {
		f(&n.options)
	}
	n.start(t)
	n.url = n.ClientURL() + "/orders"
	t.Cleanup(n.stop)
	return n
}

func (n *natsServer) start(t *testing.T) {
	t.Helper()
	var err error
	options := n.options
	if n.Server, err = server.NewServer(&options); err != nil {
		t.Fatal(err)
	}
	n.Start()
	if !n.ReadyForConnections(time.Minute) {
		t.Fatal("the queue does not start")
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(n.ClientURL(), "nats://"), ":")
	fmt.Sscan(port, &n.options.Port)
}

func (n *natsServer) stop() { n.Shutdown(); n.WaitForShutdown() }

// delete deletes the queue.
func (n *natsServer) delete(t *testing.T) {
	conn, err := nats.Connect(n.ClientURL())
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err == nil {
		err = js.DeleteStream(t.Context(), "orders")
	}
	if err != nil {
		t.Error(err)
	}
}

// stream is the stream of the queue.
func (n *natsServer) stream(t *testing.T) jetstream.Stream {
	t.Helper()
	conn, err := nats.Connect(n.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// work is a worker of the queue.
func (n *natsServer) work(t *testing.T) (*queue.Queue, *queue.Worker) {
	t.Helper()
	at, err := queue.Parse(n.url)
	if err != nil {
		t.Fatal(err)
	}
	q, err := queue.Open(at, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	w, err := q.Work(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return q, w
}

// fill fills the queue.
func (n *natsServer) fill(t *testing.T, input string, flags ...string) {
	t.Helper()
	runIn(t, t.TempDir(), input, append([]string{"-queue", n.url, "-fill", "-"}, flags...)...).want(t, 0, "", "put into the queue")
}

// oks returns the number of lines of -jsonl for each item in which it is ok.
func oks(t *testing.T, files ...string) map[string]int {
	t.Helper()
	ok := make(map[string]int)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var r record
			if strings.HasSuffix(line, "\n") && json.Unmarshal([]byte(line), &r) != nil {
				t.Errorf("%s has %q", file, line)
			} else if r.OK {
				ok[r.Item]++
			}
		}
	}
	return ok
}

// wantOnce fails the test unless so many items are ok, each once.
func wantOnce(t *testing.T, n int, files ...string) {
	t.Helper()
	all := oks(t, files...)
	for item, times := range all {
		if times != 1 {
			t.Errorf("%s has %d lines", item, times)
		}
	}
	if len(all) != n {
		t.Errorf("%d items are ok, want %d", len(all), n)
	}
}

func TestFleet(t *testing.T) {
	n := startNATS(t)
	dir := t.TempDir()
	for _, tt := range []struct {
		name   string
		input  string
		args   []string
		status int
		stdout string
		stderr string
	}{
		{"missing", "", []string{"--", "echo"}, 2, "", "there is no queue " + n.url + ": -fill makes it"},
		{"empty", "\n\n", []string{"-fill", "-"}, 0, "", "0 put into the queue " + n.url + "\n"},
		{"nothing to do", "", []string{"--", "echo"}, 0, "", "the queue has no items\n"},
		{"any text and JSON", "a b\n{\"id\":\"x\",\"n\":1}\n[3]\n", []string{"-fill", "-"}, 0, "", "3 put into"},
		{"the same ids", "a b\n{\"id\":\"x\",\"n\":2}\n[4]\n", []string{"-fill", "-"}, 0, "", "1 put into the queue " + n.url + ", 2 known by their ids\n"},
		{"work", "", []string{"-jobs", "1", "-jsonl", "lines", "--", "echo", "<{}>"}, 0, "<a b>\n<{\"id\":\"x\",\"n\":1}>\n<[3]>\n<[4]>\n", "4 ok, 0 failed"},
		{"all are done", "a b\n", []string{"-fill", "-"}, 0, "", "0 put into the queue " + n.url + ", 1 known"},
		{"no JSON", "no\n{\"id\":7,\"user\":{\"name\":\"Ann\"}}\n", []string{"-fill", "-"}, 0, "", "2 put"},
		{"fields", "", []string{"-json", "-jsonl", "lines", "--", "echo", "{.id}{.user.name}{.none}"}, 1, "7Ann\n", "no failed: the item is not a JSON object (-json)\n"},
		{"dead letters", "", []string{"-dead", "list"}, 0, `{"id":"no","item":"no","error":"the item is not a JSON object (-json)","attempts":1,"at":`, "1 dead letters\n"},
		{"only some are put back", "", []string{"-dead", "retry", ":::", "y"}, 0, "", "0 dead letters put back\n"},
		{"they are put back", "", []string{"-dead", "retry"}, 0, "", "1 dead letters put back\n"},
		{"and fail again", "", []string{"-retries", "0", "-jsonl", "lines", "--", "false"}, 1, "", "; -dead list shows those"},
		{"and are done", "", []string{"-dead", "retry", ":::", "no"}, 0, "", "1 dead letters put back\n"},
		{"with another command", "", []string{"-jsonl", "lines", "--", "echo"}, 0, "no\n", "1 ok, 0 failed"},
		{"no dead letters", "", []string{"-dead", "list"}, 0, "", "0 dead letters\n"},
		{"too large", "ok\n" + strings.Repeat("x", 2<<20) + "\n", []string{"-fill", "-"}, 1, "", "1 put into the queue " + n.url + ", 1 failed\n"},
		{"no rate, no log", "", []string{"-log", "x", "--", "echo"}, 2, "", "-log and -queue: give only one of them"},
		{"no items", "", []string{"echo", ":::", "a"}, 2, "", "-fill puts items into the queue"},
		{"no command", "", []string{"-fill", "-", "--", "echo"}, 2, "", "-fill and -dead run nothing"},
	} {
		got := runIn(t, dir, tt.input, append([]string{"-queue", n.url}, tt.args...)...)
		ok := got.stdout == tt.stdout || strings.HasSuffix(tt.stdout, ":") && strings.HasPrefix(got.stdout, tt.stdout)
		if got.status != tt.status || !ok || !strings.Contains(got.stderr, tt.stderr) {
			t.Fatalf("%s: status %d, stdout %q, stderr\n%s", tt.name, got.status, got.stdout, got.stderr)
		}
	}
	wantOnce(t, 6, filepath.Join(dir, "lines"))
}

// What is wrong with a server is said before anything begins, and no password is shown.
func TestFleet_Servers(t *testing.T) {
	n := startNATS(t, func(o *server.Options) { o.Username, o.Password = "ann", "SECRET" })
	bare := startNATS(t, func(o *server.Options) { o.JetStream = false })
	dir := t.TempDir()
	withPassword := strings.Replace(n.url, "//", "//ann:SECRET@", 1)
	if err := os.WriteFile(filepath.Join(dir, "url"), []byte(withPassword+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(auth, url string, status int, says string) {
		t.Helper()
		t.Setenv(queue.AuthVariable, auth)
		got := runIn(t, dir, "a\n", "-queue", url, "-fill", "-")
		if got.status != status || !strings.Contains(got.stderr, says) || strings.Contains(got.stderr, "SECRET") {
			t.Errorf("%s: status %d, %s", url, got.status, got.stderr)
		}
	}
	run("", n.url, 2, "rejects the credentials")
	run("ann:wrong", n.url, 2, "rejects the credentials")
	run("", withPassword, 2, "a password on the command line is seen by others")
	run("", "@none", 2, "no such file")
	run("ann:SECRET", n.url, 0, "1 put into the queue")
	run("", "@url", 0, "1 known by their ids")
	run("", n.url+"?creds=none", 2, "none")
	run("", bare.url, 2, "has no JetStream: start it with -js")
	run("", "nats://127.0.0.1:1/orders", 2, "no NATS server answers at nats://127.0.0.1:1\n")
	run("", "http://127.0.0.1:1/orders", 2, "want nats://host/name")
	run("", "nats://127.0.0.1:1/a.b", 2, "want nats://host/name")
	runIn(t, dir, "", "-queue", "@url", "-redis", "redis://127.0.0.1:1", "--", "echo").want(t, 2, "", "-redis: no Redis answers at 127.0.0.1:1: ")
	runIn(t, dir, "", "-queue", "@url", "-redis", "redis://:SECRET@127.0.0.1:1", "--", "echo").want(t, 2, "", redisVariable)
}

// A creds file of NATS, with no more rights than the documentation names, is enough for everything.
func TestFleet_Creds(t *testing.T) {
	sign := func(claims jwt.Claims, by nkeys.KeyPair) string {
		t.Helper()
		text, err := claims.Encode(by)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	operator, _ := nkeys.CreateOperator()
	account, _ := nkeys.CreateAccount()
	user, _ := nkeys.CreateUser()
	public := func(k nkeys.KeyPair) string { key, _ := k.PublicKey(); return key }
	accountClaims := jwt.NewAccountClaims(public(account))
	accountClaims.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: jwt.NoLimit, MemoryStorage: jwt.NoLimit}
	system, _ := nkeys.CreateAccount()
	resolver := new(server.MemAccResolver)
	for _, claims := range []*jwt.AccountClaims{accountClaims, jwt.NewAccountClaims(public(system))} {
		if err := resolver.Store(claims.Subject, sign(claims, operator)); err != nil {
			t.Fatal(err)
		}
	}
	userClaims := jwt.NewUserClaims(public(user))
	userClaims.Permissions.Pub.Allow = jwt.StringList{"$JS.API.>", "$JS.ACK.>", "orders.*"}
	userClaims.Permissions.Sub.Allow = jwt.StringList{"_INBOX.>"}
	seed, _ := user.Seed()
	creds, err := jwt.FormatUserConfig(sign(userClaims, account), seed)
	if err != nil {
		t.Fatal(err)
	}
	n := startNATS(t, func(o *server.Options) {
		o.TrustedKeys, o.AccountResolver, o.SystemAccount = []string{public(operator)}, resolver, public(system)
	})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "creds"), creds, 0o600); err != nil {
		t.Fatal(err)
	}
	url := n.url + "?creds=creds"
	runIn(t, dir, "a\nb\n", "-queue", n.url, "-fill", "-").want(t, 2, "", "rejects the credentials")
	runIn(t, dir, "a\nb\n", "-queue", url, "-fill", "-").want(t, 0, "", "2 put")
	runIn(t, dir, "", "-queue", url, "-retries", "0", "--", "test", "a", "=").want(t, 1, "", "1 ok, 1 failed")
	runIn(t, dir, "", "-queue", url, "-dead", "retry").want(t, 0, "", "1 dead letters put back")
	runIn(t, dir, "", "-queue", url, "--", "echo").want(t, 0, "b\n", "1 ok")
}

// A target answers calls of /item, and can hold them.
type target struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string]int
	each  func(item string, n int) // is called with the number of calls so far
}

func startTarget(t *testing.T, each func(item string, n int)) *target {
	a := &target{calls: make(map[string]int), each: each}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		item := strings.TrimPrefix(r.URL.Path, "/")
		a.mu.Lock()
		a.calls[item]++
		n := 0
		for _, times := range a.calls {
			n += times
		}
		a.mu.Unlock()
		a.each(item, n)
		fmt.Fprintln(w, item)
	}))
	t.Cleanup(a.Close)
	return a
}

// work is the command line of a job that works on the queue.
func (a *target) work(n *natsServer, lines string, flags ...string) []string {
	return append([]string{"-queue", n.url, "-jobs", "4", "-jsonl", lines, "-url", a.URL + "/{}"}, flags...)
}

// A job is killed again and again while it holds items. They go to others when its lease ends, none is
// lost, and none has two lines in its file when it begins again.
func TestFleet_Killed(t *testing.T) {
	kills := 3
	if os.Getenv("SLUICE_FULL") != "" {
		kills = 20
	}
	items := 15 * (kills + 1)
	n := startNATS(t)
	n.fill(t, numbers(items), "-lease", "1s")
	stuck := make(chan struct{}, 1)
	release := make(chan struct{})
	a := startTarget(t, func(_ string, n int) {
		if n%15 == 0 && n <= 15*kills {
			stuck <- struct{}{}
			<-release // the job that called is killed now
		}
	})
	dir := t.TempDir()
	for range kills {
		p := start(t, dir, a.work(n, "lines")...)
		<-stuck
		p.signal(t, syscall.SIGKILL)
		p.wait(t)
	}
	close(release)
	p := start(t, dir, a.work(n, "lines")...)
	if status := p.wait(t); status != 0 {
		t.Errorf("status %d: %s", status, p.stderr)
	}
	wantOnce(t, items, filepath.Join(dir, "lines"))
}

// Another job takes over what a killed one had.
func TestFleet_TakesOver(t *testing.T) {
	const items = 40
	n := startNATS(t)
	n.fill(t, numbers(items), "-lease", "1s")
	stuck, release := make(chan struct{}), make(chan struct{})
	a := startTarget(t, func(_ string, n int) {
		if n == 10 {
			close(stuck)
			<-release
		}
	})
	dir := t.TempDir()
	one := start(t, dir, a.work(n, "one")...)
	<-stuck // it has items
	two := start(t, dir, a.work(n, "two")...)
	one.signal(t, syscall.SIGKILL)
	one.wait(t)
	close(release)
	if status := two.wait(t); status != 0 {
		t.Errorf("status %d: %s", status, two.stderr)
	}
	// What cannot be known: that the killed one had written a line that the queue has not heard of.
	all := oks(t, filepath.Join(dir, "one"), filepath.Join(dir, "two"))
	twice := 0
	for _, times := range all {
		twice += times - 1
	}
	if len(all) != items || twice > 4 {
		t.Errorf("%d of %d items are ok, %d twice", len(all), items, twice)
	}
}

// An item that is delivered again to a job whose -jsonl has its line is not run again, unless the line is from
// a queue of that name that was deleted.
func TestFleet_Recognized(t *testing.T) {
	n := startNATS(t)
	n.fill(t, "a\nb\nc\n", "-lease", "1s")
	q, w := n.work(t)
	taken, err := w.Take(nil, 3)
	if err != nil || len(taken) != 3 {
		t.Fatalf("%d items, %v", len(taken), err)
	}
	q.Close() // before it says anything about them
	w.Close(0)
	var lines strings.Builder
	for i, it := range taken {
		made := it.Queue
		if i == 2 {
			made = "2026-11-27T10:00:00.000000001Z"
		}
		fmt.Fprintf(&lines, `{"seq":%d,"id":%q,"queue":%q,"item":%q,"ok":%v}`+"\n", it.Seq, it.ID, made, it.Text, i != 1)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lines"), []byte(lines.String()+`{"seq":`), 0o666); err != nil {
		t.Fatal(err)
	}
	runIn(t, dir, "", "-queue", n.url, "-jsonl", "lines", "--", "echo").want(t, 0, "c\n", "2 of the queue were delivered again and had their line already", "0 items and 1 dead letters")
	if all := oks(t, filepath.Join(dir, "lines")); len(all) != 2 || all["a"] != 1 || all["c"] != 2 {
		t.Errorf("lines: %v", all)
	}
}

// An item that no job says anything about, as if it kills each, is run 20 times. Then it is a dead letter. Those
// that give it back, as at a Ctrl-C, are no part of the 20.
func TestFleet_DeliveredTooOften(t *testing.T) {
	n := startNATS(t)
	n.fill(t, "a\n")
	dir := t.TempDir()
	deliver := func(times int) {
		t.Helper()
		c, err := n.stream(t).Consumer(t.Context(), "workers")
		if err != nil {
			t.Fatal(err)
		}
		for range times {
			msg, err := c.Next()
			if err != nil {
				t.Fatal(err)
			}
			_ = msg.Nak() // without a word of the job, as at the end of its lease
		}
	}
	giveBack := func(times int) {
		t.Helper()
		for i := range times {
			q, w := n.work(t)
			for again := range 1 + i%3 {
				taken, err := w.Take(nil, 1)
				if err != nil || len(taken) != 1 {
					t.Fatalf("%v, %v", taken, err)
				}
				if i%2 == 0 || again < i%3 { // otherwise Close does
					w.Return(taken[0])
				}
			}
			w.Close(0)
			q.Close()
		}
	}
	giveBack(21)
	deliver(20)
	n.fill(t, "b\n")
	runIn(t, dir, "", "-queue", n.url, "-jobs", "1", "-jsonl", "lines", "--", "echo").want(t, 1, "b\n", "a failed: it was delivered 20 times, and no job has said what came of it\n", "1 ok, 1 failed", "0 items and 1 dead letters")
	runIn(t, dir, "", "-queue", n.url, "-dead", "retry").want(t, 0, "", "1 dead letters put back")
	deliver(19)
	giveBack(4)
	runIn(t, dir, "", "-queue", n.url, "-jsonl", "lines", "--", "echo").want(t, 0, "a\n", "1 ok, 0 failed")
	wantOnce(t, 2, filepath.Join(dir, "lines"))
	if left := n.stream(t).CachedInfo().State.Msgs; left != 0 {
		t.Errorf("the queue is empty, and its stream has %d messages", left)
	}
}

// The queue is down, and loses nothing. What was done meanwhile is confirmed when it is back.
func TestFleet_QueueAway(t *testing.T) {
	n := startNATS(t)
	n.fill(t, numbers(20), "-lease", "1s")
	stuck, release := make(chan struct{}), make(chan struct{})
	a := startTarget(t, func(_ string, n int) {
		if n == 5 {
			close(stuck)
			<-release
		}
	})
	dir := t.TempDir()
	p := start(t, dir, a.work(n, "lines")...)
	<-stuck
	n.stop()
	p.stderr.until("is away; waiting for it")
	close(release)
	n.start(t)
	if status := p.wait(t); status != 0 || !strings.Contains(p.stderr.String(), "the queue is back\n") {
		t.Errorf("status %d: %s", status, p.stderr)
	}
	wantOnce(t, 20, filepath.Join(dir, "lines"))
}

// The queue is deleted: the job ends, and says why.
func TestFleet_QueueGone(t *testing.T) {
	n := startNATS(t)
	n.fill(t, numbers(20))
	a := startTarget(t, func(_ string, times int) {
		if times == 5 {
			n.delete(t)
		}
	})
	p := start(t, t.TempDir(), a.work(n, "lines")...)
	if status := p.wait(t); status != 3 || !strings.Contains(p.stderr.String(), "ended early: there is no queue") {
		t.Errorf("status %d: %s", status, p.stderr)
	}
}

// Calls wait for a Redis that is down.
func TestFleet_RedisAway(t *testing.T) {
	n, m := startNATS(t), miniredis.RunT(t)
	n.fill(t, numbers(20))
	a := startTarget(t, func(_ string, n int) {
		if n == 5 {
			m.Close()
		}
	})
	dir := t.TempDir()
	p := start(t, dir, a.work(n, "lines", "-redis", "redis://"+m.Addr(), "-rate", "1000/s")...)
	p.stderr.until("the Redis is away; calls wait for it")
	if err := m.Restart(); err != nil {
		t.Fatal(err)
	}
	if status := p.wait(t); status != 0 || !strings.Contains(p.stderr.String(), "the Redis is back\n") {
		t.Errorf("status %d: %s", status, p.stderr)
	}
	wantOnce(t, 20, filepath.Join(dir, "lines"))
}

// At a Ctrl-C a job finishes what it calls, and gives the rest to others immediately.
func TestFleet_Interrupted(t *testing.T) {
	n := startNATS(t)
	n.fill(t, numbers(20))
	stuck, release := make(chan struct{}), make(chan struct{})
	a := startTarget(t, func(_ string, n int) {
		if n == 5 {
			close(stuck)
		}
		if n >= 5 {
			<-release
		}
	})
	dir := t.TempDir()
	p := start(t, dir, a.work(n, "lines")...)
	<-stuck
	p.signal(t, syscall.SIGINT)
	p.stderr.until("interrupted: ")
	close(release)
	if status := p.wait(t); status != 130 || !strings.Contains(p.stderr.String(), "what is left is in the queue: the same command goes on\n") {
		t.Errorf("status %d: %s", status, p.stderr)
	}
	runIn(t, dir, "", "-queue", n.url, "-jsonl", "lines", "--", "true").want(t, 0, "", " ok, 0 failed")
	wantOnce(t, 20, filepath.Join(dir, "lines"))
}

// Jobs of a queue share one pacer, which -control changes.
func TestFleet_SharedRate(t *testing.T) {
	n, m := startNATS(t), miniredis.RunT(t)
	n.fill(t, numbers(3))
	a := startTarget(t, func(string, int) {})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "control"), []byte("rate 500/s"), 0o666); err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, a.work(n, "lines", "-redis", "redis://"+m.Addr(), "-rate", "1/m", "-control", "control")...)
	p.stderr.until("-control: rate 500/s")
	if status := p.wait(t); status != 0 {
		t.Errorf("status %d: %s", status, p.stderr)
	}
	if keys := strings.Join(m.Keys(), " "); !strings.Contains(keys, "batch-orders") {
		t.Errorf("the Redis has %s", keys)
	}
	wantOnce(t, 3, filepath.Join(dir, "lines"))
}

// A large item arrives as it was put, in a body of JSON.
func TestFleet_LargeItems(t *testing.T) {
	n := startNATS(t)
	items := []string{`{"id":1,"text":"` + strings.Repeat("é", 200_000) + `"}`, `{"id":2,"text":"say \"hi\""}`}
	n.fill(t, strings.Join(items, "\n"))
	var mu sync.Mutex
	var bodies []string
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		bodies = append(bodies, string(body)+r.Header.Get("Idempotency-Key"))
	}))
	defer srv.Close()
	runIn(t, t.TempDir(), "", "-queue", n.url, "-json", "-header", "Idempotency-Key: {.id}", "-body", "{}", "-url", srv.URL).want(t, 0, "", "2 ok")
	slices.Sort(bodies)
	if want := []string{items[1] + "2", items[0] + "1"}; len(bodies) != 2 || !slices.Contains(bodies, want[0]) || !slices.Contains(bodies, want[1]) {
		t.Errorf("%.200q", bodies)
	}
}
