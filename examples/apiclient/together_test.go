package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis"
)

// together3 makes a run of three instances that share what is in a Redis.
func together3(redis *miniredis.Miniredis, more ...string) []string {
	return append([]string{"-redis", redis.Addr(), "-instances", "3"}, more...)
}

// itemsOf reads the files of all instances, which must have each item once.
func (e exited) itemsOf(t *testing.T, instances int) map[int]string {
	t.Helper()
	var all strings.Builder
	for i := range instances {
		data, err := os.ReadFile(filepath.Join(e.dir, "items.jsonl."+strconv.Itoa(i+1)))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	return readItems(t, all.String())
}

// What several processes do together keeps to one limit, nothing is lost or
// fetched twice, and nothing stays in the Redis.
func TestBinaryTogether(t *testing.T) {
	redis := miniredis.RunT(t)
	e := runBinary(t, together3(redis, "-n", "100", "-rate", "100", "-json")...)
	e.wantStatus(t, 0)
	var runs map[string]sum
	if err := json.Unmarshal([]byte(e.stdout), &runs); err != nil {
		t.Fatalf("stdout is not one JSON object: %v\n%s", err, e.stdout)
	}
	s := runs["gate"]
	// How even the calls were is for the machine to answer for; see TestGateRun. Limits
	// of each instance alone would be corrected by what the server says.
	if n := redis.CommandCount(); n < 300 {
		t.Errorf("the Redis was asked %d times for 100 slots, permits and their return", n)
	}
	if s.Calls != 100 || s.Lost != 0 || s.MaxInFlight > 10 || s.AllowedPerPeriod != 110 || s.MostPerPeriod > 110 ||
		s.RateAllowed != 100 || s.Ideal != 1 || s.RateDelivered > 106 {
		t.Errorf("%+v", s)
	}
	var accepted, throttled int64
	for i, p := range s.Instances {
		if p.Instance != i+1 || p.Lost != 0 || p.Ended != "" || p.Accepted < 33 {
			t.Errorf("%+v", p)
		}
		accepted, throttled = accepted+p.Accepted, throttled+p.Throttled
	}
	if len(s.Instances) != 3 || accepted+throttled != s.Attempts || throttled != s.Throttled {
		t.Errorf("%d accepted, %d throttled: %+v", accepted, throttled, s)
	}
	if items := e.itemsOf(t, 3); len(items) != 100 {
		t.Errorf("%d items", len(items))
	}
	if keys := redis.Keys(); len(keys) != 0 {
		t.Errorf("left in the Redis: %q", keys)
	}
}

func TestBinaryTogetherTable(t *testing.T) {
	e := runBinary(t, together3(miniredis.RunT(t), "-n", "6", "-out=")...)
	e.wantStatus(t, 0)
	for _, part := range []string{
		"3 instances: 0/6 done, ", "3 instances: 6/6 done, ",
		"6 items at 100/s, at most 10 in flight, by 3 processes of 64 workers that share these limits\n",
		"\ninstance          share   accepted       429s       lost\n1                     2 ",
		"Together they fetched 6 of 6 items in ",
	} {
		if !strings.Contains(e.stdout, part) {
			t.Errorf("no %q in\n%s", part, e.stdout)
		}
	}
	if e.stderr != "" {
		t.Errorf("stderr: %s", e.stderr)
	}
	if left, err := os.ReadDir(e.dir); err != nil || len(left) != 0 {
		t.Errorf("an empty -out wrote %v, %v", left, err)
	}
}

// Limits in a Redis for one process alone, of which nothing stays there.
func TestBinaryOneInstance(t *testing.T) {
	redis := miniredis.RunT(t)
	e := runBinary(t, "-redis", redis.Addr(), "-n", "10", "-share", "2/2", "-naive=false")
	e.wantStatus(t, 0)
	items := e.items(t)
	for _, id := range []int{1, 3, 5, 7, 9} {
		if items[id] == "" {
			t.Errorf("no item %d", id)
		}
	}
	if len(items) != 5 || !strings.Contains(e.stdout, "Through the gate 5 of 5 items took ") {
		t.Errorf("%d items\n%s", len(items), e.stdout)
	}
	if keys := redis.Keys(); len(keys) != 0 {
		t.Errorf("left in the Redis: %q", keys)
	}
}

// A budget that has a name may be in use by other processes, which start and end at any
// time: its numbers include theirs.
func TestBinaryNamedBudgetStays(t *testing.T) {
	redis := miniredis.RunT(t)
	for _, more := range [][]string{{"-instances", "2"}, {"-naive=false"}} {
		args := append([]string{"-redis", redis.Addr(), "-name", "ours*", "-n", "4", "-out="}, more...)
		runBinary(t, args...).wantStatus(t, 0)
		if n := len(redis.Keys()); n == 0 {
			t.Errorf("%v: the budget is gone", more)
		}
	}
}

func TestBinaryRedisIsNotThere(t *testing.T) {
	e := runBinary(t, "-redis", "127.0.0.1:1", "-instances", "3")
	e.wantStatus(t, 1)
	if e.stdout != "" || !strings.HasPrefix(e.stderr, "apiclient: -redis 127.0.0.1:1: it does not answer: ") || strings.Count(e.stderr, "\n") != 1 {
		t.Errorf("stdout %q, stderr %q", e.stdout, e.stderr)
	}
	if left, err := os.ReadDir(e.dir); err != nil || len(left) != 0 {
		t.Errorf("left %v behind, %v", left, err)
	}
}

// A Redis that goes and comes back costs time and no item.
func TestBinaryRedisComesBack(t *testing.T) {
	redis := miniredis.RunT(t)
	p := startBinary(t, "stdout", together3(redis, "-n", "150")...)
	p.until(t, "3 instances: ")
	for len(redis.Keys()) == 0 { // they have begun
		time.Sleep(time.Millisecond)
	}
	redis.Close()
	p.until(t, "instance ") // does not answer, or rejects: a miniredis that ends answers a script with its own error
	if err := redis.Restart(); err != nil {
		t.Fatal(err)
	}
	e := p.wait(t)
	e.wantStatus(t, 0)
	for _, part := range []string{": no calls until it does, for at most 10s (", " answers again, after "} {
		if !strings.Contains(e.stdout, part) {
			t.Errorf("no %q in\n%s", part, e.stdout)
		}
	}
	if items := e.itemsOf(t, 3); len(items) != 150 {
		t.Errorf("%d items", len(items))
	}
}

// Signals go on to the instances, each once: the first lets them finish, and the
// second does not.
func TestBinaryTogetherInterrupted(t *testing.T) {
	for signals := 1; signals <= 2; signals++ {
		t.Run(fmt.Sprint(signals), func(t *testing.T) {
			p := startBinary(t, "stdout", together3(miniredis.RunT(t), "-n", "100000")...)
			p.until(t, "3 instances: ")
			p.signal(t, os.Interrupt)
			if signals == 2 {
				p.signal(t, syscall.SIGTERM)
			}
			e := p.wait(t)
			e.wantStatus(t, 130)
			if !strings.Contains(e.stdout, "\ninterrupted: ") || !strings.Contains(e.stdout, "Together they fetched ") {
				t.Errorf("stdout\n%s", e.stdout)
			}
			if twice := strings.Contains(e.stdout, "interrupted again: "); twice != (signals == 2) {
				t.Errorf("interrupted again: %v\n%s", twice, e.stdout)
			}
		})
	}
}

// childrenOf returns the processes that a process has started, on Linux.
func childrenOf(pid int) (children []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // by the thread that started them
	for _, list := range lists {
		data, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// An instance that is killed loses its own items, not those of others, and what it
// held comes back.
func TestBinaryInstanceIsKilled(t *testing.T) {
	redis := miniredis.RunT(t)
	p := startBinary(t, "stdout", together3(redis, "-n", "90")...)
	p.until(t, "3 instances: ")
	pid := p.cmd.Process.Pid
	for len(redis.Keys()) == 0 { // they have begun
		time.Sleep(time.Millisecond)
	}
	children := childrenOf(pid)
	if len(children) == 0 {
		p.signal(t, os.Interrupt)
		p.wait(t)
		t.Skip("which are its children is not known here")
	}
	if err := syscall.Kill(children[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e := p.wait(t)
	e.wantStatus(t, 1)
	for _, part := range []string{
		" ended with signal: killed: its items are lost, and its permits come back within 5s",
		"10 of 10 permits are back, ", "\nitems lost                               30\n", "Together they fetched 60 of 90 items",
	} {
		if !strings.Contains(e.stdout, part) {
			t.Errorf("no %q in\n%s", part, e.stdout)
		}
	}
}

// When the process that started them is killed, all instances end: their next line of
// progress has no reader.
func TestBinaryTogetherIsKilled(t *testing.T) {
	redis := miniredis.RunT(t)
	p := startBinary(t, "stdout", together3(redis, "-n", "100000")...)
	p.until(t, "3 instances: ")
	for redis.CurrentConnectionCount() < 4 {
		time.Sleep(time.Millisecond)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.wait(t)
	for end := time.Now().Add(time.Minute); redis.CurrentConnectionCount() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("they still ask the Redis")
		}
	}
}

// What is reported about a Redis that does not answer, and when it is given up.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported []string
		s := &shared{addr: "h:1", notify: func(text string) { reported = append(reported, text) }}
		away := errors.New("away")
		judge := func(err error, again bool, want error) {
			t.Helper()
			got, e := s.judge(t.Context(), err, true)
			if got != again || !errors.Is(e, want) {
				t.Errorf("%v: again %v, %v; want %v, %v", err, got, e, again, want)
			}
		}
		judge(nil, false, nil)
		for _, err := range []error{limits.ErrTimeout, limits.ErrTooLarge, sluiceredis.ErrData} {
			judge(err, false, err)
		}
		judge(away, true, nil)
		time.Sleep(patience)
		judge(away, true, nil)
		judge(nil, false, nil)
		judge(&sluiceredis.ServerError{Code: "LOADING", Message: "LOADING it"}, true, nil)
		if _, err := s.judge(t.Context(), nil, false); err != nil || s.since.IsZero() {
			t.Error("a success that is not of the Redis ended the wait for it")
		}
		time.Sleep(patience + 1)
		judge(away, false, away)
		var gone *awayError
		if _, err := s.judge(t.Context(), away, true); !errors.As(err, &gone) || !strings.Contains(err.Error(), "the Redis at h:1 has not answered for 10s") {
			t.Errorf("%v", err)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if again, err := s.judge(cancelled, away, true); again || err != away {
			t.Errorf("cancelled: %v, %v", again, err)
		}
		want := []string{
			"the Redis at h:1 does not answer: no calls until it does, for at most 10s (away)",
			"the Redis at h:1 answers again, after 10s",
			"the Redis at h:1 refuses: no calls until it does, for at most 10s (sluiceredis: the server replied: LOADING it)",
		}
		if strings.Join(reported, "\n") != strings.Join(want, "\n") {
			t.Errorf("reported\n%s", strings.Join(reported, "\n"))
		}
	})
}
